package scheduler

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/cycle"
	"github.com/berthd/berth/internal/logic/scheduler/taskclass"
)

// maxTrials is the largest number of classes of a line for which a promise is sought in a cycle. Classes that fit on no
// node do not count.
const maxTrials = 4

// maxRearranged is how often the promises of a cycle are given anew.
const maxRearranged = 64

// backfill keeps promises to waiting tasks of jobs. A job's task that finds no room gets a promise: the node and the
// time at which enough running tasks of jobs will have ended, by their time limits. Tasks of jobs behind it fill the
// free room there only if they end before, or leave the task its room. This is EASY backfilling (Lifka, "The ANL/IBM SP
// scheduling system", 1995), node by node. Services are not in the queue. A service that is as urgent as the task takes
// the room if there is no other.
//
// Each line (see lineOf) has one promise, to its first waiting task or gang. In a fair queue it has as many as the
// first user of the line has too little room for: see turns.owed.
//
// A promise follows from the fleet and the queue alone, so a new leader gives the same (of a long queue, to its first
// requests: see package window). It does not become later unless a node leaves, a service takes room, or a more urgent
// task arrives. Tasks without a time limit have an unknown end. A promise that rests on them has no time, and is for
// the node on which the fewest of them must end. No other task without a limit starts there, so the node empties.
type backfill struct {
	*cycle.Cycle
	now  time.Time
	runs runOrder
	// emptied is what will be free on each node once the runs have ended, by slot; most is the most of each resource.
	emptied []cluster.Demand
	most    cluster.Demand
	kept    map[int32]*keptRoom
	// order lists the slots of kept in the order of their promises.
	order []int32
	// tried holds the classes for which a promise was sought, promised those that have one. denied holds those that
	// found no room, with the state at that time.
	tried    map[*taskclass.Class]bool
	promised map[*taskclass.Class]bool
	lines    map[string]line
	// blocked holds, by pool, the waiting task of a queue without backfilling behind which no task starts.
	blocked map[string]cluster.TaskID
	// behind holds the blockers of classes whose tasks were not tried.
	behind   map[*taskclass.Class]cluster.TaskID
	denied   map[*taskclass.Class]int
	promises map[int32]*cluster.Promise // by position in the order
	given    []givenPromise
	// beside says that a task that may take kept room was placed elsewhere. crowded says that after it another task,
	// which may not take kept room, found only such room.
	beside, crowded bool
	rearranged      int // how often rearrange gave the promises anew
}

// givenPromise holds the arguments of a call of promise that gave promises.
type givenPromise struct {
	members []int32
	gang    int
}

// line is what is known of a line: whether a task of it has a promise, and for how many classes one was sought.
type line struct {
	promised bool
	trials   int
}

// room is room on one node.
type room struct {
	demand cluster.Demand
	ports  []int
	uses   []cluster.DeviceUse
}

// keptRoom is the room of a promise on one node. The room is charged to the node.
type keptRoom struct {
	room
	class *taskclass.Class // of the task with the promise
	task  cluster.TaskID
	until time.Duration  // as run.at
	spare cluster.Demand // what the task leaves free from then on
	open  bool           // the room is not charged, as a task takes some of it
}

func newBackfill(y *cycle.Cycle, now time.Time) backfill {
	return backfill{Cycle: y, now: now}
}

// isQueued reports whether tasks of the class wait in a queue that gives promises.
func (b *backfill) isQueued(c *taskclass.Class) bool {
	return c.Task.Owner.Kind == cluster.KindJob && c.Task.Queue != "" && c.Task.Queue != cluster.QueueGreedy
}

// blocker returns the waiting task behind which tasks of the class may not start, or "".
func (b *backfill) blocker(c *taskclass.Class) cluster.TaskID {
	if c.Task.Owner.Kind != cluster.KindJob || c.Task.Queue != cluster.QueueFIFO {
		return ""
	}
	return b.blocked[c.Task.Placement.Pool]
}

// isBlocked reports whether tasks of the class may not be tried now, and notes the task behind which they are.
func (b *backfill) isBlocked(c *taskclass.Class) bool {
	first := b.blocker(c)
	if first == "" {
		return false
	}
	if b.behind == nil {
		b.behind = map[*taskclass.Class]cluster.TaskID{}
	}
	b.behind[c] = first
	return true
}

