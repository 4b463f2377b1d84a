package feasibility_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/feasibility"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
)

func noon() time.Time { return time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC) }

func pick[T any](t *rapid.T, name string, from ...T) T { return rapid.SampledFrom(from).Draw(t, name) }

// drawNode draws a node that may refuse a task for each reason.
func drawNode(t *rapid.T, name string) fleet.Node {
	n := fleet.Node{
		Name:   name,
		State:  pick(t, "state", cluster.NodeReady, cluster.NodeReady, cluster.NodeReady, cluster.NodeSuspect),
		Cordon: pick(t, "cordon", false, false, true), Pool: pick(t, "pool", "", "", "p"),
		Executors: pick(t, "executors", []string{"containerd", "process"}, []string{"containerd"}, []string{"process"},
			nil),
		Labels: cluster.Labels{
			"zone": pick(t, "zone", "a", "b"), "rack": pick(t, "rack", "1", "2", "3"), "host": name,
		},
		Taints: pick(t, "taints", nil, nil, []cluster.Taint{{Key: "x"}},
			[]cluster.Taint{{Key: "x", Value: "1", Effect: cluster.TaintAvoid}},
			[]cluster.Taint{{Key: "y", Effect: cluster.TaintEvict}, {Key: "x", Effect: cluster.TaintAvoid}}),
		Networks: pick(t, "networks", nil, []cluster.NetworkFact{{Mode: cluster.NetworkBridge}},
			[]cluster.NetworkFact{{Mode: cluster.NetworkBridge, Lacks: "nft"}}),
	}
	n.Drain = n.Cordon && pick(t, "drain", false, true)
	if pick(t, "reserved", false, false, true) {
		n.Reserved = []*cluster.Reservation{{
			Name: "r", From: noon().Add(time.Hour * time.Duration(pick(t, "from", -1, 1))),
			Until: noon().Add(2 * time.Hour), Clusters: []string{"c"},
		}}
	}
	return n
}

func drawTask(t *rapid.T) cluster.Pending {
	p := cluster.Pending{
		Task:       cluster.TaskID(pick(t, "cluster", "c", "d") + ".web.1.0"),
		Daemon:     pick(t, "daemon", false, false, true),
		NeedsImage: pick(t, "image", false, true),
		Plain:      pick(t, "plain", false, false, true),
		Network:    pick(t, "network", "", "", cluster.NetworkBridge),
		TimeLimit:  cluster.Duration(pick(t, "limit", 0, time.Minute, 3*time.Hour)),
	}
	pl := &p.Placement
	pl.Pool, pl.Reservation = pick(t, "wanted pool", "", "", "p"), pick(t, "wanted reservation", "", "", "", "r")
	pl.Tolerations = pick(t, "tolerations", nil, nil, []cluster.Toleration{{Key: "x"}}, []cluster.Toleration{{}})
	all := []cluster.Constraint{
		{Attribute: "label.zone", Value: "a"},
		{Attribute: "label.rack", Op: cluster.OpIn, Values: []string{"1", "3"}},
		{Attribute: "label.rack", Op: cluster.OpMore, Value: "1"},
		{Attribute: "label.host", Op: cluster.OpNotEqual, Value: "n1"},
		{Attribute: "label.host", Value: "n2"},
		{Attribute: "node.name", Op: cluster.OpIn, Values: []string{"n0", "n2", "gone"}},
	}
	for range rapid.IntRange(0, 2).Draw(t, "constraints") {
		pl.Constraints = append(pl.Constraints, rapid.SampledFrom(all).Draw(t, "constraint"))
	}
	return p
}

// drawFleet draws a fleet of few nodes, in which some labels are fine, and some nodes have left.
func drawFleet(t *rapid.T) *fleet.Fleet {
	f := fleet.New()
	for i := range rapid.IntRange(0, 6).Draw(t, "nodes") {
		f.SetNode(drawNode(t, fmt.Sprint("n", i)))
	}
	if pick(t, "leaves", false, false, true) {
		f.RemoveNode("n1")
	}
	f.SwitchFineLabels(pick(t, "fine", nil, []string{"host"}, []string{"host", "rack"}))
	return f
}

