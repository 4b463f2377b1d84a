package store

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/berthd/berth/internal/cluster"
)

// AttemptKey names an attempt of a task.
type AttemptKey struct {
	Task   cluster.TaskID
	Number int
}

// delta is what one batch touched. It is cleared and used again: followers keep nothing of it.
type delta struct {
	topics      Topic
	owners      map[cluster.OwnerRef]bool
	owner       cluster.OwnerRef // the last one that was added
	nodes       map[string]bool
	attempts    []touched // in the order of the changes; one may be there several times
	definitions map[cluster.Ref]bool
	resync      bool
	// wish says that somebody's wish changed: a spec, a setting, a verdict; not only what came of one.
	wish bool
}

// touched is an attempt that a batch touched, and the node that it is or was on.
type touched struct {
	node string
	key  AttemptKey
}

// deltaKept is how much room a delta keeps in each of its sets from one batch to the next.
const deltaKept = 4096

func newDelta() *delta {
	return &delta{owners: map[cluster.OwnerRef]bool{}, nodes: map[string]bool{}, definitions: map[cluster.Ref]bool{}}
}

// clear empties the delta for the next batch.
func (d *delta) clear() {
	kept := d.attempts[:0]
	if cap(kept) > deltaKept {
		kept = nil
	}
	clear(d.attempts) // the names are let go
	*d = delta{owners: cleared(d.owners), nodes: cleared(d.nodes), definitions: cleared(d.definitions), attempts: kept}
}

// cleared returns the set without its members, or another one where it has grown large: to clear it costs its size each
// time.
func cleared[K comparable](set map[K]bool) map[K]bool {
	if len(set) > deltaKept {
		return map[K]bool{}
	}
	clear(set)
	return set
}

func (d *delta) ofOwner(o cluster.OwnerRef) {
	if o == d.owner && len(d.owners) > 0 {
		return
	}
	d.owner = o
	d.owners[o] = true
	d.topics |= TopicOwners
}

func (d *delta) ofNode(node string) {
	d.nodes[node] = true
	d.topics |= TopicNodes
}

func (d *delta) ofAttempt(node string, task cluster.TaskID, number int) {
	d.attempts = append(d.attempts, touched{node, AttemptKey{task, number}})
	d.topics |= TopicAttempts
}

func (d *delta) ofDefinition(r cluster.Ref) {
	d.definitions[r] = true
	d.topics |= TopicDefinitions
}

// Topic is a kind of changes, or several: each is named as the field of Changes that tells of it.
type Topic uint

// Topics.
const (
	TopicOwners Topic = 1 << iota
	TopicNodes
	TopicAttempts
	TopicDefinitions
	TopicClusters
	TopicPlans
	TopicEvents
	TopicLeader
	TopicServers
	TopicDomain
	TopicCrons
	TopicReservations
	TopicSecrets
)

// allTopics are those of a follower that names none.
const allTopics = ^Topic(0)

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
	// Secrets says that secrets came, changed or went.
	Secrets bool
	// Resync says that anything may have changed.
	Resync bool
}

// Follower collects what changes in the tables, so that a slow reader loses nothing and blocks nobody.
type Follower struct {
	tables *Tables
	topics Topic
	wake   chan struct{}
	wish   chan struct{}

	mu      sync.Mutex
	changes Changes
}

// Follow begins to collect; the first Take says Resync. A follower that names topics is told of nothing else, and woken
// by nothing else but a resync: each set that is not asked for is one less to collect.
func (t *Tables) Follow(topics ...Topic) *Follower {
	f := &Follower{tables: t, topics: allTopics, wake: make(chan struct{}, 1), wish: make(chan struct{}, 1)}
	if len(topics) > 0 {
		f.topics = 0
	}
	for _, topic := range topics {
		f.topics |= topic
	}
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

// Wish delivers a value when somebody's wish is among what there is to Take: a spec, a setting or a verdict changed,
// and not only tasks.
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
	told := d.topics & f.topics
	if told == 0 && !d.resync && f.topics != allTopics {
		return
	}
	f.mu.Lock()
	c := &f.changes
	if told&TopicOwners != 0 {
		maps.Copy(c.Owners, d.owners)
	}
	if told&TopicNodes != 0 {
		maps.Copy(c.Nodes, d.nodes)
	}
	if told&TopicAttempts != 0 {
		if len(c.Attempts) == 0 {
			c.Attempts = make(map[AttemptKey]bool, len(d.attempts))
		}
		for i := range d.attempts {
			c.Attempts[d.attempts[i].key] = true
		}
	}
	if told&TopicDefinitions != 0 {
		maps.Copy(c.Definitions, d.definitions)
	}
	c.Clusters = c.Clusters || told&TopicClusters != 0
	c.Plans = c.Plans || told&TopicPlans != 0
	c.Events = c.Events || told&TopicEvents != 0
	c.Leader = c.Leader || told&TopicLeader != 0
	c.Servers = c.Servers || told&TopicServers != 0
	c.Domain = c.Domain || told&TopicDomain != 0
	c.Crons = c.Crons || told&TopicCrons != 0
	c.Reservations = c.Reservations || told&TopicReservations != 0
	c.Secrets = c.Secrets || told&TopicSecrets != 0
	c.Resync = c.Resync || d.resync
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
	attempts []AttemptKey // one may be there several times
	sorted   int          // how many there were after they were last sorted
}

// FollowNode begins to collect the changed attempts of a node. What stands there already is not collected.
func (t *Tables) FollowNode(node string) *NodeFollower {
	f := &NodeFollower{tables: t, node: node, wake: make(chan struct{}, 1)}
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
	taken := make(map[AttemptKey]bool, len(f.attempts))
	for _, k := range f.attempts {
		taken[k] = true
	}
	f.anew()
	return taken
}

// TakeInto is Take for those who look at the attempts again and again: it appends them to a list, ordered by task id,
// then number.
func (f *NodeFollower) TakeInto(list []AttemptKey) []AttemptKey {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sort()
	list = append(list, f.attempts...)
	f.anew()
	return list
}

// anew begins anew. f.mu is held.
func (f *NodeFollower) anew() {
	clear(f.attempts) // the names are let go
	f.attempts, f.sorted = f.attempts[:0], 0
	if cap(f.attempts) > deltaKept {
		f.attempts = nil
	}
}

// sort leaves each attempt there once. f.mu is held.
func (f *NodeFollower) sort() {
	slices.SortFunc(f.attempts, func(a, b AttemptKey) int {
		return cmp.Or(cmp.Compare(a.Task, b.Task), cmp.Compare(a.Number, b.Number))
	})
	f.attempts = slices.Compact(f.attempts)
	f.sorted = len(f.attempts)
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

func (f *NodeFollower) add(k AttemptKey) {
	f.mu.Lock()
	// a slow reader's list grows with what there is, no further
	if f.attempts = append(f.attempts, k); len(f.attempts) > 2*f.sorted+64 {
		f.sort()
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
