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

// delta collects the changes of one batch. It is cleared and used again: followers keep no reference to it.
type delta struct {
	topics      Topic
	owners      map[cluster.OwnerRef]bool
	owner       cluster.OwnerRef // the last one that was added
	nodes       map[string]bool
	attempts    []changedAttempt // in the order of the changes, with duplicates
	definitions map[cluster.Ref]bool
	resync      bool
	// specChanged says that a spec, a setting or a verdict changed, not only the state of tasks.
	specChanged bool
}

// changedAttempt is an attempt that a batch changed, with the node that it is or was on.
type changedAttempt struct {
	node string
	key  AttemptKey
}

// maxDeltaCapacity limits, in elements, the memory that each set of a delta keeps from one batch to the next.
const maxDeltaCapacity = 4096

func newDelta() *delta {
	return &delta{owners: map[cluster.OwnerRef]bool{}, nodes: map[string]bool{}, definitions: map[cluster.Ref]bool{}}
}

// clear empties the delta for the next batch.
func (d *delta) clear() {
	kept := d.attempts[:0]
	if cap(kept) > maxDeltaCapacity {
		kept = nil
	}
	clear(d.attempts) // releases the strings
	*d = delta{owners: cleared(d.owners), nodes: cleared(d.nodes), definitions: cleared(d.definitions), attempts: kept}
}

// cleared returns the set without its members. It replaces a set that has grown large, since clearing costs its
// capacity each time.
func cleared[K comparable](set map[K]bool) map[K]bool {
	if len(set) > maxDeltaCapacity {
		return map[K]bool{}
	}
	clear(set)
	return set
}

func (d *delta) addOwner(o cluster.OwnerRef) {
	if o == d.owner && len(d.owners) > 0 {
		return
	}
	d.owner = o
	d.owners[o] = true
	d.topics |= TopicOwners
}

func (d *delta) addNode(node string) {
	d.nodes[node] = true
	d.topics |= TopicNodes
}

func (d *delta) addAttempt(node string, task cluster.TaskID, number int) {
	d.attempts = append(d.attempts, changedAttempt{node, AttemptKey{task, number}})
	d.topics |= TopicAttempts
}

func (d *delta) addDefinition(r cluster.Ref) {
	d.definitions[r] = true
	d.topics |= TopicDefinitions
}

// Topic is a kind of changes, or several kinds. Each topic has the name of the field of Changes that reports it.
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
	TopicPools
	TopicReservations
	TopicSecrets
	TopicEndpoints
)

// allTopics are the topics of a follower that names none.
const allTopics = ^Topic(0)

// Changes holds the changes of the tables since a follower's last Take.
type Changes struct {
	// Owners are the services and jobs whose spec or tasks changed. Nodes are the nodes whose record, host settings or
	// registration changed.
	Owners map[cluster.OwnerRef]bool
	Nodes  map[string]bool
	// Attempts are the changed rows.
	Attempts map[AttemptKey]bool
	// Definitions are the versions that were created, changed or deleted.
	Definitions map[cluster.Ref]bool
	// Clusters says that clusters changed, Plans that plan records were created or deleted, Events that the log grew or
	// was trimmed. Leader says that the leader record changed.
	Clusters, Plans, Events, Leader bool
	// Servers says that members of the control plane changed, Domain that the settings or the recovery of a domain did.
	Servers, Domain bool
	// Crons says that crons or their progress changed.
	Crons bool
	// Pools says that the settings of pools, or profiles of machines, were created, changed or deleted.
	Pools bool
	// Reservations says that reservations were created, changed or deleted.
	Reservations bool
	// Secrets says that secrets or their keys were created, changed or deleted.
	Secrets bool
	// Endpoints says that endpoints were created, changed or deleted.
	Endpoints bool
	// Resync says that anything may have changed.
	Resync bool
}

// Follower collects the changes of the tables, so that a slow reader loses nothing and blocks no other.
type Follower struct {
	tables *Tables
	topics Topic
	wake   chan struct{}
	specs  chan struct{}

	mu      sync.Mutex
	changes Changes
}