// roomFor returns a node on which the task fits if it takes kept room, or -1. A task of a job may do so if it ends
// before the room is needed.
func (b *backfill) roomFor(c *taskclass.Class) int32 {
	if len(b.kept) == 0 {
		return -1
	}
	state := len(b.Nodes.Touched) + b.Nodes.UndoCount
	if was, found := b.denied[c]; found && was == state {
		return -1
	}
	for _, slot := range b.order {
		k := b.kept[slot]
		may := b.mayTake(c, k)
		if !may && (!b.beside || b.crowded) {
			continue
		}
		b.Preparer.Prepare(c)
		b.charge(slot, &k.room, -1)
		fits := b.Eval.IsFeasible(c, slot)
		b.charge(slot, &k.room, 1)
		if fits && may {
			return slot
		}
		b.crowded = b.crowded || fits
	}
	if b.denied == nil {
		b.denied = map[*taskclass.Class]int{}
	}
	b.denied[c] = state
	return -1
}

// mayTake reports whether tasks of the class may take room that is kept for another task. A service may if it is as
// urgent as the task.
func (b *backfill) mayTake(c *taskclass.Class, k *keptRoom) bool {
	if c.Task.Owner.Kind != cluster.KindJob {
		return c.Task.Priority >= k.class.Task.Priority
	}
	return k.until < unknown && c.Task.TimeLimit > 0 && time.Duration(c.Task.TimeLimit) <= k.until
}

// open releases the kept room of a node for a placement there. The caller calls notePlacement next.
func (b *backfill) open(slot int32) {
	b.charge(slot, &b.kept[slot].room, -1)
	b.kept[slot].open = true
}

// notePlacement adjusts what is kept on a node on which a task of the class was placed.
func (b *backfill) notePlacement(c *taskclass.Class, slot int32) {
	k := b.kept[slot]
	if k == nil {
		b.beside = b.beside || c.Task.Owner.Kind == cluster.KindJob && slices.ContainsFunc(b.order,
			func(kept int32) bool { return b.mayTake(c, b.kept[kept]) })
		return
	}
	if c.Task.Owner.Kind != cluster.KindJob || !b.mayTake(c, k) {
		k.spare = k.spare.Sub(c.Demand) // it stays beyond the promised time
	}
	if !k.open {
		b.charge(slot, &k.room, -1)
	}
	k.open = false
	b.fill(slot, k)
}

// fill charges the room that has to be kept on a node now. It keeps no port and device that is taken.
func (b *backfill) fill(slot int32, k *keptRoom) {
	k.demand = excess(b.Nodes.Load(slot).Free(), k.spare)
	used := b.Nodes.PortsOf(slot)
	k.ports = slices.DeleteFunc(slices.Clone(k.ports), func(port int) bool { return used != nil && used.Has(port) })
	var uses []cluster.DeviceUse
	for _, use := range k.uses {
		if use.Share = min(use.Share, b.Nodes.DevicesOf(slot).FreeShare(use.ID)); use.Share > 0 {
			uses = append(uses, use)
		}
	}
	k.uses = uses
	b.charge(slot, &k.room, 1)
	b.Nodes.Touch(b.Nodes.OwnLoad(slot), slot)
}

// charge charges room to a node with 1, and releases it with -1. If the change stays, the caller touches the node.
func (b *backfill) charge(slot int32, r *room, sign int) {
	l := b.Nodes.OwnLoad(slot)
	if sign > 0 {
		l.Used = l.Used.Add(r.demand)
	} else {
		l.Used = l.Used.Sub(r.demand)
	}
	for _, port := range r.ports {
		if sign > 0 {
			b.Nodes.OwnPorts(slot).Add(port)
		} else {
			b.Nodes.OwnPorts(slot).Remove(port)
		}
	}
	if len(r.uses) > 0 {
		b.Nodes.UseDevices(slot, r.uses, sign)
	}
}

// state returns a copy of what is kept, for restore.
func (b *backfill) state() []keptRoom {
	state := make([]keptRoom, len(b.order))
	for i, slot := range b.order {
		state[i] = *b.kept[slot]
	}
	return state
}

