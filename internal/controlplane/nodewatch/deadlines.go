package nodewatch

import (
	"container/heap"
	"time"
)

// deadlines holds when nodes are to be judged even without reports from them, on the boot-time clock. Each report of a
// healthy node postpones its time. A postponed time is not queued: when the queued time comes, the node's present one
// is read. So a report costs one comparison, and a node is in the queue about once.
type deadlines struct {
	soonest map[string]time.Duration
	queue   deadlineHeap // also holds times that an earlier one replaced; due skips them
}

type deadline struct {
	node string
	at   time.Duration
}

func newDeadlines() *deadlines { return &deadlines{soonest: map[string]time.Duration{}} }

// set notes that a node is due at a time, at the latest; 0 is none.
func (d *deadlines) set(node string, at time.Duration) {
	if queued, ok := d.soonest[node]; at == 0 || ok && queued <= at {
		return
	}
	d.soonest[node] = at
	heap.Push(&d.queue, deadline{node, at})
}

// yieldDue calls yield with each node that is due; when returns a node's present time, 0 for none. A node stays due
// until when returns a later time.
func (d *deadlines) yieldDue(now time.Duration, when func(node string) time.Duration, yield func(node string)) {
	var again []string
	for len(d.queue) > 0 && d.queue[0].at <= now {
		first := d.queue[0]
		at := when(first.node)
		switch queued := d.soonest[first.node] == first.at; {
		case queued && at > now:
			d.soonest[first.node], d.queue[0].at = at, at
			heap.Fix(&d.queue, 0)
			continue
		case queued && at != 0:
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

// deadlineHeap implements heap.Interface.
type deadlineHeap []deadline

func (q deadlineHeap) Len() int           { return len(q) }
func (q deadlineHeap) Less(i, j int) bool { return q[i].at < q[j].at }
func (q deadlineHeap) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }

// Push is for package heap.
func (q *deadlineHeap) Push(x any) {
	if next, ok := x.(deadline); ok {
		*q = append(*q, next)
	}
}

// Pop is for package heap.
func (q *deadlineHeap) Pop() any {
	old := *q
	x := old[len(old)-1]
	*q = old[:len(old)-1]
	return x
}
