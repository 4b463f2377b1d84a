package scheduler_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// epoch is when the oldest generated task began to wait.
func epoch() time.Time { return time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC) }

func pick[T any](t *rapid.T, name string, from ...T) T { return rapid.SampledFrom(from).Draw(t, name) }

// oneIn is true once in n draws or so. It shrinks to false.
func oneIn(t *rapid.T, name string, n int) bool {
	hits := make([]bool, n)
	hits[n-1] = true
	return pick(t, name, hits...)
}

func upTo(t *rapid.T, name string, most int) int { return rapid.IntRange(0, most).Draw(t, name) }

// drawNode draws a node; most are ready.
func drawNode(t *rapid.T, name string) scheduler.Node {
	both := []string{"containerd", "process"}
	n := scheduler.Node{
		Name:      name,
		State:     cluster.NodeReady,
		Cordon:    oneIn(t, "cordon", 10),
		Arch:      pick(t, "arch", "amd64", "arm64"),
		Kernel:    pick(t, "kernel", "5.10.0-3", "6.1.0-18-amd64", ""),
		Executors: pick(t, "executors", both, both, both, both, both[:1], both[:1], both[:1], both[1:], both[1:], nil),
		Labels:    cluster.Labels{"zone": pick(t, "zone", "a", "b", "c")},
		Capacity: cluster.Demand{
			CPU:    cluster.MilliCPU(pick(t, "cpu", 4000, 8000, 4000, 2000, 500, 0)),
			Memory: pick(t, "memory", 8*cluster.GiB, 16*cluster.GiB, 4*cluster.GiB, cluster.GiB, 0),
			Disk:   pick(t, "disk", 20*cluster.GiB, 50*cluster.GiB, 10*cluster.GiB, cluster.GiB, 0),
		},
	}
	if oneIn(t, "drain", 20) {
		n.Cordon, n.Drain = true, true
	}
	if oneIn(t, "not ready", 8) {
		n.State = pick(t, "state", cluster.NodeSuspect, cluster.NodeDown, cluster.NodeDraining)
	}
	switch pick(t, "reserved", "", "", "", "most", "some") {
	case "some":
		n.ReservedPorts = []int{22, 80, 9000}
	case "most": // all but few of those to be assigned
		for p := cluster.FirstAutoPort + upTo(t, "first", 2); p <= cluster.LastAutoPort-upTo(t, "last", 2); p++ {
			n.ReservedPorts = append(n.ReservedPorts, p)
		}
	}
	return n
}

func drawDemand(t *rapid.T) cluster.Demand {
	return cluster.Demand{
		CPU:    cluster.MilliCPU(pick(t, "cpu", 0, 100, 100, 250, 250, 1000, 1500)),
		Memory: pick(t, "memory", 0, 100*cluster.MiB, 200*cluster.MiB, cluster.GiB, 3*cluster.GiB),
		Disk:   pick(t, "disk", 0, 0, 0, cluster.GiB, 5*cluster.GiB),
	}
}

func drawConstraint(t *rapid.T) cluster.Constraint {
	return pick(t, "constraint",
		cluster.Constraint{Attribute: "label.zone", Value: "a"},
		cluster.Constraint{Attribute: "label.zone", Op: cluster.OpNotEqual, Value: "b"},
		cluster.Constraint{Attribute: "label.zone", Op: cluster.OpIn, Values: []string{"a", "b"}},
		cluster.Constraint{Attribute: "node.arch", Op: cluster.OpNotIn, Values: []string{"arm64"}},
		cluster.Constraint{Attribute: "node.kernel", Op: cluster.OpAtLeast, Value: "6.1"},
		cluster.Constraint{Attribute: "node.executor", Value: "process"},
		cluster.Constraint{Attribute: "label.gpu", Op: cluster.OpExists},
	)
}

// drawDefinition draws one of few definitions. That of a pending task is always known.
func drawDefinition(t *rapid.T) cluster.Ref {
	return cluster.Ref{Name: "w", Version: 1 + upTo(t, "version", 1)}
}

