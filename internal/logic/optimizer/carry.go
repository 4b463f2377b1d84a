package optimizer

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// closes reports whether the node refused the class in this sweep.
func (c *class) closes(sweep int, n int32) bool {
	return c.closed != nil && c.closedIn == sweep && c.closed[n/64]&(1<<(n%64)) != 0
}

// close notes that it did.
func (b *board) close(c *class, sweep int, n int32) {
	if c.closed == nil {
		c.closed = make([]uint64, (len(b.nodes)+63)/64)
	}
	if c.closedIn != sweep {
		clear(c.closed)
		c.closedIn = sweep
	}
	c.closed[n/64] |= 1 << (n % 64)
}

// ask asks the scheduler whether the task may go to the node now. The old attempt holds its place meanwhile, unless the
// task is to be stopped first.
func (b *board) ask(i, to int32) (scheduler.Reservation, bool) {
	t := &b.tasks[i]
	p := t.Pending
	p.Only = b.nodes[to].Name
	if slices.Contains(p.Shun, p.Only) {
		return scheduler.Reservation{}, false
	}
	return b.request(i, p)
}

// request asks the scheduler for a place. What is asked for is not of a gang and not on hold.
func (b *board) request(i int32, p cluster.Pending) (scheduler.Reservation, bool) {
	t := &b.tasks[i]
	p.Priority, p.Gang, p.GangSize = max(1, p.Priority), "", 0
	if t.StopFirst {
		held, _ := b.trial.Reserved(t.UUID)
		b.trial.Release(t.UUID)
		defer b.trial.Reserve(held)
	}
	pending := []cluster.Pending{p}
	r := scheduler.Schedule(b.trial, pending, b.opts.Scheduler)
	if len(r.Placements) == 0 {
		return scheduler.Reservation{}, false
	}
	return r.Placements[0].Reservation(&pending[0], t.UUID), true
}

// moved is what it takes to take a move back.
type moved struct {
	task     int32
	from, to int32
	class    *class
	before   scheduler.Reservation
}

// carry moves a task that may be moved: the reservation is what the scheduler gave.
func (b *board) carry(i int32, c *class, r scheduler.Reservation) moved {
	t := &b.tasks[i]
	from, _ := b.find(t.Node)
	to, _ := b.find(r.Node)
	before, _ := b.trial.Reserved(t.UUID)
	b.trial.Reserve(r) // in the place of the one before
	b.shift(i, c, from, to)
	return moved{i, from, to, c, before}
}

// back takes a move back.
func (b *board) back(m moved) {
	b.trial.Reserve(m.before)
	b.shift(m.task, m.class, m.to, m.from)
}

// shift keeps the columns to what was moved.
func (b *board) shift(i int32, c *class, from, to int32) {
	x, y := &b.nodes[from], &b.nodes[to]
	x.used, y.used = x.used.sub(c.demand), y.used.add(c.demand)
	x.measure()
	y.measure()
	x.tasks = slices.Delete(x.tasks, slices.Index(x.tasks, i), slices.Index(x.tasks, i)+1)
	y.tasks = append(y.tasks, i)
	x.busy--
	y.busy++
	if c.group.at[from]--; c.group.at[from] == 0 {
		delete(c.group.at, from)
	}
	c.group.at[to]++
	for s := range c.group.spreads {
		c.group.spreads[s].shift(from, to)
	}
	s := b.seats[seatKey{c, from}]
	if at, found := slices.BinarySearch(s.tasks, i); found {
		s.tasks = slices.Delete(s.tasks, at, at+1)
	}
	b.tasks[i].Node = y.Name
	b.sit(i, c, to)
}

// measure finds what follows from what is used.
func (n *node) measure() {
	n.share = sharesOf(n.used, n.capacity)
	n.stranded = stranded(n.share, n.capacity)
}

// scatter writes down for each node how many of the class' version are there, if those keep apart, and reports whether
// they do. Each call is followed by one of wipe.
func (b *board) scatter(c *class) bool {
	if c.affinity == cluster.AntiAffinityNone || c.group.count < 2 {
		return false
	}
	for n, k := range c.group.at { // order-free: each by itself
		b.siblings[n] = k
	}
	return true
}

// wipe wipes out what scatter wrote.
func (b *board) wipe(c *class) {
	for n := range c.group.at { // order-free: each by itself
		b.siblings[n] = 0
	}
}

// note adds a move to the list.
func (b *board) note(m moved, cause Cause, gain int64, message string) {
	t := &b.tasks[m.task]
	b.moves = append(b.moves, Move{
		Task: t.Task, Owner: t.Owner, UUID: t.UUID, From: b.nodes[m.from].Name, To: b.nodes[m.to].Name,
		Cause: cause, StopFirst: t.StopFirst, Gain: points(gain), Message: message,
	})
}
