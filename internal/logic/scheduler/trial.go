package scheduler

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/cycle"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
	"github.com/berthd/berth/internal/logic/scheduler/taskclass"
)

// trial finds the time of a promise: it ends runs in their order until the members fit. It changes the overlay and
// undoes that.
type trial struct {
	*backfill
	members  []int32
	isGang   bool // the members start at the same time, else each as soon as it can
	placed   []cycle.Placement
	placedAt []cycle.PlacedTask

	ended  []run
	places []place
	last   run     // the run whose end makes the room
	next   int     // number of the run after it
	moved  []int32 // nodes of members that were given back
}

// place is the place of a member in a trial.
type place struct {
	slot      int32
	position  int32
	placement cycle.Placement
	spare     cluster.Demand // at the end of the trial
	ports     []int
	after     run // the run whose end makes the room, unless a gang has it
}

// run fills places, with fewer than the members if they never fit.
func (t *trial) run(c *taskclass.Class) {
	for _, m := range t.members {
		t.Preparer.Prepare(t.Classes.At[m])
	}
	if t.isGang { // those that fit now
		for len(t.places) < len(t.members) {
			m := t.members[len(t.places)]
			slot := t.Search.Best(t.Classes.At[m])
			if slot < 0 || t.kept[slot] != nil {
				break
			}
			t.take(m, slot)
		}
	}
	for ; len(t.places) < len(t.members); t.next++ {
		r, found := t.runs.nth(t.next)
		if !found {
			break
		}
		if !t.mayRunOn(c, r.slot) {
			continue
		}
		t.last = r
		t.end(&r, -1)
		t.ended = append(t.ended, r)
		t.takeAll(r.slot)
	}
	if t.isGang && len(t.places) == len(t.members) {
		t.leaveFreeNodes(c)
	}
	for i := range t.places {
		t.places[i].spare = t.Nodes.Load(t.places[i].slot).Free()
	}
}

// takeAll places as many of the next members on a node as fit there, and returns whether any did.
func (t *trial) takeAll(slot int32) (some bool) {
	for len(t.places) < len(t.members) {
		m := t.members[len(t.places)]
		c := t.Classes.At[m]
		if !fits(c.Need, t.Nodes.Load(slot).Free()) || !t.Eval.IsFeasible(c, slot) {
			break
		}
		t.take(m, slot)
		some = true
	}
	return some
}

// leaveFreeNodes places the members of a gang again, on the nodes first whose room becomes free last. The nodes that
// are free before are left to tasks that run for longer.
func (t *trial) leaveFreeNodes(c *taskclass.Class) {
	for ; ; t.next++ { // the runs that end at the same time
		r, found := t.runs.nth(t.next)
		if !found || r.at != t.last.at {
			break
		}
		if t.mayRunOn(c, r.slot) {
			t.end(&r, -1)
			t.ended = append(t.ended, r)
		}
	}
	before := t.places
	t.giveBack()
	taken := false
	for i := range slices.Backward(t.ended) {
		if t.takeAll(t.ended[i].slot) && !taken {
			t.last, taken = t.ended[i], true
		}
	}
	for _, p := range before {
		if t.kept[p.slot] == nil {
			t.takeAll(p.slot)
		}
	}
	if len(t.places) == len(t.members) {
		return
	}
	t.giveBack() // other members took the only nodes for some
	for _, p := range before {
		t.take(p.position, p.slot)
	}
}

// giveBack takes all members from their places.
func (t *trial) giveBack() {
	for i := range slices.Backward(t.places) {
		p := &t.places[i]
		t.GiveBack(&p.placement, cycle.PlacedTask{Position: p.position, Slot: p.slot})
		t.moved = append(t.moved, p.slot)
	}
	t.places = nil
}

// mayRunOn reports whether the class may fit on a node, on which no room is kept, once all tasks of jobs have ended.
func (t *trial) mayRunOn(c *taskclass.Class, slot int32) bool {
	l := t.Nodes.Load(slot)
	return l.Class >= 0 && c.Filter.IsFeasible[l.Class] && t.kept[slot] == nil && fits(c.Need, t.emptied[slot])
}