// drawHeld draws the task of a reservation, and its definition.
func drawHeld(t *rapid.T, index int) (cluster.TaskID, cluster.Ref) {
	owner, step := pick(t, "owner", "o0", "o1", "o2", "old"), pick(t, "step", "", "", ".s")
	id := cluster.TaskID(fmt.Sprintf("c.%s.%d%s.%d", owner, 1+upTo(t, "generation", 1), step, index))
	if owner == "o0" && oneIn(t, "unknown definition", 3) { // its pending tasks are of one generation
		return id, cluster.Ref{}
	}
	return id, drawDefinition(t)
}

// drawOwner draws some tasks of one owner that ask for the same.
func drawOwner(t *rapid.T, owner string, names []string) []cluster.Pending {
	p := cluster.Pending{
		Attempt:    1 + upTo(t, "attempt", 1),
		Owner:      cluster.OwnerRef{Kind: pick(t, "kind", cluster.KindService, cluster.KindJob), Cluster: "c", Name: owner},
		Priority:   pick(t, "priority", 500, 500, 500, 900, 900, 500, 500, 0),
		Demand:     drawDemand(t),
		NeedsImage: rapid.Bool().Draw(t, "image"),
		Since:      epoch().Add(time.Duration(upTo(t, "since", 2)) * time.Second),
		Placement: cluster.Placement{
			Strategy:     pick(t, "strategy", "", cluster.StrategyBinpack, cluster.StrategySpread),
			AntiAffinity: pick(t, "apart", "", "", cluster.AntiAffinityNone, cluster.AntiAffinityPrefer, cluster.AntiAffinityDemand),
		},
		Ports: pick(t, "ports", nil, nil, nil, []cluster.Port{{Name: "http"}}, []cluster.Port{{Name: "http", Port: 8080}},
			[]cluster.Port{{Name: "a"}, {Name: "b", Port: 30001}, {Name: "c"}},
			[]cluster.Port{{Name: "x", Port: 443}, {Name: "y", Port: 8080}, {Name: "z"}}),
	}
	step := ""
	if p.Owner.Kind == cluster.KindJob {
		step = ".s"
	} else {
		p.Definition, p.Restarted = drawDefinition(t), uint64(upTo(t, "restarted", 3))
	}
	if oneIn(t, "daemon", 8) {
		p.Daemon = true
	}
	if oneIn(t, "constrained", 4) {
		p.Placement.Constraints = append(p.Placement.Constraints, drawConstraint(t))
	}
	var pending []cluster.Pending
	for i := range 1 + upTo(t, "count", 7) {
		q := p
		q.Task = cluster.TaskID(fmt.Sprintf("c.%s.1%s.%d", owner, step, i))
		if owner != "o0" && oneIn(t, "older", 6) {
			q.Task = cluster.TaskID(fmt.Sprintf("c.%s.2%s.%d", owner, step, i))
		}
		if oneIn(t, "odd", 8) { // some differ from the others
			q.Demand = drawDemand(t)
		}
		if oneIn(t, "odd image", 8) {
			q.NeedsImage = !q.NeedsImage
		}
		if oneIn(t, "odd strategy", 8) {
			q.Placement.Strategy = pick(t, "odd strategy", cluster.StrategyBinpack, cluster.StrategySpread)
		}
		if oneIn(t, "again", 6) && len(names) > 0 {
			q.Avoid = []string{pick(t, "avoid", names...)}
		}
		if oneIn(t, "failed", 4) && len(names) > 0 {
			q.Shun = slices.Compact([]string{pick(t, "shun", names...), "unknown"})
		}
		if oneIn(t, "one node", 8) {
			q.Only = pick(t, "only", append([]string{"unknown"}, names...)...)
		}
		if oneIn(t, "other version", 8) && step == "" {
			q.Definition = drawDefinition(t)
		}
		if oneIn(t, "later", 4) {
			q.Since = epoch().Add(time.Minute)
		}
		pending = append(pending, q)
	}
	return pending
}

