// Package gates checks the gates of rollouts in parallel to the leader's cycle.
package gates

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// Gates checks the gates of rollouts in progress. Its results are soft: they begin again with a new leader, and
// whenever another task of the new version becomes healthy. Only the loop calls the methods, except seen. Answers come
// from other goroutines.
type Gates struct {
	config Config

	mu      sync.Mutex
	sets    map[cluster.OwnerRef]*gateSet
	changed map[cluster.OwnerRef]bool // owners with new results since the last TakeChanged
}

// Config is what New needs.
type Config struct {
	// Check checks a gate once. The message describes the result. An error means that there is none. It is called on
	// goroutines of the questions; nil means no answers.
	Check func(ctx context.Context, g cluster.Gate) (passed bool, message string, err error)
	// Ask runs a question on a goroutine of its own. It returns false if too many are running.
	Ask func(ctx context.Context, question func(context.Context)) bool
	// Now reads the wall clock, Clock the boot-time clock (P9).
	Now   func() time.Time
	Clock func() time.Duration
}

// minGateInterval is the least time between two checks of a gate.
const minGateInterval = 100 * time.Millisecond

// gateSet is the gates of one rollout since its newest task became healthy.
type gateSet struct {
	generation uint64
	since      time.Time // Rollout.Changed
	gates      []cluster.Gate
	states     []gateState
}

type gateState struct {
	result cluster.GateResult
	due    time.Duration // on the boot-time clock (P9.1)
	busy   bool
}

// New returns gates without a check.
func New(c Config) *Gates {
	return &Gates{config: c, sets: map[cluster.OwnerRef]*gateSet{}, changed: map[cluster.OwnerRef]bool{}}
}

// Follow begins, continues or ends the checks of a service's gates, by its records. The gates are checked while the
// rollout continues and a task of it has been healthy: before that there is nothing to measure.
func (g *Gates) Follow(snap *store.Snapshot, o cluster.OwnerRef) {
	if o.Kind != cluster.KindService {
		return
	}
	var spec *cluster.Service
	var rollout *cluster.Rollout
	if e, ok := snap.Service(o.Cluster, o.Name); ok && len(e.Value.Update.Gates) > 0 {
		scale, _ := snap.Scale(o.Cluster, o.Name)
		found, _ := snap.Rollout(o.Cluster, o.Name)
		spec, rollout = e.Value.At(scale.Value), found.Value
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !hasActiveGates(spec, rollout) {
		delete(g.sets, o)
		return
	}
	if g.sets[o].covers(spec, rollout) {
		return
	}
	wanted := spec.Update.Gates
	s := &gateSet{
		generation: spec.Generation, since: rollout.Changed, gates: slices.Clone(wanted),
		states: make([]gateState, len(wanted)),
	}
	for i, result := range emptyResults(wanted) {
		s.states[i] = gateState{result: result, due: g.config.Clock() + gateInterval(&wanted[i])}
	}
	g.sets[o] = s
}

// Results returns the results of a service's gates, in the order of the spec. Gates that are not checked have empty
// results. It changes nothing.
func (g *Gates) Results(o cluster.OwnerRef, spec *cluster.Service, r *cluster.Rollout) []cluster.GateResult {
	if spec == nil || len(spec.Update.Gates) == 0 {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := g.sets[o]; hasActiveGates(spec, r) && s.covers(spec, r) {
		return s.results()
	}
	return emptyResults(spec.Update.Gates)
}

// hasActiveGates reports whether the gates of a service are to be checked.
func hasActiveGates(spec *cluster.Service, r *cluster.Rollout) bool {
	return spec != nil && len(spec.Update.Gates) > 0 && !spec.Rollout.Paused && spec.Desired() > 0 &&
		r != nil && r.Generation == spec.Generation && !r.State.Ended() && r.Most > 0
}

// covers reports whether the set is that of the spec's gates since the rollout's newest task became healthy.
func (s *gateSet) covers(spec *cluster.Service, r *cluster.Rollout) bool {
	return s != nil && s.generation == spec.Generation && s.since.Equal(r.Changed) &&
		slices.Equal(s.gates, spec.Update.Gates)
}

// results returns the results in the order of the spec.
func (s *gateSet) results() []cluster.GateResult {
	out := make([]cluster.GateResult, len(s.states))
	for i := range s.states {
		out[i] = s.states[i].result
	}
	return out
}

// Seen returns the results of a service's gates; nil if they are not checked. Any goroutine may call it.
func (g *Gates) Seen(o cluster.OwnerRef) []cluster.GateResult {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := g.sets[o]; s != nil {
		return s.results()
	}
	return nil
}

// Drop ends the checks for a service.
func (g *Gates) Drop(o cluster.OwnerRef) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.sets, o)
}

// emptyResults returns results of gates that were not checked.
func emptyResults(of []cluster.Gate) []cluster.GateResult {
	out := make([]cluster.GateResult, len(of))
	for i := range of {
		out[i].Name = of[i].Name
	}
	return out
}

func gateInterval(g *cluster.Gate) time.Duration {
	return time.Duration(max(cmp.Or(g.Interval, cluster.DefaultGateInterval), cluster.Duration(minGateInterval)))
}

// never is the wait for what time alone does not bring.
const never = time.Duration(math.MaxInt64)

// AskDue asks all gates that are due, and returns the wait until the next one is due.
func (g *Gates) AskDue(ctx context.Context) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	next, now := never, g.config.Clock()
	if g.config.Check == nil {
		return next
	}
	type dueGate struct {
		owner cluster.OwnerRef
		set   *gateSet
		gate  int
	}
	var due []dueGate
	for o, s := range g.sets { // order-free: sorted next
		for i := range s.states {
			switch l := &s.states[i]; {
			case l.busy:
			case l.due <= now:
				due = append(due, dueGate{o, s, i})
			default:
				next = min(next, l.due-now)
			}
		}
	}
	// Gates that have waited longest come first, or a few with short intervals would starve the others.
	slices.SortFunc(due, func(a, b dueGate) int {
		return cmp.Compare(a.set.states[a.gate].due, b.set.states[b.gate].due)
	})
	for _, t := range due {
		if !g.config.Ask(ctx, func(ctx context.Context) { g.ask(ctx, t.owner, t.set, t.gate) }) {
			break // the next answer wakes the loop
		}
		t.set.states[t.gate].busy = true
	}
	return next
}

// ask checks a gate and counts the result, unless the rollout has moved on.
func (g *Gates) ask(ctx context.Context, o cluster.OwnerRef, s *gateSet, i int) {
	gate := s.gates[i]
	passed, message, err := g.config.Check(ctx, gate)
	g.mu.Lock()
	defer g.mu.Unlock()
	l := &s.states[i]
	l.busy, l.due = false, g.config.Clock()+gateInterval(&gate)
	if g.sets[o] != s {
		return
	}
	r := &l.result
	r.At, r.Message = g.config.Now().UTC(), message
	switch {
	case err != nil:
		r.Passes, r.Failures, r.Message = 0, r.Failures+1, err.Error()
	case passed:
		r.Passes, r.Failures = r.Passes+1, 0
	default:
		r.Passes, r.Failures = 0, r.Failures+1
	}
	g.changed[o] = true
}

// TakeChanged returns the owners with new results since the last call.
func (g *Gates) TakeChanged() map[cluster.OwnerRef]bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.changed) == 0 {
		return nil
	}
	out := g.changed
	g.changed = map[cluster.OwnerRef]bool{}
	return out
}
