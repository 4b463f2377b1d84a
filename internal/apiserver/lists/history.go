package lists

import "sync"

// contentHistory remembers between which revisions a list did not change. So changes of other lists do not wake a
// request that waits since an index, not even between two requests. A forgotten range costs one answer without changes.
type contentHistory struct {
	mu   sync.Mutex
	seen map[string]contentRange
}

// contentRange is a list's content, as a mark, with the revisions at which it was first and last seen. The zero value
// means a list that was never seen.
type contentRange struct{ mark, from, to uint64 }

// same reports whether the content at revision now is known to be what it was at revision then.
func (s contentRange) same(mark, then, now uint64) bool {
	if s != (contentRange{}) && s.from <= then && then <= s.to {
		return s.mark == mark // at one revision, too, because the reasons of pending tasks change without a revision
	}
	return then >= now
}

// maxRememberedLists bounds the number of lists in the history.
const maxRememberedLists = 4096

// of returns the remembered range of a list.
func (s *contentHistory) of(name string) contentRange {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[name]
}

func (s *contentHistory) record(name string, mark, revision uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen, ok := s.seen[name]
	switch {
	case ok && seen.mark == mark:
		seen.from, seen.to = min(seen.from, revision), max(seen.to, revision)
	case ok && revision < seen.to:
		return
	default:
		seen = contentRange{mark, revision, revision}
	}
	if s.seen == nil || len(s.seen) >= maxRememberedLists && !ok {
		s.seen = map[string]contentRange{}
	}
	s.seen[name] = seen
}

// recordComputed records the content of a list that was computed and is not yet sent. The reasons of pending tasks
// change without a revision. If the content differs at the same revision, recordComputed keeps the old record, because
// a client has it.
func (s *contentHistory) recordComputed(name string, mark, revision uint64) {
	s.mu.Lock()
	seen, ok := s.seen[name]
	s.mu.Unlock()
	if !ok || seen.mark == mark || revision > seen.to {
		s.record(name, mark, revision)
	}
}