// fits reports whether free amounts cover what a task needs.
func fits(need, free cluster.Demand) bool {
	return need.CPU <= free.CPU && need.Memory <= free.Memory && need.Disk <= free.Disk
}

// take places a member.
func (t *trial) take(m, slot int32) {
	c := t.Classes.At[m]
	p := place{slot: slot, position: m, placement: t.Place(c, slot, int(t.Classes.Order[m]))}
	p.ports, p.after = slices.Clone(c.Ports.Fixed), t.last
	t.places = append(t.places, p)
}

// undo restores the overlay.
func (t *trial) undo() {
	places := t.places
	t.giveBack()
	t.places = places
	for i := range slices.Backward(t.ended) {
		t.end(&t.ended[i], 1)
	}
	for _, slot := range t.moved {
		t.Nodes.Touch(t.Nodes.OwnLoad(slot), slot)
	}
}

// end frees the room of a run with -1, and takes it again with 1.
func (t *trial) end(r *run, sign int) {
	var held room
	if i := r.placed(); i >= 0 {
		position := t.placedAt[i].Position
		held = room{demand: t.Classes.At[position].Demand, uses: t.placed[i].Devices}
		for _, port := range t.placed[i].Ports { // order-free: a set
			held.ports = append(held.ports, port)
		}
	} else if of := &t.runs.fleet[r.of]; of.IsPlain {
		held = room{demand: of.Demand}
	} else {
		reservation, _ := t.Nodes.Fleet.Reserved(of.UUID)
		held = room{reservation.Demand, reservation.Ports, reservation.Devices}
	}
	t.charge(r.slot, &held, sign)
}

// run is a run of a job's attempt that will free its room.
type run struct {
	// at is the time until the latest end. For an unknown end it is unknown plus the number of runs of unknown end on
	// the node that precede it.
	at   time.Duration
	slot int32
	of   int32 // its index in the runs of the fleet; or -1 - i for placement i of the cycle
}

// placed returns the index of the placement of this cycle, or -1 for a run of the fleet.
func (r *run) placed() int { return max(-1-int(r.of), -1) }

// unknown is the smallest run.at of a run whose end is unknown.
const unknown time.Duration = math.MaxInt64 / 2

// runOrder is the runs of the fleet and of the cycle's placements in the order of their ends: first those with a limit,
// by the time of their end, then by the names of node and task. It sorts only as far as it is read.
type runOrder struct {
	fleet  []fleet.Run
	tasks  []cluster.TaskID // of the placements
	sorted []run
	rest   runHeap
	// open holds the runs without a limit until the others are read. Their run.at is minus the time for which they have
	// run.
	open    []run
	isOpen  bool    // open is in rest
	numbers []int32 // by slot, the number of runs without a limit, once isOpen is true
	isReady bool
}

// update adds the placements since the last call. The first call adds the runs of the fleet, too.
func (o *runOrder) update(b *backfill, placed []cycle.Placement, at []cycle.PlacedTask) {
	if !o.isReady {
		o.isReady = true
		o.fleet, o.rest.order = b.Nodes.Fleet.Runs(), o
		o.rest.names = b.Nodes.Fleet.Names.Order
		o.rest.runs = make([]run, 0, len(o.fleet))
		for i := range o.fleet {
			of := &o.fleet[i]
			left, limited := of.LongestLeft(b.now)
			r := run{at: left, slot: of.Slot, of: int32(i)}
			if limited {
				o.rest.runs = append(o.rest.runs, r)
				continue
			}
			if !of.Started.IsZero() {
				r.at = of.Started.Sub(b.now)
			}
			o.open = append(o.open, r)
		}
		heap.Init(&o.rest)
	}
	for i := len(o.tasks); i < len(placed); i++ {
		o.tasks = append(o.tasks, placed[i].Task)
		p := b.Classes.Task(at[i].Position)
		if p.Owner.Kind != cluster.KindJob {
			continue
		}
		r := run{at: time.Duration(p.TimeLimit), slot: at[i].Slot, of: int32(-1 - i)}
		o.add(r, p.TimeLimit > 0)
	}
}

