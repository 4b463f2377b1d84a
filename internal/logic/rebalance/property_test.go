package rebalance_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/rebalance"
)

func pick[T any](t *rapid.T, name string, from ...T) T { return rapid.SampledFrom(from).Draw(t, name) }

func upTo(t *rapid.T, name string, most int) int { return rapid.IntRange(0, most).Draw(t, name) }

// drawWorld draws a fleet with tasks in the order of their arrival.
func drawWorld(t *rapid.T) *world {
	w := &world{}
	for i := range 2 + upTo(t, "nodes", 6) {
		n := w.node(fmt.Sprintf("n%d", i), pick(t, "cpus", 4, 8, 8), pick(t, "gib", 8, 16), "zone",
			pick(t, "zone", "a", "b"))
		switch pick(t, "node", "", "", "", "", "", "cordon", "silent", "taint", "pool") {
		case "cordon":
			n.Cordon = true
		case "silent":
			n.State = cluster.NodeSuspect
		case "taint":
			effect := pick(t, "effect", cluster.TaintNoSchedule, cluster.TaintEvict, cluster.TaintAvoid)
			n.Taints = []cluster.Taint{{Key: "k", Effect: effect}}
		case "pool":
			n.Pool = "p"
		}
	}
	for i := range 1 + upTo(t, "services", 4) {
		drawService(t, w, fmt.Sprintf("s%d", i))
	}
	return w
}

func drawService(t *rapid.T, w *world, name string) {
	demand := cluster.Demand{
		CPU:    cluster.MilliCPU(pick(t, "cpu", 0, 250, 500, 1000, 2000)),
		Memory: pick(t, "memory", 0, cluster.GiB/2, cluster.GiB, 3*cluster.GiB),
	}
	p := cluster.Placement{
		Strategy: pick(t, "strategy", "", cluster.StrategySpread, cluster.StrategyBinpack, cluster.StrategyBinpack,
			cluster.StrategyWhole),
		AntiAffinity: pick(t, "apart", "", "", cluster.AntiAffinityNone, cluster.AntiAffinityPrefer,
			cluster.AntiAffinityDemand),
	}
	switch pick(t, "demand", "", "", "", "", "constraint", "pool", "toleration") {
	case "constraint":
		p.Constraints = []cluster.Constraint{{Attribute: "label.zone", Value: "a"}}
	case "pool":
		p.Pool = "p"
	case "toleration":
		p.Tolerations = []cluster.Toleration{{Key: "k"}}
	}
	if rapid.Bool().Draw(t, "spread") {
		p.Spread = []cluster.Spread{{Attribute: "label.zone", Weight: pick(t, "weight", 0, 100)}}
		if rapid.Bool().Draw(t, "targets") {
			p.Spread[0].Targets = []cluster.SpreadTarget{{Value: "a", Percent: 70}}
		}
	}
	if upTo(t, "affinity", 3) == 0 {
		p.Affinities = []cluster.Affinity{
			{Constraint: cluster.Constraint{Attribute: "label.zone", Value: "b"}, Weight: pick(t, "weight", -50, 50)},
		}
	}
	switch pick(t, "others", "", "", "", "", "distinct", "skew", "near", "away") {
	case "distinct":
		p.Distinct = []cluster.Distinct{{Attribute: "label.zone", Most: 2}}
	case "skew":
		p.Spread = []cluster.Spread{{Attribute: "label.zone", MaxSkew: 1}}
	case "near":
		p.Relations = []cluster.Relation{
			{Labels: cluster.Labels{"app": "s0"}, Required: rapid.Bool().Draw(t, "required")},
		}
	case "away":
		p.Relations = []cluster.Relation{
			{Labels: cluster.Labels{"app": "s0"}, Away: true, Required: rapid.Bool().Draw(t, "required")},
		}
	}
	ports := pick(t, "ports", nil, nil, nil, []cluster.Port{{Name: "http", Port: 8080}})
	first := pick(t, "stop first", false, false, true)
	for i := range 1 + upTo(t, "count", 6) {
		was := len(w.tasks)
		task := w.service(name, p, demand, "n0")[0]
		task.Task, task.Ports, task.StopFirst = cluster.ServiceTask("c", name, 1, i), ports, first
		task.UUID = string(task.Task) + "/1"
		task.Unmovable = pick(t, "stay", "", "", "", "", "", "of jobs")
		task.Daemon = task.Unmovable != "" && rapid.Bool().Draw(t, "daemon")
		if !w.placeFrom(was, upTo(t, "node", len(w.nodes)-1)) {
			w.tasks = w.tasks[:was]
		}
	}
	w.spare[cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: name}] = pick(t, "spare", 0, 1, 1, 2, -1)
}

