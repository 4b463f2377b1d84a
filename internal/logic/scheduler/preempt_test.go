package scheduler_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/testkit"
)

// cost is the cost of victims: the highest priority, the sum of priorities, the number.
type cost [3]int

func (c cost) compare(o cost) int { return slices.Compare(c[:], o[:]) }

// without returns the world without some reservations.
func (w world) without(uuids ...string) world {
	w.held = slices.DeleteFunc(slices.Clone(w.held), func(r scheduler.Reservation) bool {
		return slices.Contains(uuids, r.UUID)
	})
	w.known = map[asked]spreadOf{}
	return w
}

// offer is a world with victims.
type offer struct {
	world
	victims []scheduler.Victim
	spare   map[cluster.OwnerRef]int
	least   int
}

// after returns the offer after some victims have ended.
func (o offer) after(uuids []string) offer {
	o.world = o.without(uuids...)
	spare := map[cluster.OwnerRef]int{}
	for owner, n := range o.spare {
		for _, v := range o.victims {
			if v.Owner == owner && !v.Unhealthy && slices.Contains(uuids, v.UUID) {
				n--
			}
		}
		spare[owner] = n
	}
	o.spare = spare
	return o
}

// holds reports whether a victim still has a reservation.
func (o offer) holds(v scheduler.Victim) bool {
	return slices.ContainsFunc(o.held, func(r scheduler.Reservation) bool { return r.UUID == v.UUID })
}

// units returns the sets of victims of a node that may end together for a task.
func (o offer) units(node string, p cluster.Pending) (units [][]scheduler.Victim) {
	for i, v := range o.victims {
		var unit []scheduler.Victim
		ours, first := false, true
		for j, other := range o.victims {
			if i != j && (v.Gang == "" || other.Gang != v.Gang) || other.Leaving || !o.holds(other) {
				continue
			}
			first = first && j >= i
			unit = append(unit, other)
			ours = ours || slices.ContainsFunc(o.held, func(r scheduler.Reservation) bool {
				return r.UUID == other.UUID && r.Node == node
			})
		}
		if ours && first && !v.Leaving && !slices.ContainsFunc(unit, func(v scheduler.Victim) bool {
			return v.Priority > p.Priority-max(o.least, 1)
		}) {
			units = append(units, unit)
		}
	}
	return units
}

// price returns the cost of a set of victims; ok is false if their owners cannot spare them.
func (o offer) price(victims []scheduler.Victim) (c cost, ok bool) {
	lost := map[cluster.OwnerRef]int{}
	for _, v := range victims {
		c = cost{max(c[0], v.Priority), c[1] + v.Priority, c[2] + 1}
		if !v.Unhealthy {
			lost[v.Owner]++
		}
	}
	for owner, n := range lost {
		if spare, bound := o.spare[owner]; bound && n > spare {
			return c, false
		}
	}
	return c, true
}

// cheapest tries every set of victims of every node.
func (o offer) cheapest(p cluster.Pending) (least cost, found bool) {
	for n := range o.nodes {
		units := o.units(o.nodes[n].Name, p)
		for set := range 1 << len(units) {
			var victims []scheduler.Victim
			for i := range units {
				if set&(1<<i) != 0 {
					victims = append(victims, units[i]...)
				}
			}
			c, ok := o.price(victims)
			if !ok || found && c.compare(least) >= 0 || o.without(uuidsOf(victims)...).refusal(n, p).Code != "" {
				continue
			}
			least, found = c, true
		}
	}
	return least, found
}

func uuidsOf(victims []scheduler.Victim) (uuids []string) {
	for _, v := range victims {
		uuids = append(uuids, v.UUID)
	}
	return uuids
}

// with returns the world with a task placed on a node.
func (w world) with(p cluster.Pending, node, uuid string) world {
	n := slices.IndexFunc(w.nodes, func(n scheduler.Node) bool { return n.Name == node })
	pl := scheduler.Placement{Task: p.Task, Node: node, Ports: w.assign(n, p)}
	pl.Devices, _ = w.devices(n, p)
	w.held = append(slices.Clone(w.held), pl.Reservation(&p, uuid))
	w.known = map[asked]spreadOf{}
	return w
}

