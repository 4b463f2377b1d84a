package forecast

import (
	"cmp"
	"slices"
	"time"
)

// momentsPerOrder is the number of waiting requests for which an order holds for one moment of a future. Orders of
// longer queues hold for longer, because they cost more and change less.
const momentsPerOrder = 128

// reordering says when the waiting requests are put into order again.
type reordering struct {
	isDone bool
	age    int // moments since the last time
}

// reorder puts the waiting requests into the order of this moment, if it changes with time.
func (f *future) reorder() {
	if !f.reorders {
		return
	}
	if f.order.age++; f.order.isDone && f.order.age < len(f.waiting)/momentsPerOrder {
		return
	}
	f.order = reordering{isDone: true}
	now := f.Now.Add(time.Duration(f.now))
	for _, q := range f.waiting {
		f.queue[q].place = f.queue[q].wait.Place(now)
	}
	slices.SortFunc(f.waiting, func(a, b int32) int {
		return cmp.Or(f.queue[a].place.Compare(&f.queue[b].place), cmp.Compare(a, b))
	})
	f.work -= 4 * len(f.waiting)
}
