package scheduler_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/logic/scheduler/feasibility"
	"github.com/berthd/berth/internal/logic/scheduler/taskclass"
	"github.com/berthd/berth/internal/testkit"
)

func sameResult(t *rapid.T, what string, got, want scheduler.Result) {
	t.Helper()
	ignored := cmpopts.IgnoreFields(scheduler.Result{}, "Pending")
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), ignored); diff != "" {
		t.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}

// ranges joins tasks of jobs with consecutive indices and equal requests to requests of several tasks.
func ranges(pending []cluster.Pending) (joined []cluster.Pending) {
	for _, p := range pending {
		if n := len(joined) - 1; n >= 0 && p.Gang == "" && p.Promised == "" && p.Owner.Kind == cluster.KindJob {
			last := joined[n]
			next := last.Skip(last.Further)
			if next.Task, next.Further = next.Task.Offset(1), 0; cmp.Equal(next, p) {
				joined[n].Further++
				continue
			}
		}
		joined = append(joined, p)
	}
	return joined
}

// sameForRanges checks that tasks in requests of several tasks have the same result as tasks by themselves. It returns
// the number of such requests.
func sameForRanges(t *rapid.T, f *scheduler.Fleet, pending []cluster.Pending, opts scheduler.Options,
	want scheduler.Result,
) (several int) {
	t.Helper()
	joined := ranges(pending)
	given := slices.Clone(joined)
	got := scheduler.Schedule(f, joined, opts)
	if diff := cmp.Diff(given, joined); diff != "" {
		t.Fatalf("the requests changed:\n%s", diff)
	}
	for i := range got.Placements {
		p := &got.Placements[i]
		if q := &got.Pending[p.Pending]; q.Task != p.Task || q.Further != 0 {
			t.Fatalf("the placement of %s refers to %d tasks from %s", p.Task, q.Tasks(), q.Task)
		}
		p.Pending = slices.IndexFunc(pending, func(q cluster.Pending) bool { return q.Task == p.Task })
	}
	var waiting []cluster.Waiting
	for _, w := range got.Waiting {
		for id := range w.Range().Each {
			one := w
			one.Task, one.Further = id, 0
			waiting = append(waiting, one)
		}
	}
	got.Waiting = waiting
	sameResult(t, "requests of several tasks differ", got, want)
	for i := range joined {
		if joined[i].Further > 0 {
			several++
		}
	}
	return several
}