// add adds a run of a placement.
func (o *runOrder) add(r run, limited bool) {
	switch last := len(o.sorted) - 1; {
	case !limited && !o.isOpen:
		o.open = append(o.open, r)
	case !limited:
		r.at = unknown + time.Duration(o.numbers[r.slot])
		o.numbers[r.slot]++
		o.insert(r)
	case last >= 0 && o.rest.compare(&r, &o.sorted[last]) < 0:
		o.insert(r)
	default:
		heap.Push(&o.rest, r)
	}
}

// insert adds a run to those that are sorted, or to the rest.
func (o *runOrder) insert(r run) {
	i, _ := slices.BinarySearchFunc(o.sorted, r, func(a, b run) int { return o.rest.compare(&a, &b) })
	if i == len(o.sorted) && o.rest.Len() > 0 {
		heap.Push(&o.rest, r)
		return
	}
	o.sorted = slices.Insert(o.sorted, i, r)
}

// nth returns the n-th run from 0; found is false if there are fewer.
func (o *runOrder) nth(n int) (r run, found bool) {
	for len(o.sorted) <= n {
		if o.rest.Len() == 0 {
			if o.isOpen || len(o.open) == 0 {
				return run{}, false
			}
			o.numberOpen()
		}
		first, _ := heap.Pop(&o.rest).(run)
		o.sorted = append(o.sorted, first)
	}
	return o.sorted[n], true
}

// numberOpen numbers the runs without a limit on each node, the oldest first, and adds them to the rest.
func (o *runOrder) numberOpen() {
	o.numbers = make([]int32, len(o.rest.names))
	for i := range o.open {
		o.numbers[o.open[i].slot]++
	}
	ends, sum := make([]int32, len(o.numbers)), int32(0) // of the part of each slot
	for slot, n := range o.numbers {
		sum += n
		ends[slot] = sum
	}
	o.rest.runs = make([]run, len(o.open))
	next := slices.Clone(ends)
	for i := range o.open {
		slot := o.open[i].slot
		next[slot]--
		o.rest.runs[next[slot]] = o.open[i]
	}
	for slot, n := range o.numbers {
		part := o.rest.runs[ends[slot]-n : ends[slot]]
		slices.SortFunc(part, func(a, b run) int {
			return cmp.Or(cmp.Compare(a.at, b.at), o.compareNames(&a, &b))
		})
		for i := range part {
			part[i].at = unknown + time.Duration(i)
		}
	}
	o.open, o.isOpen = nil, true
	heap.Init(&o.rest)
}

// task returns the task of a run.
func (o *runOrder) task(r *run) cluster.TaskID {
	if i := r.placed(); i >= 0 {
		return o.tasks[i]
	}
	return o.fleet[r.of].Task
}

// compareNames orders runs on one node that end at the same time.
func (o *runOrder) compareNames(a, b *run) int {
	if c := cmp.Compare(o.task(a), o.task(b)); c != 0 || a.of < 0 || b.of < 0 {
		return cmp.Or(c, cmp.Compare(b.of, a.of))
	}
	return strings.Compare(o.fleet[a.of].UUID, o.fleet[b.of].UUID)
}

// runHeap is a heap by the order of runs.
type runHeap struct {
	order *runOrder
	runs  []run
	names []uint64 // by slot: the order of the node's name
}

func (h *runHeap) compare(a, b *run) int {
	if a.at != b.at {
		return cmp.Compare(a.at, b.at)
	}
	if a.slot != b.slot {
		return cmp.Compare(h.names[a.slot], h.names[b.slot])
	}
	return h.order.compareNames(a, b)
}

func (h *runHeap) Len() int           { return len(h.runs) }
func (h *runHeap) Less(i, j int) bool { return h.compare(&h.runs[i], &h.runs[j]) < 0 }
func (h *runHeap) Swap(i, j int)      { h.runs[i], h.runs[j] = h.runs[j], h.runs[i] }

func (h *runHeap) Push(x any) {
	if r, ok := x.(run); ok {
		h.runs = append(h.runs, r)
	}
}

func (h *runHeap) Pop() any {
	last := h.runs[len(h.runs)-1]
	h.runs = h.runs[:len(h.runs)-1]
	return last
}
