package sim

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/berthd/berth/internal/pause"
)

// connectionTimeout is the silence after which both ends give up a connection.
const connectionTimeout = 20 * time.Second

// errUndelivered says that a message or its answer was not delivered.
var errUndelivered = errors.New("the connection was lost")

// network carries every message between machines. A link is one direction: "n1>s2".
type network struct {
	random *randomness

	mu      sync.Mutex
	cuts    map[string]int // present cuts of a link or a machine
	noises  map[string]int
	lates   map[string]time.Duration // delay of all requests, whose senders give up
	changed chan struct{}
}

func newNetwork(c *randomness) *network {
	return &network{
		random: c, cuts: map[string]int{}, noises: map[string]int{}, lates: map[string]time.Duration{},
		changed: make(chan struct{}),
	}
}

// links returns the directions of a target.
func links(target string) []string {
	if a, b, both := strings.Cut(target, "-"); both {
		return []string{a + ">" + b, b + ">" + a}
	}
	return []string{target}
}

// countCut adds n cuts of the target's links, or of a whole machine.
func (w *network) countCut(target string, n int) { w.count(w.cuts, target, n) }

func (w *network) countNoise(target string, n int) { w.count(w.noises, target, n) }

// setLateness delays all requests of a link beyond their senders' wait; 0 ends that.
func (w *network) setLateness(target string, by time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range links(target) {
		w.lates[l] = by
	}
}

func (w *network) count(of map[string]int, target string, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range links(target) {
		of[l] += n
	}
	close(w.changed)
	w.changed = make(chan struct{})
}

// endFaults ends all faults.
func (w *network) endFaults() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.cuts)
	clear(w.noises)
	clear(w.lates)
	close(w.changed)
	w.changed = make(chan struct{})
}

// open reports whether messages pass, and returns a channel that the next change closes.
func (w *network) open(from, to string) (bool, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cuts[from+">"+to] == 0 && w.cuts[from] == 0 && w.cuts[to] == 0, w.changed
}

func (w *network) noisy(from, to string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.noises[from+">"+to] > 0
}

// waitOpen waits until the link is open, at most until ctx or, unless 0, the limit ends.
func (w *network) waitOpen(ctx context.Context, from, to string, limit time.Duration) error {
	open, changed := w.open(from, to)
	if open {
		return ctx.Err()
	}
	var over <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		over = timer.C
	}
	for !open {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-over:
			return errUndelivered
		case <-changed:
		}
		open, changed = w.open(from, to)
	}
	return ctx.Err()
}

// waitBroken waits until a connection has been dead in one direction for connectionTimeout, or ctx has ended.
func (w *network) waitBroken(ctx context.Context, a, b string) {
	for ctx.Err() == nil {
		there, changed := w.open(a, b)
		back, _ := w.open(b, a)
		if there && back {
			select {
			case <-ctx.Done():
			case <-changed:
			}
			continue
		}
		limited, cancel := context.WithTimeout(ctx, connectionTimeout)
		failed := w.waitOpen(limited, a, b, 0) != nil || w.waitOpen(limited, b, a, 0) != nil
		cancel()
		if failed {
			return
		}
	}
}

// delivery is the way in which one message is delivered.
type delivery struct {
	delay time.Duration
	// A lost message never arrives. A late one arrives that long after its sender gave up.
	lost bool
	late time.Duration
	// repeated says that the message arrives again, after the given time.
	repeated bool
	again    time.Duration
}

// decideDelivery decides on the next message of a link.
func (w *network) decideDelivery(from, to, what string) delivery {
	link := from + ">" + to
	d := w.random.roll(link, what)
	f := delivery{delay: time.Millisecond + d.span(2*time.Millisecond)}
	w.mu.Lock()
	late := w.lates[link]
	w.mu.Unlock()
	if late > 0 {
		f.lost, f.late = true, late
		return f
	}
	if !w.noisy(from, to) {
		return f
	}
	switch d.below(8) {
	case 0:
		f.lost = true
	case 1:
		f.lost = true
		f.late = d.span(30 * time.Second)
	case 2, 3:
		f.delay = d.span(3 * time.Second)
	case 4:
		f.repeated = true
		f.again = d.span(5 * time.Second)
	}
	return f
}

// call carries a request and its answer. do runs where the request arrives, under the context of the connection. A
// request that outlives its connection runs under the context of the server. do runs never, once or, for a repeated
// message, twice. The answer is that of the first run.
func call[T any](ctx context.Context, w *network, from, to, what string, far *server,
	do func(context.Context) (T, error),
) (T, error) {
	var none T
	f := w.decideDelivery(from, to, what)
	if pause.For(ctx, f.delay) != nil {
		return none, ctx.Err()
	}
	if f.lost {
		if f.late > 0 {
			far.runLater(f.late, func(ctx context.Context) { _, _ = do(ctx) })
		}
		return none, errUndelivered
	}
	if err := w.waitOpen(ctx, from, to, connectionTimeout); err != nil {
		return none, err
	}
	if f.repeated {
		far.runLater(f.again, func(ctx context.Context) { _, _ = do(ctx) })
	}
	joined, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(far.ctx, cancel)()
	v, err := do(joined)
	back := w.decideDelivery(to, from, what)
	if far.ctx.Err() != nil || joined.Err() != nil && ctx.Err() == nil {
		_ = pause.For(ctx, back.delay)
		return none, errUndelivered
	}
	if pause.For(ctx, back.delay) != nil {
		return none, ctx.Err()
	}
	if back.lost {
		return none, errUndelivered
	}
	if e := w.waitOpen(ctx, to, from, connectionTimeout); e != nil {
		return none, e
	}
	return v, err
}
