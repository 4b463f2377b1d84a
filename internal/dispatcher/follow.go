package dispatcher

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/transport"
)

// followStore ends the sessions that other servers took over, as soon as the node's record shows it. It also keeps the
// list of servers for agents up to date, until the context ends.
func (d *Dispatcher) followStore(ctx context.Context) {
	follow := d.config.Tables.Follow(store.TopicNodes, store.TopicServers, store.TopicSecrets)
	defer follow.Close()
	back := d.config.Tables.Snapshot().WentBack()
	for {
		select {
		case <-ctx.Done():
			return
		case <-follow.Wake():
		}
		c := follow.Take()
		if at := d.config.Tables.Snapshot().WentBack(); at != back {
			back = at
			d.sessions.endAll()
		}
		if c.Secrets || c.Resync {
			d.secrets.notifyChanged()
		}
		if c.Servers || c.Resync {
			d.reach.listServers()
		}
		if c.Resync {
			for _, node := range d.sessions.nodes() {
				c.Nodes[node] = true
			}
		}
		for node := range c.Nodes { // order-free: nodes are independent
			d.sessions.endIfDisplaced(node)
		}
	}
}

// A server probes the store every probeInterval. It counts as cut off after unreachableAfter without an answer.
const (
	probeInterval    = 3 * time.Second
	unreachableAfter = 10 * time.Second
)

// storeReach records whether this server reaches the store. A server without the store can neither write reports nor
// pass on signs of life. If there are other servers, it sends its agents to them. Safe for concurrent use.
type storeReach struct {
	config  *Config
	servers atomic.Pointer[[]string] // the server addresses that agents receive; nil before the first list

	mu   sync.Mutex
	gone bool
	cut  chan struct{} // closed when the store is out of reach, and replaced when it is back
}

// unreachableError returns an error that sends agents elsewhere while the store is out of reach, else nil.
func (r *storeReach) unreachableError() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone {
		return errCutOff
	}
	return nil
}

// unreachable returns a channel that is closed when the store is out of reach.
func (r *storeReach) unreachable() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cut
}

// set sets the state and reports whether it changed.
func (r *storeReach) set(gone bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if gone == r.gone {
		return false
	}
	r.gone = gone
	if gone {
		close(r.cut)
	} else {
		r.cut = make(chan struct{})
	}
	return true
}

var errCutOff = fmt.Errorf("%w: this server does not reach the store", transport.ErrElsewhere)

// listServers updates the list of servers that agents can reach.
func (r *storeReach) listServers() {
	var list []string
	for e := range r.config.Tables.Snapshot().Servers() {
		if e.Value.API != "" {
			list = append(list, e.Value.API)
		}
	}
	slices.Sort(list)
	if old := r.servers.Load(); old != nil && slices.Equal(*old, list) {
		return
	}
	r.servers.Store(&list)
}

// unsentServers returns the list of servers if the session's agent did not receive it yet. s.reporting is held, or the
// session is not active yet.
func (r *storeReach) unsentServers(s *session) []string {
	list := r.servers.Load()
	if list == nil || s.sentServers == list {
		return nil
	}
	s.sentServers = list
	return *list
}

// watch probes the store as long as there is another server to send agents to.
func (r *storeReach) watch(ctx context.Context) {
	ticker := time.NewTicker(probeInterval)
	defer ticker.Stop()
	last := r.config.Clock()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if list := r.servers.Load(); list == nil || len(*list) < 2 {
			last = r.config.Clock()
			r.set(false)
			continue
		}
		probe, stop := context.WithTimeout(ctx, probeInterval)
		_, err := r.config.Tables.Settled(probe)
		stop()
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			last = r.config.Clock()
			if r.set(false) {
				r.config.Logger.Info("the store is in reach again")
			}
		case r.config.Clock()-last > unreachableAfter:
			if r.set(true) {
				r.config.Logger.Error("the store is out of reach; agents are sent to other servers", "error", err)
			}
		}
	}
}
