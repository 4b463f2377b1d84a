// Package registrar registers the healthy tasks of a node in a system for service discovery, through a driver of
// package discovery.
//
// It computes the registrations that the attempts on the node should have, compares them with those that the driver
// holds, and makes the difference: when an attempt changes, and every few seconds. So it registers again what the
// system has lost, and removes what an earlier run of the agent left. A system that does not answer delays only this
// package, with one exception: a task that is about to end waits for the end of its registrations, for LeaveTimeout at
// most.
//
// The end of the agent removes no registration.
package registrar

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/agent/node"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/discovery"
	"github.com/berthd/berth/internal/hinted"
	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/plain"
)

const (
	// LeaveTimeout is the longest time that the end of a task waits for the end of its registrations.
	LeaveTimeout = 2 * time.Second
	// leaveRetryPause is the pause before a failed removal is tried again within LeaveTimeout.
	leaveRetryPause = 200 * time.Millisecond
	// compareInterval is the longest time between two comparisons.
	compareInterval = 10 * time.Second
	// callTimeout bounds one call of the driver.
	callTimeout = 5 * time.Second
	// maxCalls is the largest number of calls at a time that change registrations, apart from those of tasks that end.
	maxCalls = 8
	// minBackoff and maxBackoff limit the pause after a comparison that failed.
	minBackoff = 500 * time.Millisecond
	maxBackoff = 5 * time.Second
	// minProblemAge is the shortest time between two texts of a problem that the facts of the node show.
	minProblemAge = time.Minute
)

// Attempts are the attempts on the node. Its functions may be called concurrently.
type Attempts struct {
	// All returns all attempts, and Find one by its UUID.
	All  func() []attempt.Status
	Find func(uuid string) (attempt.Status, bool)
	// Orphan reports whether the UUID is that of containers without a record, which may be adopted.
	Orphan func(uuid string) bool
}

// Config configures New. All fields are required.
type Config struct {
	Node   *node.Node
	Driver discovery.Driver
	// Owner is the driver's owner: letters and digits.
	Owner    string
	Attempts Attempts
	Facts    func() cluster.Facts
	// Changed is called when the facts of AddFacts have changed.
	Changed func()
}

// Registrar keeps the registrations of a node. One goroutine calls Run; all other methods may be called concurrently. A
// nil Registrar registers nothing.
type Registrar struct {
	Config

	wake  chan struct{} // capacity 1: an attempt has changed
	turns turns

	// These belong to Run: the version of the system, and whether it is known since the last problem.
	version string
	probed  bool

	mu    sync.Mutex
	fact  cluster.DiscoveryFact
	since time.Duration   // when fact was set (Boot)
	sent  map[string]sent // by ID
}

// sent is the newest state that the system has of a registration.
type sent struct {
	health cluster.Health
	at     time.Duration // Boot
}

// New returns a registrar; it starts nothing.
func New(c Config) *Registrar {
	return &Registrar{
		Config: c, wake: make(chan struct{}, 1), fact: cluster.DiscoveryFact{Name: c.Driver.Name()},
		sent: map[string]sent{},
	}
}

// NoteChange makes the registrar compare soon.
func (g *Registrar) NoteChange() {
	if g != nil {
		node.Nudge(g.wake)
	}
}

// AddFacts adds the state of the system to the facts of the node.
func (g *Registrar) AddFacts(_ context.Context, f *cluster.Facts) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	f.Discovery = g.fact
}

// Run keeps the registrations until ctx ends. The attempts of an earlier run of the agent must be known.
func (g *Registrar) Run(ctx context.Context) {
	backoff := g.Node.NewBackoff(minBackoff, maxBackoff)
	wait := min(compareInterval, g.Driver.ReportInterval()/2)
	for {
		err := g.compare(ctx)
		if err == nil {
			err = g.probe(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		g.noteResult(err)
		next := wait
		if err != nil {
			next = backoff.Next()
		} else {
			backoff.Reset()
		}
		if _, err := pause.Until(ctx, g.wake, next); err != nil {
			return
		}
	}
}

// probe learns the version of the system, once after each problem.
func (g *Registrar) probe(ctx context.Context) error {
	if g.probed {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	version, err := g.Driver.Probe(bounded)
	if g.probed = err == nil; g.probed {
		g.version = version
	}
	return err
}

// noteResult records why the last comparison failed, or that it did not. The text of a problem stays for
// minProblemAge, because texts of equal causes may differ.
func (g *Registrar) noteResult(err error) {
	now := cluster.DiscoveryFact{Name: g.Driver.Name(), Version: g.version}
	if err != nil {
		now.Problem, g.probed = plain.Text(err), false
		if advice, ok := errors.AsType[*hinted.Error](err); ok {
			now.Problem += ". " + advice.Hint
		}
	}
	g.mu.Lock()
	before, at := g.fact, g.Node.Boot()
	if before.Problem != "" && now.Problem != "" && at-g.since < minProblemAge {
		now.Problem = before.Problem
	}
	if now != before {
		g.fact, g.since = now, at
	}
	g.mu.Unlock()
	switch {
	case err != nil && before.Problem == "":
		g.Node.Logger.Warn("tasks cannot be registered", "system", now.Name, "error", now.Problem)
	case err == nil && before.Problem != "":
		g.Node.Logger.Info("tasks can be registered again", "system", now.Name)
	}
	if now != before {
		g.Changed()
	}
}

// compare makes the difference between the registrations that are held and those that are wanted. It returns the first
// errors, at most a few.
func (g *Registrar) compare(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, callTimeout)
	list, err := g.Driver.List(bounded)
	cancel()
	if err != nil {
		return err
	}
	held := make(map[string]string, len(list))
	for _, h := range list {
		held[h.ID] = h.Digest
	}
	facts := g.Facts()
	var work []func() error
	wanted, known := map[string]bool{}, map[string]bool{}
	for _, s := range g.Attempts.All() {
		known[s.UUID] = true
		for i, e := range Wanted(&s, &facts, g.Node.Name, g.Owner) {
			wanted[e.ID] = true
			digest, ok := held[e.ID]
			if register := !ok || digest != e.Digest(); register || g.reportDue(&e) {
				work = append(work, func() error { return g.update(ctx, s.UUID, i, register) })
			}
		}
	}
	for _, h := range list {
		if uuid, ok := attemptOf(g.Owner, h.ID); !wanted[h.ID] && (known[uuid] || !ok || !g.Attempts.Orphan(uuid)) {
			work = append(work, func() error { return g.remove(ctx, uuid, h.ID) })
		}
	}
	g.forget(wanted)
	return together(work)
}

// together runs the work, some of it at the same time. It returns the first errors, at most three.
func together(work []func() error) error {
	errs := make([]error, len(work))
	var all sync.WaitGroup
	room := make(chan struct{}, maxCalls)
	for i, do := range work {
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			errs[i] = do()
		})
	}
	all.Wait()
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	return errors.Join(errs[:min(len(errs), 3)]...)
}

