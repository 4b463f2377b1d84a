package controlplane

import (
	"container/heap"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// agenda is when owners are to be looked at again though nothing changed. The times of one owner replace
// each other.
type agenda struct {
	at    map[cluster.OwnerRef]time.Time
	queue looks // also holds times that were replaced; those are passed over
}

type look struct {
	owner cluster.OwnerRef
	at    time.Time
}

func newAgenda() *agenda { return &agenda{at: map[cluster.OwnerRef]time.Time{}} }

// set puts an owner down for a time; the zero time strikes it off.
func (a *agenda) set(o cluster.OwnerRef, at time.Time) {
	was, had := a.at[o]
	switch {
	case at.IsZero():
		delete(a.at, o)
		return
	case had && was.Equal(at):
		return
	}
	a.at[o] = at
	heap.Push(&a.queue, look{o, at})
}

// due strikes off and returns the owners whose time has come.
func (a *agenda) due(now time.Time) []cluster.OwnerRef {
	var out []cluster.OwnerRef
	for {
		at, ok := a.next()
		if !ok || at.After(now) {
			return out
		}
		first := a.queue[0].owner
		heap.Pop(&a.queue)
		delete(a.at, first)
		out = append(out, first)
	}
}

// next returns the earliest time that stands.
func (a *agenda) next() (time.Time, bool) {
	for len(a.queue) > 0 {
		first := a.queue[0]
		if at, ok := a.at[first.owner]; ok && at.Equal(first.at) {
			return first.at, true
		}
		heap.Pop(&a.queue)
	}
	return time.Time{}, false
}

// looks is a heap.
type looks []look

func (l looks) Len() int           { return len(l) }
func (l looks) Less(i, j int) bool { return l[i].at.Before(l[j].at) }
func (l looks) Swap(i, j int)      { l[i], l[j] = l[j], l[i] }

// Push and Pop are heap's.
func (l *looks) Push(x any) {
	if next, ok := x.(look); ok {
		*l = append(*l, next)
	}
}

// Pop removes the last.
func (l *looks) Pop() any {
	old := *l
	x := old[len(old)-1]
	*l = old[:len(old)-1]
	return x
}
