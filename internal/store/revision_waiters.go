package store

import "github.com/tidwall/btree"

// revisionWaiters holds the goroutines that wait for revisions of the tables, by revision. A snapshot wakes only those
// whose revision it has reached. The caller holds the lock of the tables.
type revisionWaiters struct {
	revisions btree.Map[uint64, *waiterGroup]
}

// waiterGroup are the goroutines that wait for one revision.
type waiterGroup struct {
	revision uint64
	count    int
	reached  chan struct{} // closed once the revision is reached
}

// join adds a waiter for a revision.
func (w *revisionWaiters) join(revision uint64) *waiterGroup {
	at, ok := w.revisions.Get(revision)
	if !ok {
		at = &waiterGroup{revision: revision, reached: make(chan struct{})}
		w.revisions.Set(revision, at)
	}
	at.count++
	return at
}

// leave removes a waiter, whether or not its revision has been reached.
func (w *revisionWaiters) leave(at *waiterGroup) {
	at.count--
	if now, _ := w.revisions.Get(at.revision); at.count == 0 && now == at {
		w.revisions.Delete(at.revision)
	}
}

// wakeUpTo wakes the waiters for the revision and for earlier ones.
func (w *revisionWaiters) wakeUpTo(revision uint64) {
	for {
		first, at, ok := w.revisions.Min()
		if !ok || first > revision {
			return
		}
		w.revisions.PopMin()
		close(at.reached)
	}
}
