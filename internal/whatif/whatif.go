// Package whatif works out what would become of a domain: it makes changes to a branch of its store and lets the
// domain's own code deal with them.
//
// A World is a branch (store.Branch), the API server that writes what users ask for, and the control plane that decides
// for it, each the very same that serve the domain; so there is nothing here that places a task, and nothing that could
// place it otherwise than it will be placed. What is pretended is the rest: the clock, which goes on as soon as nothing
// is left to be done at its time, and the agents, whose tasks are well and whose stopped ones are gone at once.
//
// Nothing that happens in a World is written anywhere, and nothing outside is asked: gates of rollouts are taken as
// passed, counts that follow metrics stay as they are, crons make no jobs, and the tasks of jobs run for ever.
//
// # Replays
//
// A replay runs the control plane at each arrival and end until nothing changes, then jumps to the next, by an hour at
// most, so effects of the clock are late by that much at most. Jobs that ended are deleted, because each scan of the
// nodes goes through all remaining history. After each jump the watcher scans all nodes, because it takes the jump for
// its own absence. 2,059 jobs with 25,000 tasks on a hundred machines take 17 s of processor time. The 8,152 pods of
// the openb list on 1,213 machines take the same one after the other, and several minutes at their recorded times.
package whatif

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/apiserver"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/controlplane"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/store"
)

// ErrHeld says that the domain places and stops nothing, as its store went back and the operator has not said how to go
// on.
var ErrHeld = fmt.Errorf(
	"%w: the store went back to an earlier state, and nothing is placed before the operator has said how to "+
		"go on (berth operator recover)",
	apiserver.ErrSimulation)

// ErrTooLong says that a simulation took more work than it may.
var ErrTooLong = fmt.Errorf("the simulation takes too long: %w", context.DeadlineExceeded)

// Times of a World.
const (
	// quiet is for how long nothing must happen until all counts as at rest. It is above the silence after which the
	// tasks of a service are replaced.
	quiet = 90 * time.Second
	// horizon is how long a World waits at most for what a change set off.
	horizon = 40 * time.Minute
	// step is by how much the clock goes on where something has just happened, and pace the most by which it does
	// otherwise: above it, the control plane would think that it was away.
	step = time.Millisecond
	pace = time.Second
	// maxSteps bounds the cycles of a World.
	maxSteps = 200_000
)

// Config is what New needs.
type Config struct {
	// Branch is the store. The World owns it.
	Branch *store.Branch
	// Domain is the one whose control plane is asked; default cluster.DefaultDomain.
	Domain string
	// Scheduler has the options of the domain's servers.
	Scheduler scheduler.Options
	// Worth is what devices are worth to the domain's leader, nil where that is not known: then it is learnt from what
	// stands.
	Worth *scheduler.Worth
	// Now is the time at which the World begins.
	Now time.Time
	// Log takes what the parts log; nil for nothing.
	Log *slog.Logger
}

// World is a domain that nobody but its owner changes. One goroutine at a time may use it; Close ends it.
type World struct {
	config Config
	tables *store.Tables
	clock  clock
	began  uint64 // the revision of the domain's store
	plane  *controlplane.Rehearsal
	agents *agents
	client *client.Client
	steps  int
}

// clock is the time of a World: wall and boot go on together.
type clock struct {
	wall time.Time
	boot time.Duration
}

func (c *clock) pass(d time.Duration) {
	c.wall = c.wall.Add(d)
	c.boot += d
}

