package controlplane_test

import (
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// putNeeds writes the service web, which needs the job batch, and the job check, which needs the service web.
func (w *world) putNeeds() {
	w.t.Helper()
	w.definition(1, 100)
	w.put(p.Service("c", "web"), &cluster.Service{
		Cluster: "c", Name: "web", Count: 2, Definition: cluster.Ref{Name: "d", Version: 1}, Priority: 500,
		Needs: []string{"job/batch"}, OnDisconnect: cluster.DisconnectKeep,
		Lifespan: cluster.Lifespan{Generation: 1, Created: time.Now()},
	})
	w.put(p.Job("c", "check"), &cluster.Job{
		Cluster: "c", Name: "check", Priority: 500, Submitted: time.Now(), Needs: []string{"service/web"},
		Lifespan: cluster.Lifespan{Generation: 1, Created: time.Now(), Updated: time.Now()},
		Steps:    []cluster.Step{{Name: "work", Definition: cluster.Ref{Name: "d", Version: 1}, Count: 1}},
	})
}

// attempts counts the attempts of an owner.
func attempts(s *store.Snapshot, kind cluster.Kind, name string) (n int) {
	for row := range s.Attempts(cluster.OwnerRef{Kind: kind, Cluster: "c", Name: name}) {
		if row.Number > 0 {
			n++
		}
	}
	return n
}

// waits reports whether each of n waiting tasks waits for its needs with these words.
func (w *world) waits(n int, owner, words string) bool {
	found := 0
	for _, g := range w.server.plane.Reasons(0).Groups {
		for _, task := range g.Tasks {
			if parts, _ := task.First.Parts(); parts.Owner == owner && strings.Contains(g.Sentence, words) {
				found += task.Count()
			}
		}
	}
	return found == n
}

// TestNeedsOfOwners has a service wait for a job, and another job wait for the service, also under a new leader. What
// has begun waits no more.
func TestNeedsOfOwners(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		failing := true
		w.node("n1", func(a *agent) {
			a.fails = func(task cluster.TaskID, _ int) bool {
				parts, _ := task.Parts()
				return failing && parts.Owner == "batch"
			}
		})
		w.putNeeds()
		w.until(time.Minute, "both wait for what does not exist", func(*store.Snapshot) bool {
			return w.waits(2, "web", "waits for c/job/batch (does not exist; a job is deleted some time after its") &&
				w.waits(1, "check", "waits for c/service/web (0/2 healthy)")
		})
		w.job(1, 0)
		w.until(time.Minute, "the service waits for the job that failed", func(*store.Snapshot) bool {
			return w.waits(2, "web", "waits for c/job/batch (failed: berth retry c/job/batch)")
		})
		w.server.stop()
		w.start()
		time.Sleep(time.Minute) // in-bubble: inWorld makes one
		s := w.server.tables.Snapshot()
		if _, ok := s.Rollout("c", "web"); ok || attempts(s, cluster.KindService, "web") > 0 ||
			attempts(s, cluster.KindJob, "check") > 0 {
			t.Error("under a new leader a task was placed, or a rollout began, before the needs were met")
		}
		failing = false
		e, _ := s.Job("c", "batch")
		again := *e.Value
		again.Generation++
		w.put(p.Job("c", "batch"), &again)
		w.until(time.Minute, "both ran after the job succeeded", func(s *store.Snapshot) bool {
			e, _ := s.Job("c", "check")
			return healthy(s, 1) == 2 && attempts(s, cluster.KindJob, "check") == 1 && !e.Value.NeedsMet.IsZero()
		})
		// The job is gone, and the service is stopped and started: it has begun once.
		s = w.server.tables.Snapshot()
		e, _ = s.Job("c", "batch")
		gone := *e.Value
		gone.Deleted = true
		w.put(p.Job("c", "batch"), &gone)
		for _, count := range []int{0, 2} {
			svc, _ := s.Service("c", "web")
			scaled := *svc.Value
			scaled.Count = count
			w.put(p.Service("c", "web"), &scaled)
			w.until(5*time.Minute, "the service is scaled", func(s *store.Snapshot) bool {
				return healthy(s, 1) == count
			})
		}
	})
}

// A service that is created again while the tasks of the deleted one still stop waits for its needs.
func TestNeedsOfAServiceCreatedAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1", func(a *agent) { a.lingers = func(cluster.TaskID) time.Duration { return 20 * time.Second } })
		w.definition(1, 100)
		w.service(2, 1, 1)
		w.until(time.Minute, "healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 2 })
		s := w.server.tables.Snapshot()
		e, _ := s.Service("c", "web")
		gone := *e.Value
		gone.Deleted = true
		w.put(p.Service("c", "web"), &gone)
		time.Sleep(2 * time.Second) // in-bubble: inWorld makes one
		again := *e.Value           // as draft.SetService and forget write it
		again.Generation, again.Restarted, again.Needs = 2, 2, []string{"job/none"}
		value, err := store.Encode(&again)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.engine.Commit(t.Context(), []store.Group{{Ops: []store.Op{
			{Key: p.Service("c", "web"), Value: value}, {Key: p.Rollout("c", "web"), Delete: true},
		}}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Minute) // in-bubble: inWorld makes one
		if n := healthy(w.server.tables.Snapshot(), 2); n != 0 {
			t.Errorf("%d tasks run, although job/none does not exist", n)
		}
	})
}

// Needs that are added to a job that has begun do not hold the rest of its tasks.
func TestNeedsOfAJobThatHasBegun(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1", func(a *agent) { a.endless = true })
		w.definition(1, 3000)
		w.job(2, 3)
		o := cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "c", Name: "batch"}
		live := func(s *store.Snapshot) (n int) {
			for row := range s.Attempts(o) {
				if row.Outcome == nil && row.Observed != nil {
					n++
				}
			}
			return n
		}
		w.until(time.Minute, "runs", func(s *store.Snapshot) bool { return live(s) == 1 })
		e, _ := w.server.tables.Snapshot().Job("c", "batch")
		more := *e.Value // as draft.SetJob writes it: the steps are the same, so the run continues
		more.Needs = []string{"job/none"}
		w.put(p.Job("c", "batch"), &more)
		w.node("n2", func(a *agent) { a.endless = true })
		time.Sleep(5 * time.Minute) // in-bubble: inWorld makes one
		if live(w.server.tables.Snapshot()) != 2 {
			t.Errorf("the job that had begun waits: %+v", w.server.plane.Reasons(0).Groups)
		}
	})
}
