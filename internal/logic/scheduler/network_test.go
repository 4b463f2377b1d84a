package scheduler_test

import (
	"testing"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// A task with a network of its own goes only to nodes that offer it, and the others state what they lack. Other tasks
// go anywhere.
func TestNetworks(t *testing.T) {
	f := scheduler.NewFleet()
	node := func(name string, networks ...cluster.NetworkFact) scheduler.Node {
		n := numaNode(name)
		n.Networks = networks
		return n
	}
	p := pinnedPending("web", 0, "")
	decide := func(mode cluster.NetworkMode) string {
		t.Helper()
		p.Network = mode
		res := scheduler.Schedule(f, []cluster.Pending{p}, scheduler.Options{})
		if len(res.Placements) == 1 {
			return res.Placements[0].Node
		}
		if code := res.Waiting[0].Refusals[0].Code; code != cluster.ReasonNetwork {
			t.Errorf("refused for %s", code)
		}
		blockers := scheduler.Blockers(f, p, []string{"a"}, scheduler.Options{})[0]
		if len(blockers) != 1 || blockers[0].Code != cluster.ReasonNetwork {
			t.Errorf("blockers %+v", blockers)
		}
		return res.Waiting[0].Sentence
	}
	f.SetNode(node("a"))
	f.SetNode(node("b", cluster.NetworkFact{Mode: cluster.NetworkBridge, Lacks: "it has no plugins"},
		cluster.NetworkFact{Mode: cluster.NetworkNone}))
	for _, c := range []struct {
		mode cluster.NetworkMode
		want string
	}{
		{"", "a"},
		{cluster.NetworkNone, "b"},
		{
			cluster.NetworkBridge,
			"1 node: network bridge: it has no plugins; 1 node: network bridge: its agent is too old for it; " +
				"upgrade the agent",
		},
	} {
		if got := decide(c.mode); got != c.want {
			t.Errorf("network %q: got %q, want %q", c.mode, got, c.want)
		}
	}
	f.SetNode(node("b", cluster.NetworkFact{Mode: cluster.NetworkBridge}))
	if got := decide(cluster.NetworkBridge); got != "b" {
		t.Errorf("once b has the plugins: got %q, want b", got)
	}
	// Tasks that differ only in their networks are decided separately.
	q := pinnedPending("web", 1, "")
	p.Network = ""
	q.Network = cluster.NetworkBridge
	f.SetNode(node("b"))
	if res := scheduler.Schedule(f, []cluster.Pending{p, q}, scheduler.Options{}); len(res.Placements) != 1 ||
		len(res.Waiting) != 1 {
		t.Errorf("got %+v, want one placed and the one with a network waiting", res)
	}
}
