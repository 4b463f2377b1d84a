package watcher_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/watcher"
)

// owned returns the input of a node that this domain owns and that reports.
func owned(state cluster.NodeState) watcher.Input {
	return watcher.Input{
		Node:   &cluster.Node{Name: "n1", Domain: "default", Generation: 3, Session: 1, State: state},
		Status: &cluster.NodeStatus{Name: "n1", Session: 1, Synced: true},
		Pulse:  &cluster.Pulse{Session: 1, At: time.Hour, Next: 5 * time.Second},
		Now:    time.Hour, Armed: time.Minute, Wall: time.Unix(9000, 0), Options: watcher.DefaultOptions(),
	}
}

// TestRaisedGeneration: the operator raises the generation of a node, so that agents refuse all earlier orders. Its
// owner takes it over if it keeps the node, and leaves it to the next owner if not. It never lowers one.
func TestRaisedGeneration(t *testing.T) {
	for name, c := range map[string]struct {
		raised, want uint64
		to           string
	}{
		"raised": {7, 7, ""}, "the same": {3, 3, ""}, "lower": {2, 3, ""}, "for another owner": {7, 3, "other"},
	} {
		in := owned(cluster.NodeReady)
		in.Host, in.WantedDomain = &cluster.Host{Name: "n1", Generation: c.raised}, c.to
		if v, _ := watcher.Judge(in); v.Node.Generation != c.want || v.Foreign || v.Changed != (*in.Node != v.Node) {
			t.Errorf("%s: generation %d, want %d: %+v", name, v.Node.Generation, c.want, v)
		}
	}
}

// TestGenerationThatAgentsSaw: after the operator decided how to recover a store that went back, the generations that
// agents have seen are a lower bound, so that they obey again. Before the decision, and without one, they are none.
func TestGenerationThatAgentsSaw(t *testing.T) {
	for name, c := range map[string]struct {
		shown     uint64
		recovered bool
		want      uint64
	}{
		"decided": {8, true, 8}, "lower": {2, true, 3}, "not decided": {8, false, 3},
	} {
		in := owned(cluster.NodeReady)
		in.Status.Token.Generation, in.Recovered = c.shown, c.recovered
		if v, _ := watcher.Judge(in); v.Node.Generation != c.want {
			t.Errorf("%s: generation %d, want %d", name, v.Node.Generation, c.want)
		}
	}
	in := owned(cluster.NodeReady)
	in.Status, in.Recovered = nil, true
	if v, ok := watcher.Judge(in); !ok || v.Node.Generation != 3 {
		t.Errorf("without a registration: generation %d, want 3", v.Node.Generation)
	}
}

// TestFlapWindow: returns within the window of the last one are in a row, and a later one begins a new row. The row
// goes on through other leaders, because the record has it.
func TestFlapWindow(t *testing.T) {
	const window = 15 * time.Minute
	for name, c := range map[string]struct {
		ago  time.Duration
		want int
	}{
		"at once": {0, 4}, "at the window's end": {window, 4}, "after the window": {window + 1, 1},
	} {
		in := owned(cluster.NodeDown)
		in.Node.Returns, in.Node.Returned = 3, in.Wall.Add(-c.ago)
		v, _ := watcher.Judge(in)
		if v.Node.Returns != c.want || !v.Node.Returned.Equal(in.Wall) || v.Node.Until.IsZero() != (c.want == 1) {
			t.Errorf("%s: %d returns until %v, want %d", name, v.Node.Returns, v.Node.Until, c.want)
		}
		if v.Takes() != (c.want == 1) {
			t.Errorf("%s: it takes tasks: %t", name, v.Takes())
		}
	}
}

