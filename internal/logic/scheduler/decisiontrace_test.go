package scheduler_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// TestDecisionTraceAgrees compares decision traces, which read node classes, with Explain, which reads each node. The
// chosen node is the best of those listed, no unlisted node is better, and all nodes are accounted for.
func TestDecisionTraceAgrees(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, pending := drawWorld(t)
		f, p := w.fleet(), pending[0]
		p.Priority, p.Gang = 1, ""
		res := scheduler.Schedule(f, []cluster.Pending{p}, scheduler.Options{})
		if len(res.Placements) == 0 {
			return
		}
		node := res.Placements[0].Node
		all := scheduler.DecisionTraces(f, []cluster.Pending{p}, []string{node}, 1000, scheduler.Options{})
		if len(all) != 1 || len(all[0].Best) == 0 || all[0].Best[0].Node != node {
			t.Fatalf("placed on %s, got %+v", node, all)
		}
		g := all[0]
		verdicts := map[string]scheduler.Verdict{}
		var others []scheduler.Verdict
		for _, v := range scheduler.Explain(f, p, scheduler.Options{}) {
			verdicts[v.Node] = v
			if v.Refusal == nil && v.Node != node {
				others = append(others, v)
			}
		}
		for i, b := range g.Best {
			want := []cluster.RankPart{}
			for _, part := range verdicts[b.Node].Parts {
				want = append(want, cluster.RankPart(part))
			}
			if diff := cmp.Diff(want, append([]cluster.RankPart{}, b.Parts...)); diff != "" {
				t.Fatalf("parts of %s (-want +got):\n%s", b.Node, diff)
			}
			if i > 1 && slices.Compare(score(verdicts[g.Best[i-1].Node]), score(verdicts[b.Node])) < 0 {
				t.Fatalf("%s is ranked behind %s", b.Node, g.Best[i-1].Node)
			}
		}
		nodes := len(g.Best) + g.More
		for _, r := range g.Refusals {
			nodes += r.Nodes
		}
		if nodes != g.Nodes {
			t.Fatalf("%d of %d nodes are counted: %+v", nodes, g.Nodes, g)
		}
		for _, v := range others {
			if len(g.Best) == 1 && p.OnlyNode == "" {
				t.Fatalf("%s is feasible, and no node is listed beside %s", v.Node, node)
			}
			if p.OnlyNode == "" && slices.Compare(score(v), score(verdicts[g.Best[1].Node])) > 0 {
				t.Fatalf("%s is better than %s, the next best: %+v", v.Node, g.Best[1].Node, g)
			}
		}
	})
}

// TestDecisionTracesAreBounded checks that traces take no more steps than allowed.
func TestDecisionTracesAreBounded(t *testing.T) {
	f := benchFleet(600) // of 100 racks and zones, three sizes each
	tasks := benchTasks(10, 10, "")
	nodes := slices.Repeat([]string{"node-00000"}, len(tasks))
	for steps, want := range map[int]int{0: 0, 299: 0, 300: 1, 3001: 10, 1 << 30: 10} {
		got := scheduler.DecisionTraces(f, tasks, nodes, steps, scheduler.Options{})
		if len(got) != want {
			t.Errorf("%d steps: traces of %d tasks, want %d", steps, len(got), want)
		}
		for i := range got {
			if got[i].Task != tasks[i].Task {
				t.Errorf("trace %d is of %s, want %s", i, got[i].Task, tasks[i].Task)
			}
		}
	}
}

// BenchmarkDecisionTraces measures cycles with and without decision traces.
func BenchmarkDecisionTraces(b *testing.B) {
	for _, load := range []struct {
		name  string
		tasks []cluster.Pending
	}{
		{"replicas", benchTasks(4096, 20, cluster.StrategySpread)},
		{"racks", rackTasks(4096)},
		{"singles", oddTasks(4096, cluster.StrategySpread)},
	} {
		f := benchFleet(5000)
		for _, steps := range []int{0, 2048, 1 << 30} {
			b.Run(fmt.Sprintf("%s/steps=%d", load.name, steps), func(b *testing.B) {
				for range b.N {
					res := scheduler.Schedule(f, load.tasks, scheduler.Options{})
					if steps == 0 {
						continue
					}
					var tasks []cluster.Pending
					var nodes []string
					seen := map[cluster.OwnerRef]bool{}
					for _, pl := range res.Placements {
						if p := load.tasks[pl.Pending]; !seen[p.Owner] {
							seen[p.Owner] = true
							tasks, nodes = append(tasks, p), append(nodes, pl.Node)
						}
					}
					scheduler.DecisionTraces(f, tasks, nodes, steps, scheduler.Options{})
				}
			})
		}
	}
}

// TestBlockersAgree compares all blockers of a task on a node with the refusal of Explain. There are none exactly if
// the node takes the task, the refusal is among them, and no blocker is repeated.
func TestBlockersAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, pending := drawWorld(t)
		f, p := w.fleet(), pending[0]
		p.Gang = ""
		blockers := scheduler.Blockers(f, p, f.Nodes(), scheduler.Options{})
		for i, v := range scheduler.Explain(f, p, scheduler.Options{}) {
			if (v.Refusal == nil) != (len(blockers[i]) == 0) {
				t.Fatalf("%s refuses by %+v, and its blockers are %+v", v.Node, v.Refusal, blockers[i])
			}
			if v.Refusal == nil {
				continue
			}
			if !slices.ContainsFunc(blockers[i], func(h scheduler.Blocker) bool { return h.Refusal == *v.Refusal }) {
				t.Fatalf("%s refuses by %+v, which is not among %+v", v.Node, v.Refusal, blockers[i])
			}
			for j, h := range blockers[i] {
				if slices.Contains(blockers[i][:j], h) {
					t.Fatalf("%s has %+v twice", v.Node, h)
				}
			}
		}
	})
}
