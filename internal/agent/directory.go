package agent

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

	"github.com/berthd/berth/internal/transport"
)

const (
	// directoryFile, in the agent's data directory, holds what servers told of services last.
	directoryFile = "addresses.json"
	// saveEvery is how often it is written at most, and savePart how many times longer than that takes the rest after
	// it is at least: all of it is written for each change.
	saveEvery = time.Second
	savePart  = 50
	// directoryKept is for how long it is known what was told of a service that nobody follows any more: who was
	// started anew follows it again.
	directoryKept = 15 * time.Minute
	// addressesEvery is how often a server is asked for addresses at most.
	addressesEvery = 25 * time.Millisecond
)

// addressSource is a Source that tells where services are reached.
type addressSource interface {
	// Addresses waits until there is something to tell of one of the services; see transport.Client.Addresses.
	Addresses(ctx context.Context, r transport.AddressesRequest) (transport.AddressesReply, error)
}

// serviceName names a service.
type serviceName struct{ Cluster, Service string }

// serviceAddresses is what is known of a service.
type serviceAddresses struct {
	// Known says that a server has told of it; before that all else is empty.
	Known bool
	// Old says that it was told before anybody followed the service now, or in an earlier life of the agent: it may
	// have changed since. Once a server answers it is told anew, whether it changed or not.
	Old bool
	// Missing says that there is no such service.
	Missing bool
	// Stamp stands for what is known here: by it a server tells what differs. It is empty where that is not certain.
	Stamp string
	// Addresses are those of the healthy tasks, by task. Nobody may change them.
	Addresses []transport.ServiceAddress
}

// directory is what the agent knows of services that somebody on the node follows. What was told last stays in force
// while no server answers, and for the next life of the agent. Its methods may be called concurrently.
type directory struct {
	agent *Agent
	path  string        // of the file, "" for none
	wake  chan struct{} // capacity 1: a service is to be asked for that was not
	dirty chan struct{} // capacity 1: the file is behind

	mu       sync.Mutex
	services map[serviceName]*followed
	unknown  bool // it was said that a server is too old
	whole    bool // a difference of this session did not fit: whole lists are asked for
}

// followed is a service that somebody follows or followed lately. The directory's mutex guards it.
type followed struct {
	now       serviceAddresses
	told      uint64              // how often it was told
	followers map[*following]bool // empty for one that is not asked for
	left      time.Duration       // since when nobody follows it (Boot)
}

// following is the interest of somebody in some services.
type following struct {
	directory *directory
	// The directory's mutex guards what follows.
	seen    map[serviceName]uint64 // what now returned of each service, as followed.told
	news    chan struct{}
	told    bool // news is closed
	stopped bool
}

func newDirectory(a *Agent) *directory {
	d := &directory{
		agent: a, wake: make(chan struct{}, 1), dirty: make(chan struct{}, 1),
		services: map[serviceName]*followed{},
	}
	if !a.Volatile {
		d.path = filepath.Join(a.DataDir, directoryFile)
	}
	return d
}

// directory returns what the agent knows of services.
func (a *Agent) directory() *directory { return a.book }

// follow begins to follow services, until it is stopped.
func (d *directory) follow(names ...serviceName) *following {
	f := &following{directory: d, seen: make(map[serviceName]uint64, len(names)), news: make(chan struct{})}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, n := range names {
		s := d.services[n]
		if s == nil {
			s = &followed{followers: map[*following]bool{}}
			d.services[n] = s
		}
		if len(s.followers) == 0 {
			nudge(d.wake)
		}
		s.followers[f] = true
		f.seen[n] = 0
	}
	f.judge()
	return f
}

