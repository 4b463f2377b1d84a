package advice_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/advice"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// TestOvertake asks what starts a task behind another one for which room is kept: n1 has 1 CPU free, and the 3 others
// in use until 12:30.
func TestOvertake(t *testing.T) {
	job := func(name string, cpu cluster.MilliCPU, policy cluster.QueuePolicy, limit, waited time.Duration,
	) cluster.Pending {
		owner := cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "c", Name: name}
		return cluster.Pending{
			Owner: owner, Task: cluster.JobTask("c", name, 1, "work", 0), Attempt: 1, Priority: 500,
			Demand: cluster.Demand{CPU: cpu}, Queue: policy, TimeLimit: cluster.Duration(limit),
			Since: noon().Add(-waited),
		}
	}
	const limit, priority = "set its time_limit to ", "raise its priority from 500 to "
	const before, ahead = ", so that it ends before the room is needed",
		", ahead of the tasks for which room is kept"
	for name, c := range map[string]struct {
		task    cluster.Pending
		ahead   []cluster.Pending
		endless bool
		want    []string
	}{
		"without a limit": {
			task:  job("small", 500, cluster.QueueEASY, 0, 0),
			ahead: []cluster.Pending{job("big", 4000, cluster.QueueEASY, 0, time.Minute)},
			want:  []string{limit + "30m" + before, priority + "501" + ahead},
		},
		"a limit that is too long, behind a task that has risen": {
			task:  job("small", 500, cluster.QueueEASY, 2*time.Hour, 10*time.Minute),
			ahead: []cluster.Pending{job("big", 4000, cluster.QueueEASY, 0, time.Hour)},
			want:  []string{limit + "30m" + before, priority + "506" + ahead},
		},
		"room that comes free at an unknown time": {
			task:    job("small", 500, cluster.QueueEASY, 0, 0),
			ahead:   []cluster.Pending{job("big", 4000, cluster.QueueEASY, 0, time.Minute)},
			endless: true,
			want:    []string{priority + "501" + ahead},
		},
		"first come, first served": {
			task:  job("small", 500, cluster.QueueFIFO, 0, 0),
			ahead: []cluster.Pending{job("big", 4000, cluster.QueueFIFO, 0, time.Minute)},
			want:  []string{priority + "501" + ahead},
		},
		"it is placed": {task: job("small", 500, cluster.QueueEASY, 0, 0)},
		"more than is free": {
			task:  job("large", 2000, cluster.QueueEASY, 0, 0),
			ahead: []cluster.Pending{job("big", 4000, cluster.QueueEASY, 0, time.Minute)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := scheduler.NewFleet()
			f.SetNode(ready("n1", 4000, cluster.GiB))
			held := scheduler.Reservation{
				UUID: "u", Task: "c.old.1.s.0", Node: "n1", Demand: cluster.Demand{CPU: 3000}, Batch: true,
				Started: noon().Add(-time.Hour), Limit: 90 * time.Minute,
			}
			if c.endless {
				held.Limit = 0
			}
			f.Reserve(held)
			queue := append(c.ahead, c.task)
			list := advice.Overtake(f, queue, c.task.Task, options())
			var got []string
			for i := range list {
				got = append(got, list[i].Text)
				changed := c.task
				advice.ApplyToTask(&list[i], &changed)
				res := scheduler.Schedule(f, append(c.ahead, changed), options())
				if len(res.Placements) != 1 || res.Placements[0].Task != changed.Task {
					t.Errorf("%s: it is not placed", list[i].Text)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("suggestions (-want +got):\n%s", diff)
			}
		})
	}
}