// restore restores what was kept, after placements were given back.
func (b *backfill) restore(state []keptRoom) {
	for i, slot := range b.order {
		k := b.kept[slot]
		b.charge(slot, &k.room, -1)
		*k = state[i]
		b.charge(slot, &k.room, 1)
		b.Nodes.Touch(b.Nodes.OwnLoad(slot), slot)
	}
}

// excess returns what is free now beyond the amounts that are spare later.
func excess(free, spare cluster.Demand) cluster.Demand {
	return cluster.Demand{
		CPU:    max(min(free.CPU, free.CPU-spare.CPU), 0),
		Memory: max(min(free.Memory, free.Memory-spare.Memory), 0),
		Disk:   max(min(free.Disk, free.Disk-spare.Disk), 0),
	}
}

// release frees the kept room. The promises stay known.
func (b *backfill) release() {
	for _, slot := range b.order {
		b.charge(slot, &b.kept[slot].room, -1)
		b.Nodes.Touch(b.Nodes.OwnLoad(slot), slot)
		b.Nodes.UndoCount++
	}
}

// forget frees the kept room, and forgets the promises.
func (b *backfill) forget() {
	b.release()
	b.kept, b.order, b.promised, b.denied, b.promises = nil, nil, nil, nil, nil
	b.tried, b.blocked, b.behind, b.lines = nil, nil, nil, nil
	b.given, b.beside, b.crowded = nil, false, false
}

// rearrange gives the promises anew if another task may then find room. It reports whether it did. A promise keeps the
// nodes that become free last. So the room of tasks that were placed since, and end in time, may be kept instead of
// room that is free now.
func (b *backfill) rearrange(placed []cycle.Placement, at []cycle.PlacedTask) bool {
	if !b.crowded || b.rearranged == maxRearranged {
		return false
	}
	b.rearranged++
	tried, behind, given := b.tried, b.behind, b.given
	b.forget()
	b.behind = behind
	for _, g := range given {
		b.promise(g.members, g.gang, placed, at)
	}
	if b.tried == nil { // no limit allows the tasks any more that had promises
		b.tried, b.lines = map[*taskclass.Class]bool{}, map[string]line{}
	}
	maps.Copy(b.tried, tried)
	return true
}

// promise gives promises to waiting tasks of a job that only lack room: one to a gang of so many members, which start
// together, or with a gang of 0 one to each of the members. A position may be there several times, for the tasks of its
// request.
func (b *backfill) promise(members []int32, gang int, placed []cycle.Placement, at []cycle.PlacedTask) {
	c, starting := b.Classes.At[members[0]], members
	if gang > 0 {
		starting = members[:gang]
	}
	if !b.isQueued(c) || b.tried[c] || b.blocker(c) != "" || c.Task.Promised != "" {
		return
	}
	for !b.admits(starting) {
		if gang > 0 || len(starting) == 1 {
			return
		}
		starting = starting[:len(starting)-1]
	}
	if b.tried == nil {
		b.tried, b.lines = map[*taskclass.Class]bool{}, map[string]line{}
	}
	b.tried[c] = true
	if !b.everFits(c) {
		return
	}
	name := lineOf(c)
	l := b.lines[name]
	if l.promised && c.Task.Queue != cluster.QueueFIFO || l.trials >= maxTrials { // a first task of fifo blocks others
		return
	}
	l.trials++
	b.lines[name] = l
	b.runs.update(b, placed, at)
	t := trial{backfill: b, members: starting, isGang: gang > 1, placed: placed, placedAt: at}
	t.run(c)
	last := t.last
	t.undo()
	if len(t.places) < max(gang, 1) {
		return
	}
	if b.kept == nil {
		b.kept, b.promises = map[int32]*keptRoom{}, map[int32]*cluster.Promise{}
		b.promised = map[*taskclass.Class]bool{}
	}
	b.given = append(b.given, givenPromise{members, gang})
	b.promised[c] = true
	l.promised = true
	b.lines[name] = l
	if c.Task.Queue == cluster.QueueFIFO {
		if b.blocked == nil {
			b.blocked = map[string]cluster.TaskID{}
		}
		b.blocked[c.Task.Placement.Pool] = b.Classes.Task(members[0]).Task
	}
	if gang > 0 {
		p := b.newPromise(&last)
		for _, m := range members {
			b.promises[m] = p
		}
		for i := range t.places {
			b.keep(&t.places[i], last.at, members[0])
		}
		return
	}
	for i := range t.places {
		place := &t.places[i]
		if b.promises[place.position] == nil {
			b.promises[place.position] = b.newPromise(&place.after)
		}
		b.keep(place, place.after.at, place.position)
	}
}

