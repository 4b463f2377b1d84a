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
// draft.
type Draft struct {
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
	// permissions are the permissions of new clusters that name none.
	permissions []cluster.Permission
	gangs       int // the largest gang that the engine can place in one commit; 0 if not known
	// Objects of the draft itself, for other objects that refer to them.
	clusters    map[string]*cluster.Cluster
	definitions map[cluster.Ref]*cluster.TaskDefinition
	newest      map[string]int
	owners      map[string]cluster.Kind // services and jobs, by "<cluster>/<name>"
	needs       needs
	// visible is what sees computes once, because it walks all attempts of the caller's clusters.
	visible func(cluster.Ref) bool
}

// sees reports whether the caller sees a version of a definition.
func (d *Draft) sees(ref cluster.Ref) bool {
	if d.Caller == nil {
		return true
	}
	if d.visible == nil {
		d.visible = d.Caller.VisibleDefinitions(d.Snap)
	}
	return d.visible(ref)
}

// Require adds a record's revision as a precondition; store.AnyModified only requires that the record exists.
func (d *Draft) Require(key string, modified uint64) {
	if old, ok := d.compares[key]; ok && old != store.AnyModified {
		return
	}
	d.compares[key] = modified
}

// Put writes a record whose present revision is modified, 0 for none.
func (d *Draft) Put(key string, record any, modified uint64) {
	d.Require(key, modified)
	d.writes[key] = record
}

// Remove deletes a record whose present revision is modified, with an event.
func (d *Draft) Remove(key string, modified uint64, event cluster.Event) {
	d.Put(key, nil, modified)
	d.Events = append(d.Events, event)
}

// RevisionOr returns the revision of the draft's commit, or the shown revision if the draft wrote nothing. The tables
// may already show a later write. An If-Match with that write's revision would overwrite a state that the client never
// saw.
func (d *Draft) RevisionOr(shown uint64) uint64 {
	if d.Revision != 0 {
		return d.Revision
	}
	return shown
}

// group returns the draft as one transaction, in an order that depends only on the draft.
func (d *Draft) groupWithEvents() (store.Group, error) {
	g, err := d.group()
	if err == nil {
		err = d.putEvents(&g)
	}
	return g, err
}

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
