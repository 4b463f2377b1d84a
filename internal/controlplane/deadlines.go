package controlplane

import (
	"container/heap"
	"time"
)

// deadlines are when nodes are to be looked at though nothing was heard of them, on the boot-time clock. Those of a
// node that is well move on with each of its reports, so a later one is not written down before the one that stands has
// come: then it is asked for. So a report costs no more than a comparison, and a node stands in the queue about once.
type deadlines struct {
	soonest map[string]time.Duration
	queue   queue // also holds times that an earlier one replaced; those are passed over
}

type deadline struct {
	node string
	at   time.Duration
}

func newDeadlines() *deadlines { return &deadlines{soonest: map[string]time.Duration{}} }

// set notes that a node is due at a time, at the latest; 0 is none.
func (d *deadlines) set(node string, at time.Duration) {
	if stands, ok := d.soonest[node]; at == 0 || ok && stands <= at {
		return
	}
	d.soonest[node] = at
	heap.Push(&d.queue, deadline{node, at})
}

// due calls yield with each node whose time has come by its last word: when returns it, 0 for none. A node that is
// due is so again until when says otherwise.
func (d *deadlines) due(now time.Duration, when func(node string) time.Duration, yield func(node string)) {
	var again []string
	for len(d.queue) > 0 && d.queue[0].at <= now {
		first := d.queue[0]
		at := when(first.node)
		switch stands := d.soonest[first.node] == first.at; {
		case stands && at > now:
			d.soonest[first.node], d.queue[0].at = at, at
			heap.Fix(&d.queue, 0)
			continue
		case stands && at != 0:
			yield(first.node)
			again = append(again, first.node)
		}
		if d.soonest[first.node] == first.at {
			delete(d.soonest, first.node)
		}
		heap.Pop(&d.queue)
	}
	for _, node := range again {
		d.set(node, when(node))
	}
}

// queue is a heap.
type queue []deadline

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].at < q[j].at }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }

// Push and Pop are heap's.
func (q *queue) Push(x any) {
	if next, ok := x.(deadline); ok {
		*q = append(*q, next)
	}
}

// Pop removes the last.
func (q *queue) Pop() any {
	old := *q
	x := old[len(old)-1]
	*q = old[:len(old)-1]
	return x
}