// placeFrom puts a task on the first node from the given one that has room for it.
func (w *world) placeFrom(i, node int) bool {
	t := &w.tasks[i]
	was := w.clone()
	was.tasks = was.tasks[:i]
	for k := range w.nodes {
		n := w.nodes[(node+k)%len(w.nodes)].Name
		try := was.clone()
		one := *t
		one.Node, one.Unmovable, one.StopFirst = "", "", true
		try.spare = map[cluster.OwnerRef]int{one.Owner: 1}
		try.tasks = append(try.tasks, one)
		if try.carry(rebalance.Move{UUID: one.UUID, To: n, StopFirst: true}, false) == nil {
			t.Node = n
			return true
		}
	}
	return false
}

// TestMovesOfAnyFleet checks that each move is possible after the earlier ones, takes no service below its minimum, and
// makes no score worse. After all moves nothing is left to gain, and all moves can be undone.
func TestMovesOfAnyFleet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		opts := rebalance.Options{MinGain: pick(t, "least gain", 0, 1, 100), MaxMoves: pick(t, "most", 0, 0, 0, 3)}
		in := w.input()
		res := rebalance.Rebalance(in, opts)
		if res.After.Compare(res.Before) > 0 {
			t.Fatalf("got score %+v after %+v", res.After, res.Before)
		}
		if opts.MaxMoves > 0 && len(res.Moves) > opts.MaxMoves {
			t.Fatalf("got %d moves, at most %d were requested", len(res.Moves), opts.MaxMoves)
		}
		before, score := w.clone(), rebalance.ScoreOf(in, opts)
		for i, m := range res.Moves {
			if err := w.carry(m, true); err != nil {
				t.Fatalf("move %d of %v: %v", i, shown(res.Moves), err)
			}
			if m.Cause == cluster.CauseEmpty && i+1 < len(res.Moves) && res.Moves[i+1].Cause == cluster.CauseEmpty {
				continue // a node counts only once it is empty
			}
			next := rebalance.ScoreOf(w.input(), opts)
			if next.Compare(score) > 0 {
				t.Fatalf("move %d of %v: got score %+v after %+v", i, shown(res.Moves), next, score)
			}
			score = next
		}
		if len(res.Moves) > 0 && score.Compare(res.Before) >= 0 && score != res.After {
			t.Fatalf("%v gain nothing: %+v", shown(res.Moves), score)
		}
		if again := rebalance.Rebalance(w.input(), opts); !res.Bounded && len(again.Moves) > 0 {
			t.Fatalf("after %v\na second run moves %v", shown(res.Moves), shown(again.Moves))
		}
		back := w.clone()
		for i, m := range rebalance.Undo(res.Moves) {
			if err := back.carry(m, false); err != nil {
				t.Fatalf("undoing %d of %v: %v", i, shown(res.Moves), err)
			}
		}
		if diff := cmp.Diff(before.tasks, back.tasks); diff != "" {
			t.Fatalf("undone (-before +after):\n%s", diff)
		}
	})
}

// TestOrderDoesNotMatter checks that the order of the tasks does not matter, and that the input stays unchanged.
func TestOrderDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		in := w.input()
		want := rebalance.Rebalance(in, rebalance.Options{})
		in.Tasks = rapid.Permutation(w.tasks).Draw(t, "order")
		given := slices.Clone(in.Tasks)
		if diff := cmp.Diff(want, rebalance.Rebalance(in, rebalance.Options{})); diff != "" {
			t.Fatalf("another order (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(given, in.Tasks); diff != "" {
			t.Fatalf("the input changed:\n%s", diff)
		}
	})
}

// TestViolationsOfAnyFleet checks that all violations are listed, and that each staying task has a reason.
func TestViolationsOfAnyFleet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		var want []cluster.TaskID
		for i := range w.tasks {
			task := &w.tasks[i]
			evicted := true
			if n := w.at(task.Node); len(n.Taints) > 0 && n.Taints[0].Effect == cluster.TaintNoSchedule {
				evicted = false // a taint that keeps new tasks away does not evict
			}
			if !w.allowed(task, task.Node) &&
				(evicted || len(task.Placement.Constraints) > 0 && w.at(task.Node).Labels["zone"] != "a" ||
					task.Placement.Pool != "") {
				want = append(want, task.Task)
			}
		}
		slices.Sort(want)
		var got []cluster.TaskID
		res := rebalance.Rebalance(w.input(), rebalance.Options{})
		for _, v := range res.Violations {
			got = append(got, v.Task)
			if v.Message == "" || v.Refusal.Code == "" {
				t.Fatalf("got %+v without a reason", v)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("violations (-want +got):\n%s", diff)
		}
		if n := res.Before.Violations; n != len(want) {
			t.Fatalf("got %d violations in the score, want %d", n, len(want))
		}
	})
}
