package dispatcher

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/transport"
)

// Bounds of what agents are told of services.
const (
	// mostFollowed is how many services one agent may follow.
	mostFollowed = 16384
	// mostTold is how many bytes one answer takes, unless a single service needs more.
	mostTold = 4 << 20
	// listingKept is for how long it is kept what is to be told of a service that nobody waits for: agents ask again
	// when they were answered.
	listingKept = 2 * time.Minute
	// pacePart is how many times longer than its work the look at changes rests, paceLeast how long at least: so it
	// takes a bounded part of a core, however much changes.
	pacePart  = 4
	paceLeast = 20 * time.Millisecond
	// An agent that was answered is answered again only after a rest in which the server could answer all that follow
	// something, if an answer took answerCost, with followCost for each service that the agent follows and byteCost for
	// each byte, restMost at most: so agents are told at once of the first change, and of many changes together where
	// these come faster than all can be told of each. What that is at most is 2,500 answers a second, a third of a core
	// or so, and 64 MB.
	answerCost = 400 * time.Microsecond
	followCost = time.Microsecond
	byteCost   = time.Second / (64 << 20)
	restMost   = 10 * time.Second
)

// directory is what is to be told of the services that agents of this server follow. What a service's listing costs is
// paid when the service, or the verdict on a node of its tasks, changed, once for all agents; then those are woken that
// follow it.
type directory struct {
	mu       sync.Mutex
	services map[cluster.OwnerRef]*listing
	encoder  transport.Encoder
	// asking is how many agents ask at the moment, and crowd the most that did at a time since it was last tidied.
	asking, crowd int
	// nodes holds what the listings took from the records of nodes, as it was last looked at.
	nodes map[string]nodeView
	begun chan struct{} // capacity 1: there is something to follow
}

// waiter is an agent that waits for a change of what it follows.
type waiter struct{ woken chan struct{} } // capacity 1

// nodeView is what addresses take from the records of a node.
type nodeView struct {
	state      cluster.NodeState
	address    string
	registered bool
}

func newDirectory() *directory {
	return &directory{
		services: map[cluster.OwnerRef]*listing{}, nodes: map[string]nodeView{},
		begun: make(chan struct{}, 1),
	}
}

// Addresses tells the agent of a session what it does not know of the services that it follows; where it knows all it
// waits until something changes, AddressesWait at most.
func (d *Dispatcher) Addresses(ctx context.Context, r transport.AddressesRequest) (reply transport.AddressesReply,
	err error,
) {
	s, err := d.session(r.Node, r.Session)
	if err != nil {
		return reply, err
	}
	if err := d.reach.lost(); err != nil {
		return reply, err
	}
	if len(r.Services) > mostFollowed {
		return reply, fmt.Errorf("%w: it follows %d services, at most %d are allowed", transport.ErrRefused,
			len(r.Services), mostFollowed)
	}
	timer := time.NewTimer(transport.AddressesWait)
	defer timer.Stop()
	// Tables from before the session may not know a service that the agent was told of by another server.
	if _, err := d.config.Tables.WaitFor(ctx, s.began); err != nil {
		return reply, err
	}
	cut := d.reach.over()
	w := &waiter{make(chan struct{}, 1)}
	rest := time.NewTimer(d.directory.enter(s, &r, d.config.Clock()))
	defer rest.Stop()
	defer d.letGo(w, &r)
	rested := rest.C
	for {
		if rested == nil {
			if reply.Services, err = d.differing(w, s, &r); err != nil || len(reply.Services) > 0 {
				return reply, err
			}
		}
		select {
		case <-rested:
			rested = nil
		case <-ctx.Done():
			return reply, ctx.Err()
		case <-s.over:
			return reply, &transport.SessionError{
				Newest: d.newest(s.node),
				Detail: fmt.Sprintf("session %d has ended", s.number),
			}
		case <-cut:
			return reply, errCutOff
		case <-timer.C:
			return reply, nil
		case <-w.woken:
		}
	}
}

// enter notes that an agent asks, and returns for how long it rests before it is answered: not at all where it knows
// nothing yet of a service.
func (t *directory) enter(s *session, r *transport.AddressesRequest, now time.Duration) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asking++
	t.crowd = max(t.crowd, t.asking)
	for i := range r.Services {
		if r.Services[i].Stamp == "" {
			return 0
		}
	}
	return max(0, s.rested-now)
}

// restOf returns for how long an agent rests that was told so many bytes of some of the services that it follows. t.mu
// is held.
func (t *directory) restOf(services, bytes int) time.Duration {
	one := answerCost + time.Duration(services)*followCost + time.Duration(bytes)*byteCost
	return min(time.Duration(t.crowd)*one, restMost)
}