// drawOffer draws a small full world of victims, and waiting tasks.
func drawOffer(t *rapid.T) (o offer, pending []cluster.Pending) {
	var names []string
	for i := range 1 + upTo(t, "nodes", 2) {
		names = append(names, fmt.Sprintf("n%d", i))
		n := drawNode(t, names[i])
		if !oneIn(t, "as drawn", 8) {
			n.State, n.Cordon, n.Drain, n.Taints, n.Pool, n.ReservedPorts = cluster.NodeReady, false, false, nil, "",
				nil
			n.Reserved = nil
			n.Executors = []string{"containerd", "process"}
		}
		n.Capacity.CPU = cluster.MilliCPU(pick(t, "small", 500, 1500, 2000))
		n.Capacity.Memory = max(n.Capacity.Memory, 2*cluster.GiB)
		o.nodes = append(o.nodes, n)
	}
	for i := range 3 + upTo(t, "held", 9) {
		task, definition := drawHeld(t, 200+i)
		o.held = append(o.held, scheduler.Reservation{
			Labels: drawHeldLabels(t), Away: drawAway(t), Devices: drawUses(t),
			UUID: fmt.Sprintf("held-%d", i), Task: task, Definition: definition, Node: pick(t, "node", names...),
			Demand: drawDemand(t), Ports: pick(t, "ports", nil, []int{8080}, []int{443, 80}),
		})
	}
	for i := range 1 + upTo(t, "owners", 1) {
		pending = append(pending, drawOwner(t, fmt.Sprintf("o%d", i), names)...)
	}
	for i := range pending {
		pending[i].Concurrency = nil // TestNothingEndsForLimits has limits
		if rapid.Bool().Draw(t, "plain") {
			p := &pending[i]
			p.OnlyNode, p.ExcludedNodes, p.Placement.Constraints, p.Placement.Pool = "", nil, nil, ""
			pending[i].Placement.Reservation = ""
		}
		if pending[i].Demand.CPU > 0 {
			pending[i].Demand.CPU += cluster.MilliCPU(pick(t, "more", 0, 300, 400))
		}
	}
	for i, r := range o.held {
		if oneIn(t, "no victim", 6) {
			continue
		}
		v := scheduler.Victim{
			UUID: r.UUID, Priority: pick(t, "victim's priority", 1, 100, 100, 200, 400, 500),
			Owner: cluster.OwnerRef{
				Kind: cluster.KindService, Cluster: "c",
				Name: pick(t, "victim's owner", "x", "y"),
			},
			Leaving: oneIn(t, "leaving", 8), Unhealthy: oneIn(t, "unhealthy", 6),
		}
		if oneIn(t, "in a gang", 5) {
			v.Gang = pick(t, "victims' gang", "k", "l")
		}
		o.held[i].Priority = v.Priority
		o.victims = append(o.victims, v)
	}
	o.spare = map[cluster.OwnerRef]int{}
	for _, name := range []string{"x", "y"} {
		if rapid.Bool().Draw(t, "bound") {
			o.spare[cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: name}] = upTo(t, "spare", 2)
		}
	}
	o.least = pick(t, "least", 0, 1, 1, 100, 300)
	return o, pending
}

func (o offer) input(pending []cluster.Pending) scheduler.PreemptInput {
	return scheduler.PreemptInput{
		Fleet: o.fleet(), Waiting: pending, Victims: o.victims, Spare: o.spare,
		Least: o.least,
	}
}

// gone returns the offer without leaving victims.
func (o offer) gone() offer {
	var leaving []string
	for _, v := range o.victims {
		if v.Leaving {
			leaving = append(leaving, v.UUID)
		}
	}
	o.world = o.without(leaving...)
	return o
}

