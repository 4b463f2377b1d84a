package rebalance_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/rebalance"
)

var pack = cluster.Placement{Strategy: cluster.StrategyBinpack}

// gpus gives a node devices.
func (w *world) gpus(node string, count int) {
	for i := range count {
		n := w.at(node)
		n.Devices = append(n.Devices, cluster.Device{ID: fmt.Sprint(node, "-", i), Type: "gpu", Numa: -1})
	}
}

// TestRefusalsEndWithTheAttempt has two nodes that might be emptied to a third one with a single free device. The
// attempt to empty the first node fails, because its two tasks need a device each. Then the device is free again, and
// the second node can be emptied.
func TestRefusalsEndWithTheAttempt(t *testing.T) {
	w := three(&world{})
	w.gpus("n1", 2)
	w.gpus("n2", 1)
	w.gpus("n3", 1)
	gpu := []cluster.DeviceRequest{{Type: "gpu", Count: 1}}
	w.service("large", pack, one(2000, 1), "n1")[0].Devices = gpu
	for _, task := range w.service("small", pack, one(1000, 1), "n1", "n2") {
		task.Devices = gpu
	}
	w.service("plain", pack, one(3000, 1), "n2")
	w.service("old", cluster.Placement{}, one(4000, 1), "n3")[0].Unmovable = "young"
	in := w.input()
	for i, node := range []string{"n1", "n1", "n2"} { // the devices that the tasks hold
		task := w.tasks[i]
		r, _ := in.Fleet.Reserved(task.UUID)
		r.Devices = []cluster.DeviceUse{{ID: fmt.Sprint(node, "-", i%2), Share: cluster.WholeDevice}}
		in.Fleet.Reserve(r)
	}
	res := rebalance.Rebalance(in, rebalance.Options{})
	want := []string{
		"empty c.plain.1.0: n2 → n3 (node n2 can be emptied)",
		"empty c.small.1.1: n2 → n3 (node n2 can be emptied)",
	}
	if diff := cmp.Diff(want, shown(res.Moves)); diff != "" {
		t.Errorf("moves (-want +got):\n%s", diff)
	}
}

// TestGainOfEmptyingANode checks that the tasks of an emptied node share its gain, and that each of them has to gain
// enough.
func TestGainOfEmptyingANode(t *testing.T) {
	for _, c := range []struct{ tasks, minGain, moves int }{
		{1, rebalance.Points, 1}, {1, rebalance.Points + 1, 0}, {4, 250, 4}, {4, 251, 0}, {3, 333, 3}, {3, 334, 0},
	} {
		w := &world{}
		w.node("n1", 8, 16)
		w.node("n2", 8, 16)
		w.service("old", cluster.Placement{}, one(4000, 8), "n2")[0].Unmovable = "young"
		w.service("web", pack, one(500, 1), times(fmt.Sprint("n1*", c.tasks))...)
		res := rebalance.Rebalance(w.input(), rebalance.Options{MinGain: c.minGain})
		if len(res.Moves) != c.moves {
			t.Errorf("%d tasks with a least gain of %d: got %v, want %d moves", c.tasks, c.minGain, shown(res.Moves),
				c.moves)
		}
		for _, m := range res.Moves {
			if m.Gain != rebalance.Points/c.tasks {
				t.Errorf("%d tasks: a move gains %d, want %d", c.tasks, m.Gain, rebalance.Points/c.tasks)
			}
		}
	}
}

// TestNodeIsNotHalfEmptied checks that no task leaves a node whose tasks are more than the moves that are allowed, and
// that the result says that there is more to gain.
func TestNodeIsNotHalfEmptied(t *testing.T) {
	for most, c := range map[int]struct {
		moves   int
		bounded bool
	}{1: {0, true}, 2: {0, true}, 3: {3, true}, 4: {3, false}, 0: {3, false}} {
		w := &world{}
		w.node("n1", 8, 16)
		w.node("n2", 8, 16)
		w.service("old", cluster.Placement{}, one(4000, 8), "n2")[0].Unmovable = "young"
		w.service("web", pack, one(500, 1), times("n1*3")...)
		res := rebalance.Rebalance(w.input(), rebalance.Options{MaxMoves: most})
		if len(res.Moves) != c.moves || res.Bounded != c.bounded {
			t.Errorf("at most %d: got %v, bounded %v, want %d, %v", most, shown(res.Moves), res.Bounded, c.moves,
				c.bounded)
		}
	}
}

// TestTasksGoToTheFullestNode checks where the tasks of an emptied node go: to the fullest node that has room, the
// largest task first.
func TestTasksGoToTheFullestNode(t *testing.T) {
	w := three(&world{})
	w.node("n4", 8, 16)
	w.service("old2", cluster.Placement{}, one(5000, 1), "n2")[0].Unmovable = "young"
	w.service("old3", cluster.Placement{}, one(6500, 1), "n3")[0].Unmovable = "young"
	w.service("small", pack, one(1000, 1), "n1")
	w.service("large", pack, one(1500, 1), "n1")
	res := rebalance.Rebalance(w.input(), rebalance.Options{})
	want := []string{
		"empty c.large.1.0: n1 → n3 (node n1 can be emptied)", // n3 is full then
		"empty c.small.1.0: n1 → n2 (node n1 can be emptied)",
	}
	if diff := cmp.Diff(want, shown(res.Moves)); diff != "" {
		t.Errorf("moves (-want +got):\n%s", diff)
	}
	w.all(t, res.Moves)
	if n := w.counts("small")["n4"] + w.counts("large")["n4"]; n > 0 {
		t.Errorf("%d tasks went to an empty node", n)
	}
}

// TestDaemonsKeepNoNodeInUse checks that a node with daemons alone counts as empty: its other tasks leave, and no task
// comes.
func TestDaemonsKeepNoNodeInUse(t *testing.T) {
	w := three(&world{})
	for _, task := range w.service("logs", cluster.Placement{}, one(1000, 1), "n1", "n2", "n3") {
		task.Daemon, task.Unmovable = true, "of daemons"
	}
	w.service("web", pack, one(1000, 1), times("n1*1 n2*2")...)
	res := rebalance.Rebalance(w.input(), rebalance.Options{})
	w.all(t, res.Moves)
	if diff := cmp.Diff(map[string]int{"n2": 3}, w.counts("web")); diff != "" {
		t.Errorf("%v\ntasks by node (-want +got):\n%s", shown(res.Moves), diff)
	}
	if res.Before.Used != 2 || res.After.Used != 1 {
		t.Errorf("got %+v after %+v, want one node in use after two", res.After, res.Before)
	}
}

// TestUnknownReservationKeepsANodeInUse checks that a node with a reservation of no known task is never emptied, and
// takes tasks of other nodes.
func TestUnknownReservationKeepsANodeInUse(t *testing.T) {
	w := &world{}
	w.node("n1", 8, 16)
	w.node("n2", 8, 16)
	w.service("web", pack, one(500, 1), times("n1*1 n2*3")...)
	in := w.input()
	r, _ := in.Fleet.Reserved(w.tasks[0].UUID)
	r.UUID, r.Task = "unknown", "c.lost.1.0"
	in.Fleet.Reserve(r)
	res := rebalance.Rebalance(in, rebalance.Options{})
	w.all(t, res.Moves)
	if diff := cmp.Diff(map[string]int{"n1": 4}, w.counts("web")); diff != "" {
		t.Errorf("%v\ntasks by node (-want +got):\n%s", shown(res.Moves), diff)
	}
}
