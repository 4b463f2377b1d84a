package store

import (
	"strconv"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// state is the mutable form of the tables: the next snapshot, and data that only its one writer needs.
type state struct {
	*Snapshot
	kinds kindIndex
	// known holds the revision of every key seen, so that a resync finds changed and missing keys.
	known map[string]uint64
	// desiredAt and observedAt hold the attempt number of the record under a key, by "<node>/<task>".
	desiredAt, observedAt map[string]int
	delta                 *delta
	faults                func(key string, err error)
	// ignoreForeign treats foreign records of tasks as absent (clause.Foreign is off).
	ignoreForeign bool
}

func newState(faults func(string, error)) *state {
	return &state{
		Snapshot:   newSnapshot(),
		kinds:      newKindIndex(kinds),
		known:      map[string]uint64{},
		desiredAt:  map[string]int{},
		observedAt: map[string]int{},
		delta:      newDelta(),
		faults:     faults,
	}
}

// apply applies a batch of the watch to the tables. The keys of the batch begin with the store's prefix.
func (s *state) apply(b Batch, prefix string) {
	// A resync is compared with the known revisions, so that followers receive only changes. Where the store went back,
	// equal revisions prove nothing, and everything counts as changed.
	back := b.WentBack || b.Revision < s.revision
	if b.WentBack {
		s.wentBack = min(s.revision, b.Revision)
	}
	if b.Resync {
		s.delta.resync = back
		s.dropMissing(b.Changes, prefix)
	}
	for i := range b.Changes {
		c := &b.Changes[i]
		if !c.Deleted && !back && s.known[c.Key] == c.Modified {
			continue
		}
		if c.Deleted {
			delete(s.known, c.Key)
		} else {
			s.known[c.Key] = c.Modified
		}
		s.change(strings.TrimPrefix(c.Key, prefix), c)
	}
	s.revision = b.Revision
}

// dropMissing deletes the records that a resync no longer holds.
func (s *state) dropMissing(present []Change, prefix string) {
	keep := make(map[string]bool, len(present))
	for i := range present {
		keep[present[i].Key] = true
	}
	for key := range s.known { // order-free: keys are independent
		if !keep[key] {
			delete(s.known, key)
			s.change(strings.TrimPrefix(key, prefix), &Change{Record: Record{Key: key}, Deleted: true})
		}
	}
}

// change applies one record. An unknown key is ignored: the layout may grow.
func (s *state) change(key string, c *Change) {
	k, rest := s.kinds.of(key)
	s.delta.specChanged = s.delta.specChanged || k == nil || !k.progress
	if k != nil && k.apply != nil {
		k.apply(s, rest, c)
	}
}

// find returns the revisions and the value of the record under a key without the store's prefix: see kind.find.
func (s *state) find(key string) (Record, any, bool) {
	if k, rest := s.kinds.of(key); k != nil && k.find != nil {
		return k.find(s.Snapshot, rest)
	}
	return Record{}, nil, false
}

// isInTables reports whether the tables hold the record under a key, which comes without the store's prefix. A branch
// keeps a list of all other keys itself.
func (s *state) isInTables(key string) bool {
	k, _ := s.kinds.of(key)
	return k != nil && k.find != nil
}

// put applies a change to a table with one entry for each record. A record that cannot be decoded leaves the table as
// it was.
func put[T any](s *state, t table[T], name string, c *Change) bool {
	if c.Deleted {
		t.Delete(name)
		return true
	}
	v, err := Decode[T](c.Value)
	if err != nil {
		s.faults(c.Key, err)
		return false
	}
	t.Set(name, Entry[T]{Value: v, Key: c.Key, Created: c.Created, Modified: c.Modified})
	return true
}

// definition applies task/<name>/<version>.
func (s *state) definition(rest string, c *Change) {
	name, version, _ := strings.Cut(rest, "/")
	n, err := strconv.Atoi(version)
	if err == nil {
		ref := cluster.Ref{Name: name, Version: n}
		s.delta.addDefinition(ref)
		put(s, s.definitions, definitionKey(ref), c)
	}
}

// event applies event/<id>.
func (s *state) event(id string, c *Change) {
	s.delta.topics |= TopicEvents
	if c.Deleted {
		s.deleteEvents(id)
		return
	}
	v, err := Decode[cluster.EventBatch](c.Value)
	if err != nil || v.ID != id {
		s.faults(c.Key, err)
		return
	}
	e := Entry[cluster.EventBatch]{Value: v, Key: c.Key, Created: c.Created, Modified: c.Modified}
	s.setEvents(e, len(c.Value))
}
