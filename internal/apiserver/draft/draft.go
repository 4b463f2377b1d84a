// Package draft computes and commits writes.
//
// A Draft is the set of writes of one request. It is computed from one snapshot, with the revisions of what it read as
// preconditions. A Writer commits drafts. It computes a draft again if another writer changed one of these revisions.
package draft

import (
	"maps"
	"slices"
	"time"

	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// Draft is the set of writes of a request, with their preconditions. Later steps see what earlier steps put into the
// draft. Its parts draft the objects of one kind each.
type Draft struct {
	*transaction
	definitions
	clusters
	domains
	owners map[string]cluster.Kind // services and jobs of the draft, by "<cluster>/<name>"
	needs  needs
	gangs  int // the largest gang that the engine can place in one commit; 0 if not known
}

// transaction is the request with its writes. Each written key has a precondition.
type transaction struct {
	Snap   *store.Snapshot
	Prefix store.Prefix
	Now    time.Time

	compares map[string]uint64
	writes   map[string]any           // by key; nil deletes
	Events   []cluster.Event          // in addition to the events of the written objects
	Instead  map[string]cluster.Event // by key: replaces the event of the written object
	By       string                   // who sent the request, for the events
	Caller   *access.Caller           // conflicts show this caller only what it may see; nil sees all
	Trace    string                   // the traceparent of the written records
	Revision uint64                   // of the commit; 0 before
}

// Require adds a record's revision as a precondition; store.AnyModified only requires that the record exists.
func (t *transaction) Require(key string, modified uint64) {
	if old, ok := t.compares[key]; ok && old != store.AnyModified {
		return
	}
	t.compares[key] = modified
}

// Put writes a record whose present revision is modified, 0 for none.
func (t *transaction) Put(key string, record any, modified uint64) {
	t.Require(key, modified)
	t.writes[key] = record
}

// Remove deletes a record whose present revision is modified, with an event.
func (t *transaction) Remove(key string, modified uint64, event cluster.Event) {
	t.Put(key, nil, modified)
	t.Events = append(t.Events, event)
}

// RevisionOr returns the revision of the draft's commit, or the shown revision if the draft wrote nothing. The tables
// may already show a later write. An If-Match with that write's revision would overwrite a state that the client never
// saw.
func (t *transaction) RevisionOr(shown uint64) uint64 {
	if t.Revision != 0 {
		return t.Revision
	}
	return shown
}

// group returns the draft as one transaction, in an order that depends only on the draft.
func (t *transaction) groupWithEvents() (store.Group, error) {
	g, err := t.group()
	if err == nil {
		err = t.putEvents(&g)
	}
	return g, err
}

func (t *transaction) group() (store.Group, error) {
	var g store.Group
	for _, key := range slices.Sorted(maps.Keys(t.compares)) {
		g.Compares = append(g.Compares, store.Compare{Key: key, Modified: t.compares[key]})
	}
	for _, key := range slices.Sorted(maps.Keys(t.writes)) {
		op := store.Op{Key: key, Delete: true}
		if record := t.writes[key]; record != nil {
			value, err := store.Encode(record)
			if err != nil {
				return g, err
			}
			op.Value, op.Delete = value, false
		}
		g.Ops = append(g.Ops, op)
	}
	return g, nil
}
