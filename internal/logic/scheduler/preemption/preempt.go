// Package preemption selects tasks of lower priority that should end so that waiting tasks find places. See Preempt.
package preemption

import (
	"fmt"
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/admission"
	"github.com/berthd/berth/internal/logic/scheduler/cycle"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
	"github.com/berthd/berth/internal/logic/scheduler/taskclass"
)

// Victim is an attempt that may be ended for a task of higher priority, or, if it is of a job whose cluster holds more
// than its quota, for a task within the quota of another cluster. A Victim without a reservation in the fleet is
// ignored. Reservations that no Victim names stay.
type Victim struct {
	// UUID is the UUID of its reservation.
	UUID     string
	Priority int
	Owner    cluster.OwnerRef
	// Gang, unless empty, names the attempts that end together, on all nodes.
	Gang string
	// Leaving says that the attempt is already ending. Its room counts as free, whatever its priority, and costs
	// nothing.
	Leaving bool
	// Unhealthy says that its owner loses no healthy task by its end.
	Unhealthy bool
}

// Input is the input of Preempt, which does not change it.
type Input struct {
	Fleet *fleet.Fleet
	// Waiting are the tasks that Schedule could not place, as Schedule got them. Pending.Promised holds a promise of an
	// earlier call. Held tasks are skipped.
	Waiting []cluster.Pending
	// Victims are in any order, each UUID once.
	Victims []Victim
	// Spare is how many healthy tasks each owner may lose, leaving tasks not counted. An owner that is missing may lose
	// all.
	Spare map[cluster.OwnerRef]int
	// Least is the smallest difference between the priority of a task and of its victims; less than 1 counts as 1.
	Least int
}

// Preemption is a waiting task with the node where there will be room for it.
type Preemption struct {
	// Pending is the task's index in PreemptInput.Waiting.
	Pending int
	Task    cluster.TaskID
	Node    string
	// Victims are the UUIDs of the attempts that must end for the task, ordered. If there are none, the task fits once
	// leaving attempts and victims of earlier tasks in the list have ended.
	Victims []string
	// Reclaims says that the victims end because their clusters hold more than their quotas, and the task stays within
	// the quota of its own.
	Reclaims bool
	// Message says it to people: "2 tasks of priority 30 or lower end on n1 for it".
	Message string
}

// Preempt selects tasks of lower priority that should end so that waiting tasks find places. It is a function of
// values, and does not depend on the order of its lists.
//
// The caller ends the victims. In the next cycles it gives each task its node in Pending.Promised: Schedule places the
// task there as soon as it fits. Until then Schedule keeps the room from later tasks in the queue; else the victim's
// own successor would take the first room. A promise lasts until the task is placed, or until a call of Preempt with
// the task names no node or another node. If nothing has to end for a task without a promise, the caller may ignore the
// result: the room becomes free anyway.
//
// Preempt serves tasks in the order of Schedule, and treats victims of earlier tasks as gone. It chooses the node by
// the victims: by the lowest highest priority, then the smallest sum of priorities, then the smallest number. The best
// rank decides last. If nothing has to end on the promised node, the task stays with it. Victims are on the chosen
// node, together with their gangs. The chosen set contains no superfluous victim. Preempt considers every refusal that
// victims can cause: missing room, devices or ports, and tasks that are there. A gang gets room for at least its size,
// or for no member. Nothing ends for a task that a limit of its cluster keeps waiting, nor so that a limit is met.
//
// A task that stays within the quota of its cluster may take the room of tasks of jobs whose clusters borrowed,
// whatever their priority: see admission.Loans.Claims. It takes such room before that of tasks of lower priority. The
// victims are the newest such tasks on a node, none of them superfluous: see reclaim. Nothing ends for a task that
// would borrow itself.
//
// The choice is exact on nodes with few tasks. Beyond maxSteps the chosen set may cost more than the least, but still
// has no superfluous victim.
func Preempt(in Input, opts taskclass.Options) []Preemption {
	p := newPreempt(in, opts)
	for at := 0; at < len(p.Classes.Order); { // as in run: single tasks, and gangs as one
		gang, members := p.Classes.Task(int32(at)).Gang, 1
		for gang != "" && at+members < len(p.Classes.Order) && p.Classes.Task(int32(at+members)).Gang == gang {
			members++
		}
		p.serve(int32(at), int32(at+members))
		at += members
	}
	return p.out
}

// preempt is the state of a call of Preempt: a cycle in which victims can be removed from their nodes.
type preempt struct {
	*cycle.Cycle
	in             Input
	minPriorityGap int
	victims        victimSet
	freeables      freeableIndex
	nodeCostHeaps  map[*taskclass.Class]*nodeCostHeap
	spareHeaps     [][]nodeCost // heaps of discarded entries, for reuse
	steps          int          // left for all searches
	sets           setSearch
	reclaim        reclaim
	done           []served
	out            []Preemption
}

// served is a served task, with what is needed to undo it.
type served struct {
	position, slot int32
	placement      cycle.Placement
	victims        []int32
	reclaims       bool
}

