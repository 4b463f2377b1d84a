package rebalance_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/rebalance"
)

// TestDefaultMinGain checks the example at DefaultMinGain on nodes whose shares are exact: a task of a sixteenth of a
// node leaves a node that is three quarters full for one that is three eighths full. A gain below the least is no move.
func TestDefaultMinGain(t *testing.T) {
	const size = 16 // CPUs, so that shares of whole CPUs are exact
	for _, c := range []struct {
		first, second, task cluster.MilliCPU // what n1 and n2 use, and of that on n1 the task
		minGain             int
		gain                int // 0 for no move
	}{
		// (12² + 6² - 11² - 7²) / 16² = 39 ‰
		{12, 6, 1, 0, 39},
		{12, 6, 1, 39, 39},
		{12, 6, 1, 40, 0},
		{12, 6, 1, -5, 39}, // as 0: the default
		// (9² + 6² - 8² - 7²) / 16² = 15 ‰
		{9, 6, 1, 0, 0},
		{9, 6, 1, 15, 15},
		{9, 6, 1, 16, 0},
		// equal nodes have nothing to gain
		{8, 8, 1, 1, 0},
		// nor does an exchange of which node is the fuller one
		{9, 8, 1, 1, 0},
	} {
		w := &world{}
		w.node("n1", size, 16)
		w.node("n2", size, 16)
		w.service("old1", cluster.Placement{}, one(1000*(c.first-c.task), 0), "n1")[0].Unmovable = "young"
		w.service("old2", cluster.Placement{}, one(1000*c.second, 0), "n2")[0].Unmovable = "young"
		w.service("web", cluster.Placement{}, one(1000*c.task, 0), "n1")
		res := rebalance.Rebalance(w.input(), rebalance.Options{MinGain: c.minGain})
		got := 0
		for _, m := range res.Moves {
			got += m.Gain
		}
		if got != c.gain || len(res.Moves) > 1 {
			t.Errorf("%d and %d CPUs in use, least gain %d: %v with a gain of %d, want %d", c.first, c.second,
				c.minGain, shown(res.Moves), got, c.gain)
		}
	}
}

// TestReasonsOfViolations lists violations of each kind, and of each reason for which one stays.
func TestReasonsOfViolations(t *testing.T) {
	pooled := cluster.Placement{Pool: "p"}
	world := func() *world {
		w := three(&world{})
		w.at("n3").Pool = "p"
		w.service("a", pooled, one(1000, 1), "n1")
		w.service("b", pooled, one(1000, 1), "n2")
		w.service("c", pooled, one(9000, 1), "n1") // larger than any node
		w.service("d", pooled, one(1000, 1), "n1")[0].Unmovable = "younger than 5m"
		return w
	}
	for name, c := range map[string]struct {
		opts    rebalance.Options
		want    []string
		bounded bool
	}{
		"moved": {rebalance.Options{}, []string{
			"c.a.1.0 on n1 → n3: node n1 is not in pool p",
			"c.b.1.0 on n2 → n3: node n2 is not in pool p",
			"c.c.1.0 on n1 → : not moved: no other node is feasible",
			"c.d.1.0 on n1 → : not moved: tasks younger than 5m do",
		}, false},
		"at most one move": {rebalance.Options{MaxMoves: 1}, []string{
			"c.a.1.0 on n1 → n3: node n1 is not in pool p",
			"c.b.1.0 on n2 → : not moved: the maximum of moves is reached",
			"c.c.1.0 on n1 → : not moved: the maximum of moves is reached",
			"c.d.1.0 on n1 → : not moved: tasks younger than 5m do",
		}, true},
		"excluded": {rebalance.Options{KeepViolations: true, MinGain: 1_000_000}, []string{
			"c.a.1.0 on n1 → : not moved: violations are excluded",
			"c.b.1.0 on n2 → : not moved: violations are excluded",
			"c.c.1.0 on n1 → : not moved: violations are excluded",
			"c.d.1.0 on n1 → : not moved: tasks younger than 5m do",
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := world()
			res := rebalance.Rebalance(w.input(), c.opts)
			var got []string
			for _, v := range res.Violations {
				got = append(got, fmt.Sprintf("%s on %s → %s: %s", v.Task, v.Node, v.To, v.Message))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("violations (-want +got):\n%s", diff)
			}
			if res.Bounded != c.bounded || res.Before.Violations != 4 {
				t.Errorf("bounded %v of %+v, want %v of 4 violations", res.Bounded, res.Before, c.bounded)
			}
		})
	}
}

