package store

import (
	"sync"

	"github.com/berthd/berth/internal/cluster"
)

// AttemptKey names an attempt of a task.
type AttemptKey struct {
	Task   cluster.TaskID
	Number int
}

// delta is what one batch touched.
type delta struct {
	owners      map[cluster.OwnerRef]bool
	nodes       map[string]bool
	attempts    map[string]map[AttemptKey]bool // by node
	clusters    bool
	definitions map[cluster.Ref]bool
	plans       bool
	events      bool
	leader      bool
	servers     bool
	domain      bool
	crons       bool
	reserved    bool
	resync      bool
	// wish says that somebody's wish changed: a spec, a setting, a verdict; not only what came of one.
	wish bool
}

func newDelta() *delta {
	return &delta{
		owners:      map[cluster.OwnerRef]bool{},
		nodes:       map[string]bool{},
		attempts:    map[string]map[AttemptKey]bool{},
		definitions: map[cluster.Ref]bool{},
	}
}

func (d *delta) attempt(node string, task cluster.TaskID, number int) {
	of := d.attempts[node]
	if of == nil {
		of = map[AttemptKey]bool{}
		d.attempts[node] = of
	}
	of[AttemptKey{task, number}] = true
}

// Changes is what changed in the tables since a follower last looked.
type Changes struct {
	// Owners are the services and jobs whose spec or tasks changed, Nodes those with a changed
	// record, host settings or registration.
	Owners map[cluster.OwnerRef]bool
	Nodes  map[string]bool
	// Attempts are the changed rows.
	Attempts map[AttemptKey]bool
	// Definitions are the versions that came, changed or went.
	Definitions map[cluster.Ref]bool
	// Clusters says that clusters changed, Plans that plan records came or went, Events that the log grew or was
	// trimmed, Leader that the leader record changed.
	Clusters, Plans, Events, Leader bool
	// Servers says that members of the control plane changed, Domain that the settings or the recovery of a domain did.
	Servers, Domain bool
	// Crons says that crons changed, or how far they have come.
	Crons bool
	// Reservations says that reservations came, changed or went.
	Reservations bool
	// Resync says that anything may have changed.
	Resync bool
}

// Follower collects what changes in the tables, so that a slow reader loses nothing and blocks nobody.
type Follower struct {
	tables *Tables
	wake   chan struct{}
	wish   chan struct{}

	mu      sync.Mutex
	changes Changes
}

// Follow begins to collect; the first Take says Resync.
func (t *Tables) Follow() *Follower {
	f := &Follower{tables: t, wake: make(chan struct{}, 1), wish: make(chan struct{}, 1)}
	f.changes = emptyChanges()
	f.changes.Resync = true
	f.wake <- struct{}{}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.followers[f] = true
	return f
}

// Wake delivers a value when there is something to Take.
func (f *Follower) Wake() <-chan struct{} { return f.wake }

// Wish delivers a value when somebody's wish is among what there is to Take: a spec, a setting or a verdict changed, and not only
// tasks.
func (f *Follower) Wish() <-chan struct{} { return f.wish }

// Take returns what was collected and begins anew. The snapshot that is read after it holds all of it.
func (f *Follower) Take() Changes {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.changes
	f.changes = emptyChanges()
	select {
	case <-f.wish: // it is taken
	default:
	}
	return c
}

// Close ends the collection.
func (f *Follower) Close() {
	f.tables.mu.Lock()
	defer f.tables.mu.Unlock()
	delete(f.tables.followers, f)
}

func emptyChanges() Changes {
	return Changes{
		Owners: map[cluster.OwnerRef]bool{}, Nodes: map[string]bool{}, Attempts: map[AttemptKey]bool{},
		Definitions: map[cluster.Ref]bool{},
	}
}

func (f *Follower) add(d *delta) {
	f.mu.Lock()
	for o := range d.owners { // order-free: a set
		f.changes.Owners[o] = true
	}
	for n := range d.nodes { // order-free: a set
		f.changes.Nodes[n] = true
	}
	for _, of := range d.attempts { // order-free: a set
		for k := range of { // order-free: a set
			f.changes.Attempts[k] = true
		}
	}
	for r := range d.definitions { // order-free: a set
		f.changes.Definitions[r] = true
	}
	f.changes.Clusters = f.changes.Clusters || d.clusters
	f.changes.Plans = f.changes.Plans || d.plans
	f.changes.Events = f.changes.Events || d.events
	f.changes.Leader = f.changes.Leader || d.leader
	f.changes.Servers = f.changes.Servers || d.servers
	f.changes.Domain = f.changes.Domain || d.domain
	f.changes.Crons = f.changes.Crons || d.crons
	f.changes.Reservations = f.changes.Reservations || d.reserved
	f.changes.Resync = f.changes.Resync || d.resync
	if d.wish || d.resync {
		signal(f.wish)
	}
	f.mu.Unlock()
	signal(f.wake)
}

// NodeFollower collects the attempts of one node that change.
type NodeFollower struct {
	tables *Tables
	node   string
	wake   chan struct{}

	mu       sync.Mutex
	attempts map[AttemptKey]bool
}

// FollowNode begins to collect the changed attempts of a node. What stands there already is not collected.
func (t *Tables) FollowNode(node string) *NodeFollower {
	f := &NodeFollower{tables: t, node: node, wake: make(chan struct{}, 1), attempts: map[AttemptKey]bool{}}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.nodes[node] == nil {
		t.nodes[node] = map[*NodeFollower]bool{}
	}
	t.nodes[node][f] = true
	return f
}

// Wake delivers a value when there is something to Take.
func (f *NodeFollower) Wake() <-chan struct{} { return f.wake }

// Take returns the attempts that changed and begins anew. The snapshot that is read after it holds the changes.
func (f *NodeFollower) Take() map[AttemptKey]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.attempts
	f.attempts = map[AttemptKey]bool{}
	return a
}

// Close ends the collection.
func (f *NodeFollower) Close() {
	f.tables.mu.Lock()
	defer f.tables.mu.Unlock()
	delete(f.tables.nodes[f.node], f)
	if len(f.tables.nodes[f.node]) == 0 {
		delete(f.tables.nodes, f.node)
	}
}

func (f *NodeFollower) add(attempts map[AttemptKey]bool) {
	f.mu.Lock()
	for k := range attempts { // order-free: a set
		f.attempts[k] = true
	}
	f.mu.Unlock()
	signal(f.wake)
}

func signal(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}
