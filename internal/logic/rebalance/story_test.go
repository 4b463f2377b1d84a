package rebalance_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/rebalance"
)

// one returns a demand of CPUs and GiB.
func one(cpu cluster.MilliCPU, gib int) cluster.Demand {
	return cluster.Demand{CPU: cpu, Memory: cluster.Bytes(gib) * cluster.GiB}
}

// times expands each "node*n" of a text to n nodes.
func times(text string) []string {
	var out []string
	for f := range strings.FieldsSeq(text) {
		name, n, ok := strings.Cut(f, "*")
		count := 1
		if ok {
			_, _ = fmt.Sscan(n, &count)
		}
		for range count {
			out = append(out, name)
		}
	}
	return out
}

// counts returns the number of a service's tasks by node.
func (w *world) counts(service string) map[string]int {
	got := map[string]int{}
	for i := range w.tasks {
		if w.tasks[i].Owner.Name == service {
			got[w.tasks[i].Node]++
		}
	}
	return got
}

func three(w *world) *world {
	for i, zone := range []string{"a", "b", "b"} {
		w.node(fmt.Sprintf("n%d", i+1), 8, 16, "zone", zone)
	}
	return w
}

// TestNewNodeTakesItsShare checks that a new node takes tasks from full nodes, with the fewest moves.
func TestNewNodeTakesItsShare(t *testing.T) {
	w := three(&world{})
	w.service("web", cluster.Placement{}, one(500, 1), times("n1*4 n2*4 n3*4")...)
	w.node("n4", 8, 16)
	res := rebalance.Rebalance(w.input(), rebalance.Options{})
	w.all(t, res.Moves)
	if diff := cmp.Diff(map[string]int{"n1": 3, "n2": 3, "n3": 3, "n4": 3}, w.counts("web")); diff != "" ||
		len(res.Moves) != 3 {
		t.Fatalf("%v\n(-want +got):\n%s", shown(res.Moves), diff)
	}
	want := "even c.web.1.3: n1 → n4 (node n1 has 4 of its tasks, n4 none)"
	if got := shown(res.Moves)[0]; got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// TestFullNodeIsRelieved checks that tasks leave the fullest node if only fill counts.
func TestFullNodeIsRelieved(t *testing.T) {
	w := three(&world{})
	for i := range 6 {
		w.service(fmt.Sprintf("s%d", i), cluster.Placement{}, one(1000, 2), "n1")
	}
	res := rebalance.Rebalance(w.input(), rebalance.Options{})
	w.all(t, res.Moves)
	on := map[string]int{}
	for _, task := range w.tasks {
		on[task.Node]++
	}
	if diff := cmp.Diff(map[string]int{"n1": 2, "n2": 2, "n3": 2}, on); diff != "" {
		t.Fatalf("%v\n(-want +got):\n%s", shown(res.Moves), diff)
	}
	if want := "even c.s0.1.0: n1 → n2 (node n1 is 75 % full, n2 0 %)"; !slices.Contains(shown(res.Moves), want) {
		t.Errorf("got %q without %q", shown(res.Moves), want)
	}
}

// TestSpreadOverZones checks that tasks move towards the targets of their spread.
func TestSpreadOverZones(t *testing.T) {
	for name, c := range map[string]struct {
		spread []cluster.Spread
		zoneA  int
	}{
		"no spread": {nil, 3},
		"evenly":    {[]cluster.Spread{{Attribute: "label.zone"}}, 4},
		"with targets": {[]cluster.Spread{
			{Attribute: "label.zone", Weight: 100, Targets: []cluster.SpreadTarget{{Value: "a", Percent: 75}}},
		}, 6},
	} {
		w := three(&world{})
		w.service("web", cluster.Placement{AntiAffinity: cluster.AntiAffinityNone, Spread: c.spread}, one(100, 0),
			times("n1*3 n2*3 n3*2")...)
		res := rebalance.Rebalance(w.input(), rebalance.Options{})
		w.all(t, res.Moves)
		if got := w.counts("web")["n1"]; got != c.zoneA {
			t.Errorf("%s: got %d in zone a, want %d: %v", name, got, c.zoneA, shown(res.Moves))
		}
	}
}

// TestNodesAreEmptied checks that binpack empties the least used nodes, and only those with nothing else.
func TestNodesAreEmptied(t *testing.T) {
	pack := cluster.Placement{Strategy: cluster.StrategyBinpack}
	w := three(&world{})
	w.service("web", pack, one(1000, 1), times("n1*5 n2*2 n3*1")...)
	res := rebalance.Rebalance(w.input(), rebalance.Options{})
	w.all(t, res.Moves)
	if diff := cmp.Diff(map[string]int{"n1": 8}, w.counts("web")); diff != "" {
		t.Fatalf("%v\n(-want +got):\n%s", shown(res.Moves), diff)
	}
	if res.Before.Used != 3 || res.After.Used != 1 {
		t.Errorf("got %+v after %+v", res.After, res.Before)
	}
	gain := 0
	for _, m := range res.Moves {
		gain += m.Gain
	}
	if gain != 2*rebalance.Points {
		t.Errorf("got a gain of %d, want %d", gain, 2*rebalance.Points)
	}

	w = three(&world{})
	w.service("web", pack, one(1000, 1), times("n1*5 n2*1 n3*1")...)
	for _, task := range w.service("other", cluster.Placement{}, one(1000, 1), times("n1 n2")...) {
		task.Unmovable = "young"
	}
	w.service("fixed", pack, one(1000, 1), "n3")[0].Unmovable = "of jobs"
	if res := rebalance.Rebalance(w.input(), rebalance.Options{}); len(res.Moves) > 0 {
		t.Errorf("got %v from nodes that stay in use", shown(res.Moves))
	}
}

// TestStrandedIsBroughtTogether checks that single moves exchange tasks between a node without CPU and one without
// memory.
func TestStrandedIsBroughtTogether(t *testing.T) {
	whole := cluster.Placement{Strategy: cluster.StrategyWhole}
	w := &world{}
	w.node("n1", 8, 16)
	w.node("n2", 8, 16)
	w.service("compute", whole, one(1500, 1), times("n1*4")...)
	w.service("cache", whole, one(500, 4), times("n2*3")...)
	res := rebalance.Rebalance(w.input(), rebalance.Options{})
	w.all(t, res.Moves)
	if res.After.Stranded*2 > res.Before.Stranded || len(res.Moves) == 0 {
		t.Fatalf("got %+v after %+v: %v", res.After, res.Before, shown(res.Moves))
	}
}

// TestViolationsGoFirst checks that violations move first, whatever else is to gain.
func TestViolationsGoFirst(t *testing.T) {
	w := three(&world{})
	zone := cluster.Placement{Constraints: []cluster.Constraint{{Attribute: "label.zone", Value: "b"}}}
	w.service("db", zone, one(1000, 1), "n1")
	w.service("stuck", cluster.Placement{Constraints: []cluster.Constraint{{Attribute: "label.zone", Value: "c"}}},
		one(1000, 1), "n2")
	w.service("pinned", zone, one(1000, 1), "n1")[0].Unmovable = "with volumes"
	w.service("web", cluster.Placement{}, one(1000, 1), times("n1*6")...)
	w.service("guest", cluster.Placement{Tolerations: []cluster.Toleration{{Key: "old"}}}, one(100, 0), "n3")
	w.at("n3").Taints = []cluster.Taint{{Key: "old", Effect: cluster.TaintNoSchedule}}
	res := rebalance.Rebalance(w.input(), rebalance.Options{})
	if want := "violation c.db.1.0: n1 → n2 (node n1 does not meet label.zone = b)"; len(res.Moves) == 0 ||
		shown(res.Moves)[0] != want {
		t.Errorf("got %q, want %q first", shown(res.Moves), want)
	}
	var got []string
	for _, v := range res.Violations {
		got = append(got, fmt.Sprintf("%s on %s → %s: %s", v.Task, v.Node, v.To, v.Message))
	}
	want := []string{
		"c.db.1.0 on n1 → n2: node n1 does not meet label.zone = b",
		"c.pinned.1.0 on n1 → : not moved: tasks with volumes do",
		"c.stuck.1.0 on n2 → : not moved: no other node is feasible",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("violations (-want +got):\n%s", diff)
	}
	w.all(t, res.Moves)

	kept := rebalance.Rebalance(three(w).input(), rebalance.Options{KeepViolations: true})
	for _, m := range kept.Moves {
		if m.Cause == cluster.CauseViolation {
			t.Errorf("got %v, though violations are to stay", shown(kept.Moves))
		}
	}
}

// TestViolationThatMovesTwice checks a task that moves because of a violation, and again so that its new node is
// emptied: one move, because of the violation, to the node where it stays.
func TestViolationThatMovesTwice(t *testing.T) {
	w := three(&world{})
	w.service("db", cluster.Placement{
		Strategy: cluster.StrategyBinpack, Constraints: []cluster.Constraint{{Attribute: "label.zone", Value: "b"}},
	}, one(0, 0), "n1")
	w.service("web", cluster.Placement{}, one(0, 0), "n3")
	daemon := w.service("logs", cluster.Placement{}, one(0, 0), "n2")[0]
	daemon.Daemon, daemon.Unmovable = true, "of daemons"
	res := rebalance.Rebalance(w.input(), rebalance.Options{})
	if diff := cmp.Diff(
		[]string{"violation c.db.1.0: n1 → n3 (node n1 does not meet label.zone = b)"}, shown(res.Moves),
	); diff != "" {
		t.Errorf("moves (-want +got):\n%s", diff)
	}
	if v := res.Violations; len(v) != 1 || v[0].To != "n3" || len(res.Moves) > 0 && res.Moves[0].Gain != 0 {
		t.Errorf("violations %+v, moves %+v: want node n3 without a gain", v, res.Moves)
	}
}

// TestEvictedByTaint checks that a taint with the effect evict makes a violation.
func TestEvictedByTaint(t *testing.T) {
	w := three(&world{})
	w.service("web", cluster.Placement{}, one(100, 0), "n1")
	w.service("agent", cluster.Placement{Tolerations: []cluster.Toleration{{}}}, one(100, 0), "n1")
	w.at("n1").Taints = []cluster.Taint{{Key: "bad", Value: "disk", Effect: cluster.TaintEvict}}
	res := rebalance.Rebalance(w.input(), rebalance.Options{})
	if got := shown(res.Moves); len(got) != 1 ||
		got[0] != "violation c.web.1.0: n1 → n2 (node n1 has the taint bad=disk:evict)" {
		t.Errorf("got %q", got)
	}
}

// TestMovesKeepTheMinimum checks moves against the number of healthy tasks above the owner's minimum.
func TestMovesKeepTheMinimum(t *testing.T) {
	for _, c := range []struct {
		spare int
		first bool
		moves bool
	}{{1, false, true}, {0, false, true}, {-1, false, false}, {1, true, true}, {0, true, false}} {
		w := three(&world{})
		for _, task := range w.service("web", cluster.Placement{}, one(1000, 1), times("n1*3")...) {
			task.StopFirst = c.first
			w.spare[task.Owner] = c.spare
		}
		res := rebalance.Rebalance(w.input(), rebalance.Options{})
		if got := len(res.Moves) > 0; got != c.moves {
			t.Errorf("%d to spare, stop first %v: got moves %v, want %v", c.spare, c.first, shown(res.Moves), c.moves)
		}
		if kept := len(res.Stays) > 0; kept == c.moves {
			t.Errorf("%d to spare, stop first %v: got %v that stay", c.spare, c.first, res.Stays)
		}
	}
}

// TestNeededNearbyStays checks that a task that others require nearby does not move.
func TestNeededNearbyStays(t *testing.T) {
	w := three(&world{})
	w.service("cache", cluster.Placement{}, one(1000, 1), times("n1*3")...)
	w.service("web", cluster.Placement{
		Relations: []cluster.Relation{{Labels: cluster.Labels{"app": "cache"}, Required: true}},
	}, one(100, 0),
		"n1")[0].Unmovable = "young"
	if res := rebalance.Rebalance(w.input(), rebalance.Options{}); len(res.Moves) > 0 ||
		res.Stays["that other tasks must be near"] != 3 {
		t.Errorf("got %v, %v stay", shown(res.Moves), res.Stays)
	}
}

// TestBoundsAreReported checks that a list that ends early says so.
func TestBoundsAreReported(t *testing.T) {
	w := three(&world{})
	w.service("web", cluster.Placement{}, one(500, 1), times("n1*9")...)
	for name, c := range map[string]struct {
		opts  rebalance.Options
		moves int
		ends  bool
	}{
		"none":        {rebalance.Options{}, 6, false},
		"moves":       {rebalance.Options{MaxMoves: 2}, 2, true},
		"work":        {rebalance.Options{Work: 1}, 0, true},
		"enough gain": {rebalance.Options{MinGain: 1_000_000}, 0, false},
	} {
		res := rebalance.Rebalance(w.input(), c.opts)
		if len(res.Moves) != c.moves || res.Bounded != c.ends {
			t.Errorf("%s: got %d moves, bounded %v, want %d, %v", name, len(res.Moves), res.Bounded, c.moves, c.ends)
		}
	}
}

// TestNearnessIsNotGivenUp checks that tasks with relations move only because of violations.
func TestNearnessIsNotGivenUp(t *testing.T) {
	near := cluster.Placement{Relations: []cluster.Relation{{Labels: cluster.Labels{"app": "cache"}}}}
	w := three(&world{})
	w.service("cache", cluster.Placement{}, one(1000, 1), "n1")[0].Unmovable = "young"
	w.service("web", near, one(1000, 1), times("n1*5")...)
	if res := rebalance.Rebalance(w.input(), rebalance.Options{}); len(res.Moves) > 0 {
		t.Errorf("got %v", shown(res.Moves))
	}
	w.at("n1").Taints = []cluster.Taint{{Key: "bad", Effect: cluster.TaintEvict}}
	if res := rebalance.Rebalance(w.input(), rebalance.Options{}); len(res.Moves) != 5 || res.After.Violations != 1 {
		t.Errorf("got %v of a node that is not to be used", shown(res.Moves))
	}
}

// TestMovesRespectDevices checks that a task with a device goes where one is free, even if other nodes are emptier.
func TestMovesRespectDevices(t *testing.T) {
	w := three(&world{})
	for _, name := range []string{"n1", "n3"} {
		w.at(name).Devices = []cluster.Device{{ID: name + "-0", Type: "gpu"}, {ID: name + "-1", Type: "gpu"}}
	}
	w.service("web", cluster.Placement{}, one(1000, 2), "n3")[0].Unmovable = "young"
	for i := range 2 {
		w.service(fmt.Sprintf("learn%d", i), cluster.Placement{Strategy: cluster.StrategySpread}, one(3000, 6),
			"n1")[0].Devices = []cluster.DeviceRequest{{Type: "gpu", Count: 1}}
	}
	res := rebalance.Rebalance(w.input(), rebalance.Options{})
	if len(res.Moves) != 1 || res.Moves[0].To != "n3" {
		t.Errorf("got %v, want one task on n3, which has devices", shown(res.Moves))
	}
}

// TestNodeIsEmptiedAsAWholeOrNotAtAll checks that all tasks stay if the last one finds no place, and that the room they
// would have taken is free for others.
func TestNodeIsEmptiedAsAWholeOrNotAtAll(t *testing.T) {
	pack := cluster.Placement{Strategy: cluster.StrategyBinpack}
	w := three(&world{})
	w.node("n4", 8, 16)
	w.service("large", pack, one(3500, 1), times("n1*2 n2*2")...)
	w.service("small", pack, one(900, 1), times("n3*3")...)
	w.service("old", cluster.Placement{}, one(7200, 1), "n4")[0].Unmovable = "young"
	affinity := cluster.Affinity{Constraint: cluster.Constraint{Attribute: "label.zone", Value: "a"}, Weight: 100}
	w.service("web", cluster.Placement{Affinities: []cluster.Affinity{affinity}}, one(800, 1), "n4")
	res := rebalance.Rebalance(w.input(), rebalance.Options{})
	want := []string{"even c.web.1.0: n4 → n1 (node n1 meets more of its preferences than n4)"}
	if diff := cmp.Diff(want, shown(res.Moves)); diff != "" || res.Before.Used != res.After.Used {
		t.Errorf("got %+v after %+v; moves (-want +got):\n%s", res.After, res.Before, diff)
	}
}

// TestEmptyNodesStayEmpty checks that other strategies do not use empty nodes while binpack tasks may move.
func TestEmptyNodesStayEmpty(t *testing.T) {
	w := three(&world{})
	w.service("pack", cluster.Placement{Strategy: cluster.StrategyBinpack}, one(1000, 1), "n1", "n2")
	w.service("web", cluster.Placement{}, one(1000, 1), times("n1*3")...)
	res := rebalance.Rebalance(w.input(), rebalance.Options{})
	w.all(t, res.Moves)
	if len(w.counts("web")) > res.After.Used || w.counts("web")["n3"] > 0 || res.After.Used > res.Before.Used {
		t.Errorf("got %+v after %+v: %v", res.After, res.Before, shown(res.Moves))
	}
}

// TestOldAttemptCounts checks that limits by attribute count the old attempt while it runs beside the next one.
func TestOldAttemptCounts(t *testing.T) {
	for _, first := range []bool{false, true} {
		w := three(&world{})
		w.node("n4", 8, 16, "zone", "a")
		p := cluster.Placement{Distinct: []cluster.Distinct{{Attribute: "label.zone"}}}
		w.service("web", p, one(4000, 8), "n1")[0].StopFirst = first
		w.service("old", cluster.Placement{}, one(4000, 8), "n1")[0].Unmovable = "young"
		for _, n := range []string{"n2", "n3"} {
			w.at(n).Cordon = true
		}
		res := rebalance.Rebalance(w.input(), rebalance.Options{})
		if moves := len(res.Moves) > 0; moves != first {
			t.Errorf("stop first %v: got %v", first, shown(res.Moves))
		}
	}
}
