package scheduler

import (
	"fmt"
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// Victim is an attempt that holds room and may be ended for a task of higher priority. What holds no reservation in the
// fleet is ignored, as are all reservations that no Victim names: they stay.
type Victim struct {
	// UUID is that of its reservation.
	UUID     string
	Priority int
	Owner    cluster.OwnerRef
	// Gang, unless empty, names those that fall together: if one is ended all are, wherever they are.
	Gang string
	// Leaving says that it is on its way out already. What it holds counts as free, whatever its priority, and costs
	// nothing.
	Leaving bool
	// Unhealthy says that its end costs its owner no healthy task.
	Unhealthy bool
}

// PreemptInput is what Preempt decides on. Nothing of it is changed.
type PreemptInput struct {
	Fleet *Fleet
	// Waiting are the tasks that Schedule could not place, as it was given them: with those that have a promise from an
	// earlier call in Pending.Promised. Held tasks are skipped.
	Waiting []cluster.Pending
	// Victims may be in any order; each UUID once.
	Victims []Victim
	// Spare is how many healthy tasks an owner may lose, those that leave not counted; of an owner that is not in it
	// all may end.
	Spare map[cluster.OwnerRef]int
	// Least is by how much a task's priority must at least be above a victim's; less than 1 counts as 1.
	Least int
}

// Preemption is a waiting task with the node where there will be room for it.
type Preemption struct {
	// Pending is the task's index in PreemptInput.Waiting.
	Pending int
	Task    cluster.TaskID
	Node    string
	// Victims are the UUIDs of the attempts that must end for it, ordered. Without any the task fits as soon as all
	// have ended that leave already, or that end for tasks before it in the list.
	Victims []string
	// Message says it to a person: "2 tasks of a priority of at most 30 end on n1 for it".
	Message string
}

// Preempt says which tasks of lower priority should end so that tasks that wait find places. It is a function of
// values, and does not depend on the order of its lists. The caller ends the victims, and gives each task its node in
// Pending.Promised in the next cycles: Schedule places it there as soon as it fits, and keeps the room for it meanwhile
// from what comes after it in the queue; else the first room that a victim leaves would go to the victim's own
// successor. A promise lasts until the task is placed, or until a call of Preempt that was given the task does not name
// it, or names another node. Where nothing has to end for a task that had no promise, the caller may leave it at that:
// the room comes anyway.
//
// The tasks are served in the order in which Schedule places them, and each finds what ends for those before it gone.
// It is given that node where the highest priority of a victim is the lowest; of those that where the priorities lost
// add up to the least; then the fewest victims; then the best rank that Schedule finds. If nothing has to end on the
// node that it has a promise of, it stays with that. The victims are of that node, and with them their gangs; of no set
// of them that would do, one without a superfluous one is taken. Every refusal counts that goes away with them: for
// want of room, devices or ports, and for what stands there. A task that belongs to a gang is served with all of it, or
// none of it is.
//
// The choice is exact on nodes with few tasks. Where that would take too long, see mostSteps, a set may be taken that
// costs more than the least, still without a superfluous victim.
func Preempt(in PreemptInput, opts Options) []Preemption {
	p := newPreempt(in, opts)
	for at := 0; at < len(p.order); { // as in run: one by one, and gangs as one
		gang, members := p.task(int32(at)).Gang, 1
		for gang != "" && at+members < len(p.order) && p.task(int32(at+members)).Gang == gang {
			members++
		}
		p.serve(int32(at), int32(at+members))
		at += members
	}
	return p.out
}

// preempt is the state of a call of Preempt: a cycle, in which victims can be taken off their nodes.
type preempt struct {
	*cycle
	in       PreemptInput
	least    int
	victims  []victim
	gangs    [][]int32 // the victims of each gang
	starts   []int32   // by slot, where its part of bySlot begins
	bySlot   []int32   // victims that do not leave, by slot; each part by priority once it was asked for
	ordered  []bool    // by slot
	spare    []int     // by owner with a bound, how many more may end
	owners   map[cluster.OwnerRef]int32
	counted  map[*crowd][]*group
	changed  []int32 // slots, in the order in which something changed there
	stamp    []int32 // by slot, how often
	surveys  map[*class]*survey
	heaps    [][]prospect   // of surveys that are over
	outlooks []outlook      // by slot
	levels   []outlookLevel // of all
	steps    int            // that are left for the searches
	search   search
	done     []served
	out      []Preemption
}

// served is a task with what was done for it, so that it can be undone.
type served struct {
	position, slot int32
	placement      Placement
	victims        []int32
}

// newPreempt takes what leaves off its nodes.
func newPreempt(in PreemptInput, opts Options) *preempt {
	order, _ := queue(in.Waiting)
	p := &preempt{
		cycle: newCycle(in.Fleet, in.Waiting, opts), in: in, least: max(in.Least, 1), steps: mostSteps,
		stamp: make([]int32, len(in.Fleet.slots)), owners: map[cluster.OwnerRef]int32{}, counted: map[*crowd][]*group{},
		surveys: map[*class]*survey{}, outlooks: make([]outlook, len(in.Fleet.slots)),
	}
	p.order = order
	p.classify(order)
	p.relate()
	for _, c := range p.classes {
		p.sieveOf(c)
		p.ready(c)
	}
	for _, g := range p.groups { // order-free: each for itself
		for ; g != nil; g = g.next {
			for _, known := range []*crowd{g.known, g.unknown} {
				if known != nil {
					p.counted[known] = append(p.counted[known], g)
				}
			}
		}
	}
	p.enter()
	return p
}

// serve finds room for the tasks at some positions: one, or a gang, of which at least as many as it has to have find
// room or none does.
func (p *preempt) serve(from, to int32) {
	size := 1
	for i := from; i < to; i++ {
		size = max(size, p.task(i).GangSize)
	}
	if p.task(from).Gang == "" {
		size = 1
	}
	mark := len(p.done)
	if int(to-from) < size {
		return
	}
	for i := from; i < to; i++ {
		if best, found := p.choose(i); found {
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
	p.spareSome(mark)
	for i := mark; i < len(p.done); i++ {
		p.out = append(p.out, p.tell(&p.done[i]))
	}
}

// commit takes the victims off, and puts the task in their place.
func (p *preempt) commit(position int32, best prospect) {
	for _, v := range best.victims {
		p.end(v, 1)
	}
	d := served{position: position, slot: best.slot, victims: best.victims}
	d.placement = p.place(p.classOf[position], best.slot, int(p.order[position]))
	p.change(best.slot)
	p.done = append(p.done, d)
}

func (p *preempt) undo(d *served) {
	p.giveBack(&d.placement, whereabouts{d.position, d.slot})
	p.change(d.slot)
	for _, v := range d.victims {
		p.end(v, -1)
	}
}

// spareSome lets those victims live that turn out not to be needed, as others had to end for tasks behind: the dearest
// first. That is found out only where the tasks ask for nothing but room.
func (p *preempt) spareSome(mark int) {
	if len(p.done)-mark < 2 {
		return
	}
	for i := mark; i < len(p.done); i++ {
		if !p.simple(p.classOf[p.done[i].position]) {
			return
		}
	}
	for i := mark; i < len(p.done); i++ {
		d := &p.done[i]
		for n, v := range slices.Backward(d.victims) {
			if p.victims[v].gang >= 0 {
				continue
			}
			p.end(v, -1)
			if l := p.load(d.slot); covers(l.capacity, l.used) {
				d.victims = slices.Delete(slices.Clone(d.victims), n, n+1)
			} else {
				p.end(v, 1)
			}
		}
	}
}

// covers reports whether a node has at least so much.
func covers(has, used cluster.Demand) bool {
	return used.CPU <= has.CPU && used.Memory <= has.Memory && used.Disk <= has.Disk
}

// tell makes of what was done what the caller is told.
func (p *preempt) tell(d *served) Preemption {
	o := Preemption{Pending: d.placement.Pending, Task: d.placement.Task, Node: d.placement.Node}
	highest := 0
	for _, v := range d.victims {
		o.Victims = append(o.Victims, p.victims[v].UUID)
		highest = max(highest, p.victims[v].Priority)
	}
	slices.Sort(o.Victims)
	switch n := len(o.Victims); n {
	case 0:
		o.Message = fmt.Sprintf("it will have room on %s when what leaves it has ended", o.Node)
	case 1:
		o.Message = fmt.Sprintf("1 task of priority %d ends on %s for it", highest, o.Node)
	default:
		o.Message = fmt.Sprintf("%d tasks of priority %d or lower end on %s for it", n, highest, o.Node)
	}
	return o
}