// differing returns what the agent does not know, and lets it wait for all that it asks for.
func (d *Dispatcher) differing(w *waiter, s *session, r *transport.AddressesRequest) (list []transport.ServiceTold,
	err error,
) {
	t := d.directory
	t.mu.Lock()
	defer t.mu.Unlock()
	size := 0
	for i := range r.Services {
		asked := &r.Services[i]
		owner := ownerOf(asked)
		l := t.services[owner]
		if l == nil {
			// From a snapshot that is read here: a change that the follower took before is in it.
			l = newListing(d.config.Tables.Snapshot(), owner)
			t.services[owner] = l
			signal(t.begun)
		}
		l.waiting[w] = true
		stamp, confirm := asked.Stamp, asked.Stamp == ""
		if confirm {
			stamp = asked.Known
		}
		told, err := l.tell(&t.encoder, stamp, confirm, r.Differences)
		if err != nil {
			return nil, err
		}
		if told == nil || len(list) > 0 && size+told.Size(false) > mostTold {
			continue
		}
		size += told.Size(false)
		list = append(list, *told)
	}
	if len(list) > 0 {
		packed := 0
		for i := range list {
			packed += list[i].Size(r.Differences) // who takes differences unpacks, too
		}
		s.rested = d.config.Clock() + t.restOf(len(r.Services), packed)
	}
	return list, nil
}

func ownerOf(asked *transport.ServiceAsked) cluster.OwnerRef {
	return cluster.OwnerRef{Kind: cluster.KindService, Cluster: asked.Cluster, Name: asked.Service}
}

// letGo ends the wait of an agent.
func (d *Dispatcher) letGo(w *waiter, r *transport.AddressesRequest) {
	t := d.directory
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asking--
	for i := range r.Services {
		if l := t.services[ownerOf(&r.Services[i])]; l != nil {
			delete(l.waiting, w)
			l.idle = d.config.Clock()
		}
	}
}

func signal(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// followAddresses keeps the directory as the tables are until the context ends. While no service is followed it looks
// at nothing.
func (d *Dispatcher) followAddresses(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.directory.begun:
			d.followWhileAsked(ctx)
		}
	}
}

// followWhileAsked does so until nothing is left to tell to anybody.
func (d *Dispatcher) followWhileAsked(ctx context.Context) {
	follow := d.config.Tables.Follow(store.TopicOwners, store.TopicNodes)
	defer follow.Close()
	tidy := time.NewTicker(listingKept / 4)
	defer tidy.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tidy.C:
			if !d.tidyDirectory() {
				return
			}
			continue
		case <-follow.Wake():
		}
		rest := time.NewTimer(max(paceLeast, pacePart*d.lookAtChanges(follow.Take())))
		select {
		case <-ctx.Done():
		case <-rest.C:
		}
		rest.Stop()
	}
}

// tidyDirectory forgets what nobody asked for any more, and reports whether anything is left.
func (d *Dispatcher) tidyDirectory() bool {
	t := d.directory
	t.mu.Lock()
	defer t.mu.Unlock()
	t.crowd, t.encoder = t.asking, transport.Encoder{}
	for owner, l := range t.services { // order-free: each is judged by itself
		if len(l.waiting) == 0 && d.config.Clock()-l.idle > listingKept {
			delete(t.services, owner)
		}
	}
	if len(t.services) > 0 {
		return true
	}
	t.services, t.nodes = map[cluster.OwnerRef]*listing{}, map[string]nodeView{} // nobody keeps the room of many
	return false
}

// lookAtChanges looks at the services anew that changed, and wakes those who follow one of which there is something
// else to tell. It returns how long that took, without the wait for others.
func (d *Dispatcher) lookAtChanges(c store.Changes) (took time.Duration) {
	t := d.directory
	t.mu.Lock()
	defer t.mu.Unlock()
	began := time.Now()
	snap := d.config.Tables.Snapshot() // read with the lock held: nobody wrote a listing of a newer one
	changed := map[cluster.OwnerRef]bool{}
	if c.Resync {
		for owner := range t.services { // order-free: a set
			changed[owner] = true
		}
	}
	for owner := range c.Owners { // order-free: a set
		if t.services[owner] != nil {
			changed[owner] = true
		}
	}
	for node := range c.Nodes { // order-free: a set
		t.ofNode(snap, node, changed)
	}
	for owner := range changed { // order-free: each is looked at by itself
		l := t.services[owner]
		if !l.look(snap) {
			continue
		}
		for w := range l.waiting { // order-free: all are woken
			signal(w.woken)
		}
	}
	return time.Since(began)
}

// ofNode adds the followed services with tasks on a node whose verdict or address is another than when it was last
// looked at.
func (t *directory) ofNode(snap *store.Snapshot, node string, changed map[cluster.OwnerRef]bool) {
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
		delete(t.nodes, node) // it was removed
	}
	for row := range snap.NodeAttempts(node) {
		if owner, ok := row.Ref(); ok && t.services[owner] != nil {
			changed[owner] = true
		}
	}
}