// TestTasksWithoutAReservation checks tasks whose node left the fleet, or of which nothing is reserved: they stay, with
// a reason, and nothing else changes.
func TestTasksWithoutAReservation(t *testing.T) {
	w := three(&world{})
	w.service("web", cluster.Placement{}, one(500, 1), times("n1*4")...)
	want := rebalance.Rebalance(w.input(), rebalance.Options{})
	in := w.input()
	in.Tasks = append(in.Tasks,
		rebalance.Task{Pending: cluster.Pending{Task: "c.gone.1.0"}, UUID: "u1", Node: "n9"},
		rebalance.Task{Pending: cluster.Pending{Task: "c.gone.1.1"}, UUID: "u2", Node: "n1"},
	)
	got := rebalance.Rebalance(in, rebalance.Options{})
	if diff := cmp.Diff(map[string]int{"on an unknown node": 2}, got.Stays); diff != "" {
		t.Errorf("tasks that stay (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want.Moves, got.Moves); diff != "" || want.Before != got.Before {
		t.Errorf("%+v before, want %+v; moves (-want +got):\n%s", got.Before, want.Before, diff)
	}
}

// TestNothingToDo checks fleets without nodes, without tasks, and with a single node.
func TestNothingToDo(t *testing.T) {
	single := &world{}
	single.node("n1", 8, 16)
	single.service("web", cluster.Placement{Strategy: cluster.StrategyBinpack}, one(100, 0), times("n1*5")...)
	lonely := single.clone()
	lonely.nodes = nil
	for name, w := range map[string]*world{
		"nothing": {}, "no tasks": three(&world{}), "no nodes": lonely, "one node": single,
	} {
		res := rebalance.Rebalance(w.input(), rebalance.Options{})
		if len(res.Moves)+len(res.Violations) > 0 || res.Bounded || res.Before != res.After {
			t.Errorf("%s: %+v", name, res)
		}
	}
}

// TestFleetStaysAsItIs checks that a decision leaves the nodes and the reservations of its input as they are.
func TestFleetStaysAsItIs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		in := w.input()
		rebalance.Rebalance(in, rebalance.Options{MinGain: 1})
		if in.Fleet.Reservations() != len(w.tasks) {
			t.Fatalf("the fleet has %d reservations, want %d", in.Fleet.Reservations(), len(w.tasks))
		}
		want := w.input().Fleet
		for _, name := range want.Nodes() {
			n, used, _ := want.Node(name)
			got, usedNow, found := in.Fleet.Node(name)
			if diff := cmp.Diff(n, got); diff != "" || used != usedNow || !found {
				t.Fatalf("node %s uses %v, want %v (-want +got):\n%s", name, usedNow, used, diff)
			}
		}
		for _, task := range w.tasks {
			if r, _ := in.Fleet.Reserved(task.UUID); r.Node != task.Node {
				t.Fatalf("%s is on %s, want %s", task.Task, r.Node, task.Node)
			}
		}
	})
}

// TestMoreMovesAreNoWorse checks that the moves of a limited list are better than none, and the score of each list that
// is cut later is at least as good as that of a shorter one by its own measure: none makes the score worse.
func TestMoreMovesAreNoWorse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		all := rebalance.Rebalance(w.input(), rebalance.Options{MinGain: 1})
		for most := 1; most <= min(len(all.Moves)+1, 6); most++ {
			res := rebalance.Rebalance(w.input(), rebalance.Options{MinGain: 1, MaxMoves: most})
			if len(res.Moves) > most || res.After.Compare(res.Before) > 0 {
				t.Fatalf("at most %d: %v from %+v to %+v", most, shown(res.Moves), res.Before, res.After)
			}
			if len(res.Moves) > 0 && res.After.Compare(res.Before) == 0 {
				t.Fatalf("at most %d: %v gain nothing", most, shown(res.Moves))
			}
			if !res.Bounded && len(res.Moves) < most && res.After != all.After {
				t.Fatalf("at most %d: %v end at %+v without a bound, want %+v", most, shown(res.Moves), res.After,
					all.After)
			}
		}
	})
}

// TestAPinnedTaskCounts checks that a task which must stay takes room and shares like any other: exchanging which task
// of a node must stay never changes the score before.
func TestAPinnedTaskCounts(t *testing.T) {
	w := three(&world{})
	w.service("web", cluster.Placement{}, one(1000, 2), times("n1*4 n2*1")...)
	free := rebalance.ScoreOf(w.input(), rebalance.Options{})
	w.tasks[0].Unmovable = "young"
	if got := rebalance.ScoreOf(w.input(), rebalance.Options{}); got != free {
		t.Errorf("score %+v with a task that must stay, want %+v", got, free)
	}
	for i := range w.tasks {
		w.tasks[i].Unmovable = "young"
	}
	if got := rebalance.ScoreOf(w.input(), rebalance.Options{}); got != (rebalance.Score{}) {
		t.Errorf("score %+v though no task may move, want none", got)
	}
}

// TestTasksOfOneNodeMoveInOrder checks that equal tasks leave a node in one order, whatever their UUIDs are: the last
// one by id first.
func TestTasksOfOneNodeMoveInOrder(t *testing.T) {
	w := three(&world{})
	tasks := w.service("web", cluster.Placement{}, one(100, 1), times("n1*3")...)
	tasks[0].UUID, tasks[2].UUID = tasks[2].UUID, tasks[0].UUID
	var got []cluster.TaskID
	for _, m := range rebalance.Rebalance(w.input(), rebalance.Options{}).Moves {
		got = append(got, m.Task)
	}
	if diff := cmp.Diff([]cluster.TaskID{"c.web.1.2", "c.web.1.1"}, got); diff != "" {
		t.Errorf("moved tasks (-want +got):\n%s", diff)
	}
}

// TestHugeNodes checks that the largest amounts overflow nothing: half of a node is half of it at any size.
func TestHugeNodes(t *testing.T) {
	const most = 1 << 53 // the largest amount that a fleet counts
	for _, size := range []int64{2, 1000, 1 << 40, most} {
		w := &world{}
		for _, name := range []string{"n1", "n2"} {
			w.node(name, 1, 1).Capacity = cluster.Demand{
				CPU: cluster.MilliCPU(size), Memory: cluster.Bytes(size), Disk: cluster.Bytes(size),
			}
		}
		for i := range 2 {
			w.service(fmt.Sprint("s", i), cluster.Placement{}, cluster.Demand{
				CPU: cluster.MilliCPU(size / 2), Memory: cluster.Bytes(size / 2), Disk: cluster.Bytes(size / 2),
			}, "n1")
		}
		res := rebalance.Rebalance(w.input(), rebalance.Options{})
		if len(res.Moves) != 1 || res.Moves[0].Gain != 1500 || res.Before.Uneven != 3000 || res.After.Uneven != 1500 {
			t.Errorf("size %d: got %v from %+v to %+v, want one move that gains 1500 of 3000", size, shown(res.Moves),
				res.Before, res.After)
		}
	}
}
