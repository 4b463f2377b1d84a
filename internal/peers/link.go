package peers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// patience is how long another server may take to answer a digest.
const patience = 3 * time.Second

// link sends digests to one other server, in a goroutine of its own: a server that hangs holds up nobody else.
type link struct {
	peers *Peers
	id    string
	api   string
	stop  context.CancelFunc
	wake  chan struct{}

	mu      sync.Mutex
	name    string
	pending map[string]item
	// reached says that the last digest was answered; all that everything must be sent, because the other end may not
	// have it.
	reached, all bool
	since        time.Duration
	problem      string
	told         bool // the log tells of the break

	// The rest is run's alone.
	client *http.Client
	life   string        // of the other end
	clock  int64         // what its last reply said
	read   time.Duration // when that was
	no     uint64        // of the last digest
}

func newLink(p *Peers, s cluster.Server) *link {
	return &link{
		peers: p, id: s.ID, api: s.API, name: s.Name, wake: make(chan struct{}, 1), pending: map[string]item{},
		since: p.config.Clock(), problem: "this server has not spoken with it yet",
	}
}

func (l *link) rename(s cluster.Server) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.name = s.Name
}

// String names the server to people.
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

// offer adds to what is sent next, and reports whether the server was reached last. While it is not, nothing is kept:
// an empty digest asks for it, and everything follows the first answer. So what is kept is bounded by the nodes.
func (l *link) offer(changed map[string]item, rows map[string]*row, everything bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !l.reached:
	case everything || l.all:
		l.all = false
		for node, r := range rows { // order-free: by node
			l.pending[node] = item{r.pulse, true, nil}
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

func (l *link) take() map[string]item {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.pending
	l.pending = map[string]item{}
	return p
}

func (l *link) run(ctx context.Context) {
	defer l.hangUp()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		}
		if err := l.send(ctx, l.take()); err != nil && ctx.Err() == nil {
			l.failed(err)
		}
	}
}

func (l *link) hangUp() {
	if l.client != nil {
		l.client.CloseIdleConnections()
		l.client = nil
	}
}

// send sends signs of life, in as many digests as they need; without any, one empty digest.
func (l *link) send(ctx context.Context, pending map[string]item) error {
	nodes := slices.Sorted(maps.Keys(pending))
	for {
		began := l.peers.config.Clock()
		echo := l.echo(began)
		n := fits(nodes, pending)
		if echo == nil {
			n = 0 // they would not be taken
		}
		reply, err := l.exchange(ctx, l.digest(nodes[:n], pending, began, echo))
		if m := l.peers.config.Metrics; m != nil {
			m.Digested(max(l.peers.config.Clock()-began, 0), n, err == nil)
		}
		if err != nil {
			return err
		}
		l.answered(reply)
		if nodes = nodes[n:]; len(nodes) == 0 {
			return nil
		}
	}
}

// delta is what the server does not know of the statistics, nil for nothing.
func (i item) delta() *cluster.NodeStats {
	if i.pulse.Stats == nil {
		return nil
	}
	return i.pulse.Stats.Changed(i.before)
}

// fits returns how many of the nodes one digest holds.
func fits(nodes []string, pending map[string]item) int {
	n, each := min(len(nodes), mostPulses), 0
	for i, node := range nodes[:n] {
		if it := pending[node]; it.stats && it.pulse.Stats != nil {
			each += weight(it.pulse.Stats) // more than it will be
		}
		if each > mostEach && i > 0 {
			return i
		}
	}
	return n
}

// weight counts the attempts of a node, and those of their containers that are told one by one.
func weight(s *cluster.NodeStats) int {
	n := len(s.Each)
	for i := range s.Each {
		if d := s.Each[i].Detail; d != nil {
			n += len(d.Containers)
		}
	}
	return n
}

// echo names the other end's last reply, nil where there is none to name.
func (l *link) echo(now time.Duration) *echo {
	if l.life == "" || now < l.read {
		return nil
	}
	return &echo{Life: l.life, Clock: l.clock, Since: (now - l.read).Microseconds()}
}

// digest tells of some nodes. An age is never negative, whatever the clock did.
func (l *link) digest(nodes []string, pending map[string]item, now time.Duration, e *echo) *digest {
	l.no++
	d := &digest{version: ourVersion(), Server: l.peers.config.Server.ID, Life: l.peers.life, No: l.no, Echo: e}
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
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("it did not answer within %v", patience))
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
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.api+pathDigest, bytes.NewReader(body))
	if err != nil {
		return reply, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := l.client.Do(req)
	if err != nil {
		return reply, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return reply, readProblem(resp)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxReply)).Decode(&reply); err != nil {
		return reply, fmt.Errorf("read the reply: %w", err)
	}
	if err := reply.check(); err != nil {
		return reply, err
	}
	if reply.Server != l.id || reply.Life == "" {
		return reply, fmt.Errorf("at %s answers another server, %s", l.api, reply.Server)
	}
	return reply, nil
}

// answered notes a reply. After a break, or of a server that was started anew, everything is to be sent, at once.
func (l *link) answered(r digestReply) {
	anew := l.life != r.Life
	l.life, l.clock, l.read = r.Life, r.Clock, l.peers.config.Clock()
	l.mu.Lock()
	was := l.reached
	if !was {
		l.reached, l.told, l.problem, l.since = true, false, "", l.read
	}
	l.all = l.all || anew || !was
	all := l.all
	l.mu.Unlock()
	if !was {
		l.peers.config.Logger.Info("another server is reached", "server", l.id, "api", l.api)
	}
	if all {
		signal(l.peers.nudge)
	}
}

// failed notes that a digest may not have arrived.
func (l *link) failed(err error) {
	l.hangUp()
	l.mu.Lock()
	if l.reached {
		l.since = l.peers.config.Clock()
	}
	l.reached, l.problem = false, plain(err)
	clear(l.pending)
	told := l.told
	l.told = true
	l.mu.Unlock()
	if !told {
		l.peers.config.Logger.Warn("another server is not reached", "server", l.id, "api", l.api, "error", err)
	}
}

// plain says for people why a server is not reached.
func plain(err error) string {
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
