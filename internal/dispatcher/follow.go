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

// followStore ends the sessions that other servers took over, as soon as the node's record shows it, and keeps the list
// of servers that agents are told, until the context ends.
func (d *Dispatcher) followStore(ctx context.Context) {
	follow := d.config.Tables.Follow(store.TopicNodes, store.TopicServers, store.TopicSecrets)
	defer follow.Close()
	for {
		select {
		case <-ctx.Done():
			return
		case <-follow.Wake():
		}
		c := follow.Take()
		if c.Secrets || c.Resync {
			d.tellSecretNews()
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
		for node := range c.Nodes { // order-free: each is looked at by itself
			d.displaced(node)
		}
	}
}

// displaced ends the node's session at this server if the node registered elsewhere since, or was removed.
func (d *Dispatcher) displaced(node string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.sessions[node]
	if s == nil || d.newest(node) == s.number {
		return
	}
	if d.config.Tables.Snapshot().Revision() < s.began {
		return // the tables do not show the session itself yet
	}
	close(s.over)
	delete(d.sessions, node)
	d.count()
	d.config.Logger.Info("a node's session is over", "node", node, "session", s.number, "newest", d.newest(node))
}

// listServers makes the list of servers that agents can reach.
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

// news returns the list of servers if the session's agent was not told it. The session's turn is held, or nobody else
// has it.
func (d *Dispatcher) news(s *session) []string {
	list := d.servers.Load()
	if list == nil || s.told == list {
		return nil
	}
	s.told = list
	return *list
}

// How a server finds out that it is cut off from the store: it asks it now and then, and gives up after a while.
const (
	probeEvery = 3 * time.Second
	cutAfter   = 10 * time.Second
)

// reach says whether this server reaches the store. One that does not can neither take a report nor tell the leader
// that its nodes live: where there are other servers, its agents are sent to them.
type reach struct {
	mu   sync.Mutex
	gone bool
	cut  chan struct{} // closed when the store is out of reach, and made anew
}

// lost returns an error that sends agents elsewhere while the store is out of reach.
func (r *reach) lost() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone {
		return errCutOff
	}
	return nil
}

// over returns what is closed when the store gets out of reach.
func (r *reach) over() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cut
}

// set notes how it stands and reports whether that is new.
func (r *reach) set(gone bool) bool {
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

// watchReach asks the store now and then whether it is there, where there is another server to turn to.
func (d *Dispatcher) watchReach(ctx context.Context) {
	ticker := time.NewTicker(probeEvery)
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
		probe, stop := context.WithTimeout(ctx, probeEvery)
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
		case d.config.Clock()-last > cutAfter:
			if d.reach.set(true) {
				d.config.Logger.Error("the store is out of reach; agents are sent to other servers", "error", err)
			}
		}
	}
}
