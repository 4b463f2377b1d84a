// Package addresses holds the addresses of the services that tasks and other users on a node follow.
//
// A directory asks the server for the followed services, one request at a time, and keeps the newest answers in a file
// for the next run of the agent. An address change costs a copy of the list. The file is written at most each second
// and takes a fiftieth of a core at most. A difference that does not fit changes nothing: the directory logs it and
// requests whole lists until the end of the session. A file whose lists do not match their stamps is usable, but no
// base for differences.
package addresses

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/berthd/berth/internal/agent/node"
	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/transport"
)

const (
	// directoryFile, in the agent's data directory, holds the newest addresses of services.
	directoryFile = "addresses.json"
	// minSaveInterval is the shortest time between two writes of the file. A write stores the whole directory, so the
	// pause after it is also at least savePauseFactor times the time that it took.
	minSaveInterval = time.Second
	savePauseFactor = 50
	// unfollowedTTL is how long a service without followers stays known, for followers that restart.
	unfollowedTTL = 15 * time.Minute
	// minPollInterval is the shortest time between two requests for addresses.
	minPollInterval = 25 * time.Millisecond
)

// Source is a Source that knows the addresses of services.
type Source interface {
	// Addresses waits until one of the services has changed; see transport.Client.Addresses.
	Addresses(ctx context.Context, r transport.AddressesRequest) (transport.AddressesReply, error)
}

// ServiceName names a service.
type ServiceName struct{ Cluster, Service string }

// Service is what the agent knows about a service.
type Service struct {
	// Known means that a server has answered for the service. Before that all other fields are empty.
	Known bool
	// Stale means that the answer is older than the first current follower or comes from an earlier run of the agent.
	// The service may have changed since. The next answer of a server counts as a change even if nothing changed.
	Stale bool
	// Missing means that the service does not exist.
	Missing bool
	// Stamp identifies this content. A server sends the differences from it. It is empty where the content is
	// uncertain.
	Stamp string
	// Addresses are those of the healthy tasks, ordered by task. Callers must not change them.
	Addresses []transport.ServiceAddress
}

// Directory holds the addresses of the services that tasks and other users on the node follow. The newest addresses
// stay in force while no server answers, and for the next run of the agent. Its methods may be called concurrently.
type Directory struct {
	node  *node.Node
	path  string        // of the file, "" for none
	wake  chan struct{} // capacity 1: a service has its first follower
	dirty chan struct{} // capacity 1: the file is out of date

	mu         sync.Mutex
	services   map[ServiceName]*followed
	wholeLists bool // a difference of this session did not fit: request whole lists
}

// followed is a service with followers, now or recently. The directory's mutex guards it.
type followed struct {
	now          Service
	version      uint64              // how often now was set
	followers    map[*Following]bool // empty if no request needs the service
	unfollowedAt time.Duration       // since when it has no followers (Boot)
}

// Following is a follower's interest in some services.
type Following struct {
	directory *Directory
	// The directory's mutex guards the following fields.
	seen          map[ServiceName]uint64 // the followed.version that now last returned for each service
	changed       chan struct{}
	changedClosed bool // news is closed
	stopped       bool
}

// New returns a directory of no service. It reads no file before Load.
func New(n *node.Node) *Directory {
	d := &Directory{
		node: n, wake: make(chan struct{}, 1), dirty: make(chan struct{}, 1),
		services: map[ServiceName]*followed{},
	}
	if !n.Volatile {
		d.path = filepath.Join(n.DataDir, directoryFile)
	}
	return d
}

// Follow starts to follow services; following.stop ends it.
func (d *Directory) Follow(names ...ServiceName) *Following {
	f := &Following{directory: d, seen: make(map[ServiceName]uint64, len(names)), changed: make(chan struct{})}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, n := range names {
		s := d.services[n]
		if s == nil {
			s = &followed{followers: map[*Following]bool{}}
			d.services[n] = s
		}
		if len(s.followers) == 0 {
			node.Nudge(d.wake)
		}
		s.followers[f] = true
		f.seen[n] = 0
	}
	f.updateChanged()
	return f
}