// drawWorld draws nodes, what is reserved on them, and pending tasks.
func drawWorld(t *rapid.T) (w world, pending []cluster.Pending) {
	var names []string
	for i := range pick(t, "nodes", 6, 4, 9, 7, 5, 3, 2, 1, 8, 0) {
		names = append(names, fmt.Sprintf("n%d", i))
		w.nodes = append(w.nodes, drawNode(t, names[i]))
	}
	for i := range upTo(t, "held", 6) {
		task, definition := drawHeld(t, 100+i)
		w.held = append(w.held, scheduler.Reservation{
			UUID: fmt.Sprintf("held-%d", i), Task: task, Definition: definition,
			Node:   pick(t, "node", append([]string{"unknown"}, names...)...),
			Demand: drawDemand(t),
			Ports:  pick(t, "ports", nil, []int{8080}, []int{30001, 30000}),
		})
	}
	for i := range 1 + upTo(t, "owners", 4) {
		pending = append(pending, drawOwner(t, fmt.Sprintf("o%d", i), names)...)
	}
	return w, pending
}

func sameResult(t *rapid.T, what string, got, want scheduler.Result) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}

// TestSameAsModel holds Schedule against the model, and makes sure that the generated worlds
// show both sides: at least 30 % of the tasks are placed, and at least 30 % refused.
func TestSameAsModel(t *testing.T) {
	placed, refused := 0, 0
	codes := map[cluster.ReasonCode]int{}
	property := func(t *rapid.T) {
		w, pending := drawWorld(t)
		got := scheduler.Schedule(w.fleet(), pending, scheduler.Options{})
		sameResult(t, "differs from the model", got, w.decide(pending))
		placed += len(got.Placements)
		refused += len(got.Waiting)
		for _, waiting := range got.Waiting {
			for _, r := range waiting.Refusals {
				codes[r.Code]++
			}
		}
	}
	for range 5 { // enough worlds for the shares below to be steady
		rapid.Check(t, property)
	}
	if total := placed + refused; 10*placed < 3*total || 10*refused < 3*total {
		t.Errorf("of %d tasks %d were placed and %d refused, want 30 %% or more of each", total, placed, refused)
	}
	if testing.Verbose() {
		t.Logf("%d placed, %d refused, reasons: %v", placed, refused, codes)
	}
	for _, code := range []cluster.ReasonCode{
		cluster.ReasonNoNodes, cluster.ReasonNodeNotReady, cluster.ReasonCordoned, cluster.ReasonConstraint,
		cluster.ReasonShortCPU, cluster.ReasonShortMemory, cluster.ReasonShortDisk, cluster.ReasonPort,
		cluster.ReasonPortsSpent, cluster.ReasonAntiAffinity, cluster.ReasonOldAttempt, cluster.ReasonHold,
		cluster.ReasonNoExecutor,
	} {
		if codes[code] == 0 {
			t.Errorf("no generated task was refused for %q", code)
		}
	}
}

// TestSamePlanForAnyOrder shuffles the tasks, the nodes and the reservations.
func TestSamePlanForAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, pending := drawWorld(t)
		want := scheduler.Schedule(w.fleet(), pending, scheduler.Options{})
		shuffled := rapid.Permutation(pending).Draw(t, "pending")
		v := world{
			nodes: rapid.Permutation(w.nodes).Draw(t, "nodes"),
			held:  rapid.Permutation(w.held).Draw(t, "held"),
		}
		f := v.fleet()
		got := scheduler.Schedule(f, shuffled, scheduler.Options{})
		for i := range got.Placements { // the index speaks of the order of the input
			p := &got.Placements[i]
			if shuffled[p.Pending].Task != p.Task {
				t.Fatalf("placement of %s has the index of %s", p.Task, shuffled[p.Pending].Task)
			}
			p.Pending = slices.IndexFunc(pending, func(q cluster.Pending) bool { return q.Task == p.Task })
		}
		sameResult(t, "the order matters", got, want)
	})
}

// apply reserves what was placed and returns what was not.
func apply(f *scheduler.Fleet, pending []cluster.Pending, res scheduler.Result) (left []cluster.Pending) {
	placed := map[cluster.TaskID]bool{}
	for i := range res.Placements {
		p := &res.Placements[i]
		q := &pending[p.Pending]
		f.Reserve(p.Reservation(q, fmt.Sprintf("%s#%d", q.Task, q.Attempt)))
		placed[p.Task] = true
	}
	for _, p := range pending {
		if !placed[p.Task] {
			left = append(left, p)
		}
	}
	return left
}

