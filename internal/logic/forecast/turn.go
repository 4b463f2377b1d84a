package forecast

import (
	"slices"

	"github.com/berthd/berth/internal/logic/scheduler/fair"
)

// schedule starts what may start now. The order is that of the scheduler: requests whose clusters borrow for them have
// their turns after all others.
func (f *future) schedule() {
	f.beginMoment()
	f.reorder()
	f.startFair(nil)
	f.giveTurns(f.waiting)
	if later := f.limits.takeDeferred(); len(later) > 0 {
		f.limits.mayBorrow = true
		f.startFair(later)
		f.giveTurns(slices.DeleteFunc(slices.Clone(later), f.isFair))
		f.limits.mayBorrow = false
	}
	f.limits.endMoment()
	if f.started {
		f.started = false
		f.waiting = slices.DeleteFunc(f.waiting, f.hasStarted)
		for i := range f.fair.waiting {
			f.fair.waiting[i] = slices.DeleteFunc(f.fair.waiting[i], f.hasStarted)
		}
	}
	for _, n := range f.touched {
		f.isTouch[n] = false
	}
	f.touched = f.touched[:0]
}

func (f *future) hasStarted(q int32) bool { return f.queue[q].left == 0 }

// giveTurns gives their turns to requests that are in no fair queue, in their order, and to those that startFair chose.
func (f *future) giveTurns(plain []int32) {
	user := f.fair.turns.Next()
	for turns := 0; turns < maxDepth && f.work > 0; turns++ {
		switch {
		case len(plain) > 0 && f.limits.isBarred(&f.queue[plain[0]]): // it takes no turn
			plain = plain[1:]
			turns--
			f.work--
		case len(plain) > 0 && (user == nil || f.Compare(plain[0], user.Requests[0]) < 0):
			f.turn(plain[0], nil)
			plain = plain[1:]
		case user != nil:
			f.fairTurn(user)
			user = f.fair.turns.Next()
		default:
			return
		}
	}
}

// fairTurn gives the first request of a user a turn: one task of it, or a gang.
func (f *future) fairTurn(u *fair.User) {
	q := u.Requests[0]
	e := &f.queue[q]
	f.work -= workPerFairTurn
	if denied := f.turn(q, u); !denied && e.left > 0 {
		f.fair.turns.Placed()
		return
	}
	// Requests behind it that find no room either, as one of their class has found none, have their turns as well.
	n, level := 1, f.Level(q, false)
	for n < len(u.Requests) && f.deniedAt[f.queue[u.Requests[n]].class] == f.moment &&
		f.Level(u.Requests[n], false) == level {
		n++
	}
	f.fair.turns.Done(n)
}

// turn starts tasks of a request: all that find room, or one if it is in a fair queue and no gang. The user is that of
// a fair queue. It reports whether a task found no room, or was not admitted.
func (f *future) turn(q int32, user *fair.User) (denied bool) {
	e := &f.queue[q]
	c := &f.classes[e.class]
	line := &f.lines[c.line]
	f.work--
	if line.blocked || f.deniedAt[e.class] == f.moment {
		return true
	}
	most := e.left
	if user != nil && c.gang == 1 {
		most = 1
	}
	switch f.place(e, c, most) {
	case placed:
		if e.left == 0 {
			e.last, f.started = f.now, true
			if int(q) < f.requests {
				f.open--
			}
		}
		return false
	case putOff:
		f.limits.deferred = append(f.limits.deferred, q)
		return true
	case refused:
		return true
	case noRoom:
	}
	members := f.owed(q, user)
	if members = f.admitted(members); len(members) == 0 {
		return true
	}
	f.deniedAt[e.class] = f.moment
	switch f.Lines[c.line].Policy {
	case FIFO:
		line.blocked = true
	case EASY, SJBF, Fair:
		if !line.promised {
			line.promised = f.promise(members)
		}
	case Greedy:
	}
	return true
}

// outcome is what a turn came to.
type outcome int

const (
	placed  outcome = iota // as many tasks as the turn is for
	noRoom                 // for the next task
	refused                // by a limit
	putOff                 // as the cluster borrows for the next task
)

// place starts at most so many tasks of a request where there is room.
func (f *future) place(e *entry, c *class, most int) outcome {
	if c.gang > 1 {
		return f.placeGang(e, c)
	}
	if o := f.judge(e); o != placed {
		return o
	}
	if !f.mayFit(c) {
		return noRoom
	}
	nodes := f.Lines[c.line].Nodes
	// A class that the moment before had no room for finds room on touched nodes alone. A class that was not denied
	// then may find what is left on others.
	onTouched := f.deniedAt[e.class] == f.moment-1
	if onTouched {
		nodes = f.touched
	}
	for _, n := range nodes {
		f.work--
		if onTouched && !slices.Contains(f.linesOf[n], int32(c.line)) {
			continue
		}
		for slots := f.slots(n, c); slots > 0 && f.work > 0; slots-- {
			f.startTask(e, c, n, 1, f.draw(e.runs, 0, e.alone))
			if most--; most == 0 {
				return placed
			}
			if o := f.judge(e); o != placed {
				return o
			}
		}
	}
	return noRoom
}

// placeGang starts all tasks of a gang, or none.
func (f *future) placeGang(e *entry, c *class) outcome {
	need := int64(c.gang)
	f.gangSlots = f.gangSlots[:0]
	if e.limit >= 0 || f.mayFit(c) { // limits depend on the number of tasks that find room
		for _, n := range f.Lines[c.line].Nodes {
			f.work--
			if slots := min(f.slots(n, c), need); slots > 0 {
				f.gangSlots = append(f.gangSlots, gangSlot{n, slots})
				if need -= slots; need == 0 {
					break
				}
			}
		}
	}
	if o := f.judgeGang(e, c, c.gang-int(need)); o != placed {
		return o
	}
	if need > 0 {
		return noRoom
	}
	run := f.draw(e.runs, 0, false)
	e.gangNodes = make([]int32, 0, len(f.gangSlots))
	for _, s := range f.gangSlots {
		e.gangNodes = append(e.gangNodes, s.node)
		f.startTask(e, c, s.node, s.count, run)
	}
	return placed
}

// owed returns the requests whose tasks get promises, as a task of the request found no room. In a fair queue these are
// as many tasks of the user with the same demand as its jobs hold too little for (fair.Turns.Owed).
func (f *future) owed(q int32, user *fair.User) []int32 {
	f.members = append(f.members[:0], q)
	c := &f.classes[f.queue[q].class]
	if user == nil || c.gang > 1 || f.queue[q].devices {
		return f.members
	}
	most := f.fair.turns.Owed(f.shareOf(&c.demand))
	f.members = f.members[:0]
	for _, other := range user.Requests {
		e := &f.queue[other]
		if o := &f.classes[e.class]; o.demand != c.demand || o.line != c.line || o.gang > 1 || e.gang || e.devices {
			break
		}
		for range e.left {
			if len(f.members) == most {
				return f.members
			}
			f.members = append(f.members, other)
		}
	}
	if len(f.members) == 0 {
		return append(f.members, q)
	}
	return f.members
}
