package peers

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// Period is how often a digest goes to each other server.
const Period = time.Second

const (
	// again is after how many periods everything is sent again.
	again = 30
	// stray is how old a sign of life must be before it is dropped for a node or a session that the store
	// does not have: the tables may be a moment behind.
	stray = 10 * time.Second
	// goneAfter is how long a server must be silent, and not answer, to count as gone. One whose record is deleted is
	// gone once it is silent for removedAfter: more than a digest.
	goneAfter    = 5 * time.Second
	removedAfter = 2 * Period
	// moveTime is how soon the agents of a server that is gone are expected to be heard of elsewhere.
	moveTime = 10 * time.Second
)

// row is the last sign of life of one of this server's own agents.
type row struct{ pulse cluster.Pulse }

// local is what collect keeps from tick to tick. Only Run's goroutine uses it.
type local struct {
	tick uint64
	mark uint64 // up to which change of pulses rows hold them
	rows map[string]*row
}

// heard is the last sign of life of a node that another server told of, as it stands in the tables.
type heard struct {
	from    string
	session uint64
	seq     uint64
	at      time.Duration
}

// numbered is the last digest that a server sent.
type numbered struct {
	life string
	no   uint64
	at   time.Duration // when it came
	cut  bool          // the server is gone since, and what its agents promised was cut
}

// wrote reports whether a pulse of the tables is the one that was heard, rather than one that this server's own
// agent gave.
func (h heard) wrote(p cluster.Pulse) bool {
	return h.session == p.Session && h.seq == p.Seq && h.at == p.At
}

// item is a sign of life on its way to one server.
type item struct {
	pulse cluster.Pulse
	stats bool // they changed
	// before is what the server knows of the statistics: of single attempts only what changed since goes to it. nil is
	// nothing.
	before *cluster.NodeStats
}

// collect finds the signs of life that this server's agents gave since the last tick and hands them to the links. What
// another server told is not sent on: each server tells of its own agents only. Now and then all are gone through.
func (p *Peers) collect() {
	p.local.tick++
	everything := p.local.tick%again == 0
	if everything {
		p.local.mark = 0 // for good measure
		p.sweep()
	}
	p.cutPromises()
	changed := map[string]item{}

	p.mu.Lock()
	links := make([]*link, 0, len(p.links))
	for _, l := range p.links { // order-free: each link by itself
		links = append(links, l)
	}
	c := p.config.Tables.PulsesSince(p.local.mark)
	p.local.mark = c.Mark
	for node, pulse := range c.Pulses { // order-free: rows by node
		if p.heard[node].wrote(pulse) {
			delete(p.local.rows, node)
			continue
		}
		r := p.local.rows[node]
		if r == nil {
			r = &row{}
			p.local.rows[node] = r
		}
		if r.pulse != pulse {
			changed[node] = item{pulse, r.pulse.Stats != pulse.Stats, r.pulse.Stats}
			r.pulse = pulse
		}
	}
	p.mu.Unlock()

	for _, node := range c.Dropped {
		delete(p.local.rows, node)
	}
	if c.All {
		maps.DeleteFunc(p.local.rows, func(node string, _ *row) bool {
			_, ok := c.Pulses[node]
			return !ok
		})
	}
	reached := 0
	for _, l := range links {
		if l.offer(changed, p.local.rows, everything) {
			reached++
		}
	}
	if p.config.Metrics != nil {
		p.config.Metrics.Reached(reached, len(links))
	}
}

// cutPromises has the agents of servers that are gone expected soon, once for each time that a server goes: they turn
// to another server at once, if they live. Silence counts from the promised sign of life (P6.2): the count begins
// sooner than was promised, and never in the past. What the server tells when it is back stands again.
func (p *Peers) cutPromises() {
	now, snap := p.config.Clock(), p.config.Tables.Snapshot()
	p.mu.Lock()
	defer p.mu.Unlock()
	for server, last := range p.last { // order-free: each server by itself
		if _, member := snap.Server(server); last.cut || !p.gone(server, member, now-last.at) {
			continue
		}
		last.cut = true
		p.last[server] = last
		for node, h := range p.heard { // order-free: each node by itself
			pulse, _ := p.config.Tables.Pulse(node)
			if h.from != server || !h.wrote(pulse) {
				continue
			}
			if soon := now + moveTime - pulse.At; soon < pulse.Next {
				pulse.Next = soon
				p.config.Tables.SetPulse(node, pulse)
			}
		}
	}
}

// gone reports whether a server that was silent for so long is gone. One that answers is not, even if its digests do
// not come through: its agents stay with it. p.mu is held.
func (p *Peers) gone(server string, member bool, silent time.Duration) bool {
	if !member {
		return silent > removedAfter
	}
	if l := p.links[server]; l != nil {
		if reached, _, _ := l.state(); reached {
			return false
		}
	}
	return silent > goneAfter
}