// TestSameAsModel compares Schedule with the model. It also checks that the generated worlds are balanced: at least a
// quarter of the tasks are placed, and a quarter refused.
func TestSameAsModel(t *testing.T) {
	placed, refused, several := 0, 0, 0
	codes := map[cluster.ReasonCode]int{}
	property := func(t *rapid.T) {
		w, pending := drawWorld(t)
		f := w.fleet()
		got := scheduler.Schedule(f, pending, scheduler.Options{})
		want := w.decide(pending)
		sameResult(t, "differs from the model", got, want)
		several += sameForRanges(t, f, pending, scheduler.Options{}, want)
		sameResult(t, "differs from the model through rankings",
			scheduler.Schedule(f, pending, withRanking(true)), want)
		sameResult(t, "differs from the model through trees",
			scheduler.Schedule(f, pending, withRanking(false)), want)
		f.SwitchFineLabels([]string{"zone"})
		sameResult(t, "differs from the model with a fine label", scheduler.Schedule(f, pending, scheduler.Options{}),
			want)
		sameResult(t, "differs with a fine label through rankings",
			scheduler.Schedule(f, pending, withRanking(true)), want)
		sameResult(t, "differs with a fine label through trees",
			scheduler.Schedule(f, pending, withRanking(false)), want)
		placed += len(got.Placements)
		refused += len(got.Waiting)
		for _, waiting := range got.Waiting {
			for _, r := range waiting.Refusals {
				codes[r.Code]++
			}
		}
	}
	testkit.CheckRounds(t, 5, property, nil) // enough worlds for the shares below to be steady
	if total := placed + refused; 4*placed < total || 4*refused < total {
		t.Errorf("of %d tasks %d were placed and %d refused, want a quarter or more of each", total, placed, refused)
	}
	if several == 0 {
		t.Error("no request was for several tasks")
	}
	if testing.Verbose() {
		t.Logf("%d placed, %d refused, reasons: %v", placed, refused, codes)
	}
	for _, code := range []cluster.ReasonCode{
		cluster.ReasonNoNodes, cluster.ReasonNodeNotReady, cluster.ReasonCordoned, cluster.ReasonConstraint,
		cluster.ReasonShortCPU, cluster.ReasonShortMemory, cluster.ReasonShortDisk, cluster.ReasonPort,
		cluster.ReasonPortsSpent, cluster.ReasonAntiAffinity, cluster.ReasonOldAttempt, cluster.ReasonHold,
		cluster.ReasonNoExecutor, cluster.ReasonPool, cluster.ReasonTaint, cluster.ReasonDistinct, cluster.ReasonSkew,
		cluster.ReasonRelation, cluster.ReasonGang, cluster.ReasonDevice, cluster.ReasonReserved,
		cluster.ReasonQuota, cluster.ReasonConcurrency,
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
			valueModel: w.valueModel,
			quota:      w.quota,
			lender:     w.lender,
			nodes:      rapid.Permutation(w.nodes).Draw(t, "nodes"),
			held:       rapid.Permutation(w.held).Draw(t, "held"),
		}
		f := v.fleet()
		got := scheduler.Schedule(f, shuffled, scheduler.Options{})
		for i := range got.Placements { // the index depends on the order of the input
			p := &got.Placements[i]
			if shuffled[p.Pending].Task != p.Task {
				t.Fatalf("placement of %s has the index of %s", p.Task, shuffled[p.Pending].Task)
			}
			p.Pending = slices.IndexFunc(pending, func(q cluster.Pending) bool { return q.Task == p.Task })
		}
		sameResult(t, "the order matters", got, want)
	})
}

// apply reserves the placements, and returns the tasks that were not placed.
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

// TestPromises checks properties of every plan, without the model.
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
		if len(again.Placements) > 0 && !slices.ContainsFunc(left, func(p cluster.Pending) bool {
			return chooses(p, left) || losesItsTurn(p, pending)
		}) {
			t.Fatalf("after the plan was applied more was placed: %+v", again.Placements)
		}
		if !slices.ContainsFunc(left, func(p cluster.Pending) bool {
			return revives(p) || p.Gang != "" || p.Promised != ""
		}) {
			addedNodeTakesNothingAway(t, f, left)
		}
	})
}

// chooses reports whether the members of a task's gang may take each other's places: they have different demands, or
// must be apart. Each member takes its best node. After other placements the best may be another node, and with it all
// members may fit.
func chooses(p cluster.Pending, pending []cluster.Pending) bool {
	return p.Gang != "" && slices.ContainsFunc(pending, func(q cluster.Pending) bool {
		asks := q
		asks.Task, asks.Since = p.Task, p.Since
		return q.Gang == p.Gang &&
			(!reflect.DeepEqual(asks, p) ||
				len(q.Placement.Distinct)+len(q.Placement.Spread)+len(q.Placement.Relations) > 0)
	})
}