func nudge(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// judge closes the channel of news if one of the services was told since it was looked at, or makes another one if none
// was. The directory's mutex is held.
func (f *following) judge() {
	news := false
	for n, seen := range f.seen { // order-free: whether there is one
		if s := f.directory.services[n]; s != nil && s.told != seen {
			news = true
		}
	}
	switch {
	case news && !f.told:
		close(f.news)
	case !news && f.told:
		f.news = make(chan struct{})
	}
	f.told = news
}

// names returns the services, in no order.
func (f *following) names() []serviceName {
	f.directory.mu.Lock()
	defer f.directory.mu.Unlock()
	return slices.Collect(maps.Keys(f.seen)) // order-free: each is looked at
}

// changed returns a channel that is closed when a service was told, or told anew, after now was called for it last.
func (f *following) changed() <-chan struct{} {
	f.directory.mu.Lock()
	defer f.directory.mu.Unlock()
	return f.news
}

// now returns what is known of one of the services.
func (f *following) now(name serviceName) serviceAddresses {
	d := f.directory
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.services[name]
	if _, ok := f.seen[name]; !ok || f.stopped || s == nil {
		return serviceAddresses{}
	}
	f.seen[name] = s.told
	f.judge()
	return s.now
}

// stop ends the interest. It may be called again.
func (f *following) stop() {
	d := f.directory
	d.mu.Lock()
	defer d.mu.Unlock()
	if f.stopped {
		return
	}
	f.stopped = true
	for n := range f.seen { // order-free: each by itself
		s := d.services[n]
		delete(s.followers, f)
		if len(s.followers) > 0 {
			continue
		}
		s.left, s.now.Old = d.agent.Boot(), true
		if !s.now.Known || s.now.Missing || d.path == "" {
			delete(d.services, n)
		}
	}
}

// asked returns what a server is asked for, in order, and whether differences will do.
func (d *directory) asked() (list []transport.ServiceAsked, differences bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for n, s := range d.services { // order-free: sorted next
		if len(s.followers) > 0 {
			asked := transport.ServiceAsked{Cluster: n.Cluster, Service: n.Service}
			switch {
			case !s.now.Known:
			case s.now.Old: // it is told anew, whether it changed or not
				asked.Known = s.now.Stamp
			default:
				asked.Stamp = s.now.Stamp
			}
			list = append(list, asked)
		}
	}
	slices.SortFunc(list, func(x, y transport.ServiceAsked) int {
		return cmp.Or(cmp.Compare(x.Cluster, y.Cluster), cmp.Compare(x.Service, y.Service))
	})
	return list, !d.whole
}

// ask asks the server of a session for what is followed, again and again, until ctx ends or the session is over, and
// returns why.
func (d *directory) ask(ctx context.Context, source addressSource, session uint64) error {
	p := d.agent.pause(dialFirst, dialMost)
	d.mu.Lock()
	d.whole = false
	d.mu.Unlock()
	for {
		select {
		case <-d.wake: // what is read next holds it
		default:
		}
		r := transport.AddressesRequest{Node: d.agent.Name, Session: session}
		if r.Services, r.Differences = d.asked(); len(r.Services) == 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-d.wake:
			}
			continue
		}
		reply, anew, err := d.askOnce(ctx, source, r)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case anew:
			err = nil // what is asked for has changed
		case errors.Is(err, transport.ErrSession), errors.Is(err, transport.ErrElsewhere):
			return err
		case errors.Is(err, transport.ErrUnknown):
			d.tooOld(err)
			<-ctx.Done() // the next session may be with another server
			return ctx.Err()
		case err == nil:
			d.take(&reply)
			p.reset()
		}
		if err != nil {
			d.agent.Logger.Info("the server does not tell where services are reached; what it told last stays in force",
				"error", err)
			if !p.wait(ctx) {
				return ctx.Err()
			}
			continue
		}
		rest := time.NewTimer(addressesEvery)
		select {
		case <-ctx.Done():
		case <-rest.C:
		}
		rest.Stop()
	}
}

