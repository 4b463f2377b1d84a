package dispatcher

import (
	"context"
	"fmt"
	"slices"
	"sync"
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
			d.endAll()
		}
		if c.Secrets || c.Resync {
			d.notifySecretsChanged()
		}
		if c.Servers || c.Resync {
			d.listServers()
		}
		if c.Resync {
			d.mu.Lock()
			for node := range d.sessions { // order-free: a set
				c.Nodes[node] = true
			}
			d.mu.Unlock()
		}
		for node := range c.Nodes { // order-free: nodes are independent
			d.endIfDisplaced(node)
		}
	}
}

// endAll ends the sessions of all nodes after the store went back. It lost reports that were acknowledged, and only a
// full report repeats them (P1.7).
func (d *Dispatcher) endAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.config.Logger.Warn("the store went back: all nodes register again", "sessions", len(d.sessions))
	for node, s := range d.sessions { // order-free: all are ended
		close(s.ended)
		delete(d.sessions, node)
	}
	d.reportSessionCount()
}

// endIfDisplaced ends the node's session at this server if the node registered elsewhere since, or was removed.
func (d *Dispatcher) endIfDisplaced(node string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.sessions[node]
	if s == nil || d.newest(node) == s.number {
		return
	}
	if d.config.Tables.Snapshot().Revision() < s.syncedRev {
		return // the tables do not hold the session yet
	}
	close(s.ended)
	delete(d.sessions, node)
	d.reportSessionCount()
	d.config.Logger.Info("a node's session is over", "node", node, "session", s.number, "newest", d.newest(node))
}

// listServers updates the list of servers that agents can reach.
func (d *Dispatcher) listServers() {
	var list []string
	for e := range d.config.Tables.Snapshot().Servers() {
		if e.Value.API != "" {
			list = append(list, e.Value.API)
		}
	}
	slices.Sort(list)
	if old := d.servers.Load(); old != nil && slices.Equal(*old, list) {
		return
	}
	d.servers.Store(&list)
}

// unsentServers returns the list of servers if the session's agent did not receive it yet. s.reporting is held, or the
// session is not active yet.
func (d *Dispatcher) unsentServers(s *session) []string {
	list := d.servers.Load()
	if list == nil || s.sentServers == list {
		return nil
	}
	s.sentServers = list
	return *list
}

// A server probes the store every probeInterval. It counts as cut off after unreachableAfter without an answer.
const (
	probeInterval    = 3 * time.Second
	unreachableAfter = 10 * time.Second
)

// storeReach records whether this server reaches the store. A server without the store can neither write reports nor
// pass on signs of life. If there are other servers, it sends its agents to them.
type storeReach struct {
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

// watchReach probes the store as long as there is another server to send agents to.
func (d *Dispatcher) watchReach(ctx context.Context) {
	ticker := time.NewTicker(probeInterval)
	defer ticker.Stop()
	last := d.config.Clock()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if list := d.servers.Load(); list == nil || len(*list) < 2 {
			last = d.config.Clock()
			d.reach.set(false)
			continue
		}
		probe, stop := context.WithTimeout(ctx, probeInterval)
		_, err := d.config.Tables.Settled(probe)
		stop()
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			last = d.config.Clock()
			if d.reach.set(false) {
				d.config.Logger.Info("the store is in reach again")
			}
		case d.config.Clock()-last > unreachableAfter:
			if d.reach.set(true) {
				d.config.Logger.Error("the store is out of reach; agents are sent to other servers", "error", err)
			}
		}
	}
}
