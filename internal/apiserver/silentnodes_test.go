package apiserver

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// TestTasksOfSilentNodes checks that tasks on a down node are shown with unknown health. The message of an attempt that
// moved off a drained node is in the past tense once it has gone.
func TestTasksOfSilentNodes(t *testing.T) {
	w := busy(t)
	ref := cluster.Ref{Name: "web", Version: 1}
	waits, keeps := desired("default.web.1.0", 1, cluster.KindService, ref),
		desired("default.web.1.2", 1, cluster.KindService, ref)
	waits.OnDisconnect = cluster.DisconnectWait
	moved := desired("default.web.1.1", 2, cluster.KindService, ref)
	moved.Node = "n2"
	out := outcome(moved, cluster.StateCancelled,
		"it moves off node n2, which is drained, and runs there until its next attempt is healthy")
	out.Reason = cluster.ReasonDrain
	w.put(map[string]any{
		"node/n1": cluster.Node{
			Name: "n1", State: cluster.NodeDown, Domain: "default", Since: noon,
			Session: 1,
		},
		"state/n1/default.web.1.0":  waits,
		"state/n1/default.web.1.2":  keeps,
		"status/n1/default.web.1.2": observed(keeps, cluster.StateRunning, cluster.HealthHealthy),
		"state/n2/default.web.1.1":  moved,
		"attempt/default.web.1.1/2": out,
	})
	shown := func(id cluster.TaskID, attempt int) (all []string) {
		for _, v := range read[api.Page[api.TaskView]](t, w.want(200, "GET", "/v1/tasks?all&service=web", nil)).Items {
			if v.ID == id && v.Attempt == attempt {
				all = append(all, strings.TrimSpace(string(v.State)+" "+string(v.Health)+" "+string(v.Reason)),
					v.Message)
			}
		}
		return all
	}
	check := func(id cluster.TaskID, attempt int, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, shown(id, attempt)); diff != "" {
			t.Errorf("%s/%d (-want +got):\n%s", id, attempt, diff)
		}
	}
	check("default.web.1.0", 1, "running unknown node-down",
		"node n1 is silent, the task waits for it (on_disconnect: wait); if it never comes back: "+
			"`berth node forget n1`")
	check("default.web.1.2", 1, "running unknown node-down",
		"node n1 is silent: the state of the task is unknown")
	check("default.web.1.1", 2, "cancelled  drain",
		"it moves off node n2, which is drained, and runs there until its next attempt is healthy")

	w.put(map[string]any{"state/n2/default.web.1.1": nil})
	check("default.web.1.1", 2, "cancelled  drain",
		"moved off node n2 (drained), replaced by another attempt")
}