// updateChanged closes the channel changed if a service changed since the follower read it, and makes a new channel if
// none did. The directory's mutex is held.
func (f *Following) updateChanged() {
	changed := false
	for n, seen := range f.seen { // order-free: any change counts
		if s := f.directory.services[n]; s != nil && s.version != seen {
			changed = true
		}
	}
	switch {
	case changed && !f.changedClosed:
		close(f.changed)
	case !changed && f.changedClosed:
		f.changed = make(chan struct{})
	}
	f.changedClosed = changed
}

// Names returns the services, in no order.
func (f *Following) Names() []ServiceName {
	f.directory.mu.Lock()
	defer f.directory.mu.Unlock()
	return slices.Collect(maps.Keys(f.seen)) // order-free: each is read on its own
}

// Changed returns a channel that is closed once a service has changed since the last call of now for it.
func (f *Following) Changed() <-chan struct{} {
	f.directory.mu.Lock()
	defer f.directory.mu.Unlock()
	return f.changed
}

// Now returns what is known about one of the services.
func (f *Following) Now(name ServiceName) Service {
	d := f.directory
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.services[name]
	if _, ok := f.seen[name]; !ok || f.stopped || s == nil {
		return Service{}
	}
	f.seen[name] = s.version
	f.updateChanged()
	return s.now
}

// Stop ends the interest. It may be called again.
func (f *Following) Stop() {
	d := f.directory
	d.mu.Lock()
	defer d.mu.Unlock()
	if f.stopped {
		return
	}
	f.stopped = true
	for n := range f.seen { // order-free: services are independent
		s := d.services[n]
		delete(s.followers, f)
		if len(s.followers) > 0 {
			continue
		}
		s.unfollowedAt, s.now.Stale = d.node.Boot(), true
		if !s.now.Known || s.now.Missing || d.path == "" {
			delete(d.services, n)
		}
	}
}

// Request returns the services to request, in order, and whether the server may send differences.
func (d *Directory) Request() (list []transport.ServiceRequest, differences bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for n, s := range d.services { // order-free: sorted below
		if len(s.followers) > 0 {
			service := transport.ServiceRequest{Cluster: n.Cluster, Service: n.Service}
			switch {
			case !s.now.Known:
			case s.now.Stale: // the answer counts as a change in any case
				service.Known = s.now.Stamp
			default:
				service.Stamp = s.now.Stamp
			}
			list = append(list, service)
		}
	}
	slices.SortFunc(list, func(x, y transport.ServiceRequest) int {
		return cmp.Or(cmp.Compare(x.Cluster, y.Cluster), cmp.Compare(x.Service, y.Service))
	})
	return list, !d.wholeLists
}

// Poll asks the server of a session for the followed services until ctx ends or the session is over, and returns the
// reason.
func (d *Directory) Poll(ctx context.Context, source Source, session uint64) error {
	p := d.node.NewBackoff(node.MinDialBackoff, node.MaxDialBackoff)
	d.mu.Lock()
	d.wholeLists = false
	d.mu.Unlock()
	for {
		select {
		case <-d.wake: // the next request contains the new service
		default:
		}
		r := transport.AddressesRequest{Node: d.node.Name, Session: session}
		if r.Services, r.Differences = d.Request(); len(r.Services) == 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-d.wake:
			}
			continue
		}
		reply, outdated, err := d.pollOnce(ctx, source, r)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case outdated:
			err = nil // the services to request have changed
		case errors.Is(err, transport.ErrSession), errors.Is(err, transport.ErrElsewhere):
			return err
		case err == nil:
			d.apply(&reply)
			p.Reset()
		}
		if err != nil {
			d.node.Logger.Info("the server sends no service addresses; the last known ones stay in use",
				"error", err)
			if p.Wait(ctx) != nil {
				return ctx.Err()
			}
			continue
		}
		_ = pause.For(ctx, minPollInterval)
	}
}

// pollOnce asks until a server answers, or until the request is outdated: a service outside of it has its first
// follower.
func (d *Directory) pollOnce(ctx context.Context, source Source,
	r transport.AddressesRequest,
) (reply transport.AddressesReply, outdated bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watched := make(chan bool, 1)
	go func() {
		select {
		case <-ctx.Done():
			watched <- false
		case <-d.wake:
			cancel()
			watched <- true
		}
	}()
	reply, err = source.Addresses(ctx, r)
	cancel()
	woken := <-watched
	return reply, woken && err != nil, err
}