// askOnce asks until there is an answer, or anew is true: somebody follows a service that is not in the request.
func (d *directory) askOnce(ctx context.Context, source addressSource,
	r transport.AddressesRequest,
) (reply transport.AddressesReply, anew bool, err error) {
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

// tooOld says once that the server tells no addresses.
func (d *directory) tooOld(err error) {
	d.mu.Lock()
	said := d.unknown
	d.unknown = true
	d.mu.Unlock()
	if !said {
		d.agent.Logger.Warn("the server does not tell where services are reached: upgrade it", "error", err)
	}
}

// take notes what a server told.
func (d *directory) take(reply *transport.AddressesReply) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unknown = false
	for i := range reply.Services {
		t := &reply.Services[i]
		s := d.services[serviceName{t.Cluster, t.Service}]
		if s == nil || len(s.followers) == 0 || !s.now.Known && t.Since != "" {
			continue // it was let go of since it was asked for; who follows it again asks again
		}
		list, err := t.Onto(s.now.Stamp, s.now.Addresses)
		if err != nil {
			// What is known stays, and so does its stamp: in this session the next answers are whole lists.
			d.whole = true
			d.agent.Logger.Warn("what the server tells of a service does not fit what is known; whole lists "+
				"are asked for",
				"cluster", t.Cluster, "service", t.Service, "error", err)
			continue
		}
		s.tell(serviceAddresses{Known: true, Missing: t.Missing, Stamp: t.Stamp, Addresses: list})
	}
	if len(reply.Services) > 0 {
		nudge(d.dirty)
	}
}

// tell notes what there is to say of the service, and tells who follows it. The directory's mutex is held.
func (s *followed) tell(now serviceAddresses) {
	s.now = now
	s.told++
	for f := range s.followers { // order-free: all are told
		f.judge()
	}
}

// load reads what an earlier life of the agent was told, unless that is known already.
func (d *directory) load() {
	if d.path == "" {
		return
	}
	text, err := os.ReadFile(d.path)
	var list []transport.ServiceTold
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	if err != nil {
		if !errors.Is(err, os.ErrNotExist) {
			d.agent.Logger.Warn("it is not known any more where services are reached; a server will tell", "error", err)
		}
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range list {
		t := &list[i]
		name := serviceName{t.Cluster, t.Service}
		s := d.services[name]
		if s == nil {
			s = &followed{followers: map[*following]bool{}, left: d.agent.Boot()}
			d.services[name] = s
		}
		if t.Stamp != transport.StampOf(t.Missing, t.Addresses) {
			t.Stamp = "" // it is a server's of an earlier build, or the file is damaged
		}
		if !s.now.Known {
			s.tell(serviceAddresses{Known: true, Old: true, Missing: t.Missing, Stamp: t.Stamp, Addresses: t.Addresses})
		}
	}
}

// keep writes the file when it is behind, and forgets what nobody followed for long, until ctx ends.
func (d *directory) keep(ctx context.Context) {
	tidy := time.NewTicker(directoryKept / 3)
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
			d.tidy()
			continue
		case <-d.dirty:
		}
		began := time.Now()
		d.save()
		rest := time.NewTimer(max(saveEvery, savePart*time.Since(began)))
		select {
		case <-ctx.Done():
		case <-rest.C:
		}
		rest.Stop()
	}
}

// tidy forgets what nobody followed for long.
func (d *directory) tidy() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for n, s := range d.services { // order-free: each is judged by itself
		if len(s.followers) == 0 && d.agent.Boot()-s.left > directoryKept {
			delete(d.services, n)
			nudge(d.dirty)
		}
	}
}

// save writes the file in the place of the old one. That it may be lost with the machine's power does no harm.
func (d *directory) save() {
	list := []transport.ServiceTold{}
	d.mu.Lock()
	for n, s := range d.services { // order-free: sorted next
		if s.now.Known {
			list = append(list, transport.ServiceTold{
				Cluster: n.Cluster, Service: n.Service, Stamp: s.now.Stamp, Missing: s.now.Missing,
				Addresses: s.now.Addresses,
			})
		}
	}
	d.mu.Unlock()
	slices.SortFunc(list, func(x, y transport.ServiceTold) int {
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
		d.agent.Logger.Warn("where services are reached is not kept for the agent's next life", "error", err)
	}
}