// sweep drops signs of life of nodes and sessions that the store does not have: a node that was forgotten, and what a
// server told late of it. A node that registers anew after that begins with low session numbers again.
func (p *Peers) sweep() {
	now, pulses := p.config.Clock(), p.config.Tables.Pulses()
	snap := p.config.Tables.Snapshot()
	for node, pulse := range pulses { // order-free: each node by itself
		status, ok := snap.NodeStatus(node)
		if (!ok || status.Value.Session < pulse.Session) && now-pulse.At > stray {
			p.forget(node)
		}
	}
}

// receive takes what another server tells of its agents.
func (p *Peers) receive(w http.ResponseWriter, r *http.Request) {
	var d digest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxDigest)).Decode(&d); err != nil {
		refuse(w, http.StatusBadRequest, "the digest cannot be read: "+err.Error())
		return
	}
	switch err := d.check(); {
	case err != nil:
		refuse(w, http.StatusUpgradeRequired, err.Error())
		return
	case d.Server != p.config.Caller(r):
		refuse(w, http.StatusForbidden,
			fmt.Sprintf("the certificate is that of server %q, which cannot tell of the agents of %q",
				p.config.Caller(r), d.Server))
		return
	case d.Server == p.config.Server.ID:
		refuse(w, http.StatusConflict,
			"the digest comes from this server itself: an address in the servers' records is wrong")
		return
	case len(d.Pulses) > mostPulses:
		refuse(w, http.StatusRequestEntityTooLarge, "the digest holds too many signs of life")
		return
	}
	now := p.config.Clock()
	if made, ok := p.made(d.Echo, now); ok {
		p.mu.Lock()
		if last := p.last[d.Server]; d.Life != last.life || d.No > last.no {
			p.last[d.Server] = numbered{life: d.Life, no: d.No, at: now}
			for i := range d.Pulses {
				p.take(d.Server, &d.Pulses[i], made)
			}
		}
		p.mu.Unlock()
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(digestReply{ // who went away sends again
		version: ourVersion(), Server: p.config.Server.ID, Life: p.life, Clock: now.Microseconds(),
	})
}

// made returns when a digest was made, on this server's clock, and not later than it was in truth: a digest that was
// long on its way must not make a silent node look alive. It is false for one whose sender had no reply of this
// server's present life.
func (p *Peers) made(e *echo, now time.Duration) (time.Duration, bool) {
	if e == nil || e.Life != p.life || e.Since < 0 {
		return 0, false
	}
	return min(now, micros(e.Clock)+micros(e.Since)), true
}

// take records one sign of life: the highest (session, sequence) wins (P6.1), and of one that is told again what is
// promised now: a node whose stream broke is expected sooner. p.mu is held.
func (p *Peers) take(from string, b *beat, made time.Duration) {
	if b.Session == 0 || !cluster.ValidNodeName(b.Node) {
		return
	}
	pulse := cluster.Pulse{
		Session: b.Session,
		Seq:     b.Seq,
		At:      made - micros(max(b.Age, 0)),
		Next:    micros(min(max(b.Next, 0), maxPromise)),
		Stats:   b.Stats,
	}
	old, known := p.config.Tables.Pulse(b.Node)
	switch {
	case !known && len(p.heard) >= mostNodes:
		return
	case known && (pulse.Session < old.Session || pulse.Session == old.Session && pulse.Seq < old.Seq):
		return
	case known && pulse.Session == old.Session && pulse.Seq == old.Seq:
		pulse.At = max(pulse.At, old.At) // neither is later than it was
	}
	if pulse.Stats == nil {
		pulse.Stats = old.Stats
	} else {
		pulse.Stats = pulse.Stats.Merge(old.Stats, p.alive(b.Node))
	}
	p.heard[b.Node] = heard{from: from, session: pulse.Session, seq: pulse.Seq, at: pulse.At}
	p.config.Tables.SetPulse(b.Node, pulse)
}

// alive returns a function that tells which of a node's attempts run, by the tables.
func (p *Peers) alive(node string) func(uuid string) bool {
	var all map[string]bool
	return func(uuid string) bool {
		if all == nil {
			all = map[string]bool{}
			for row := range p.config.Tables.Snapshot().NodeAttempts(node) {
				if o := row.Observed; o != nil && !o.Gone && !o.State.Terminal() {
					all[o.UUID] = true
				}
			}
		}
		return all[uuid]
	}
}

// forget drops what is known of a node that the store does not have.
func (p *Peers) forget(node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.heard, node)
	p.config.Tables.DropPulse(node)
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