// reportDue reports whether the system must hear of a registration: its health has changed, or the last report is old.
// Half of the interval is left for the time until the next comparison.
func (g *Registrar) reportDue(e *Entry) bool {
	if len(e.Checks) > 0 {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	last, ok := g.sent[e.ID]
	return !ok || last.health != e.State.Health || g.Node.Boot()-last.at >= g.Driver.ReportInterval()/2
}

// forget forgets what was sent about registrations that are not wanted any more.
func (g *Registrar) forget(wanted map[string]bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id := range g.sent {
		if !wanted[id] {
			delete(g.sent, id)
		}
	}
}

// entry returns a registration of an attempt as it is wanted now; ok is false if it is not wanted.
func (g *Registrar) entry(uuid string, i int) (e Entry, ok bool) {
	s, ok := g.Attempts.Find(uuid)
	if !ok {
		return e, false
	}
	facts := g.Facts()
	entries := Wanted(&s, &facts, g.Node.Name, g.Owner)
	if i >= len(entries) {
		return e, false
	}
	return entries[i], true
}

// update registers, or reports the state of a registration, unless the attempt has changed meanwhile.
func (g *Registrar) update(ctx context.Context, uuid string, i int, register bool) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	release, err := g.turns.take(ctx, registrationID(g.Owner, uuid, i))
	if err != nil {
		return err
	}
	defer release()
	e, ok := g.entry(uuid, i)
	if !ok {
		return nil // it leaves now
	}
	at := g.Node.Boot()
	if !register {
		err = g.Driver.Report(ctx, e.ID, e.State)
		register = errors.Is(err, discovery.ErrNotRegistered)
	}
	if register {
		err = g.Driver.Register(ctx, &e.Registration, e.State)
	}
	if err != nil {
		return fmt.Errorf("task %s: %w", e.Meta[metaTask], err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sent[e.ID] = sent{e.State.Health, at}
	return nil
}

// remove removes a registration, unless it is wanted meanwhile.
func (g *Registrar) remove(ctx context.Context, uuid, id string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	release, err := g.turns.take(ctx, id)
	if err != nil {
		return err
	}
	defer release()
	if s, ok := g.Attempts.Find(uuid); ok {
		facts := g.Facts()
		if slices.ContainsFunc(Wanted(&s, &facts, g.Node.Name, g.Owner), func(e Entry) bool { return e.ID == id }) {
			return nil
		}
	}
	return g.Driver.Deregister(ctx, id)
}

// Leave removes the registrations of an attempt that is about to end, and returns when they are gone, after
// LeaveTimeout at most. Later comparisons try again. The view of the attempt must already show that it ends.
func (g *Registrar) Leave(ctx context.Context, id attempt.ID, registrations int) {
	if g == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, LeaveTimeout)
	defer cancel()
	errs := make([]error, registrations)
	var all sync.WaitGroup
	for i := range registrations {
		all.Go(func() {
			for {
				errs[i] = g.remove(ctx, id.UUID, registrationID(g.Owner, id.UUID, i))
				if errs[i] == nil || pause.For(ctx, leaveRetryPause) != nil {
					return
				}
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		g.Node.Logger.Warn("a task ends before its registration is removed", "task", id.Task, "attempt", id.Attempt,
			"system", g.Driver.Name(), "error", err)
		g.NoteChange()
	}
}

// turns lets one caller at a time work on each ID.
type turns struct {
	mu   sync.Mutex
	busy map[string]chan struct{} // closed at the end of the turn
}

// take waits for the turn and returns the function that ends it. The error is that of ctx.
func (t *turns) take(ctx context.Context, id string) (release func(), err error) {
	for {
		t.mu.Lock()
		over, taken := t.busy[id]
		if !taken {
			over = make(chan struct{})
			if t.busy == nil {
				t.busy = map[string]chan struct{}{}
			}
			t.busy[id] = over
			t.mu.Unlock()
			return func() {
				t.mu.Lock()
				defer t.mu.Unlock()
				delete(t.busy, id)
				close(over)
			}, nil
		}
		t.mu.Unlock()
		select {
		case <-over:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