// TestDrainsBeforeAHandOver: a node that the operator gave to another domain is released only after its record said
// that it is drained, with nothing left. Each step is one write.
func TestDrainsBeforeAHandOver(t *testing.T) {
	in := owned(cluster.NodeReady)
	in.WantedDomain, in.Left = "other", 1
	var got []string
	for _, left := range []int{1, 1, 0, 1, 0, 0, 0} {
		in.Left = left
		v, _ := watcher.Judge(in)
		got = append(got, string(v.Node.State)+" "+v.Node.Domain)
		node := v.Node
		in.Node = &node
		if v.Foreign {
			break
		}
	}
	want := []string{
		"draining default", "draining default", "drained default", "draining default", "drained default", "joining ",
		"joining ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestAnUnkillableTaskDrainsItsNode: the node is emptied until the task is gone, whatever the operator wants; the
// operator's own drain comes first, because it may have a deadline.
func TestAnUnkillableTaskDrainsItsNode(t *testing.T) {
	in := owned(cluster.NodeReady)
	in.Unkillable, in.Left = "default.web.1.0", 2
	v, _ := watcher.Judge(in)
	if v.Drain == nil || v.Drain.Force || v.Node.State != cluster.NodeDraining || v.Takes() ||
		v.Node.Reason != "default.web.1.0 still running after SIGKILL: its tasks are moving away" {
		t.Errorf("%s: %s, drain %+v", v.Node.State, v.Node.Reason, v.Drain)
	}
	in.Host = &cluster.Host{Name: "n1", Drain: &cluster.Drain{Force: true}}
	if v, _ = watcher.Judge(in); v.Drain != in.Host.Drain || v.Node.Reason != "its tasks are stopping" {
		t.Errorf("with a drain of the operator: %s, drain %+v", v.Node.Reason, v.Drain)
	}
	in.Host, in.Unkillable, in.Left = nil, "", 0
	in.Node = &v.Node
	if v, _ = watcher.Judge(in); v.Drain != nil || v.Node.State != cluster.NodeReady || v.Node.Reason != "drain ended" {
		t.Errorf("once the task is gone: %s: %s", v.Node.State, v.Node.Reason)
	}
}

// TestForget: the records of a node go if its operator gave it up, it is gone, nothing is left on it, and no decision
// about a store that went back is awaited.
func TestForget(t *testing.T) {
	for name, c := range map[string]struct {
		host       *cluster.Host
		gone, held bool
		left       int
		want       bool
	}{
		"given up":                 {host: &cluster.Host{Name: "n1", Gone: true}, want: true},
		"with a task on it":        {host: &cluster.Host{Name: "n1", Gone: true}, left: 1},
		"a decision is awaited":    {host: &cluster.Host{Name: "n1", Gone: true}, held: true},
		"destroyed, not given up":  {host: &cluster.Host{Name: "n1"}, gone: true},
		"destroyed, never settled": {gone: true},
		"neither":                  {host: &cluster.Host{Name: "n1"}},
	} {
		in := owned(cluster.NodeReady)
		in.Host, in.Gone, in.Held, in.Left = c.host, c.gone, c.held, c.left
		v, _ := watcher.Judge(in)
		if v.Forget != c.want {
			t.Errorf("%s: forgotten: %t, want %t", name, v.Forget, c.want)
		}
		if gone := c.gone || c.host != nil && c.host.Gone; v.Absence(false) == watcher.Gone != gone ||
			v.Takes() == gone {
			t.Errorf("%s: tasks are %s, it takes tasks: %t", name, v.Absence(false), v.Takes())
		}
	}
}

// TestSilenceOnlyGrowsWorse: without a sign of life a node's tasks are never better off later, whatever was known of
// it. Neither is the node.
func TestSilenceOnlyGrowsWorse(t *testing.T) {
	worse := 0
	rapid.Check(t, func(t *rapid.T) {
		in := input(t)
		v, _ := watcher.Judge(in)
		if v.Foreign || v.Heard || v.Node.Domain != "default" {
			return
		}
		rank := map[cluster.NodeState]int{cluster.NodeSuspect: 1, cluster.NodeDown: 2}
		for range 8 {
			node := v.Node
			in.Node = &node
			passed := time.Duration(rapid.IntRange(0, 120).Draw(t, "passed")) * time.Second
			in.Now, in.Wall = in.Now+passed, in.Wall.Add(passed)
			next, _ := watcher.Judge(in)
			for _, batch := range []bool{false, true} {
				if next.Absence(batch) < v.Absence(batch) {
					t.Fatalf("tasks were %s and are %s", v.Absence(batch), next.Absence(batch))
				}
				if next.Absence(batch) > v.Absence(batch) {
					worse++
				}
			}
			if next.Heard || rank[next.Node.State] < rank[v.Node.State] || next.Silence < v.Silence {
				t.Fatalf("from %s after %s to %s after %s", v.Node.State, v.Silence, next.Node.State, next.Silence)
			}
			v = next
		}
	})
	if worse == 0 {
		t.Error("no silence ever grew")
	}
}

// TestTimeAloneDoesNotMatter: a verdict depends on differences of times, and not on when the machine was started.
func TestTimeAloneDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := input(t)
		v, _ := watcher.Judge(in)
		by := time.Duration(rapid.IntRange(1, 1e6).Draw(t, "later")) * time.Second
		in.Now, in.Armed = in.Now+by, in.Armed+by
		if in.Pulse != nil {
			p := *in.Pulse
			p.At += by
			in.Pulse = &p
		}
		later, _ := watcher.Judge(in)
		if later.NextDecision != 0 {
			later.NextDecision -= by
		}
		if v.Node != later.Node || v.Silence != later.Silence || v.Heard != later.Heard ||
			v.NextDecision != later.NextDecision || v.Absence(true) != later.Absence(true) {
			t.Fatalf("%+v, and after a later start %+v", v, later)
		}
	})
}

// TestMassSilenceOrder: whether many nodes fell silent together depends neither on their order, nor on nodes that are
// gone or of another domain. One more silent node never ends a mass silence.
func TestMassSilenceOrder(t *testing.T) {
	masses := 0
	o := watcher.DefaultOptions()
	rapid.Check(t, func(t *rapid.T) {
		var all []watcher.Verdict
		for range rapid.SampledFrom([]int{0, 9, 10, 11, 20}).Draw(t, "nodes") {
			v := watcher.Verdict{Heard: rapid.Bool().Draw(t, "heard")}
			if !v.Heard {
				v.Silence = rapid.SampledFrom([]time.Duration{
					time.Second, 20 * time.Second, 50 * time.Second, 2 * time.Minute, time.Hour,
				}).Draw(t, "silence")
			}
			all = append(all, v)
		}
		mass := watcher.IsMassSilence(all, time.Hour, o)
		if mass {
			masses++
		}
		others := append(rapid.Permutation(all).Draw(t, "order"), watcher.Verdict{Gone: true, Silence: time.Minute},
			watcher.Verdict{Foreign: true})
		if watcher.IsMassSilence(others, time.Hour, o) != mass {
			t.Fatalf("a mass silence: %t, and in another order with other nodes %t", mass, !mass)
		}
		for i := range all {
			if !all[i].Heard || !mass {
				continue
			}
			more := append([]watcher.Verdict(nil), all...)
			more[i] = watcher.Verdict{Silence: 20 * time.Second}
			if !watcher.IsMassSilence(more, time.Hour, o) {
				t.Fatal("one more silent node ends a mass silence")
			}
		}
	})
	if masses == 0 {
		t.Error("there never was a mass silence")
	}
}