// TestFiltersSameAsNodes compares filters, which read node classes, with a question to each node: a class is feasible
// exactly if a node of it takes the task, names aside.
func TestFiltersSameAsNodes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFleet(t)
		overlay := fleet.NewOverlay(f)
		filters := feasibility.NewFilters(&overlay)
		for range 3 { // tasks of one cycle share filters
			p := drawTask(t)
			got := filters.Of(&p, noon())
			var want, named []string
			wantPenalized, classes := map[string]bool{}, map[int32]bool{}
			for _, name := range f.Nodes() {
				n, _, _ := f.Node(name)
				isName := func(attribute string) bool { return attribute == fleet.NodeName }
				if code, _ := feasibility.Refusal(&p, noon(), &n, isName); code != "" {
					continue
				}
				want = append(want, name)
				classes[f.ClassOf(f.SlotNamed(name))] = true
				wantPenalized[name] = slices.ContainsFunc(n.Taints, func(taint cluster.Taint) bool {
					return taint.Effect == cluster.TaintAvoid &&
						!slices.ContainsFunc(p.Placement.Tolerations, func(o cluster.Toleration) bool {
							return o.Tolerates(taint)
						})
				})
				if code, _ := feasibility.Refusal(&p, noon(), &n, nil); code == "" {
					named = append(named, name)
				}
			}
			checkFilter(t, f, &overlay, got, want, named)
			for name, penalized := range wantPenalized {
				if got.IsPenalized(f.ClassOf(f.SlotNamed(name))) != penalized {
					t.Fatalf("%s comes last: %v, want %v", name, !penalized, penalized)
				}
			}
			if len(got.Feasible) != len(classes) || !slices.IsSorted(got.Feasible) {
				t.Fatalf("feasible classes %v, want those of %v in order", got.Feasible, want)
			}
			nodes := 0
			for class := range classes {
				if got.Mask&(1<<(class%64)) == 0 || !got.IsFeasible[class] {
					t.Fatalf("class %d is feasible, but not in the mask %b", class, got.Mask)
				}
				nodes += f.Catalog.Classes[class].Count
			}
			if got.Nodes != nodes {
				t.Fatalf("%d nodes of feasible classes, want %d", got.Nodes, nodes)
			}
		}
	})
}

// checkFilter compares the nodes that a filter visits, and those of them that meet constraints on names too.
func checkFilter(t *rapid.T, f *fleet.Fleet, nodes *fleet.Overlay, got *feasibility.Filter, want, named []string) {
	t.Helper()
	var visited, met []string
	got.VisitNodes(nodes, func(slot int32) {
		visited = append(visited, f.Name(slot))
		if got.MeetsPerNode(nodes.Node(slot)) {
			met = append(met, f.Name(slot))
		}
	})
	slices.Sort(visited)
	slices.Sort(met)
	if diff := cmp.Diff(want, visited) + cmp.Diff(named, met); diff != "" {
		t.Fatalf("nodes that take the task, names aside, and with names (-want +got):\n%s", diff)
	}
}

// TestBlockersNameTheRefusal checks that the blockers of a node begin with what Refusal answers, that there are none
// exactly if it answers nothing, and that the indices lead to what is not met.
func TestBlockersNameTheRefusal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, p := drawNode(t, "n1"), drawTask(t)
		code, about := feasibility.Refusal(&p, noon(), &n, nil)
		all := feasibility.Blockers(&p, noon(), &n)
		if len(all) == 0 != (code == "") {
			t.Fatalf("refusal %q with the blockers %+v", code, all)
		}
		if code != "" && (all[0].Code != code || all[0].Detail != about) {
			t.Fatalf("refusal %q about %q, and the first blocker is %+v", code, about, all[0])
		}
		for _, b := range all {
			switch b.Code {
			case cluster.ReasonConstraint:
				if feasibility.Matches(p.Placement.Constraints[b.Number], &n) {
					t.Fatalf("%+v: constraint %d is met", b, b.Number)
				}
			case cluster.ReasonTaint:
				if n.Taints[b.Number].Key == "" || n.Taints[b.Number].Effect == cluster.TaintAvoid {
					t.Fatalf("%+v: taint %d keeps no task away", b, b.Number)
				}
			default:
				if b.Number != -1 {
					t.Fatalf("%+v has an index", b)
				}
			}
		}
		allowed := feasibility.Allows(&p.Placement, &n, false)
		blocked := slices.ContainsFunc(all, func(b feasibility.Blocker) bool {
			return b.Code == cluster.ReasonPool || b.Code == cluster.ReasonTaint || b.Code == cluster.ReasonConstraint
		})
		if allowed == blocked {
			t.Fatalf("the placement allows the node: %v, with the blockers %+v", allowed, all)
		}
	})
}