// TestPromises checks what holds for every plan, without the model.
func TestPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, pending := drawWorld(t)
		f := w.fleet()
		before := f.Clone()
		res := scheduler.Schedule(f, pending, scheduler.Options{})
		sameResult(t, "Schedule changed its input", scheduler.Schedule(f, pending, scheduler.Options{}), res)
		sameResult(t, "the clone differs", scheduler.Schedule(before, pending, scheduler.Options{}), res)
		everyTaskHasAnAnswer(t, pending, res)
		for _, p := range res.Placements {
			placedRightly(t, f, pending[p.Pending], p)
		}
		portsAreNotDoubled(t, w, pending, res)

		left := apply(f, pending, res)
		for _, name := range f.Nodes() {
			n, used, _ := f.Node(name)
			_, was, _ := before.Node(name)
			withinCapacity(t, name, n.Capacity, was, used)
		}
		again := scheduler.Schedule(f, left, scheduler.Options{})
		if len(again.Placements) > 0 {
			t.Fatalf("after the plan was applied more was placed: %+v", again.Placements)
		}
		addedNodeTakesNothingAway(t, f, left)
	})
}

func everyTaskHasAnAnswer(t *rapid.T, pending []cluster.Pending, res scheduler.Result) {
	answers := map[cluster.TaskID]int{}
	for _, p := range res.Placements {
		answers[p.Task]++
	}
	for _, w := range res.Waiting {
		answers[w.Task]++
		if len(w.Refusals) == 0 || w.Sentence == "" {
			t.Fatalf("%s waits without a reason", w.Task)
		}
	}
	for _, p := range pending {
		if answers[p.Task] != 1 {
			t.Fatalf("%s has %d answers", p.Task, answers[p.Task])
		}
	}
}

func placedRightly(t *rapid.T, f *scheduler.Fleet, p cluster.Pending, pl scheduler.Placement) {
	n, _, found := f.Node(pl.Node)
	switch {
	case !found, n.State != cluster.NodeReady, n.Drain, n.Cordon && !p.Daemon, p.Only != "" && p.Only != pl.Node:
		t.Fatalf("%s placed on %s, which takes no tasks", p.Task, pl.Node)
	case p.Priority == 0:
		t.Fatalf("%s is held and was placed", p.Task)
	case slices.Contains(p.Avoid, pl.Node):
		t.Fatalf("%s placed on %s, where an earlier attempt stands", p.Task, pl.Node)
	case p.NeedsImage && !slices.Contains(n.Executors, "containerd"):
		t.Fatalf("%s placed on %s, which runs no images", p.Task, pl.Node)
	}
	for _, c := range p.Placement.Constraints {
		if !scheduler.Matches(c, &n) {
			t.Fatalf("%s placed on %s against %s", p.Task, pl.Node, scheduler.Text(c))
		}
	}
	if len(pl.Ports) != len(p.Ports) {
		t.Fatalf("%s asked for %d ports and got %d", p.Task, len(p.Ports), len(pl.Ports))
	}
	for _, port := range p.Ports {
		got := pl.Ports[port.Name]
		if port.Port != 0 && got != port.Port ||
			port.Port == 0 && (got < cluster.FirstAutoPort || got > cluster.LastAutoPort) {
			t.Fatalf("%s asked for port %d and got %d", p.Task, port.Port, got)
		}
	}
}

// portsAreNotDoubled checks that no placed task shares a port with anything on its node.
func portsAreNotDoubled(t *rapid.T, w world, pending []cluster.Pending, res scheduler.Result) {
	taken := map[string]string{}
	for _, n := range w.nodes {
		for _, p := range n.ReservedPorts {
			taken[fmt.Sprint(n.Name, ":", p)] = "the node"
		}
	}
	for _, r := range w.held {
		for _, p := range r.Ports {
			taken[fmt.Sprint(r.Node, ":", p)] = string(r.Task)
		}
	}
	for _, pl := range res.Placements {
		for _, port := range pending[pl.Pending].Ports {
			key := fmt.Sprint(pl.Node, ":", pl.Ports[port.Name])
			if holder, found := taken[key]; found {
				t.Fatalf("%s got %s, held by %s", pl.Task, key, holder)
			}
			taken[key] = string(pl.Task)
		}
	}
}

