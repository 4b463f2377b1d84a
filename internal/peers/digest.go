package peers

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// Period is how often a digest goes to each other server.
const Period = time.Second

const (
	// resendPeriods is the number of periods after which all signs of life are sent again.
	resendPeriods = 30
	// unknownPulseAge is the age from which on a sign of life of an unknown node or session is dropped. A younger one
	// is kept, since the tables may lag.
	unknownPulseAge = 10 * time.Second
	// goneAfter is the silence after which a server that does not answer counts as gone. A server whose record is
	// deleted is gone after removedAfter, more than the interval of digests.
	goneAfter    = 5 * time.Second
	removedAfter = 2 * Period
	// reconnectTime is the time in which the agents of a gone server are expected to report elsewhere.
	reconnectTime = 10 * time.Second
)

// localPulse is the last sign of life of one of this server's own agents.
type localPulse struct{ pulse cluster.Pulse }

// local is the state of collect between ticks. Only Run's goroutine uses it.
type local struct {
	tick uint64
	mark uint64 // the mark of the last changes of pulses that rows contain
	rows map[string]*localPulse
}

// remotePulse is the last sign of life of a node from another server, as it was written to the tables.
type remotePulse struct {
	from    string
	session uint64
	seq     uint64
	at      time.Duration
}

// lastDigest is the last digest from a server.
type lastDigest struct {
	startID string
	no      uint64
	at      time.Duration // when it arrived
	cut     bool          // the server is gone since, and shortenIntervals has handled its agents
}

// matches reports whether a pulse of the tables is this one, rather than one from this server's own agent.
func (h remotePulse) matches(p cluster.Pulse) bool {
	return h.session == p.Session && h.seq == p.Seq && h.at == p.At
}

// pendingPulse is a sign of life that is not yet sent to one server.
type pendingPulse struct {
	pulse cluster.Pulse
	stats bool // the statistics changed
	// before holds the statistics that the server has, nil for none. Only changed attempts are sent to it.
	before *cluster.NodeStats
}

// liveness exchanges the signs of life of agents with the other servers. Safe for concurrent use.
type liveness struct {
	*self
	resend chan struct{} // a link needs all signs of life
	local  local

	mu           sync.Mutex
	links        map[string]*link       // by server
	remotePulses map[string]remotePulse // by node: the signs of life from other servers
	lastDigests  map[string]lastDigest  // by server: the last digest
}

// link returns the link to a server, or nil.
func (v *liveness) link(server string) *link {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.links[server]
}

// countNodes counts, for each server, the nodes whose newest session is from its digests.
func (v *liveness) countNodes() map[string]int {
	v.mu.Lock()
	defer v.mu.Unlock()
	nodes := map[string]int{}
	for _, h := range v.remotePulses { // order-free: a count
		nodes[h.from]++
	}
	return nodes
}

// collect passes the new signs of life of this server's agents to the links. Signs of life from other servers are not
// forwarded, since each server sends those of its own agents. Every resendPeriods it collects all of them.
func (v *liveness) collect() {
	v.local.tick++
	everything := v.local.tick%resendPeriods == 0
	if everything {
		v.local.mark = 0 // reads all pulses again, as a safeguard
		v.dropUnknown()
	}
	v.shortenIntervals()
	changed := map[string]pendingPulse{}

	v.mu.Lock()
	links := make([]*link, 0, len(v.links))
	for _, l := range v.links { // order-free: links are independent
		links = append(links, l)
	}
	c := v.config.Tables.PulsesSince(v.local.mark)
	v.local.mark = c.Mark
	for node, pulse := range c.Pulses { // order-free: rows by node
		if v.remotePulses[node].matches(pulse) {
			delete(v.local.rows, node)
			continue
		}
		r := v.local.rows[node]
		if r == nil {
			r = &localPulse{}
			v.local.rows[node] = r
		}
		if r.pulse != pulse {
			changed[node] = pendingPulse{pulse, r.pulse.Stats != pulse.Stats, r.pulse.Stats}
			r.pulse = pulse
		}
	}
	v.mu.Unlock()

	for _, node := range c.Dropped {
		delete(v.local.rows, node)
	}
	if c.All {
		maps.DeleteFunc(v.local.rows, func(node string, _ *localPulse) bool {
			_, ok := c.Pulses[node]
			return !ok
		})
	}
	reached := 0
	for _, l := range links {
		if l.offer(changed, v.local.rows, everything) {
			reached++
		}
	}
	if v.config.Metrics != nil {
		v.config.Metrics.Reached(reached, len(links))
	}
}

