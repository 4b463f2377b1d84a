package controlplane

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// gates look at the gates of rollouts that are on. What they saw is soft: it counts from the moment when another task
// of the new version became healthy, and with a new leader anew. Only the loop calls the methods, but for seen; answers
// come from other goroutines.
type gates struct {
	config Config
	asker  *asker

	mu      sync.Mutex
	sets    map[cluster.OwnerRef]*gateSet
	changed map[cluster.OwnerRef]bool // owners with news since the last take
}

// shortestGate bounds how often a gate is looked at.
const shortestGate = 100 * time.Millisecond

// gateSet is the gates of one rollout since its newest task became healthy.
type gateSet struct {
	generation uint64
	since      time.Time // Rollout.Changed
	gates      []cluster.Gate
	looks      []gateLook
}

type gateLook struct {
	result cluster.GateResult
	due    time.Duration // on the boot-time clock (P9.1)
	busy   bool
}

func newGates(c Config, a *asker) *gates {
	return &gates{config: c, asker: a, sets: map[cluster.OwnerRef]*gateSet{}, changed: map[cluster.OwnerRef]bool{}}
}

// of returns what was seen of a service's gates, in the order of the spec, and from then on looks at them as long as
// its rollout is on and something of it was healthy: before that there is nothing to measure.
func (g *gates) of(o cluster.OwnerRef, spec *cluster.Service, r *cluster.Rollout) []cluster.GateResult {
	g.mu.Lock()
	defer g.mu.Unlock()
	if spec == nil || len(spec.Update.Gates) == 0 {
		delete(g.sets, o)
		return nil
	}
	wanted := spec.Update.Gates
	on := r != nil && r.Generation == spec.Generation && !r.State.Ended() && r.Most > 0 && spec.Desired() > 0
	if !on || spec.Rollout.Paused {
		delete(g.sets, o)
		return blank(wanted)
	}
	s := g.sets[o]
	if s == nil || s.generation != spec.Generation || !s.since.Equal(r.Changed) || !slices.Equal(s.gates, wanted) {
		s = &gateSet{
			generation: spec.Generation, since: r.Changed, gates: slices.Clone(wanted),
			looks: make([]gateLook, len(wanted)),
		}
		for i, result := range blank(wanted) {
			s.looks[i] = gateLook{result: result, due: g.config.Clock() + interval(&wanted[i])}
		}
		g.sets[o] = s
	}
	return s.results()
}

// results is what was seen, in the order of the spec.
func (s *gateSet) results() []cluster.GateResult {
	out := make([]cluster.GateResult, len(s.looks))
	for i := range s.looks {
		out[i] = s.looks[i].result
	}
	return out
}

// seen returns what was seen of a service's gates, nil for one whose gates are not looked at. Anybody may call it.
func (g *gates) seen(o cluster.OwnerRef) []cluster.GateResult {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := g.sets[o]; s != nil {
		return s.results()
	}
	return nil
}

// drop ends the looks for a service.
func (g *gates) drop(o cluster.OwnerRef) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.sets, o)
}

// blank are results of gates that were not looked at.
func blank(of []cluster.Gate) []cluster.GateResult {
	out := make([]cluster.GateResult, len(of))
	for i := range of {
		out[i].Name = of[i].Name
	}
	return out
}

func interval(g *cluster.Gate) time.Duration {
	return time.Duration(max(cmp.Or(g.Interval, cluster.DefaultGateInterval), cluster.Duration(shortestGate)))
}

// look asks all gates whose time has come, and returns how soon to look again.
func (g *gates) look(ctx context.Context) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	next, now := lookAnyway, g.config.Clock()
	if g.config.Measurer == nil {
		return next
	}
	type turn struct {
		owner cluster.OwnerRef
		set   *gateSet
		gate  int
	}
	var turns []turn
	for o, s := range g.sets { // order-free: sorted next
		for i := range s.looks {
			switch l := &s.looks[i]; {
			case l.busy:
			case l.due <= now:
				turns = append(turns, turn{o, s, i})
			default:
				next = min(next, l.due-now)
			}
		}
	}
	// Those that have waited longest come first, or few that are looked at often would keep the others out.
	slices.SortFunc(turns, func(a, b turn) int { return cmp.Compare(a.set.looks[a.gate].due, b.set.looks[b.gate].due) })
	for _, t := range turns {
		if !g.asker.ask(ctx, func(ctx context.Context) { g.one(ctx, t.owner, t.set, t.gate) }) {
			break // the next answer wakes the loop
		}
		t.set.looks[t.gate].busy = true
	}
	return next
}

// one looks at a gate and counts what it saw, unless the rollout went on meanwhile.
func (g *gates) one(ctx context.Context, o cluster.OwnerRef, s *gateSet, i int) {
	gate := s.gates[i]
	passed, message, err := g.config.Measurer.Gate(ctx, gate)
	g.mu.Lock()
	defer g.mu.Unlock()
	l := &s.looks[i]
	l.busy, l.due = false, g.config.Clock()+interval(&gate)
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

// take returns the owners that something new was seen for.
func (g *gates) take() map[cluster.OwnerRef]bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.changed) == 0 {
		return nil
	}
	out := g.changed
	g.changed = map[cluster.OwnerRef]bool{}
	return out
}