// losesItsTurn reports whether a task that waits with kept room had its turn in the plan with a member of its gang that
// waited for longer. That member may be placed now. Then the task's own wait counts, and tasks that waited for longer
// take the room.
func losesItsTurn(p cluster.Pending, pending []cluster.Pending) bool {
	return p.Promised != "" && p.Gang != "" && slices.ContainsFunc(pending, func(q cluster.Pending) bool {
		return q.Gang == p.Gang && q.Since.Before(p.Since)
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
	case !found, n.State != cluster.NodeReady, n.Drain, n.Cordon && !p.Daemon,
		p.OnlyNode != "" && p.OnlyNode != pl.Node:
		t.Fatalf("%s placed on %s, which takes no tasks", p.Task, pl.Node)
	case p.Priority == 0:
		t.Fatalf("%s is held and was placed", p.Task)
	case slices.Contains(p.ExcludedNodes, pl.Node):
		t.Fatalf("%s placed on %s, where an earlier attempt is", p.Task, pl.Node)
	case !runs(n.Executors, p):
		t.Fatalf("%s placed on %s, which has no suitable executor", p.Task, pl.Node)
	}
	for _, c := range p.Placement.Constraints {
		if !feasibility.Matches(c, &n) {
			t.Fatalf("%s placed on %s against %s", p.Task, pl.Node, feasibility.Text(c))
		}
	}
	if len(pl.Ports) != len(p.Ports) {
		t.Fatalf("%s requested %d ports and got %d", p.Task, len(p.Ports), len(pl.Ports))
	}
	for _, port := range p.Ports {
		got := pl.Ports[port.Name]
		if port.Port != 0 && got != port.Port ||
			port.Port == 0 && (got < cluster.FirstAutoPort || got > cluster.LastAutoPort) {
			t.Fatalf("%s requested port %d and got %d", p.Task, port.Port, got)
		}
	}
}

// portsAreNotDoubled checks that no placed task shares a port with another task on its node.
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

// withinCapacity checks that a plan overcommits no resource.
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

// TestAddedNodeUnplacesNoReplica checks tasks of one owner with equal demands: if some nodes can place them, those
// nodes and one more can. The added node does not bring the only data of a volume: tasks of that volume could then run
// nowhere else.
func TestAddedNodeUnplacesNoReplica(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, pending := drawWorld(t)
		pending = slices.DeleteFunc(pending, func(p cluster.Pending) bool { return p.Owner.Name != "o0" })
		for i := range pending {
			p := pending[0]
			// A further value of a spread, or the size of a gang, may take a place away.
			p.Placement.Spread, p.Gang = nil, ""
			p.Task, p.ExcludedNodes = pending[i].Task, nil
			pending[i] = p
		}
		before := scheduler.Schedule(w.fleet(), pending, scheduler.Options{})
		added := drawNode(t, pick(t, "name", "added", "zadded"))
		added.Volumes = slices.DeleteFunc(added.Volumes, func(volume string) bool {
			return !slices.ContainsFunc(w.nodes, func(n scheduler.Node) bool {
				return slices.Contains(n.Volumes, volume)
			})
		})
		w.nodes = append(w.nodes, added)
		after := scheduler.Schedule(w.fleet(), pending, scheduler.Options{})
		for _, p := range before.Placements {
			if !slices.ContainsFunc(after.Placements, func(q scheduler.Placement) bool { return q.Task == p.Task }) {
				t.Fatalf("%s was placed without the node, and waits with it", p.Task)
			}
		}
	})
}

// TestFleetByDifferences changes a fleet step by step, and compares it with a fleet that is built from scratch.
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
					Labels: drawHeldLabels(t), Away: drawAway(t), Devices: drawUses(t),
					UUID: uuid, Task: task, Definition: definition, Node: name,
					Demand: drawDemand(t), Ports: pick(t, "ports", nil, []int{8080}, []int{30001}, []int{30001, 30001}),
					Group: pick(t, "group", "", "", "x"),
				}
				f.Reserve(held[uuid])
			case 3:
				delete(held, uuid)
				f.Release(uuid)
			}
		}
		w := world{valueModel: drawValueModel(t), quota: drawQuota(t)}
		f.SetDeviceValueModel(w.valueModel)
		f.Limits.SetQuota("c", w.quota)
		w.lender = drawLender(t, w.quota)
		f.Limits.SetQuota("lender", w.lender)
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
		want := w.decide(pending)
		sameResult(t, "kept by differences, through trees",
			scheduler.Schedule(f, pending, withRanking(false)), want)
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