// withinCapacity checks that a plan takes no resource of which too much is used then.
func withinCapacity(t *rapid.T, node string, has, was, used cluster.Demand) {
	if used.CPU > has.CPU && used.CPU > was.CPU ||
		used.Memory > has.Memory && used.Memory > was.Memory ||
		used.Disk > has.Disk && used.Disk > was.Disk {
		t.Fatalf("%s has %+v, used were %+v and are %+v", node, has, was, used)
	}
}

// addedNodeTakesNothingAway adds a node to a fleet on which a plan was applied.
func addedNodeTakesNothingAway(t *rapid.T, f *scheduler.Fleet, left []cluster.Pending) {
	held := f.Reservations()
	f.SetNode(drawNode(t, "added"))
	res := scheduler.Schedule(f, left, scheduler.Options{})
	for _, p := range res.Placements {
		if p.Node != "added" {
			t.Fatalf("%s fits on %s only since another node came", p.Task, p.Node)
		}
	}
	if f.Reservations() != held {
		t.Fatalf("%d of %d reservations are left", f.Reservations(), held)
	}
}

// TestAddedNodeUnplacesNoReplica: of the tasks of one owner, which ask for the same, those that
// are placed on some nodes are placed on those and one more.
func TestAddedNodeUnplacesNoReplica(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, pending := drawWorld(t)
		pending = slices.DeleteFunc(pending, func(p cluster.Pending) bool { return p.Owner.Name != "o0" })
		for i := range pending {
			p := pending[0]
			p.Task, p.Avoid = pending[i].Task, nil
			pending[i] = p
		}
		before := scheduler.Schedule(w.fleet(), pending, scheduler.Options{})
		w.nodes = append(w.nodes, drawNode(t, pick(t, "name", "added", "zadded")))
		after := scheduler.Schedule(w.fleet(), pending, scheduler.Options{})
		for _, p := range before.Placements {
			if !slices.ContainsFunc(after.Placements, func(q scheduler.Placement) bool { return q.Task == p.Task }) {
				t.Fatalf("%s was placed without the node, and waits with it", p.Task)
			}
		}
	})
}

// TestFleetByDifferences changes a fleet step by step and holds it against one that is built anew.
func TestFleetByDifferences(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := scheduler.NewFleet()
		nodes := map[string]scheduler.Node{}
		held := map[string]scheduler.Reservation{}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			name := pick(t, "node", "n1", "n2", "n3")
			uuid := pick(t, "uuid", "u1", "u2", "u3", "u4")
			switch upTo(t, "step", 3) {
			case 0:
				nodes[name] = drawNode(t, name)
				f.SetNode(nodes[name])
			case 1:
				delete(nodes, name)
				f.RemoveNode(name)
			case 2:
				task, definition := drawHeld(t, upTo(t, "index", 2))
				held[uuid] = scheduler.Reservation{
					UUID: uuid, Task: task, Definition: definition, Node: name,
					Demand: drawDemand(t), Ports: pick(t, "ports", nil, []int{8080}, []int{30001}, []int{30001, 30001}),
				}
				f.Reserve(held[uuid])
			case 3:
				delete(held, uuid)
				f.Release(uuid)
			}
		}
		var w world
		for _, n := range nodes {
			w.nodes = append(w.nodes, n)
		}
		for _, r := range held {
			w.held = append(w.held, r)
		}
		var pending []cluster.Pending
		for i := range 3 {
			pending = append(pending, drawOwner(t, fmt.Sprintf("o%d", i), nil)...)
		}
		want := scheduler.Schedule(w.fleet(), pending, scheduler.Options{})
		sameResult(t, "kept by differences", scheduler.Schedule(f, pending, scheduler.Options{}), want)
		clone := f.Clone()
		sameResult(t, "cloned", scheduler.Schedule(clone, pending, scheduler.Options{}), want)
		for _, name := range clone.Nodes() {
			clone.Reserve(scheduler.Reservation{
				UUID: "on " + name, Task: "c.o0.1.9", Node: name, Demand: drawDemand(t), Ports: []int{443, 8080, 30000},
			})
		}
		sameResult(t, "after its clone changed", scheduler.Schedule(f, pending, scheduler.Options{}), want)
	})
}