// shortenIntervals shortens the intervals of the agents of a server that is gone, once each time. Living agents connect
// to another server immediately. Silence counts from the promised report (P6.2). It then begins earlier, but never in
// the past. A digest of the returned server restores the intervals.
func (v *liveness) shortenIntervals() {
	now, snap := v.config.Clock(), v.config.Tables.Snapshot()
	v.mu.Lock()
	defer v.mu.Unlock()
	for server, last := range v.lastDigests { // order-free: servers are independent
		if _, member := snap.Server(server); last.cut || !v.gone(server, member, now-last.at) {
			continue
		}
		last.cut = true
		v.lastDigests[server] = last
		for node, h := range v.remotePulses { // order-free: nodes are independent
			pulse, _ := v.config.Tables.Pulse(node)
			if h.from != server || !h.matches(pulse) {
				continue
			}
			if soon := now + reconnectTime - pulse.At; soon < pulse.Next {
				pulse.Next = soon
				v.config.Tables.SetPulse(node, pulse)
			}
		}
	}
}

// gone reports whether a server that was silent for the given time is gone. A server that answers is not gone, even if
// its digests do not arrive: its agents stay with it. v.mu is held.
func (v *liveness) gone(server string, member bool, silent time.Duration) bool {
	if !member {
		return silent > removedAfter
	}
	if l := v.links[server]; l != nil {
		if reached, _, _ := l.state(); reached {
			return false
		}
	}
	return silent > goneAfter
}

// dropUnknown drops the pulses of nodes and sessions that the store does not have: of forgotten nodes, and late ones
// from another server. A node that registers again after that begins with low session numbers.
func (v *liveness) dropUnknown() {
	now, pulses := v.config.Clock(), v.config.Tables.Pulses()
	snap := v.config.Tables.Snapshot()
	for node, pulse := range pulses { // order-free: nodes are independent
		status, ok := snap.NodeStatus(node)
		if (!ok || status.Value.Session < pulse.Session) && now-pulse.At > unknownPulseAge {
			v.dropNode(node)
		}
	}
}

// receive handles a digest of another server.
func (v *liveness) receive(w http.ResponseWriter, r *http.Request) {
	var d digest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxDigest)).Decode(&d); err != nil {
		refuse(w, http.StatusBadRequest, "the digest cannot be read: "+err.Error())
		return
	}
	switch err := d.check(); {
	case err != nil:
		refuse(w, http.StatusUpgradeRequired, err.Error())
		return
	case d.Server != v.config.Caller(r):
		refuse(w, http.StatusForbidden,
			fmt.Sprintf("the certificate is that of server %q, which cannot report the agents of %q",
				v.config.Caller(r), d.Server))
		return
	case d.Server == v.config.Server.ID:
		refuse(w, http.StatusConflict,
			"the digest comes from this server itself: an address in the servers' records is wrong")
		return
	case len(d.Pulses) > maxPulsesPerDigest:
		refuse(w, http.StatusRequestEntityTooLarge, "the digest holds too many signs of life")
		return
	}
	now := v.config.Clock()
	if made, ok := v.madeAt(d.Echo, now); ok {
		v.mu.Lock()
		if last := v.lastDigests[d.Server]; d.Life != last.startID || d.No > last.no {
			v.lastDigests[d.Server] = lastDigest{startID: d.Life, no: d.No, at: now}
			for i := range d.Pulses {
				v.recordBeat(d.Server, &d.Pulses[i], made)
			}
		}
		v.mu.Unlock()
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(digestReply{ // a server that has disconnected sends again
		version: ourVersion(), Server: v.config.Server.ID, Life: v.startID, Clock: now.Microseconds(),
	})
}

// madeAt returns a lower bound of the time when a digest was made, on this server's clock. A delayed digest therefore
// never makes a silent node appear alive. It returns false if the sender had no reply from this server since its start.
func (v *liveness) madeAt(e *echo, now time.Duration) (time.Duration, bool) {
	if e == nil || e.Life != v.startID || e.Since < 0 {
		return 0, false
	}
	return min(now, micros(e.Clock)+micros(e.Since)), true
}

// recordBeat records one sign of life. The highest (session, sequence) wins (P6.1). A repeated sign of life updates the
// interval, because the interval of a node with a broken stream is shorter. v.mu is held.
func (v *liveness) recordBeat(from string, b *beat, made time.Duration) {
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
	old, known := v.config.Tables.Pulse(b.Node)
	switch {
	case !known && len(v.remotePulses) >= maxKnownNodes:
		return
	case known && (pulse.Session < old.Session || pulse.Session == old.Session && pulse.Seq < old.Seq):
		return
	case known && pulse.Session == old.Session && pulse.Seq == old.Seq:
		pulse.At = max(pulse.At, old.At) // both are lower bounds of the true time
	}
	if pulse.Stats == nil {
		pulse.Stats = old.Stats
	} else {
		pulse.Stats = pulse.Stats.Merge(old.Stats, v.config.Tables.Snapshot().RunningAttempts(b.Node))
	}
	v.remotePulses[b.Node] = remotePulse{from: from, session: pulse.Session, seq: pulse.Seq, at: pulse.At}
	v.config.Tables.SetPulse(b.Node, pulse)
}

// dropNode drops the pulse of a node that the store does not have.
func (v *liveness) dropNode(node string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.remotePulses, node)
	v.config.Tables.DropPulse(node)
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
