// Package draft computes and commits writes.
//
// A Draft is the set of writes that a request asks for. It is computed from one snapshot, with the revisions that it
// rests on as preconditions. A Writer commits drafts, and computes a draft again where another writer changed one of
// these revisions.
package draft

import (
	"maps"
	"slices"
	"time"

	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// Draft is the set of writes that a request asks for, computed from one snapshot, and the
// revisions that it rests on. Later steps see what earlier steps put into the draft.
type Draft struct {
	Snap   *store.Snapshot
	Prefix store.Prefix
	Now    time.Time

	compares map[string]uint64
	writes   map[string]any           // by key; nil deletes
	Events   []cluster.Event          // besides what the written objects themselves tell
	Instead  map[string]cluster.Event // by key: in place of what the written object tells
	By       string                   // who asks, for the events
	Caller   *access.Caller           // the same; conflicts show the caller only what it may see; nil sees all
	Trace    string                   // the traceparent of what is written
	Revision uint64                   // at which it was written; 0 until then
	// permissions are those of clusters that are made without naming any.
	permissions []cluster.Permission
	gangs       int // the most tasks of a gang that the engine can place together, 0 where that is not known
	// What the draft itself brings, for the objects that refer to it.
	clusters    map[string]*cluster.Cluster
	definitions map[cluster.Ref]*cluster.TaskDefinition
	newest      map[string]int
	owners      map[string]cluster.Kind // services and jobs, by "<cluster>/<name>"
}

// Require makes the draft rest on a record's revision; store.AnyModified only on its existence.
func (d *Draft) Require(key string, modified uint64) {
	if old, ok := d.compares[key]; ok && old != store.AnyModified {
		return
	}
	d.compares[key] = modified
}

// Put writes a record that has the given revision now, 0 for none.
func (d *Draft) Put(key string, record any, modified uint64) {
	d.Require(key, modified)
	d.writes[key] = record
}

// Remove deletes a record that has the given revision now, with an event that says so.
func (d *Draft) Remove(key string, modified uint64, event cluster.Event) {
	d.Put(key, nil, modified)
	d.Events = append(d.Events, event)
}

// RevisionOr returns the revision of what the draft wrote, where it wrote something: the tables may show what another
// writer made of it since, and an If-Match with that revision would pass over what nobody saw.
func (d *Draft) RevisionOr(shown uint64) uint64 {
	if d.Revision != 0 {
		return d.Revision
	}
	return shown
}

// group returns the draft as one transaction, in an order that depends on nothing but the draft.
func (d *Draft) group() (store.Group, error) {
	var g store.Group
	for _, key := range slices.Sorted(maps.Keys(d.compares)) {
		g.Compares = append(g.Compares, store.Compare{Key: key, Modified: d.compares[key]})
	}
	for _, key := range slices.Sorted(maps.Keys(d.writes)) {
		op := store.Op{Key: key, Delete: true}
		if record := d.writes[key]; record != nil {
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
