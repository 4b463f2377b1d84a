package scheduler_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// A task goes where its volume is. It waits with a reason while that node is down, and goes anywhere once the node is
// forgotten. A volume that no node has binds no task.
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
		{"no node has it", func() {}, "a"},
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
	daemon.Daemon, daemon.OnlyNode = true, "a"
	if res := scheduler.Schedule(f, []cluster.Pending{daemon}, scheduler.Options{}); len(res.Placements) != 1 {
		t.Errorf("a daemon waits for the volume of another node: %+v", res.Waiting)
	}
	f.SetNode(node("d"))
	if len(p.Placement.Constraints) != 0 {
		t.Errorf("the requested task got constraints: %+v", p.Placement.Constraints)
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

// A task goes to the newest copy of its own volume, whatever its owner prefers. If that node refuses, it goes to an
// older copy, else anywhere. It never waits for a copy.
func TestStickyVolumes(t *testing.T) {
	t.Parallel()
	f := scheduler.NewFleet()
	set := func(name string, placed int, change func(*scheduler.Node)) {
		n := numaNode(name)
		n.Folders = &cluster.FolderFacts{}
		if placed > 0 {
			n.Folders.Sticky = []cluster.StickyCopy{{Key: "c/db/data.0", Plan: uint64(placed)}}
		}
		change(&n)
		f.SetNode(n)
	}
	as := func(*scheduler.Node) {}
	for _, name := range []string{"a", "b", "d", "e"} {
		set(name, 0, as)
	}
	p := pinnedPending("db", 0, "")
	p.Sticky, p.Placement.Strategy = []string{"c/db/data.0"}, cluster.StrategyBinpack
	p.Placement.Affinities = []cluster.Affinity{
		{Constraint: cluster.Constraint{Attribute: "node.name", Value: "e"}, Weight: cluster.MaxWeight},
	}
	for _, c := range []struct {
		story  string
		change func()
		want   string
	}{
		{"no node has it", func() {}, "e"},
		{"b has it", func() { set("b", 1, as) }, "b"},
		{"d has it since", func() { set("d", 2, as) }, "d"},
		{"d is cordoned", func() { set("d", 2, func(n *scheduler.Node) { n.Cordon = true }) }, "b"},
		{"b is down", func() { set("b", 1, func(n *scheduler.Node) { n.State = cluster.NodeDown }) }, "e"},
		{"d is back", func() { set("d", 2, as) }, "d"},
		{"d lost it", func() { set("d", 0, as) }, "e"},
	} {
		c.change()
		for _, fleet := range []*scheduler.Fleet{f, f.Clone()} {
			res := scheduler.Schedule(fleet, []cluster.Pending{p}, scheduler.Options{})
			if len(res.Placements) != 1 || res.Placements[0].Node != c.want {
				t.Errorf("%s: got %+v, want %s", c.story, res, c.want)
			}
		}
	}
	set("d", 2, as)
	for _, v := range scheduler.Explain(f, p, scheduler.Options{}) {
		data := slices.ContainsFunc(v.Parts, func(part scheduler.Part) bool { return part.Name == "data" })
		if data != (v.Node == "d") {
			t.Errorf("%s got the parts %+v", v.Node, v.Parts)
		}
	}
	if len(p.Placement.Affinities) != 1 {
		t.Errorf("the requested task got affinities: %+v", p.Placement.Affinities)
	}
}

// The newest copy is the one of the newest plan, even if its leader's clock was behind. A restored store starts a new
// incarnation.
func TestNewestCopyWithAClockThatGoesBack(t *testing.T) {
	t.Parallel()
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	for _, c := range []struct {
		story  string
		copies map[string]cluster.StickyCopy
		want   string
	}{
		{"the next leader's clock is an hour behind", map[string]cluster.StickyCopy{
			"a": {Placed: at(7200), Incarnation: 1, Plan: 8}, "b": {Placed: at(3600), Incarnation: 1, Plan: 9},
			"d": {Placed: at(7100), Incarnation: 1, Plan: 7},
		}, "b"},
		{"a store of an older backup", map[string]cluster.StickyCopy{
			"a": {Placed: at(7200), Incarnation: 1, Plan: 80}, "b": {Placed: at(7000), Incarnation: 2, Plan: 9},
		}, "b"},
	} {
		f := scheduler.NewFleet()
		for _, name := range []string{"a", "b", "d"} {
			n := numaNode(name)
			n.Folders = &cluster.FolderFacts{}
			if s, ok := c.copies[name]; ok {
				s.Key = "c/db/data.0"
				n.Folders.Sticky = []cluster.StickyCopy{s}
			}
			f.SetNode(n)
		}
		p := pinnedPending("db", 0, "")
		p.Sticky = []string{"c/db/data.0"}
		if res := scheduler.Schedule(f, []cluster.Pending{p}, scheduler.Options{}); len(res.Placements) != 1 ||
			res.Placements[0].Node != c.want {
			t.Errorf("%s: got %+v, want %s", c.story, res, c.want)
		}
	}
}

// A folder that a node does not share is refused with a sentence that says what would help, under the reason volume.
func TestFolders(t *testing.T) {
	t.Parallel()
	f := scheduler.NewFleet()
	set := func(name string, folders *cluster.FolderFacts) {
		n := numaNode(name)
		n.Folders = folders
		f.SetNode(n)
	}
	set("any", nil)
	set("some", &cluster.FolderFacts{
		HostVolumes: []cluster.HostVolume{{Name: "m", ReadOnly: true}},
		Paths:       []string{"/srv"},
	})
	for _, c := range []struct {
		volume   cluster.Volume
		readOnly bool
		want     string
	}{
		{cluster.Volume{Name: "v", HostVolume: "m"}, true, "some"},
		{
			cluster.Volume{Name: "v", HostVolume: "m"},
			false,
			`1 node: it declares no host volume "m": start its agent with --host-volume m=PATH; 1 node: its host volume "m" is read-only and the task mounts it to write: mount it with read_only`,
		},
		{
			cluster.Volume{Name: "v", HostVolume: "x"},
			true,
			`2 nodes: it declares no host volume "x": start its agent with --host-volume x=PATH`,
		},
		{cluster.Volume{Name: "v", Host: "/srv/x"}, true, "any some"},
		{cluster.Volume{Name: "v", Host: "/srvx"}, true, "any"},
		{cluster.Volume{Name: "v", Sticky: true}, false, "any some"},
		{cluster.Volume{Name: "v"}, false, "any some"},
	} {
		def := cluster.TaskDefinition{
			Volumes:    []cluster.Volume{c.volume},
			Containers: []cluster.Container{{Mounts: []cluster.Mount{{Volume: "v", Path: "/v", ReadOnly: c.readOnly}}}},
		}
		p := pinnedPending("db", 0, "")
		p.Placement.Constraints = def.Needs()
		var takes []string
		for _, v := range scheduler.Explain(f, p, scheduler.Options{}) {
			if v.Refusal == nil {
				takes = append(takes, v.Node)
			} else if v.Refusal.Code != cluster.ReasonVolume {
				t.Errorf("%+v: refused for %s", c.volume, v.Refusal.Code)
			}
		}
		got := strings.Join(takes, " ")
		if res := scheduler.Schedule(f, []cluster.Pending{p}, scheduler.Options{}); len(res.Waiting) > 0 {
			got = res.Waiting[0].Sentence
		}
		if got != c.want {
			t.Errorf("%+v, read-only %v: got %q, want %q", c.volume, c.readOnly, got, c.want)
		}
	}
}