// apply stores the answer of a server.
func (d *Directory) apply(reply *transport.AddressesReply) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range reply.Services {
		t := &reply.Services[i]
		s := d.services[ServiceName{t.Cluster, t.Service}]
		if s == nil || len(s.followers) == 0 || !s.now.Known && t.Since != "" {
			continue // unfollowed since the request; a new follower asks again
		}
		list, err := t.Onto(s.now.Stamp, s.now.Addresses)
		if err != nil {
			// The known addresses and their stamp stay. The next answers of this session are whole lists.
			d.wholeLists = true
			d.node.Logger.Warn("a difference of service addresses does not fit the known ones; the agent requests "+
				"whole lists",
				"cluster", t.Cluster, "service", t.Service, "error", err)
			continue
		}
		s.set(Service{Known: true, Missing: t.Missing, Stamp: t.Stamp, Addresses: list})
	}
	if len(reply.Services) > 0 {
		node.Nudge(d.dirty)
	}
}

// set stores the state of the service and notifies its followers. The directory's mutex is held.
func (s *followed) set(now Service) {
	s.now = now
	s.version++
	for f := range s.followers { // order-free: all are notified
		f.updateChanged()
	}
}

// Load reads the addresses from an earlier run of the agent, except for services that are already known.
func (d *Directory) Load() {
	if d.path == "" {
		return
	}
	text, err := os.ReadFile(d.path)
	var list []transport.ServiceUpdate
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	if err != nil {
		if !errors.Is(err, os.ErrNotExist) {
			d.node.Logger.Warn("the stored service addresses cannot be read; a server will send them again",
				"error", err)
		}
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range list {
		t := &list[i]
		name := ServiceName{t.Cluster, t.Service}
		s := d.services[name]
		if s == nil {
			s = &followed{followers: map[*Following]bool{}, unfollowedAt: d.node.Boot()}
			d.services[name] = s
		}
		if t.Stamp != transport.StampOf(t.Missing, t.Addresses) {
			t.Stamp = "" // the file is damaged
		}
		if !s.now.Known {
			s.set(Service{
				Known: true, Stale: true, Missing: t.Missing, Stamp: t.Stamp, Addresses: t.Addresses,
			})
		}
	}
}

// Run writes the file when it is out of date and forgets unfollowed services, until ctx ends.
func (d *Directory) Run(ctx context.Context) {
	tidy := time.NewTicker(unfollowedTTL / 3)
	defer tidy.Stop()
	for {
		select {
		case <-ctx.Done():
			select {
			case <-d.dirty:
				d.save()
			default:
			}
			return
		case <-tidy.C:
			d.forgetUnfollowed()
			continue
		case <-d.dirty:
		}
		began := time.Now()
		d.save()
		_ = pause.For(ctx, max(minSaveInterval, savePauseFactor*time.Since(began)))
	}
}

// forgetUnfollowed forgets services without a follower for unfollowedTTL.
func (d *Directory) forgetUnfollowed() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for n, s := range d.services { // order-free: services are independent
		if len(s.followers) == 0 && d.node.Boot()-s.unfollowedAt > unfollowedTTL {
			delete(d.services, n)
			node.Nudge(d.dirty)
		}
	}
}

// save replaces the file. A loss of the file at a power failure does no harm.
func (d *Directory) save() {
	list := []transport.ServiceUpdate{}
	d.mu.Lock()
	for n, s := range d.services { // order-free: sorted below
		if s.now.Known {
			list = append(list, transport.ServiceUpdate{
				Cluster: n.Cluster, Service: n.Service, Stamp: s.now.Stamp, Missing: s.now.Missing,
				Addresses: s.now.Addresses,
			})
		}
	}
	d.mu.Unlock()
	slices.SortFunc(list, func(x, y transport.ServiceUpdate) int {
		return cmp.Or(cmp.Compare(x.Cluster, y.Cluster), cmp.Compare(x.Service, y.Service))
	})
	text, err := json.Marshal(list)
	if err == nil {
		err = os.WriteFile(d.path+".next", text, 0o600)
	}
	if err == nil {
		err = os.Rename(d.path+".next", d.path)
	}
	if err != nil {
		d.node.Logger.Warn("the service addresses cannot be stored; after a restart the agent needs a server for them",
			"error", err)
	}
}
