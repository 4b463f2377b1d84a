package dispatcher

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/transport"
)

// Limits of the answers to agents that follow services.
const (
	// maxFollowedServices limits the services that one agent may follow.
	maxFollowedServices = 16384
	// maxAnswerBytes limits the size of one answer, unless a single service needs more.
	maxAnswerBytes = 4 << 20
	// idleListingTTL is the time for which the listing of a service is kept without a waiting agent. Agents repeat the
	// request after each answer.
	idleListingTTL = 2 * time.Minute
	// After each update of the listings the dispatcher pauses for minRestFactor times the duration of the update, and
	// at least minRest. So updates take a bounded part of a core, however much changes.
	minRestFactor = 4
	minRest       = 20 * time.Millisecond
	// After an answer an agent rests, maxAnswerRest at most, for the time that the server needs to answer all agents.
	// An answer is assumed to take answerCost, plus followCost for each followed service and byteCost for each byte. So
	// agents receive a first change immediately, and many changes together if they come faster than the server can send
	// each. The limit is 2,500 answers a second, which take about a third of a core, and 64 MB a second.
	answerCost    = 400 * time.Microsecond
	followCost    = time.Microsecond
	byteCost      = time.Second / (64 << 20)
	maxAnswerRest = 10 * time.Second
)

// directory holds the listings of the services and endpoints that agents of this server follow; agents do not know
// which of the two a name is. A listing is computed when the service or the endpoint, or the verdict on a node of its
// tasks, changed, once for all agents. The dispatcher then wakes the agents that follow the name.
type directory struct {
	tables *store.Tables
	clock  func() time.Duration // the boot-time clock

	mu       sync.Mutex
	services map[cluster.OwnerRef]*listing
	// endpoints holds, for each service, the listings of followed endpoints whose addresses are from it.
	endpoints map[cluster.OwnerRef]map[*listing]bool
	encoder   transport.Encoder
	// asking is the number of agents with a request at the moment, and peakAsking its maximum since the last
	// removeIdleListings.
	asking, peakAsking int
	// nodes holds the data of nodes that the listings were computed from.
	nodes    map[string]nodeView
	followed chan struct{} // capacity 1: an agent follows a service
}

// waiter is an agent that waits for a change of the services that it follows.
type waiter struct{ woken chan struct{} } // capacity 1

// nodeView holds the fields of a node's records that addresses depend on.
type nodeView struct {
	state      cluster.NodeState
	address    string
	registered bool
}

func newDirectory(tables *store.Tables, clock func() time.Duration) *directory {
	return &directory{
		tables: tables, clock: clock,
		services: map[cluster.OwnerRef]*listing{}, nodes: map[string]nodeView{},
		endpoints: map[cluster.OwnerRef]map[*listing]bool{}, followed: make(chan struct{}, 1),
	}
}

// Addresses returns the changes of the followed services that the agent does not know. If the agent knows all, the call
// waits for a change, AddressesWait at most.
func (d *Dispatcher) Addresses(ctx context.Context, r transport.AddressesRequest) (reply transport.AddressesReply,
	err error,
) {
	s, err := d.sessions.find(r.Node, r.Session)
	if err != nil {
		return reply, err
	}
	if err := d.reach.unreachableError(); err != nil {
		return reply, err
	}
	if len(r.Services) > maxFollowedServices {
		return reply, fmt.Errorf("%w: it follows %d services, at most %d are allowed", transport.ErrRefused,
			len(r.Services), maxFollowedServices)
	}
	timer := time.NewTimer(transport.AddressesWait)
	defer timer.Stop()
	// Tables from before the session may lack a service that the agent has from another server.
	if _, err := d.config.Tables.WaitFor(ctx, s.syncedRev); err != nil {
		return reply, err
	}
	cut := d.reach.unreachable()
	w := &waiter{make(chan struct{}, 1)}
	rest := time.NewTimer(d.directory.beginRequest(s, &r))
	defer rest.Stop()
	defer d.directory.endRequest(w, &r)
	rested := rest.C
	for {
		if rested == nil {
			if reply.Services, err = d.directory.unknownTo(w, s, &r); err != nil || len(reply.Services) > 0 {
				return reply, err
			}
		}
		select {
		case <-rested:
			rested = nil
		case <-ctx.Done():
			return reply, ctx.Err()
		case <-s.ended:
			return reply, d.sessions.endedError(s)
		case <-cut:
			return reply, errCutOff
		case <-timer.C:
			return reply, nil
		case <-w.woken:
		}
	}
}

// beginRequest counts an agent's request, and returns the pause before its answer. The pause is 0 if the agent has no
// list yet of one of the services.
func (t *directory) beginRequest(s *session, r *transport.AddressesRequest) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asking++
	t.peakAsking = max(t.peakAsking, t.asking)
	for i := range r.Services {
		if r.Services[i].Stamp == "" {
			return 0
		}
	}
	return max(0, s.nextAnswerAt-t.clock())
}

// answerRest returns how long an agent rests after an answer of the given size, with the given number of followed
// services. t.mu is held.
func (t *directory) answerRest(services, bytes int) time.Duration {
	one := answerCost + time.Duration(services)*followCost + time.Duration(bytes)*byteCost
	return min(time.Duration(t.peakAsking)*one, maxAnswerRest)
}

