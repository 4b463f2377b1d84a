package scheduler_test

import (
	"fmt"
	"testing"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// TestPreemptionInFairQueues has a full node and a waiting task of a job. In a fair queue nothing ends for it that is
// of the same level of priority: shares decide between them, and the room might come to the victim's own successor.
func TestPreemptionInFairQueues(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		queue        cluster.QueuePolicy
		task, victim int
		ends         bool
	}{
		{cluster.QueueEASY, 550, 450, true},
		{cluster.QueueEASY, 549, 450, false},
		{cluster.QueueFair, 550, 450, false}, // both are of the level of 500
		{cluster.QueueFair, 574, 425, false},
		{cluster.QueueFair, 550, 424, true},
		{cluster.QueueFair, 575, 474, true},
		{cluster.QueueFair, 575, 476, false}, // another level, and less than the gap
		{cluster.QueueFair, 700, 550, true},
	} {
		f := scheduler.NewFleet()
		f.SetNode(scheduler.Node{
			Name: "n", State: cluster.NodeReady, Executors: []string{"process"}, Capacity: cluster.Demand{CPU: 1000},
		})
		held := fairTask("a", "ann", "old", 0, cluster.Demand{CPU: 1000})
		f.Reserve(scheduler.Reservation{
			UUID: "u", Task: held.Task, Node: "n", Batch: true, Demand: held.Demand, User: held.User,
		})
		p := fairTask("a", "bob", "new", 0, cluster.Demand{CPU: 1000})
		p.Priority, p.Queue = tt.task, tt.queue
		got := scheduler.Preempt(scheduler.PreemptInput{
			Fleet: f, Waiting: []cluster.Pending{p}, Least: cluster.PreemptionGap,
			Victims: []scheduler.Victim{{UUID: "u", Priority: tt.victim, Owner: held.Owner}},
		}, scheduler.Options{Now: epoch()})
		if ends := len(got) > 0; ends != tt.ends {
			t.Errorf("%s: a task of priority %d waits for one of priority %d to end: %s, want %t", tt.queue, tt.task,
				tt.victim, fmt.Sprint(got), tt.ends)
		}
	}
}
