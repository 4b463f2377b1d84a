package rebalance

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// hasRefused reports whether the node refused the class in this sweep.
func (c *class) hasRefused(sweep int, n int32) bool {
	return c.refused != nil && c.refusedIn == sweep && c.refused[n/64]&(1<<(n%64)) != 0
}

// setRefused notes that the node refused the class in this sweep.
func (b *state) setRefused(c *class, sweep int, n int32) {
	if c.refused == nil {
		c.refused = make([]uint64, (len(b.nodes)+63)/64)
	}
	if c.refusedIn != sweep {
		clear(c.refused)
		c.refusedIn = sweep
	}
	c.refused[n/64] |= 1 << (n % 64)
}

// ask asks the scheduler whether the task may move to the node now. The old attempt keeps its place until then, unless
// the task is stopped first.
func (b *state) ask(i, to int32) (scheduler.Reservation, bool) {
	t := &b.tasks[i]
	p := t.Pending
	p.OnlyNode = b.nodes[to].Name
	if slices.Contains(p.PenalizedNodes, p.OnlyNode) {
		return scheduler.Reservation{}, false
	}
	return b.request(i, p)
}

// request asks the scheduler for a place, without gang and hold.
func (b *state) request(i int32, p cluster.Pending) (scheduler.Reservation, bool) {
	t := &b.tasks[i]
	p.Priority, p.Gang, p.GangSize = max(1, p.Priority), "", 0
	if t.StopFirst {
		held, _ := b.fleet.Reserved(t.UUID)
		b.fleet.Release(t.UUID)
		defer b.fleet.Reserve(held)
	}
	pending := []cluster.Pending{p}
	r := scheduler.Schedule(b.fleet, pending, b.opts.Scheduler)
	if len(r.Placements) == 0 {
		return scheduler.Reservation{}, false
	}
	return r.Placements[0].Reservation(&pending[0], t.UUID), true
}

// appliedMove is a move with what is needed to revert it.
type appliedMove struct {
	task     int32
	from, to int32
	class    *class
	before   scheduler.Reservation
}

// applyMove moves a movable task to the reservation that the scheduler gave.
func (b *state) applyMove(i int32, c *class, r scheduler.Reservation) appliedMove {
	t := &b.tasks[i]
	from, _ := b.find(t.Node)
	to, _ := b.find(r.Node)
	before, _ := b.fleet.Reserved(t.UUID)
	b.fleet.Reserve(r) // replaces the reservation with this UUID
	b.shift(i, c, from, to)
	return appliedMove{i, from, to, c, before}
}

// revertMove reverts a move.
func (b *state) revertMove(m appliedMove) {
	b.fleet.Reserve(m.before)
	b.shift(m.task, m.class, m.to, m.from)
}

// shift updates the state for a move.
func (b *state) shift(i int32, c *class, from, to int32) {
	x, y := &b.nodes[from], &b.nodes[to]
	x.used, y.used = x.used.sub(c.demand), y.used.add(c.demand)
	x.updateShares()
	y.updateShares()
	x.tasks = slices.Delete(x.tasks, slices.Index(x.tasks, i), slices.Index(x.tasks, i)+1)
	y.tasks = append(y.tasks, i)
	x.nonDaemonTasks--
	y.nonDaemonTasks++
	if c.group.at[from]--; c.group.at[from] == 0 {
		delete(c.group.at, from)
	}
	c.group.at[to]++
	for s := range c.group.spreads {
		c.group.spreads[s].shift(from, to)
	}
	s := b.movables[movableKey{c, from}]
	if at, found := slices.BinarySearch(s.tasks, i); found {
		s.tasks = slices.Delete(s.tasks, at, at+1)
	}
	b.tasks[i].Node = y.Name
	b.addMovable(i, c, to)
}

// updateShares recomputes what depends on the usage.
func (n *node) updateShares() {
	n.share = sharesOf(n.used, n.capacity)
	n.stranded = stranded(n.share, n.capacity)
}

// loadSiblings sets siblings to the number of the class's version on each node, and reports whether they keep apart.
// Each call is followed by clearSiblings.
func (b *state) loadSiblings(c *class) bool {
	if c.affinity == cluster.AntiAffinityNone || c.group.count < 2 {
		return false
	}
	for n, k := range c.group.at { // order-free: each by itself
		b.siblings[n] = k
	}
	return true
}

// clearSiblings resets siblings to 0.
func (b *state) clearSiblings(c *class) {
	for n := range c.group.at { // order-free: each by itself
		b.siblings[n] = 0
	}
}

// addMove appends a move to the list.
func (b *state) addMove(m appliedMove, cause cluster.RebalanceCause, gain int64, message string) {
	t := &b.tasks[m.task]
	b.moves = append(b.moves, Move{
		Task: t.Task, Owner: t.Owner, UUID: t.UUID, From: b.nodes[m.from].Name, To: b.nodes[m.to].Name,
		Cause: cause, StopFirst: t.StopFirst, Gain: points(gain), Message: message,
	})
}