// unknownTo returns the changes that the agent lacks, and registers the waiter with all services of the request.
func (t *directory) unknownTo(w *waiter, s *session, r *transport.AddressesRequest) (list []transport.ServiceUpdate,
	err error,
) {
	t.mu.Lock()
	defer t.mu.Unlock()
	size := 0
	for i := range r.Services {
		asked := &r.Services[i]
		owner := ownerOf(asked)
		l := t.services[owner]
		if l == nil {
			// The snapshot is read here, with the lock held: it contains all changes that follow took before.
			l = newListing(t.tables.Snapshot(), owner)
			t.services[owner] = l
			t.addEndpoint(l)
			signal(t.followed)
		}
		l.waiting[w] = true
		stamp, confirm := asked.Stamp, asked.Stamp == ""
		if confirm {
			stamp = asked.Known
		}
		update, err := l.answerFor(&t.encoder, stamp, confirm, r.Differences)
		if err != nil {
			return nil, err
		}
		if update == nil || len(list) > 0 && size+update.Size(false) > maxAnswerBytes {
			continue
		}
		size += update.Size(false)
		list = append(list, *update)
	}
	if len(list) > 0 {
		packed := 0
		for i := range list {
			packed += list[i].Size(r.Differences) // an agent that accepts differences also unpacks them
		}
		s.nextAnswerAt = t.clock() + t.answerRest(len(r.Services), packed)
	}
	return list, nil
}

func ownerOf(asked *transport.ServiceRequest) cluster.OwnerRef {
	return cluster.OwnerRef{Kind: cluster.KindService, Cluster: asked.Cluster, Name: asked.Service}
}

// endRequest removes an agent's waiter from the services.
func (t *directory) endRequest(w *waiter, r *transport.AddressesRequest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asking--
	for i := range r.Services {
		if l := t.services[ownerOf(&r.Services[i])]; l != nil {
			delete(l.waiting, w)
			l.idle = t.clock()
		}
	}
}

func signal(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// follow keeps the directory up to date with the tables until the context ends. While no service is followed it does
// nothing.
func (t *directory) follow(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.followed:
			t.followWhileAsked(ctx)
		}
	}
}

// followWhileAsked keeps the directory up to date until no listing is left.
func (t *directory) followWhileAsked(ctx context.Context) {
	follow := t.tables.Follow(store.TopicOwners, store.TopicNodes, store.TopicEndpoints)
	defer follow.Close()
	tidy := time.NewTicker(idleListingTTL / 4)
	defer tidy.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tidy.C:
			if !t.removeIdleListings() {
				return
			}
			continue
		case <-follow.Wake():
		}
		_ = pause.For(ctx, max(minRest, minRestFactor*t.applyChanges(follow.Take())))
	}
}

// removeIdleListings removes listings without recent requests, and reports whether any are left.
func (t *directory) removeIdleListings() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.peakAsking, t.encoder = t.asking, transport.Encoder{}
	for owner, l := range t.services { // order-free: listings are independent
		if len(l.waiting) == 0 && t.clock()-l.idle > idleListingTTL {
			t.removeEndpoint(l)
			delete(t.services, owner)
		}
	}
	if len(t.services) > 0 {
		return true
	}
	t.services, t.nodes = map[cluster.OwnerRef]*listing{}, map[string]nodeView{} // releases large maps
	t.endpoints = map[cluster.OwnerRef]map[*listing]bool{}
	return false
}

// applyChanges updates the listings of the changed services, and wakes the agents that follow a service whose listing
// changed. It returns the duration of the work, without the wait for the lock.
func (t *directory) applyChanges(c store.Changes) (took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	began := time.Now()
	snap := t.tables.Snapshot() // read with the lock held, so that no listing is from a newer one
	changed := map[*listing]bool{}
	if c.Resync || c.Endpoints {
		for _, l := range t.services { // order-free: a set
			if c.Resync || l.reads != l.owner { // a new endpoint may have a name that was missing
				changed[l] = true
			}
		}
	}
	for owner := range c.Owners { // order-free: a set
		t.addListings(owner, changed)
	}
	for node := range c.Nodes { // order-free: a set
		t.addServicesOf(snap, node, changed)
	}
	for l := range changed { // order-free: listings are independent
		t.removeEndpoint(l)
		isChanged := l.update(snap)
		t.addEndpoint(l)
		if !isChanged {
			continue
		}
		for w := range l.waiting { // order-free: all are woken
			signal(w.woken)
		}
	}
	return time.Since(began)
}

// addListings adds the listings with addresses of a service.
func (t *directory) addListings(service cluster.OwnerRef, changed map[*listing]bool) {
	if l := t.services[service]; l != nil {
		changed[l] = true
	}
	for l := range t.endpoints[service] { // order-free: a set
		changed[l] = true
	}
}

// addEndpoint notes the service that a listing of an endpoint reads. The listing of a service reads itself.
func (t *directory) addEndpoint(l *listing) {
	if l.reads == l.owner || l.reads == (cluster.OwnerRef{}) {
		return
	}
	if t.endpoints[l.reads] == nil {
		t.endpoints[l.reads] = map[*listing]bool{}
	}
	t.endpoints[l.reads][l] = true
}

// removeEndpoint undoes addEndpoint.
func (t *directory) removeEndpoint(l *listing) {
	delete(t.endpoints[l.reads], l)
	if len(t.endpoints[l.reads]) == 0 {
		delete(t.endpoints, l.reads)
	}
}

// addServicesOf adds the listings with tasks on a node whose verdict or address changed since the last call.
func (t *directory) addServicesOf(snap *store.Snapshot, node string, changed map[*listing]bool) {
	var now nodeView
	if e, ok := snap.Node(node); ok {
		now.state = e.Value.State
	}
	if e, ok := snap.NodeStatus(node); ok {
		now.registered, now.address = true, e.Value.Facts.Address
	}
	if was, known := t.nodes[node]; known && was == now {
		return
	}
	t.nodes[node] = now
	if now == (nodeView{}) {
		delete(t.nodes, node) // the node was removed
	}
	for row := range snap.NodeAttempts(node) {
		if owner, ok := row.Ref(); ok {
			t.addListings(owner, changed)
		}
	}
}
