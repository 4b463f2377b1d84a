package sim

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"
)

// patience is how long a connection may be silent until its ends take it for dead.
const patience = 20 * time.Second

// errLink says that a message could not be delivered, or its answer not.
var errLink = errors.New("the connection was lost")

// network carries every message between machines. A link is one direction: "n1>s2".
type network struct {
	chance *chance

	mu      sync.Mutex
	cuts    map[string]int // how many events hold a link cut, or stop a machine's traffic
	noises  map[string]int
	lates   map[string]time.Duration // all requests on the link are given up and arrive that much later
	changed chan struct{}
}

func newNetwork(c *chance) *network {
	return &network{
		chance: c, cuts: map[string]int{}, noises: map[string]int{}, lates: map[string]time.Duration{},
		changed: make(chan struct{}),
	}
}

// links returns the directions that a target names.
func links(target string) []string {
	if a, b, both := strings.Cut(target, "-"); both {
		return []string{a + ">" + b, b + ">" + a}
	}
	return []string{target}
}

// cut adds n to what holds the target's links, or a whole machine, cut.
func (w *network) cut(target string, n int) { w.count(w.cuts, target, n) }

func (w *network) noise(target string, n int) { w.count(w.noises, target, n) }

// late makes all requests of a link arrive later than their senders wait; 0 ends that.
func (w *network) late(target string, by time.Duration) {
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

// calm ends all faults.
func (w *network) calm() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.cuts)
	clear(w.noises)
	clear(w.lates)
	close(w.changed)
	w.changed = make(chan struct{})
}

// open reports whether messages pass, and returns what is closed with the next change.
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

// pass waits until the link is open, for as long as ctx and, unless 0, the limit last.
func (w *network) pass(ctx context.Context, from, to string, limit time.Duration) error {
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
			return errLink
		case <-changed:
		}
		open, changed = w.open(from, to)
	}
	return ctx.Err()
}

// broken waits until a connection has been dead in one direction for longer than its ends bear, or ctx has ended.
func (w *network) broken(ctx context.Context, a, b string) {
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
		limited, cancel := context.WithTimeout(ctx, patience)
		failed := w.pass(limited, a, b, 0) != nil || w.pass(limited, b, a, 0) != nil
		cancel()
		if failed {
			return
		}
	}
}

// fate is what becomes of one message.
type fate struct {
	delay time.Duration
	// lost says that it never arrives; late that it arrives that long after its sender gave it up.
	lost bool
	late time.Duration
	// twice says that it arrives a second time, the given time later.
	twice bool
	again time.Duration
}

// fate decides on the next message of a link.
func (w *network) fate(from, to, what string) fate {
	link := from + ">" + to
	d := w.chance.roll(link, what)
	f := fate{delay: time.Millisecond + d.span(2*time.Millisecond)}
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
	switch d.of(8) {
	case 0:
		f.lost = true
	case 1:
		f.lost = true
		f.late = d.span(30 * time.Second)
	case 2, 3:
		f.delay = d.span(3 * time.Second)
	case 4:
		f.twice = true
		f.again = d.span(5 * time.Second)
	}
	return f
}

// call carries a request and its answer. Do is run where the request arrives, under the context of the connection, or
// of the server's life where the request outlives its connection; it is run never, once, or, repeated, twice. The
// answer is do's of the first time.
func call[T any](ctx context.Context, w *network, from, to, what string, far *server,
	do func(context.Context) (T, error),
) (T, error) {
	var none T
	f := w.fate(from, to, what)
	if !sleep(ctx, f.delay) {
		return none, ctx.Err()
	}
	if f.lost {
		if f.late > 0 {
			far.later(f.late, func(ctx context.Context) { _, _ = do(ctx) })
		}
		return none, errLink
	}
	if err := w.pass(ctx, from, to, patience); err != nil {
		return none, err
	}
	if f.twice {
		far.later(f.again, func(ctx context.Context) { _, _ = do(ctx) })
	}
	joined, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(far.ctx, cancel)()
	v, err := do(joined)
	back := w.fate(to, from, what)
	if far.ctx.Err() != nil || joined.Err() != nil && ctx.Err() == nil {
		sleep(ctx, back.delay)
		return none, errLink
	}
	if !sleep(ctx, back.delay) {
		return none, ctx.Err()
	}
	if back.lost {
		return none, errLink
	}
	if e := w.pass(ctx, to, from, patience); e != nil {
		return none, e
	}
	return v, err
}

// sleep waits in virtual time and reports false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
