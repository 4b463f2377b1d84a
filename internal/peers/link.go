package peers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// answerTimeout bounds the time that another server may take to answer a digest.
const answerTimeout = 3 * time.Second

// link sends digests to one other server, in a goroutine of its own, so that a server that hangs delays no other.
type link struct {
	peers *liveness
	id    string
	api   string
	stop  context.CancelFunc
	wake  chan struct{}

	mu      sync.Mutex
	name    string
	pending map[string]pendingPulse
	// reached says that the last digest was answered. all says that the next digests hold all signs of life, since the
	// other server may lack them.
	reached, all bool
	since        time.Duration
	problem      string
	logged       bool // the break was logged

	// Only run uses the following fields.
	client  *http.Client
	startID string        // identifies the other server's start
	clock   int64         // the clock of its last reply
	read    time.Duration // when that reply was read
	no      uint64        // the number of the last digest
}

func newLink(p *liveness, s cluster.Server) *link {
	return &link{
		peers: p, id: s.ID, api: s.API, name: s.Name, wake: make(chan struct{}, 1), pending: map[string]pendingPulse{},
		since: p.config.Clock(), problem: "this server has not spoken with it yet",
	}
}

func (l *link) rename(s cluster.Server) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.name = s.Name
}

// String returns the server's name for messages.
func (l *link) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.name == "" || l.name == l.id {
		return "server " + l.id
	}
	return "server " + l.name + " (" + l.id + ")"
}

func (l *link) state() (reached bool, since time.Duration, problem string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reached, l.since, l.problem
}

// offer adds changes to the next digest, and reports whether the server answered the last one. Nothing is kept for a
// server that does not answer. The link sends it empty digests, and all signs of life after its first reply. The number
// of nodes therefore bounds the pending signs of life.
func (l *link) offer(changed map[string]pendingPulse, rows map[string]*localPulse, everything bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !l.reached:
	case everything || l.all:
		l.all = false
		for node, r := range rows { // order-free: by node
			l.pending[node] = pendingPulse{r.pulse, true, nil}
		}
	default:
		for node, i := range changed { // order-free: by node
			if waits := l.pending[node]; waits.stats {
				i.stats, i.before = true, waits.before
			}
			l.pending[node] = i
		}
	}
	signal(l.wake)
	return l.reached
}

func (l *link) takePending() map[string]pendingPulse {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.pending
	l.pending = map[string]pendingPulse{}
	return p
}

func (l *link) run(ctx context.Context) {
	defer l.closeClient()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		}
		if err := l.send(ctx, l.takePending()); err != nil && ctx.Err() == nil {
			l.noteFailure(err)
		}
	}
}

func (l *link) closeClient() {
	if l.client != nil {
		l.client.CloseIdleConnections()
		l.client = nil
	}
}

// send sends all signs of life in as few digests as possible, or one empty digest if there are none.
func (l *link) send(ctx context.Context, pending map[string]pendingPulse) error {
	nodes := slices.Sorted(maps.Keys(pending))
	for {
		began := l.peers.config.Clock()
		echo := l.echo(began)
		n := countFitting(nodes, pending)
		if echo == nil {
			n = 0 // the server would not accept them
		}
		reply, err := l.exchange(ctx, l.digest(nodes[:n], pending, began, echo))
		if m := l.peers.config.Metrics; m != nil {
			m.Digested(max(l.peers.config.Clock()-began, 0), n, err == nil)
		}
		if err != nil {
			return err
		}
		l.noteReply(reply)
		if nodes = nodes[n:]; len(nodes) == 0 {
			return nil
		}
	}
}

// delta returns the statistics that the server lacks, nil for none.
func (i pendingPulse) delta() *cluster.NodeStats {
	if i.pulse.Stats == nil {
		return nil
	}
	return i.pulse.Stats.Changed(i.before)
}

// countFitting returns how many of the nodes fit into one digest.
func countFitting(nodes []string, pending map[string]pendingPulse) int {
	n, each := min(len(nodes), maxPulsesPerDigest), 0
	for i, node := range nodes[:n] {
		if it := pending[node]; it.stats && it.pulse.Stats != nil {
			each += countEntries(it.pulse.Stats) // an upper bound of the entries that are sent
		}
		if each > maxAttemptsPerDigest && i > 0 {
			return i
		}
	}
	return n
}

