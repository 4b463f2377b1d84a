package queue

import (
	"container/heap"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// Timers holds when owners are to be decided again though nothing changed. An owner has one time at most.
type Timers struct {
	times map[cluster.OwnerRef]time.Time
	heap  timerHeap // also holds times that were replaced; next skips them
}

type ownerTimer struct {
	owner cluster.OwnerRef
	at    time.Time
}

// NewTimers returns an empty queue.
func NewTimers() *Timers { return &Timers{times: map[cluster.OwnerRef]time.Time{}} }

// Set sets the time of an owner; the zero time removes it.
func (a *Timers) Set(o cluster.OwnerRef, at time.Time) {
	was, had := a.times[o]
	switch {
	case at.IsZero():
		delete(a.times, o)
		return
	case had && was.Equal(at):
		return
	}
	a.times[o] = at
	heap.Push(&a.heap, ownerTimer{o, at})
}

// TakeDue removes and returns the owners whose time has come.
func (a *Timers) TakeDue(now time.Time) []cluster.OwnerRef {
	var out []cluster.OwnerRef
	for {
		at, ok := a.Next()
		if !ok || at.After(now) {
			return out
		}
		first := a.heap[0].owner
		heap.Pop(&a.heap)
		delete(a.times, first)
		out = append(out, first)
	}
}

// Next returns the earliest time, and false if there is none.
func (a *Timers) Next() (time.Time, bool) {
	for len(a.heap) > 0 {
		first := a.heap[0]
		if at, ok := a.times[first.owner]; ok && at.Equal(first.at) {
			return first.at, true
		}
		heap.Pop(&a.heap)
	}
	return time.Time{}, false
}

// timerHeap implements heap.Interface.
type timerHeap []ownerTimer

func (l timerHeap) Len() int           { return len(l) }
func (l timerHeap) Less(i, j int) bool { return l[i].at.Before(l[j].at) }
func (l timerHeap) Swap(i, j int)      { l[i], l[j] = l[j], l[i] }

// Push is for package heap.
func (l *timerHeap) Push(x any) {
	if next, ok := x.(ownerTimer); ok {
		*l = append(*l, next)
	}
}

// Pop is for package heap.
func (l *timerHeap) Pop() any {
	old := *l
	x := old[len(old)-1]
	*l = old[:len(old)-1]
	return x
}