// newPreempt starts a cycle in which the leaving attempts are gone.
func newPreempt(in Input, opts taskclass.Options) *preempt {
	order, _ := cycle.Order(in.Waiting, opts.Now)
	y := cycle.New(in.Fleet, in.Waiting, opts)
	p := &preempt{
		Cycle: y, in: in, minPriorityGap: max(in.Least, 1), steps: maxSteps,
		nodeCostHeaps: map[*taskclass.Class]*nodeCostHeap{},
	}
	p.Start(order)
	for _, c := range p.Classes.List {
		p.Preparer.Prepare(c)
	}
	p.victims = newVictimSet(y, in.Spare)
	p.victims.index(in.Victims)
	p.freeables = freeableIndex{
		victims: &p.victims, nodes: make([]freeable, in.Fleet.SlotCount()),
		levels: make([]freeableLevel, 0, len(p.victims.list)),
	}
	p.reclaim = newReclaim(p)
	return p
}

// serve finds room for the task at one position, or for a gang: for at least its size, or for no member.
func (p *preempt) serve(from, to int32) {
	size := 1
	for i := from; i < to; i++ {
		size = max(size, p.Classes.Task(i).GangSize)
	}
	if p.Classes.Task(from).Gang == "" {
		size = 1
	}
	mark := len(p.done)
	if int(to-from) < size {
		return
	}
	for i := from; i < to; i++ {
		if p.Limits.Judge(p.Classes.Task(i)) != admission.Within {
			continue
		}
		best, found := p.choose(i)
		if !found || len(best.victims) > 0 {
			if r, ok := p.reclaim.choose(i); ok {
				best, found = r, true
			}
		}
		if found {
			p.commit(i, best)
		}
	}
	if len(p.done)-mark < size {
		for i := len(p.done) - 1; i >= mark; i-- {
			p.undo(&p.done[i])
		}
		p.done = p.done[:mark]
		return
	}
	p.reprieveSuperfluous(mark)
	for i := mark; i < len(p.done); i++ {
		p.out = append(p.out, p.describe(&p.done[i]))
	}
}

// commit removes the victims, and places the task.
func (p *preempt) commit(position int32, best nodeCost) {
	for _, v := range best.victims {
		p.victims.end(v, 1)
	}
	d := served{position: position, slot: best.slot, victims: best.victims, reclaims: best.reclaims}
	d.placement = p.Place(p.Classes.At[position], best.slot, int(p.Classes.Order[position]))
	p.victims.noteChange(best.slot)
	p.done = append(p.done, d)
}

func (p *preempt) undo(d *served) {
	p.GiveBack(&d.placement, cycle.PlacedTask{Position: d.position, Slot: d.slot})
	p.victims.noteChange(d.slot)
	for _, v := range d.victims {
		p.victims.end(v, -1)
	}
	p.reclaim.forget()
}

// reprieveSuperfluous spares victims that are no longer needed, because later tasks of the gang required others; the
// most expensive first. It does so only if the tasks request only room.
func (p *preempt) reprieveSuperfluous(mark int) {
	if len(p.done)-mark < 2 {
		return
	}
	for i := mark; i < len(p.done); i++ {
		if !p.Classes.At[p.done[i].position].AsksOnlyRoom() {
			return
		}
	}
	for i := mark; i < len(p.done); i++ {
		d := &p.done[i]
		for n, v := range slices.Backward(d.victims) {
			if p.victims.list[v].gang >= 0 {
				continue
			}
			p.victims.end(v, -1)
			p.reclaim.forget()
			if l := p.Nodes.Load(d.slot); covers(l.Capacity, l.Used) {
				d.victims = slices.Delete(slices.Clone(d.victims), n, n+1)
			} else {
				p.victims.end(v, 1)
			}
		}
	}
}

// covers reports whether used fits into has.
func covers(has, used cluster.Demand) bool {
	return used.CPU <= has.CPU && used.Memory <= has.Memory && used.Disk <= has.Disk
}

// describe returns the Preemption of a served task.
func (p *preempt) describe(d *served) Preemption {
	o := Preemption{Pending: d.placement.Pending, Task: d.placement.Task, Node: d.placement.Node}
	o.Reclaims = d.reclaims && len(d.victims) > 0
	highest := 0
	for _, v := range d.victims {
		o.Victims = append(o.Victims, p.victims.list[v].UUID)
		highest = max(highest, p.victims.list[v].Priority)
	}
	slices.Sort(o.Victims)
	switch n := len(o.Victims); {
	case o.Reclaims && n == 1:
		o.Message = fmt.Sprintf("1 task beyond the quota of its cluster ends on %s for it", o.Node)
	case o.Reclaims:
		o.Message = fmt.Sprintf("%d tasks beyond the quotas of their clusters end on %s for it", n, o.Node)
	case n == 0:
		o.Message = fmt.Sprintf("room on %s once the leaving tasks have ended", o.Node)
	case n == 1:
		o.Message = fmt.Sprintf("1 task of priority %d ends on %s for it", highest, o.Node)
	default:
		o.Message = fmt.Sprintf("%d tasks of priority %d or lower end on %s for it", n, highest, o.Node)
	}
	return o
}
