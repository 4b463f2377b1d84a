package optimizer

import (
	"cmp"
	"container/heap"
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// aspect is one of the numbers that single moves bring down.
type aspect interface {
	cause() Cause
	// of says whose tasks are moved.
	of() cluster.Strategy
	// best returns the node that is best for a task of the seat, as far as the columns tell, and what is gained by
	// moving it there, in units; or a gain of 0.
	best(b *board, s *seat) (to int32, gain int64)
	// why says it to people.
	why(b *board, c *class, from, to int32) string
}

// improve makes the moves that gain the most first. It goes over all seats again and again until none is worth it.
func (b *board) improve(a aspect) {
	for again := true; again && !b.over(); {
		b.sweeps++
		again = b.sweep(a)
	}
}

// sweep looks at every seat, and carries out what is worth it. What a seat gains is looked at again when its turn
// comes, as others have moved meanwhile. It reports whether there was a move.
func (b *board) sweep(a aspect) bool {
	least := int64(b.opts.MinGain) * (unit / Points)
	var q queue
	for i, s := range b.ordered(a.of()) {
		if b.spent(len(b.nodes)) {
			break
		}
		if _, gain := a.best(b, s); gain >= least {
			q = append(q, queued{s, gain, i})
		}
	}
	heap.Init(&q)
	carried := false
	for len(q) > 0 && b.left > -b.opts.Work { // what was found may be finished
		next, _ := heap.Pop(&q).(queued)
		if len(next.seat.tasks) == 0 {
			continue
		}
		b.left -= len(b.nodes)
		to, gain := a.best(b, next.seat)
		if gain < least {
			continue
		}
		next.gain = gain
		if len(q) > 0 && gain < q[0].gain {
			heap.Push(&q, next)
			continue
		}
		c, from := next.seat.class, next.seat.node
		i := next.seat.tasks[len(next.seat.tasks)-1]
		r, ok := b.ask(i, to)
		if !ok {
			b.shut(i, c, to)
			heap.Push(&q, next)
			continue
		}
		if b.room() <= 0 {
			b.bounded = true
			return carried
		}
		message := a.why(b, c, from, to)
		b.note(b.carry(i, c, r), a.cause(), gain, message)
		carried = true
		heap.Push(&q, next)
	}
	return carried
}

// ordered returns the seats of a strategy, those on the fullest nodes first.
func (b *board) ordered(of cluster.Strategy) []*seat {
	var out []*seat
	for _, s := range b.seats { // order-free: sorted next
		if s.class.strategy == of && !s.class.tied && len(s.tasks) > 0 {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(x, y *seat) int {
		return cmp.Or(cmp.Compare(b.nodes[y.node].fill(), b.nodes[x.node].fill()), cmp.Compare(x.node, y.node),
			cmp.Compare(x.tasks[0], y.tasks[0]))
	})
	return out
}

// shut asks all nodes about a task that one has refused, and notes which do not take its class: for the rest of the
// sweep.
func (b *board) shut(i int32, c *class, to int32) {
	b.close(c, b.sweeps, to)
	if b.tasks[i].StopFirst { // what it holds itself is in the way where it is asked about
		return
	}
	p := b.tasks[i].Pending
	p.Only, p.Gang, p.GangSize = "", "", 0
	b.left -= len(b.nodes)
	for n, v := range scheduler.Explain(b.trial, p, b.opts.Scheduler) {
		if v.Refusal != nil || slices.Contains(p.Shun, v.Node) {
			b.close(c, b.sweeps, int32(n))
		}
	}
}

// queued is a seat with what it gained when it was last looked at.
type queued struct {
	seat  *seat
	gain  int64
	order int
}

// queue has the seat with the most to gain first.
type queue []queued

// Len returns how many seats wait.
func (q queue) Len() int { return len(q) }

// Less reports whether seat i comes before seat j.
func (q queue) Less(i, j int) bool {
	if q[i].gain != q[j].gain {
		return q[i].gain > q[j].gain
	}
	return q[i].order < q[j].order
}

// Swap exchanges two seats.
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

// Push adds a seat at the end.
func (q *queue) Push(x any) {
	if s, ok := x.(queued); ok {
		*q = append(*q, s)
	}
}

// Pop takes the last seat.
func (q *queue) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	*q = (*q)[:last]
	return x
}