// New makes the World and has its control plane take over. Nothing is decided before Settle.
func New(ctx context.Context, c Config) (*World, error) {
	if c.Domain == "" {
		c.Domain = cluster.DefaultDomain
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	tables := c.Branch.Tables()
	w := &World{
		config: c, tables: tables, clock: clock{wall: c.Now.UTC(), boot: time.Hour},
		began: tables.Snapshot().Revision(),
	}
	if r, ok := tables.Snapshot().Recovery(c.Domain); ok && r.Value.State == cluster.RecoveryNeeded {
		return nil, ErrHeld
	}
	now, boot := func() time.Time { return w.clock.wall }, func() time.Duration { return w.clock.boot }
	if err := w.still(ctx); err != nil {
		return nil, err
	}
	plane, err := controlplane.Rehearse(ctx, controlplane.Config{
		Engine: c.Branch, Tables: tables, Domain: c.Domain, Server: "simulation", Random: rand.New(rand.NewPCG(1, 1)),
		Logger: c.Log, Now: now, Clock: boot, Scheduler: c.Scheduler, Measurer: calm{},
	})
	if err != nil {
		return nil, err
	}
	w.plane = plane
	plane.Price(c.Worth)
	server := apiserver.New(apiserver.Config{
		Engine: c.Branch, Tables: tables, Domain: c.Domain, Log: c.Log, Now: now, Clock: boot,
		Permissions: cluster.Permissions(), // of clusters that are not the domain's; those have their own
	})
	if w.client, err = client.New(client.Config{Addr: "unix:///simulation", Transport: direct{server}}); err != nil {
		return nil, err
	}
	w.agents = newAgents(w)
	return w, nil
}

// Close ends the World.
func (w *World) Close() {
	w.agents.follow.Close()
	w.plane.Close()
}

// Now returns the time in the World.
func (w *World) Now() time.Time { return w.clock.wall }

// Snapshot returns the World's records as they are now.
func (w *World) Snapshot() *store.Snapshot { return w.tables.Snapshot() }

// still has crons make no jobs: those would be placed for reasons that are not the changes'.
func (w *World) still(ctx context.Context) error {
	for e := range w.tables.Snapshot().Crons("") {
		if e.Value.Suspended {
			continue
		}
		next := *e.Value
		next.Suspended = true
		if err := w.put(ctx, e.Key, e.Modified, &next); err != nil {
			return err
		}
	}
	return nil
}

// put writes a record over the one of a revision, 0 for none.
func (w *World) put(ctx context.Context, key string, over uint64, record any) error {
	value, err := store.Encode(record)
	if err != nil {
		return err
	}
	result, err := w.config.Branch.Commit(ctx, []store.Group{{
		Compares: []store.Compare{{Key: key, Modified: over}}, Ops: []store.Op{{Key: key, Value: value}},
	}})
	if err == nil && !result.Applied[0] {
		err = fmt.Errorf("write %s: it was changed meanwhile", key)
	}
	return err
}

// Settle lets time pass until all is at rest, and returns how much did. It is false where something still goes on after
// the longest time that is waited. An error that wraps ErrTooLong says that it took more work than a World may.
func (w *World) Settle(ctx context.Context) (lasted time.Duration, settled bool, err error) {
	from := w.clock.boot
	last := from
	for {
		if err := ctx.Err(); err != nil {
			return 0, false, err
		}
		if w.steps++; w.steps > maxSteps {
			return 0, false, fmt.Errorf("%w: over %d cycles", ErrTooLong, maxSteps)
		}
		before := w.tables.Snapshot().Revision()
		next, err := w.plane.Step(ctx)
		if err != nil {
			return 0, false, fmt.Errorf("decide: %w", err)
		}
		if err := w.agents.act(ctx); err != nil {
			return 0, false, fmt.Errorf("the agents: %w", err)
		}
		if w.tables.Snapshot().Revision() != before {
			last = w.clock.boot
			w.clock.pass(step)
			continue
		}
		if w.clock.boot-last >= quiet && !rolling(w.tables.Snapshot(), w.config.Domain) {
			return last - from, true, nil
		}
		if w.clock.boot-last >= horizon {
			return w.clock.boot - from, false, nil
		}
		w.clock.pass(min(max(next, step), pace))
	}
}

// rolling reports whether a rollout in the domain is on that goes on, or fails, by itself.
func rolling(snap *store.Snapshot, domain string) bool {
	for e := range snap.Rollouts() {
		if e.Value.State != cluster.RolloutRolling {
			continue
		}
		in, name, _ := cutOwner(e.Key)
		if s, ok := snap.Service(in, name); ok && !s.Value.Rollout.Paused && !s.Value.Deleted && !s.Value.Stopped &&
			domainOf(snap, in) == domain {
			return true
		}
	}
	return false
}

// domainOf returns the domain that the tasks of a cluster are placed in.
func domainOf(snap *store.Snapshot, in string) string {
	c, _ := snap.Cluster(in)
	return c.Value.InDomain()
}

// calm answers what the control plane asks of the outside: every gate passes, and no query has an answer.
type calm struct{}

// Query is part of controlplane.Measurer.
func (calm) Query(context.Context, string, string) (float64, error) {
	return 0, errors.New("a simulation asks nobody")
}

// Gate is part of controlplane.Measurer.
func (calm) Gate(context.Context, cluster.Gate) (passed bool, message string, err error) {
	return true, "taken as passed", nil
}

// Run makes the changes of a request, one after the other, and returns what becomes of the domain. An error that is
// cluster.Faults, or wraps them, says what is wrong with the changes, with the path of each.
func Run(ctx context.Context, c Config, ask api.SimulateRequest) (*api.Simulation, error) {
	if faults := Check(ask); len(faults) > 0 {
		return nil, faults
	}
	sim, _, err := simulate(ctx, c, ask, nil)
	return sim, err
}

// Traced is what becomes of a domain by changes, and by a trace that is replayed after them.
type Traced struct {
	*api.Simulation
	Replayed *Replayed `json:"replayed"`
}

// RunTrace makes the changes of a request, of which there may be none, then replays a trace, and returns what becomes
// of the domain. Errors are as with Run. It takes as long as the trace is large: the caller ends it by the context.
func RunTrace(ctx context.Context, c Config, ask api.SimulateRequest, trace Replay) (*Traced, error) {
	if len(ask.Changes) > 0 {
		if faults := Check(ask); len(faults) > 0 {
			return nil, faults
		}
	}
	sim, replayed, err := simulate(ctx, c, ask, &trace)
	if err != nil {
		return nil, err
	}
	return &Traced{sim, replayed}, nil
}

// simulate makes changes and replays a trace, unless that is nil.
func simulate(ctx context.Context, c Config, ask api.SimulateRequest, trace *Replay) (*api.Simulation, *Replayed,
	error,
) {
	w, err := New(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	defer w.Close()
	r := &report{world: w, sim: &api.Simulation{Revision: w.began, At: w.clock.wall, Settled: true}}
	if _, _, err := w.Settle(ctx); err != nil {
		return nil, nil, err
	}
	r.begin()
	for i := range ask.Changes {
		if err := w.Apply(ctx, &ask.Changes[i]); err != nil {
			return nil, nil, placed(err, i)
		}
		lasted, settled, err := w.Settle(ctx)
		if err != nil {
			return nil, nil, err
		}
		r.change(Describe(&ask.Changes[i]), lasted, settled)
	}
	var replayed *Replayed
	if trace != nil {
		if replayed, err = r.replay(ctx, trace); err != nil {
			return nil, nil, err
		}
	}
	sim, err := r.end(ctx)
	return sim, replayed, err
}

// replay replays a trace, after its machines have joined where they are to.
func (r *report) replay(ctx context.Context, trace *Replay) (*Replayed, error) {
	w := r.world
	if trace.Join {
		if err := w.joinNodes(ctx, trace.Trace.Nodes); err != nil {
			return nil, err
		}
		lasted, settled, err := w.Settle(ctx)
		if err != nil {
			return nil, err
		}
		r.change(fmt.Sprintf("add the %d nodes of the trace", len(trace.Trace.Nodes)), lasted, settled)
	}
	replayed, err := w.replay(ctx, trace)
	if err != nil {
		return nil, err
	}
	r.change("replay "+trace.Name, time.Duration(replayed.Lasted), true)
	last := &r.sim.Steps[len(r.sim.Steps)-1] // of what came and went meanwhile nothing is seen before and after
	last.Placed, last.Ended = replayed.placed, replayed.ended
	return replayed, nil
}