// TestOnlyNode checks that a task for one node is blocked on all others.
func TestOnlyNode(t *testing.T) {
	p := cluster.Pending{OnlyNode: "n1"}
	for _, name := range []string{"n1", "n2"} {
		n := fleet.Node{Name: name, State: cluster.NodeReady, Executors: []string{"process"}}
		var want []feasibility.Blocker
		if name != "n1" {
			want = []feasibility.Blocker{{Refusal: feasibility.Elsewhere("n1"), Number: -1}}
		}
		if diff := cmp.Diff(want, feasibility.Blockers(&p, noon(), &n)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if got, want := feasibility.Elsewhere("n1").Detail, "node.name = n1"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestReservations has a node that is reserved for the cluster c from 13:00 to 15:00. It takes tasks of others only if
// they end in time, tasks that name the reservation only while it lasts, and daemons always.
func TestReservations(t *testing.T) {
	const kept = "kept by the reservation r from 2026-11-28T13:00:00Z until 2026-11-28T15:00:00Z"
	const not = "not kept now by the reservation "
	at := func(hour, minute int) time.Time { return time.Date(2026, 11, 28, hour, minute, 0, 0, time.UTC) }
	n := fleet.Node{
		Name: "n1", State: cluster.NodeReady, Executors: []string{"process"},
		Reserved: []*cluster.Reservation{{
			Name: "r", From: at(13, 0), Until: at(15, 0), Lead: cluster.Duration(time.Hour), Clusters: []string{"c"},
		}},
	}
	for name, c := range map[string]struct {
		task  cluster.Pending
		named string
		now   time.Time
		want  string
	}{
		"before the lead":               {cluster.Pending{Task: "d.x.1.0"}, "", at(11, 59), ""},
		"in the lead, without a limit":  {cluster.Pending{Task: "d.x.1.0"}, "", at(12, 0), kept},
		"in the lead, ends in time":     {cluster.Pending{Task: "d.x.1.0", TimeLimit: hours(1)}, "", at(12, 0), ""},
		"in the lead, ends too late":    {cluster.Pending{Task: "d.x.1.0", TimeLimit: hours(1)}, "", at(12, 1), kept},
		"while it lasts":                {cluster.Pending{Task: "d.x.1.0", TimeLimit: 1}, "", at(13, 0), kept},
		"while it lasts, a daemon":      {cluster.Pending{Task: "d.x.1.0", Daemon: true}, "", at(14, 0), ""},
		"while it lasts, its cluster":   {cluster.Pending{Task: "c.x.1.0"}, "", at(14, 0), ""},
		"while it lasts, by its name":   {cluster.Pending{Task: "c.x.1.0"}, "r", at(14, 0), ""},
		"by its name, too early":        {cluster.Pending{Task: "c.x.1.0"}, "r", at(12, 59), not + "r"},
		"by its name, of others":        {cluster.Pending{Task: "d.x.1.0"}, "r", at(11, 0), not + "r"},
		"by the name of another":        {cluster.Pending{Task: "c.x.1.0"}, "s", at(14, 0), kept},
		"after it":                      {cluster.Pending{Task: "d.x.1.0"}, "", at(15, 0), ""},
		"by its name, after it":         {cluster.Pending{Task: "c.x.1.0"}, "r", at(15, 0), not + "r"},
		"by a name that no node knows":  {cluster.Pending{Task: "c.x.1.0"}, "s", at(11, 0), not + "s"},
		"a daemon that names it, early": {cluster.Pending{Task: "c.x.1.0", Daemon: true}, "r", at(11, 0), not + "r"},
	} {
		c.task.Placement.Reservation = c.named
		code, about := feasibility.Refusal(&c.task, c.now, &n, nil)
		if about != c.want || (code == cluster.ReasonReserved) != (c.want != "") {
			t.Errorf("%s: got %s %q, want %q", name, code, about, c.want)
		}
	}
}

func hours(n int) cluster.Duration { return cluster.Duration(n) * cluster.Duration(time.Hour) }

// TestVersionsAreOrdered checks that versions have one order: of two versions one is at least the other, and what is at
// least a second version, which is at least a third, is at least the third.
func TestVersionsAreOrdered(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		version := rapid.StringMatching(`v?[0-9]{1,3}(\.[0-9]{0,2}){0,3}(-[a-z]{1,3})?`)
		a, b, c := version.Draw(t, "a"), version.Draw(t, "b"), version.Draw(t, "c")
		atLeast := func(a, b string) bool {
			n := &fleet.Node{Kernel: a}
			op := feasibility.Matches(cluster.Constraint{Attribute: "node.kernel", Op: cluster.OpAtLeast, Value: b}, n)
			other := &fleet.Node{Kernel: b}
			if op != feasibility.Matches(
				cluster.Constraint{Attribute: "node.kernel", Op: cluster.OpAtMost, Value: a}, other,
			) {
				t.Fatalf("%s >= %s is not %s <= %s", a, b, b, a)
			}
			return op
		}
		if !atLeast(a, b) && !atLeast(b, a) || !atLeast(a, a) {
			t.Fatalf("%q and %q have no order", a, b)
		}
		if atLeast(a, b) && atLeast(b, c) && !atLeast(a, c) {
			t.Fatalf("%q, %q and %q have no order", a, b, c)
		}
	})
}

// TestNamedValues checks that the named values are the only ones that meet a constraint.
func TestNamedValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := cluster.Constraint{
			Attribute: "label.x", Op: pick(t, "op", append(cluster.OpEqual.Values(), "", "~")...),
			Value:  pick(t, "value", "", "1", "2"),
			Values: pick(t, "values", nil, []string{"1"}, []string{"2", "3", ""}),
		}
		values, few := feasibility.NamedValues(c)
		for _, v := range []string{"", "0", "1", "2", "3"} {
			met := feasibility.Matches(c, &fleet.Node{Labels: cluster.Labels{"x": v}})
			if few && met != slices.Contains(values, v) {
				t.Fatalf("%s is met by %q: %v, but the values that meet it are %q", feasibility.Text(c), v, met, values)
			}
		}
	})
}

// TestVolumeTexts checks what the refusal says of a volume that is elsewhere.
func TestVolumeTexts(t *testing.T) {
	for nodes, want := range map[int]string{
		1: "the data of its volume db/data is on n1",
		3: "the data of its volume db/data is on n1, n2, n3",
		5: "the data of its volume db/data is on n1, n2, n3 and 2 more",
	} {
		c := cluster.Constraint{Attribute: fleet.AttributeVolume, Op: cluster.OpExists, Value: "c/db/data"}
		for i := range nodes {
			c.Values = append(c.Values, fmt.Sprint("n", i+1))
		}
		n := fleet.Node{State: cluster.NodeReady, Executors: []string{"process"}}
		p := cluster.Pending{Placement: cluster.Placement{Constraints: []cluster.Constraint{c}}}
		code, got := feasibility.Refusal(&p, noon(), &n, nil)
		if got != want || code != cluster.ReasonVolume {
			t.Errorf("on %d nodes: got %s %q, want %q", nodes, code, got, want)
		}
		n.Volumes = []string{"c/db/data"}
		if code, about := feasibility.Refusal(&p, noon(), &n, nil); code != "" {
			t.Errorf("on a node with the volume: got %s %q", code, about)
		}
	}
}
