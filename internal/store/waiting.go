package store

import "github.com/tidwall/btree"

// waiting is who waits for revisions of the tables, by revision: a snapshot wakes those that it has reached, and nobody
// else. Its caller holds the tables' lock.
type waiting struct {
	revisions btree.Map[uint64, *waiters]
}

// waiters wait for the same revision.
type waiters struct {
	revision uint64
	many     int
	come     chan struct{} // closed once the revision is reached
}

// join adds one who waits for a revision.
func (w *waiting) join(revision uint64) *waiters {
	at, ok := w.revisions.Get(revision)
	if !ok {
		at = &waiters{revision: revision, come: make(chan struct{})}
		w.revisions.Set(revision, at)
	}
	at.many++
	return at
}

// leave takes one away who waits no longer, whether or not the revision came meanwhile.
func (w *waiting) leave(at *waiters) {
	at.many--
	if now, _ := w.revisions.Get(at.revision); at.many == 0 && now == at {
		w.revisions.Delete(at.revision)
	}
}

// reached wakes all who wait for the revision or an earlier one.
func (w *waiting) reached(revision uint64) {
	for {
		first, at, ok := w.revisions.Min()
		if !ok || first > revision {
			return
		}
		w.revisions.PopMin()
		close(at.come)
	}
}