// countEntries counts the attempts of a node, and their containers with statistics of their own.
func countEntries(s *cluster.NodeStats) int {
	n := len(s.Each)
	for i := range s.Each {
		if d := s.Each[i].Detail; d != nil {
			n += len(d.Containers)
		}
	}
	return n
}

// echo returns the echo of the other server's last reply, or nil.
func (l *link) echo(now time.Duration) *echo {
	if l.startID == "" || now < l.read {
		return nil
	}
	return &echo{Life: l.startID, Clock: l.clock, Since: (now - l.read).Microseconds()}
}

// digest returns the digest of some nodes. An age is never negative, even if the clock jumped.
func (l *link) digest(nodes []string, pending map[string]pendingPulse, now time.Duration, e *echo) *digest {
	l.no++
	d := &digest{version: ourVersion(), Server: l.peers.config.Server.ID, Life: l.peers.startID, No: l.no, Echo: e}
	d.Pulses = make([]beat, len(nodes))
	for i, node := range nodes {
		it := pending[node]
		d.Pulses[i] = beat{
			Node:    node,
			Session: it.pulse.Session,
			Seq:     it.pulse.Seq,
			Age:     max(now-it.pulse.At, 0).Microseconds(),
			Next:    it.pulse.Next.Microseconds(),
		}
		if it.stats {
			d.Pulses[i].Stats = it.delta()
		}
	}
	return d
}

// exchange posts a digest and reads the reply.
func (l *link) exchange(ctx context.Context, d *digest) (reply digestReply, err error) {
	late := fmt.Errorf("it did not answer within %v", answerTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, answerTimeout, late)
	defer cancel()
	defer func() {
		if cause := context.Cause(ctx); err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = cause
		}
	}()
	if l.client == nil {
		if l.client, err = l.peers.config.Dial(l.api); err != nil {
			l.client = nil
			return reply, err
		}
	}
	body, err := json.Marshal(d)
	if err != nil {
		return reply, fmt.Errorf("encode a digest: %w", err)
	}
	reply, err = requestReply[digestReply](ctx, l.client, http.MethodPost, l.api+pathDigest, bytes.NewReader(body),
		maxReply)
	if err != nil {
		return reply, err
	}
	if err := reply.check(); err != nil {
		return reply, err
	}
	if reply.Server != l.id || reply.Life == "" {
		return reply, fmt.Errorf("at %s answers another server, %s", l.api, reply.Server)
	}
	return reply, nil
}

// noteReply records a reply. After a break or a restart of the other server, all pulses are sent again.
func (l *link) noteReply(r digestReply) {
	restarted := l.startID != r.Life
	l.startID, l.clock, l.read = r.Life, r.Clock, l.peers.config.Clock()
	l.mu.Lock()
	was := l.reached
	if !was {
		l.reached, l.logged, l.problem, l.since = true, false, "", l.read
	}
	l.all = l.all || restarted || !was
	all := l.all
	l.mu.Unlock()
	if !was {
		l.peers.config.Logger.Info("another server is reached", "server", l.id, "api", l.api)
	}
	if all {
		signal(l.peers.resend)
	}
}

// noteFailure notes that a digest may not have arrived.
func (l *link) noteFailure(err error) {
	l.closeClient()
	l.mu.Lock()
	if l.reached {
		l.since = l.peers.config.Clock()
	}
	l.reached, l.problem = false, describeError(err)
	clear(l.pending)
	logged := l.logged
	l.logged = true
	l.mu.Unlock()
	if !logged {
		l.peers.config.Logger.Warn("another server is not reached", "server", l.id, "api", l.api, "error", err)
	}
}

// describeError returns a sentence for users why a server is not reached.
func describeError(err error) string {
	var call *url.Error
	var dial *net.OpError
	var errno syscall.Errno
	switch {
	case errors.As(err, &errno):
		return "its API does not answer: " + errno.Error()
	case errors.As(err, &dial) && dial.Op == "dial":
		return "its API does not answer: " + dial.Err.Error()
	case errors.As(err, &call):
		return "its API does not answer: " + call.Err.Error()
	}
	return err.Error()
}

func signal(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}