// TestPreemptSameAsModel compares Preempt with a search of all sets of victims of all nodes. A task gets a node exactly
// if one can be had, at the lowest cost after the tasks before it. No victim is superfluous.
func TestPreemptSameAsModel(t *testing.T) {
	cases := map[string]int{}
	property := func(t *rapid.T) {
		o, pending := drawOffer(t)
		for i := range pending {
			pending[i].Gang, pending[i].GangSize = "", 0
		}
		got := scheduler.Preempt(o.input(pending), scheduler.Options{})
		model := o.gone()
		order := make([]int, len(pending))
		for i := range order {
			order[i] = i
		}
		slices.SortFunc(order, func(i, j int) int {
			a, b := pending[i], pending[j]
			return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.Since.Compare(b.Since), cmp.Compare(a.Task, b.Task))
		})
		for _, i := range order {
			p := pending[i]
			want, possible := model.cheapest(p)
			possible = possible && p.Priority > 0
			if served := len(got) > 0 && got[0].Pending == i; served != possible {
				t.Fatalf("%s: served: %v, want %v at %v", p.Task, served, possible, want)
			}
			if !possible {
				cases["refused"]++
				continue
			}
			cases[fmt.Sprint("victims: ", len(got[0].Victims))]++
			model = checkOne(t, model, p, got[0], want)
			got = got[1:]
		}
	}
	testkit.CheckRounds(t, 5, property, nil)
	for _, name := range []string{"refused", "victims: 0", "victims: 1", "victims: 2", "victims: 3"} {
		if cases[name] < 5 {
			t.Errorf("%d cases of %q: %v", cases[name], name, cases)
		}
	}
}

// checkOne compares one preemption with its expected cost, and returns the offer after it.
func checkOne(t *rapid.T, model offer, p cluster.Pending, got scheduler.Preemption, want cost) offer {
	t.Helper()
	var victims []scheduler.Victim
	for _, v := range model.victims {
		if slices.Contains(got.Victims, v.UUID) {
			victims = append(victims, v)
		}
	}
	price, ok := model.price(victims)
	if !ok || price != want || !slices.IsSorted(got.Victims) || len(victims) != len(got.Victims) {
		t.Fatalf("%s: %+v costs %v (can be spared: %v), want %v", p.Task, got, price, ok, want)
	}
	n := slices.IndexFunc(model.nodes, func(n scheduler.Node) bool { return n.Name == got.Node })
	left := model.after(got.Victims)
	if r := left.refusal(n, p); r.Code != "" {
		t.Fatalf("%s: %+v: the node still refuses: %+v", p.Task, got, r)
	}
	for _, unit := range model.units(got.Node, p) {
		if !slices.Contains(got.Victims, unit[0].UUID) {
			continue
		}
		others := slices.DeleteFunc(slices.Clone(got.Victims), func(uuid string) bool {
			return slices.Contains(uuidsOf(unit), uuid)
		})
		if model.without(others...).refusal(n, p).Code == "" {
			t.Fatalf("%s: %+v: %v need not end", p.Task, got, uuidsOf(unit))
		}
	}
	left.world = left.with(p, got.Node, "placed "+string(p.Task))
	return left
}

// TestPreemptIsCarriedOut checks that Schedule places each task on its promised node after the victims have ended.
// Gangs get room as a whole or not at all, and the order of the input does not matter.
func TestPreemptIsCarriedOut(t *testing.T) {
	gangs, cases, others := 0, 0, 0
	property := func(t *rapid.T) {
		cases++
		o, pending := drawOffer(t)
		for i := range pending { // a task that a relation requires may have to end for a later task
			pending[i].Placement.Relations = slices.DeleteFunc(slices.Clone(pending[i].Placement.Relations),
				func(r cluster.Relation) bool { return !r.Away })
		}
		in := o.input(pending)
		got := scheduler.Preempt(in, scheduler.Options{})

		members, waiting := map[string]int{}, slices.Clone(pending)
		for i := range waiting {
			waiting[i].Promised = "" // an older promise is void
		}
		want := map[cluster.TaskID]string{}
		for _, pr := range got {
			p := &waiting[pr.Pending]
			p.Promised = pr.Node
			want[p.Task] = pr.Node
			members[p.Gang]++
			for _, uuid := range pr.Victims {
				in.Fleet.Release(uuid)
			}
		}
		for _, p := range pending {
			if n := members[p.Gang]; p.Gang != "" && p.Priority > 0 && n > 0 {
				gangs++
				if n < p.GangSize {
					t.Fatalf("%d of %d of gang %s: %+v", n, p.GangSize, p.Gang, got)
				}
			}
		}
		for _, v := range o.victims {
			if v.Leaving {
				in.Fleet.Release(v.UUID)
			}
		}
		placed := map[cluster.TaskID]string{}
		for _, pl := range scheduler.Schedule(in.Fleet, waiting, scheduler.Options{}).Placements {
			placed[pl.Task] = pl.Node
		}
		// Victims that end on one node may let another task onto another node. That task may take what a later task was
		// promised.
		more := false
		for task := range placed {
			more = more || want[task] == ""
		}
		if more {
			others++
		} else if diff := gocmp.Diff(want, placed); diff != "" {
			t.Fatalf("placed after what ended (-promised +got):\n%s", diff)
		}

		again := o
		again.victims = rapid.Permutation(o.victims).Draw(t, "victims")
		for i, pr := range scheduler.Preempt(again.input(pending), scheduler.Options{}) {
			if diff := gocmp.Diff(got[i], pr); diff != "" {
				t.Fatalf("in another order (-want +got):\n%s", diff)
			}
		}
	}
	testkit.CheckRounds(t, 3, property, nil)
	if gangs < 20 || others > cases/20 {
		t.Errorf("%d gangs; in %d of %d cases others found room", gangs, others, cases)
	}
}