// Follow begins to collect; the first Take has Resync set. A follower that names topics receives only changes of those
// topics, and only they and a resync wake it. Each omitted set saves the work of collecting it.
func (t *Tables) Follow(topics ...Topic) *Follower {
	f := &Follower{tables: t, topics: allTopics, wake: make(chan struct{}, 1), specs: make(chan struct{}, 1)}
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

// Specs delivers a value when a changed spec, setting or verdict is among the changes to Take, and not only changed
// tasks.
func (f *Follower) Specs() <-chan struct{} { return f.specs }

// Take returns the collected changes and starts an empty collection. A snapshot that is read after Take holds all of
// them.
func (f *Follower) Take() Changes {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.changes
	f.changes = emptyChanges()
	select {
	case <-f.specs: // its changes are taken
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
	topics := d.topics & f.topics
	if topics == 0 && !d.resync && f.topics != allTopics {
		return
	}
	f.mu.Lock()
	c := &f.changes
	if topics&TopicOwners != 0 {
		maps.Copy(c.Owners, d.owners)
	}
	if topics&TopicNodes != 0 {
		maps.Copy(c.Nodes, d.nodes)
	}
	if topics&TopicAttempts != 0 {
		if len(c.Attempts) == 0 {
			c.Attempts = make(map[AttemptKey]bool, len(d.attempts))
		}
		for i := range d.attempts {
			c.Attempts[d.attempts[i].key] = true
		}
	}
	if topics&TopicDefinitions != 0 {
		maps.Copy(c.Definitions, d.definitions)
	}
	c.Clusters = c.Clusters || topics&TopicClusters != 0
	c.Plans = c.Plans || topics&TopicPlans != 0
	c.Events = c.Events || topics&TopicEvents != 0
	c.Leader = c.Leader || topics&TopicLeader != 0
	c.Servers = c.Servers || topics&TopicServers != 0
	c.Domain = c.Domain || topics&TopicDomain != 0
	c.Crons = c.Crons || topics&TopicCrons != 0
	c.Pools = c.Pools || topics&TopicPools != 0
	c.Reservations = c.Reservations || topics&TopicReservations != 0
	c.Secrets = c.Secrets || topics&TopicSecrets != 0
	c.Endpoints = c.Endpoints || topics&TopicEndpoints != 0
	c.Resync = c.Resync || d.resync
	if d.specChanged || d.resync {
		signal(f.specs)
	}
	f.mu.Unlock()
	signal(f.wake)
}

// NodeFollower collects the attempts of one node that change. A change of the node's own records wakes its reader too.
type NodeFollower struct {
	tables *Tables
	node   string
	wake   chan struct{}

	mu       sync.Mutex
	attempts []AttemptKey // with duplicates
	sorted   int          // the length after the last removal of duplicates
}

// FollowNode begins to collect the changed attempts of a node. Attempts that do not change later are not collected.
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

// Wake delivers a value when there is something to take, or a record of the node changed.
func (f *NodeFollower) Wake() <-chan struct{} { return f.wake }

// TakeInto appends the changed attempts to a list, ordered by task id, then number, and starts an empty collection. A
// snapshot that is read later holds the changes.
func (f *NodeFollower) TakeInto(list []AttemptKey) []AttemptKey {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.removeDuplicates()
	list = append(list, f.attempts...)
	f.reset()
	return list
}

// reset empties the collection. f.mu is held.
func (f *NodeFollower) reset() {
	clear(f.attempts) // releases the strings
	f.attempts, f.sorted = f.attempts[:0], 0
	if cap(f.attempts) > maxDeltaCapacity {
		f.attempts = nil
	}
}

// removeDuplicates sorts the attempts and keeps each once. f.mu is held.
func (f *NodeFollower) removeDuplicates() {
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
	// The list of a slow reader stays proportional to the number of distinct attempts.
	if f.attempts = append(f.attempts, k); len(f.attempts) > 2*f.sorted+64 {
		f.removeDuplicates()
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
