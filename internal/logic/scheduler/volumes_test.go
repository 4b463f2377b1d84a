package scheduler_test

import (
	"testing"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// A task goes where its volume is, waits while that node is down and says why, and goes anywhere once the node is forgotten. What nobody has yet
// binds nobody.
func TestVolumesThatPin(t *testing.T) {
	f := scheduler.NewFleet()
	node := func(name string, volumes ...string) scheduler.Node {
		n := numaNode(name)
		n.Volumes = volumes
		return n
	}
	f.SetNode(node("a", "c/other/data"))
	f.SetNode(node("b"))
	f.SetNode(node("d"))
	p := pinnedPending("db", 0, "")
	p.Volumes, p.Placement.Strategy = []string{"c/db/data"}, cluster.StrategyBinpack
	decide := func() string {
		t.Helper()
		res := scheduler.Schedule(f, []cluster.Pending{p}, scheduler.Options{})
		if len(res.Placements) == 1 {
			return res.Placements[0].Node
		}
		return res.Waiting[0].Sentence
	}
	for _, c := range []struct {
		story  string
		change func()
		want   string
	}{
		{"nobody has it", func() {}, "a"},
		{"b has it", func() { f.SetNode(node("b", "c/db/data")) }, "b"},
		{"d has it, too", func() { f.SetNode(node("d", "c/db/data")) }, "b"},
		{"b is cordoned", func() { n := node("b", "c/db/data"); n.Cordon = true; f.SetNode(n) }, "d"},
		{"d lost it, and b is down", func() {
			f.SetNode(node("d"))
			n := node("b", "c/db/data")
			n.State = cluster.NodeDown
			f.SetNode(n)
		}, "2 nodes: the data of its volume db/data is on b; 1 node: not ready (down)"},
		{"b is forgotten", func() { f.RemoveNode("b") }, "a"},
	} {
		c.change()
		if got := decide(); got != c.want {
			t.Errorf("%s: got %q, want %q", c.story, got, c.want)
		}
	}
	f.SetNode(node("d", "c/db/data"))
	daemon := p
	daemon.Daemon, daemon.Only = true, "a"
	if res := scheduler.Schedule(f, []cluster.Pending{daemon}, scheduler.Options{}); len(res.Placements) != 1 {
		t.Errorf("a daemon waits for the volume of another node: %+v", res.Waiting)
	}
	f.SetNode(node("d"))
	if len(p.Placement.Constraints) != 0 {
		t.Errorf("the task that was asked for got constraints: %+v", p.Placement.Constraints)
	}
	f.SetNode(node("b", "c/db/data"))
	n, _, _ := f.Node("b")
	n.State = cluster.NodeDown
	f.SetNode(n)
	res := scheduler.Schedule(f, []cluster.Pending{p}, scheduler.Options{})
	if r := res.Waiting[0].Refusals; r[0].Code != cluster.ReasonVolume || r[0].Nodes != 2 {
		t.Errorf("refusals %+v", r)
	}
}
