package rebalance

import (
	"cmp"
	"container/heap"
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// aspect is a number of the score that single moves improve.
type aspect interface {
	cause() cluster.RebalanceCause
	// of returns the strategy of the tasks that move.
	of() cluster.Strategy
	// best returns the best node for one of the tasks, and the gain of the move in units; the scheduler has not been
	// asked. A gain of 0 means none.
	best(b *state, s *movable) (to int32, gain int64)
	// why returns the reason of a move for people.
	why(b *state, c *class, from, to int32) string
}

// aspectOf returns the aspect of a cause, nil for the causes of other moves.
func aspectOf(c cluster.RebalanceCause) aspect {
	for _, a := range []aspect{wholeAspect{}, evenAspect{}} {
		if a.cause() == c {
			return a
		}
	}
	return nil
}

// improve makes the moves with the largest gains first. It repeats sweeps until no move has enough gain.
func (b *state) improve(a aspect) {
	for again := true; again && !b.isOver(); {
		b.sweeps++
		again = b.sweep(a)
	}
}

// sweep visits all movables in the order of their gains, and makes the moves with enough gain. It recomputes a gain
// when its turn comes, because other tasks have moved. It reports whether it made a move.
func (b *state) sweep(a aspect) bool {
	least := int64(b.opts.MinGain) * (unit / Points)
	var q queue
	for i, s := range b.orderedMovables(a.of()) {
		if b.spendWork(len(b.nodes)) {
			break
		}
		if _, gain := a.best(b, s); gain >= least {
			q = append(q, queuedMovable{s, gain, i})
		}
	}
	heap.Init(&q)
	carried := false
	for len(q) > 0 && b.workLeft > -b.opts.Work { // gains that were found may still be used
		next, _ := heap.Pop(&q).(queuedMovable)
		if len(next.movable.tasks) == 0 {
			continue
		}
		b.workLeft -= len(b.nodes)
		to, gain := a.best(b, next.movable)
		if gain < least {
			continue
		}
		next.gain = gain
		if len(q) > 0 && gain < q[0].gain {
			heap.Push(&q, next)
			continue
		}
		c, from := next.movable.class, next.movable.node
		i := next.movable.tasks[len(next.movable.tasks)-1]
		r, ok := b.ask(i, to)
		if !ok {
			b.noteRefusals(i, c, to)
			heap.Push(&q, next)
			continue
		}
		if b.movesLeft() <= 0 {
			b.bounded = true
			return carried
		}
		message := a.why(b, c, from, to)
		b.addMove(b.applyMove(i, c, r), a.cause(), gain, message)
		carried = true
		heap.Push(&q, next)
	}
	return carried
}

// orderedMovables returns the movables of a strategy, those on the fullest nodes first.
func (b *state) orderedMovables(of cluster.Strategy) []*movable {
	var out []*movable
	for _, s := range b.movables { // order-free: sorted next
		if s.class.strategy == of && !s.class.hasRelations && len(s.tasks) > 0 {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(x, y *movable) int {
		return cmp.Or(cmp.Compare(b.nodes[y.node].fill(), b.nodes[x.node].fill()), cmp.Compare(x.node, y.node),
			cmp.Compare(x.tasks[0], y.tasks[0]))
	})
	return out
}

// noteRefusals asks all nodes about a task that one node has refused. It notes for the rest of the sweep which nodes
// refuse its class.
func (b *state) noteRefusals(i int32, c *class, to int32) {
	b.setRefused(c, b.sweeps, to)
	if b.tasks[i].StopFirst { // its own reservation would count against it
		return
	}
	p := b.tasks[i].Pending
	p.OnlyNode, p.Gang, p.GangSize = "", "", 0
	b.workLeft -= len(b.nodes)
	for n, v := range scheduler.Explain(b.fleet, p, b.opts.Scheduler) {
		if v.Refusal != nil || slices.Contains(p.PenalizedNodes, v.Node) {
			b.setRefused(c, b.sweeps, int32(n))
		}
	}
}

// queuedMovable is a movable with its last gain.
type queuedMovable struct {
	movable *movable
	gain    int64
	order   int
}

// queue is a heap, the largest gain first.
type queue []queuedMovable

// Len returns the number of movables in the queue.
func (q queue) Len() int { return len(q) }

// Less reports whether element i comes before element j.
func (q queue) Less(i, j int) bool {
	if q[i].gain != q[j].gain {
		return q[i].gain > q[j].gain
	}
	return q[i].order < q[j].order
}

// Swap exchanges two elements.
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

// Push appends an element.
func (q *queue) Push(x any) {
	if s, ok := x.(queuedMovable); ok {
		*q = append(*q, s)
	}
}

// Pop removes the last element.
func (q *queue) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	*q = (*q)[:last]
	return x
}