// TestSameAsModelAtSize compares Schedule with the model on fleets of hundreds of nodes, over several cycles. Between
// cycles placements are reserved, reservations released and nodes changed.
func TestSameAsModelAtSize(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, cycles := largeWorld(t)
		f := w.fleet()
		for cycle, pending := range cycles {
			got := scheduler.Schedule(f, pending, scheduler.Options{})
			sameResult(t, "differs through rankings", scheduler.Schedule(f, pending, withRanking(true)), got)
			sameResult(t, "differs through trees", scheduler.Schedule(f, pending, withRanking(false)), got)
			sameResult(t, "differs from the model", got, w.decide(pending))
			for i := range got.Placements {
				pl := &got.Placements[i]
				r := pl.Reservation(&pending[pl.Pending], fmt.Sprint(cycle, "-", i))
				f.Reserve(r)
				w.held = append(w.held, r)
			}
			for i := 0; i < len(w.held); i += 3 + cycle {
				f.Release(w.held[i].UUID)
				w.held = slices.Delete(w.held, i, i+1)
			}
			for i := cycle; i < len(w.nodes); i += 17 {
				if n := &w.nodes[i]; i%2 == 0 {
					n.Cordon = !n.Cordon
					f.SetNode(*n)
				} else {
					f.RemoveNode(n.Name)
					w.nodes = slices.Delete(w.nodes, i, i+1)
				}
			}
		}
	})
}

// TestExplainAgrees compares Explain with Schedule of the same task alone. The winning node is the one that Schedule
// chooses, and it does not refuse. No other node has more points in the first part in which both differ.
func TestExplainAgrees(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, pending := drawWorld(t)
		f, p := w.fleet(), pending[0]
		p.Priority, p.Gang, p.Promised = 1, "", ""
		f.Limits.SetQuota("c", nil) // Explain answers for the nodes alone
		p.Concurrency = nil
		res := scheduler.Schedule(f, []cluster.Pending{p}, scheduler.Options{})
		verdicts, wins := scheduler.Explain(f, p, scheduler.Options{}), ""
		var best scheduler.Verdict
		for _, v := range verdicts {
			if v.Wins {
				wins, best = v.Node, v
			}
			if (v.Refusal == nil) != (v.Parts != nil) && v.Refusal != nil {
				t.Fatalf("%s refuses and has parts", v.Node)
			}
		}
		want := ""
		if len(res.Placements) > 0 {
			want = res.Placements[0].Node
		}
		if wins != want {
			t.Fatalf("%q wins, and it is placed on %q", wins, want)
		}
		for _, v := range verdicts {
			if v.Refusal == nil && slices.Compare(score(v), score(best)) > 0 {
				t.Fatalf("%s has %v, and %s wins with %v", v.Node, v.Parts, wins, best.Parts)
			}
		}
	})
}

// score returns the points of a verdict by importance.
func score(v scheduler.Verdict) []int64 {
	importance := map[string]int{
		"failed": 0, "avoid": 1, "affinity": 2, "data": 2, "spread": 2, "relation": 2, "siblings": 3, "worth": 4,
		"balance": 5, "images": 6, "fill": 6, "tasks": 7,
	}
	s := make([]int64, 8)
	for _, p := range v.Parts {
		kind, _, _ := strings.Cut(p.Name, " ")
		at, known := importance[kind]
		if !known {
			panic("a part of a rank that the tests do not know: " + p.Name)
		}
		s[at] += p.Points
	}
	return s
}

// withRanking returns options that force every task class to use a ranking, or to use the trees.
func withRanking(always bool) scheduler.Options {
	if always {
		return scheduler.Options{Search: taskclass.SearchByRanking}
	}
	return scheduler.Options{Search: taskclass.SearchByTrees}
}