// newPromise returns the promise of the room that a run leaves.
func (b *backfill) newPromise(r *run) *cluster.Promise {
	p := &cluster.Promise{Node: b.Nodes.Fleet.Name(r.slot), After: b.runs.task(r)}
	if r.at < unknown {
		p.At = b.now.Add(r.at).UTC()
	}
	return p
}

// lineOf identifies the tasks that wait for the same kind of nodes: those of one pool that need the same constraints
// and types of devices. A task that is behind in its line gets a promise once it is the first.
func lineOf(c *taskclass.Class) string {
	var b strings.Builder
	b.WriteString(c.Task.Placement.Pool)
	for i := range c.Task.Devices {
		b.WriteString("/" + c.Task.Devices[i].Type)
	}
	for _, feasible := range c.Filter.IsFeasible {
		if feasible {
			b.WriteByte('1')
		} else {
			b.WriteByte('0')
		}
	}
	return b.String()
}

// admits reports whether the limits of their cluster allow all members at the same time.
func (b *backfill) admits(members []int32) bool {
	for i, m := range members {
		p := b.Classes.Task(m)
		if !b.Limits.Admits(p) {
			return false
		}
		if i < len(members)-1 {
			b.Limits.Add(p, 1)
			defer b.Limits.Add(p, -1)
		}
	}
	return true
}

// everFits reports whether the class may fit on a node once all tasks of jobs have ended.
func (b *backfill) everFits(c *taskclass.Class) bool {
	if b.emptied == nil {
		b.emptied = b.Nodes.Fleet.Emptied()
		for _, d := range b.emptied {
			b.most = cluster.Demand{
				CPU: max(b.most.CPU, d.CPU), Memory: max(b.most.Memory, d.Memory), Disk: max(b.most.Disk, d.Disk),
			}
		}
	}
	b.Preparer.Prepare(c)
	if len(c.Filter.Feasible) == 0 || !fits(c.Need, b.most) {
		return false
	}
	for slot, free := range b.emptied {
		class := b.Nodes.Fleet.ClassOf(int32(slot))
		if class >= 0 && c.Filter.IsFeasible[class] && fits(c.Need, free) {
			return true
		}
	}
	return false
}

// keep keeps the room of a promise on a node.
func (b *backfill) keep(p *place, until time.Duration, first int32) {
	k := b.kept[p.slot]
	if k != nil { // for another member
		b.charge(p.slot, &k.room, -1)
		k.until = max(k.until, until)
	} else {
		k = &keptRoom{class: b.Classes.At[first], task: b.Classes.Task(first).Task, until: until}
		b.kept[p.slot] = k
		b.order = append(b.order, p.slot)
	}
	k.spare = p.spare
	k.ports, k.uses = append(k.ports, p.ports...), append(k.uses, p.placement.Devices...)
	b.fill(p.slot, k)
}

// refusals returns why nodes with free room refuse the class: the room is kept for other tasks. Call it after release.
func (b *backfill) refusals(c *taskclass.Class) (counts []cluster.RefusalCount) {
	for _, slot := range b.order {
		k := b.kept[slot]
		if k.class == c || b.mayTake(c, k) || !b.Eval.IsFeasible(c, slot) {
			continue
		}
		detail := "room is kept for " + string(k.task)
		if k.until < unknown {
			detail += " from " + b.now.Add(k.until).UTC().Format(time.RFC3339)
		}
		counts = tally(counts, cluster.Refusal{Code: cluster.ReasonBackfill, Detail: detail}, 1)
	}
	return counts
}

// promiseText says when a waiting task starts.
func promiseText(p *cluster.Promise) string {
	if p.At.IsZero() {
		return fmt.Sprintf("starts on %s once %s has ended, which has no time limit", p.Node, p.After)
	}
	return fmt.Sprintf("starts on %s by %s, once %s has ended", p.Node, p.At.Format(time.RFC3339), p.After)
}