// keep models promised room of waiting tasks: reservations of no task.
func (m *model) keep(waiting []int) {
	for _, i := range waiting {
		p := m.pending[i]
		n := m.keeps(p)
		if n < 0 {
			continue
		}
		kept := scheduler.Reservation{UUID: keptFor(p), Node: p.Promised, Demand: p.Demand}
		kept.Devices, _ = m.devicesOrSome(n, p, true)
		taken := m.taken(n)
		for _, port := range p.Ports {
			if port.Port != 0 && !taken[port.Port] {
				kept.Ports = append(kept.Ports, port.Port)
			}
		}
		clear(m.known)
		m.held = append(slices.Clone(m.held), kept)
	}
}

// keeps returns the index of the node that keeps room for the waiting task, or -1.
func (m *model) keeps(p cluster.Pending) int {
	return slices.IndexFunc(m.nodes, func(n scheduler.Node) bool { return n.Name == p.Promised })
}

func (m *model) unkeep(i int) {
	m.held = slices.DeleteFunc(slices.Clone(m.held), func(r scheduler.Reservation) bool {
		return r.UUID == keptFor(m.pending[i])
	})
	clear(m.known)
}

func keptFor(p cluster.Pending) string { return "kept for " + string(p.Task) }

// TestNothingEndsForLimits has urgent tasks wait on full nodes: victims end only for as many as the limits of their
// cluster admit. A victim of the same cluster meets no limit.
func TestNothingEndsForLimits(t *testing.T) {
	for name, c := range map[string]struct {
		quota       *cluster.Quota
		concurrency *cluster.Concurrency
		want        int
	}{
		"no limit":               {nil, nil, 3},
		"a quota for two":        {&cluster.Quota{CPU: 5000}, nil, 2},
		"a full quota":           {&cluster.Quota{Tasks: 3}, nil, 0},
		"one of a group":         {nil, &cluster.Concurrency{Group: "x", Limit: 1}, 1},
		"no more than the quota": {&cluster.Quota{Jobs: 2}, nil, 3},
	} {
		t.Run(name, func(t *testing.T) {
			f := scheduler.NewFleet()
			f.Limits.SetQuota("c", c.quota)
			var in scheduler.PreemptInput
			for i := range 3 {
				node := fmt.Sprint("n", i)
				f.SetNode(scheduler.Node{
					Name: node, State: cluster.NodeReady, Executors: []string{"process"},
					Capacity: cluster.Demand{CPU: 1000},
				})
				f.Reserve(scheduler.Reservation{
					UUID: node, Task: cluster.JobTask("c", "old", 1, "s", i), Node: node, Priority: 1,
					Demand: cluster.Demand{CPU: 1000},
				})
				in.Victims = append(in.Victims, scheduler.Victim{UUID: node})
				in.Waiting = append(in.Waiting, cluster.Pending{
					Owner: cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "c", Name: "new"}, Priority: 900,
					Task: cluster.JobTask("c", "new", 1, "s", i), Demand: cluster.Demand{CPU: 1000},
					Concurrency: c.concurrency,
				})
			}
			in.Fleet = f
			if got := scheduler.Preempt(in, scheduler.Options{}); len(got) != c.want {
				t.Errorf("victims end for %d tasks, want %d: %+v", len(got), c.want, got)
			}
		})
	}
}
