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

// TestGroundsAgree holds grounds, which look at kinds of nodes, against Explain, which looks at each node: the first of
// a decision is the best of those named, no node that is not named is better, and all nodes are told of.
func TestGroundsAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, pending := drawWorld(t)
		f, p := w.fleet(), pending[0]
		p.Priority, p.Gang = 1, ""
		res := scheduler.Schedule(f, []cluster.Pending{p}, scheduler.Options{})
		if len(res.Placements) == 0 {
			return
		}
		node := res.Placements[0].Node
		all := scheduler.Grounds(f, []cluster.Pending{p}, []string{node}, 1000, scheduler.Options{})
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
				t.Fatalf("%s stands behind %s", b.Node, g.Best[i-1].Node)
			}
		}
		nodes := len(g.Best) + g.More
		for _, r := range g.Refusals {
			nodes += r.Nodes
		}
		if nodes != g.Nodes {
			t.Fatalf("%d of %d nodes are told of: %+v", nodes, g.Nodes, g)
		}
		for _, v := range others {
			if len(g.Best) == 1 && p.Only == "" {
				t.Fatalf("%s would have taken it, and nobody is named beside %s", v.Node, node)
			}
			if p.Only == "" && slices.Compare(score(v), score(verdicts[g.Best[1].Node])) > 0 {
				t.Fatalf("%s is better than %s, the next best: %+v", v.Node, g.Best[1].Node, g)
			}
		}
	})
}

// TestGroundsAreBounded: more kinds of nodes are not looked at than was said.
func TestGroundsAreBounded(t *testing.T) {
	f := benchFleet(600) // of 100 racks and zones, three sizes each
	tasks := benchTasks(10, 10, "")
	nodes := slices.Repeat([]string{"node-00000"}, len(tasks))
	for looks, want := range map[int]int{0: 0, 299: 0, 300: 1, 3001: 10, 1 << 30: 10} {
		got := scheduler.Grounds(f, tasks, nodes, looks, scheduler.Options{})
		if len(got) != want {
			t.Errorf("%d looks: grounds of %d tasks, want %d", looks, len(got), want)
		}
		for i := range got {
			if got[i].Task != tasks[i].Task {
				t.Errorf("grounds of %s stand where those of %s should", got[i].Task, tasks[i].Task)
			}
		}
	}
}

// BenchmarkGrounds measures decisions with the grounds that are kept of them, and without.
func BenchmarkGrounds(b *testing.B) {
	for _, load := range []struct {
		name  string
		tasks []cluster.Pending
	}{
		{"replicas", benchTasks(4096, 20, cluster.StrategySpread)},
		{"racks", rackTasks(4096)},
		{"singles", oddTasks(4096, cluster.StrategySpread)},
	} {
		f := benchFleet(5000)
		for _, looks := range []int{0, 2048, 1 << 30} {
			b.Run(fmt.Sprintf("%s/looks=%d", load.name, looks), func(b *testing.B) {
				for range b.N {
					res := scheduler.Schedule(f, load.tasks, scheduler.Options{})
					if looks == 0 {
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
					scheduler.Grounds(f, tasks, nodes, looks, scheduler.Options{})
				}
			})
		}
	}
}

// TestHurdlesAgree holds all that stands against a task on a node against the one refusal that Explain tells: there is
// none exactly where the node takes the task, the refusal is among them, and none is told twice.
func TestHurdlesAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, pending := drawWorld(t)
		f, p := w.fleet(), pending[0]
		p.Gang = ""
		hurdles := scheduler.Hurdles(f, p, f.Nodes(), scheduler.Options{})
		for i, v := range scheduler.Explain(f, p, scheduler.Options{}) {
			if (v.Refusal == nil) != (len(hurdles[i]) == 0) {
				t.Fatalf("%s refuses by %+v, and its hurdles are %+v", v.Node, v.Refusal, hurdles[i])
			}
			if v.Refusal == nil {
				continue
			}
			if !slices.ContainsFunc(hurdles[i], func(h scheduler.Hurdle) bool { return h.Refusal == *v.Refusal }) {
				t.Fatalf("%s refuses by %+v, which is not among %+v", v.Node, v.Refusal, hurdles[i])
			}
			for j, h := range hurdles[i] {
				if slices.Contains(hurdles[i][:j], h) {
					t.Fatalf("%s has %+v twice", v.Node, h)
				}
			}
		}
	})
}
