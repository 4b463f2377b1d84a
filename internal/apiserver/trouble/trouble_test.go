package trouble

import (
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// TestAdviceForTasksThatNeverRan: a task that never ran has no output, so status leads to its explanation.
func TestAdviceForTasksThatNeverRan(t *testing.T) {
	began := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		name string
		task api.TaskView
		want string
	}{
		{
			"lost while its image was pulled",
			api.TaskView{State: cluster.StateLost, Reason: cluster.ReasonNodeDown},
			"berth explain default.web.1.0",
		},
		{
			"lost while it ran",
			api.TaskView{State: cluster.StateLost, Reason: cluster.ReasonNodeDown, Started: began},
			"berth logs default.web.1.0",
		},
		{
			"stopped before it began",
			api.TaskView{State: cluster.StateStopping, Reason: cluster.ReasonRollout},
			"berth explain default.web.1.0",
		},
		{
			"rejected by its node",
			api.TaskView{State: cluster.StateRejected, Reason: cluster.ReasonPrepare},
			"berth explain default.web.1.0",
		},
		{"ended with a code", api.TaskView{
			State: cluster.StateFailed, Reason: cluster.ReasonExit,
			Exit: &cluster.Exit{Code: 1}, Started: began,
		}, "berth logs default.web.1.0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.task.ID, test.task.Node, test.task.Message = "default.web.1.0", "n1", "why"
			got := api.Trouble{Object: "default/service/web", State: "failing"}
			explain(&got, "0 of 1 healthy", []api.TaskView{test.task})
			if got.Next != test.want {
				t.Errorf("next step: got %q, want %q", got.Next, test.want)
			}
		})
	}
}
