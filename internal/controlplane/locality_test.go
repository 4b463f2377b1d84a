package controlplane_test

import (
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// placedOn returns the node of the service's live task, or "".
func placedOn(s *store.Snapshot) string {
	for row := range s.Attempts(cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: "web"}) {
		if row.Live() && row.Observed.Healthy() {
			return row.Node
		}
	}
	return ""
}

// Of equally good nodes a task goes to the one whose agent reports the image, whichever of its names the manifest uses.
func TestTasksGoWhereTheirImageIs(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for _, name := range []string{"n1", "n2", "n3", "n4"} {
			w.node(name, func(a *agent) {
				if name == "n3" {
					a.images = []string{"docker.io/library/i:latest"}
				}
			})
		}
		w.until(10*time.Second, "all nodes are ready", func(s *store.Snapshot) bool {
			ready := 0
			for e := range s.Nodes() {
				if e.Value.State == cluster.NodeReady {
					ready++
				}
			}
			return ready == 4
		})
		time.Sleep(time.Second) // in-bubble: inWorld makes one
		w.definition(1, 100)
		w.service(1, 1, 1)
		w.until(10*time.Second, "healthy", func(s *store.Snapshot) bool { return placedOn(s) != "" })
		if got := placedOn(w.server.tables.Snapshot()); got != "n3" {
			t.Errorf("the image is on n3, and the task went to %s", got)
		}
	})
}

// A task with a pinning volume waits for the node that has the volume, even if that is down. Once the node is
// forgotten, the task goes elsewhere.
func TestTasksWaitForTheirVolume(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		home := w.node("n2", func(a *agent) { a.volumes = []string{"c/web/data"} })
		w.put(p.Definition(cluster.Ref{Name: "d", Version: 1}), &cluster.TaskDefinition{
			Name: "d", Version: 1, Containers: []cluster.Container{{Name: "main", Image: "i"}},
			Volumes: []cluster.Volume{{Name: "data", Pin: true}},
		})
		w.until(10*time.Second, "both nodes are there", func(s *store.Snapshot) bool {
			_, one := s.Node("n1")
			_, two := s.Node("n2")
			return one && two
		})
		w.service(1, 1, 1)
		w.until(10*time.Second, "healthy", func(s *store.Snapshot) bool { return placedOn(s) == "n2" })
		home.kill()
		w.until(3*time.Minute, "it waits for its volume", func(s *store.Snapshot) bool {
			groups := w.server.plane.Reasons(10).Groups
			return len(groups) == 1 && strings.Contains(groups[0].Sentence, "the data of its volume web/data is on n2")
		})
		time.Sleep(time.Minute) // in-bubble: inWorld makes one
		if got := placedOn(w.server.tables.Snapshot()); got == "n1" {
			t.Error("the task left its data")
		}
		w.put(p.Host("n2"), &cluster.Host{Name: "n2", Domain: cluster.DefaultDomain, Gone: true})
		w.until(time.Minute, "it begins again", func(s *store.Snapshot) bool { return placedOn(s) == "n1" })
	})
}
