package etcd

import (
	"sync"
	"sync/atomic"
)

// watches are the open watches of an engine, and the revision up to which they owe progress.
type watches struct {
	observed atomic.Uint64 // the highest revision that a call returned

	mu   sync.Mutex
	open map[*watch]struct{}
}

func newWatches() *watches { return &watches{open: make(map[*watch]struct{})} }

func (s *watches) add(w *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[w] = struct{}{}
}

func (s *watches) remove(w *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, w)
}

// observe notes a revision that is about to be returned to a caller, and has the watches check their progress.
func (s *watches) observe(revision uint64) {
	for {
		known := s.observed.Load()
		if revision <= known {
			return
		}
		if s.observed.CompareAndSwap(known, revision) {
			break
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.open {
		select {
		case w.checkProgress <- struct{}{}:
		default:
		}
	}
}
