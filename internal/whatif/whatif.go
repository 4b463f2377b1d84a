// Package whatif predicts the effect of changes on a domain. It makes the changes on a branch of the domain's store and
// lets the domain's own code react.
//
// A World consists of a branch (store.Branch), the API server that writes the user's requests, and the control plane
// that decides. Both are the code that serves the real domain, so a task is placed exactly as the real domain would
// place it. The clock and the agents are simulated. The clock advances as soon as nothing changes at its present time.
// The agents' tasks are always healthy, and stopped tasks are gone immediately.
//
// A World writes nothing and queries nothing outside of its branch. Gates of rollouts pass, and counts that follow
// metrics stay. Crons make no jobs, and the tasks of jobs never end.
//
// # Replays
//
// A replay runs the control plane at each arrival and end of a job until nothing changes. It then advances the clock to
// the next arrival or end, by an hour at most. An action that depends on the clock is therefore late by an hour at
// most. The replay deletes ended jobs, because each scan of the nodes reads all remaining history. After each advance
// the watcher scans all nodes, because it takes the advance for its own absence. 2,059 jobs with 25,000 tasks on a
// hundred machines take 17 s of processor time. The 8,152 pods of the openb list on 1,213 machines also take 17 s if
// they arrive one second apart. At their recorded times they take several minutes.
package whatif

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/apiserver"
	"github.com/berthd/berth/internal/apiserver/planning"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/controlplane"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/store"
)

// ErrHeld says that the domain is in recovery: its store went back, and the operator has not decided yet. Nothing is
// placed or stopped there.
var ErrHeld = fmt.Errorf(
	"%w: the store went back to an earlier state, and nothing is placed before the operator has decided how "+
		"to continue (berth operator recover)",
	planning.ErrSimulation)

// ErrTooLong says that a simulation exceeded its limit of work.
var ErrTooLong = fmt.Errorf("the simulation takes too long: %w", context.DeadlineExceeded)

// Times of a World.
const (
	// quietTime is the time without a change after which a World is settled. It is longer than the silence after which
	// the tasks of a service are replaced.
	quietTime = 90 * time.Second
	// maxSettleTime is the longest time that a World waits for the effects of a change.
	maxSettleTime = 40 * time.Minute
	// clockStep is the advance of the clock after a change. maxClockStep is the greatest advance otherwise: after a
	// longer one the control plane would assume that it had been stopped.
	clockStep    = time.Millisecond
	maxClockStep = time.Second
	// maxCycles limits the cycles of a World.
	maxCycles = 200_000
)

// Config holds the parameters of New.
type Config struct {
	// Branch is the store. The World owns it.
	Branch *store.Branch
	// Domain is the domain whose control plane decides; default cluster.DefaultDomain.
	Domain string
	// Scheduler has the options of the domain's servers.
	Scheduler scheduler.Options
	// Worth is the device value model of the domain's leader; nil derives one from the placed tasks.
	DeviceValueModel *scheduler.ValueModel
	// Now is the time at which the World begins.
	Now time.Time
	// Log receives the logs of all parts; nil for none.
	Log *slog.Logger
}

// World is a simulated domain on a branch of the store. One goroutine at a time may use it. Close ends it.
type World struct {
	config Config
	tables *store.Tables
	clock  clock
	began  uint64 // revision of the domain's store
	plane  *controlplane.Rehearsal
	agents *agents
	client *client.Client
	cycles int
}

// clock is the time of a World. Wall and boot-time clock advance together.
type clock struct {
	wall time.Time
	boot time.Duration
}

func (c *clock) advance(d time.Duration) {
	c.wall = c.wall.Add(d)
	c.boot += d
}

// New makes the World. Its control plane becomes the leader, and decides nothing before Settle. An error that wraps
// cluster.Faults says that the domain does not exist.
func New(ctx context.Context, c Config) (*World, error) {
	if c.Domain == "" {
		c.Domain = cluster.DefaultDomain
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	tables := c.Branch.Tables()
	if known := tables.Snapshot().Domains(); !slices.Contains(known, c.Domain) {
		return nil, cluster.Faults{{
			Path:    "domain",
			Message: fmt.Sprintf("there is no domain %s; there are %s", c.Domain, strings.Join(known, ", ")),
		}}
	}
	w := &World{
		config: c, tables: tables, clock: clock{wall: c.Now.UTC(), boot: time.Hour},
		began: tables.Snapshot().Revision(),
	}
	if r, ok := tables.Snapshot().Recovery(c.Domain); ok && r.Value.State == cluster.RecoveryNeeded {
		return nil, ErrHeld
	}
	now, boot := func() time.Time { return w.clock.wall }, func() time.Duration { return w.clock.boot }
	if err := w.suspendCrons(ctx); err != nil {
		return nil, err
	}
	plane, err := controlplane.Rehearse(ctx, controlplane.Config{
		Engine: c.Branch, Tables: tables, Domain: c.Domain, Server: "simulation", Random: rand.New(rand.NewPCG(1, 1)),
		Logger: c.Log, Now: now, Clock: boot, Scheduler: c.Scheduler, Measurer: simulatedMeasurer{},
	})
	if err != nil {
		return nil, err
	}
	w.plane = plane
	plane.SetDeviceValueModel(c.DeviceValueModel)
	server := apiserver.New(apiserver.Config{
		Engine: c.Branch, Tables: tables, Log: c.Log, Now: now, Clock: boot,
		Permissions: cluster.Permissions(), // for clusters without a record in the domain
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

// Snapshot returns the present records of the World.
func (w *World) Snapshot() *store.Snapshot { return w.tables.Snapshot() }

// suspendCrons suspends all crons: their jobs would be placed for reasons unrelated to the changes.
func (w *World) suspendCrons(ctx context.Context) error {
	for e := range w.tables.Snapshot().Crons("") {
		if e.Value.Suspended {
			continue
		}
		next := *e.Value
		next.Suspended = true
		if err := w.writeRecord(ctx, e.Key, e.Modified, &next); err != nil {
			return err
		}
	}
	return nil
}

// writeRecord writes a record over the given revision, 0 for none.
func (w *World) writeRecord(ctx context.Context, key string, over uint64, record any) error {
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

// Settle advances the clock until the World is settled, and returns the simulated time that passed. settled is false if
// records still change after maxSettleTime. An error that wraps ErrTooLong says that the limit of work was exceeded.
func (w *World) Settle(ctx context.Context) (lasted time.Duration, settled bool, err error) {
	from := w.clock.boot
	last := from
	for {
		if err := ctx.Err(); err != nil {
			return 0, false, err
		}
		if w.cycles++; w.cycles > maxCycles {
			return 0, false, fmt.Errorf("%w: over %d cycles", ErrTooLong, maxCycles)
		}
		before := w.tables.Snapshot().Revision()
		next, err := w.plane.Step(ctx)
		if err != nil {
			return 0, false, fmt.Errorf("decide: %w", err)
		}
		if err := w.agents.step(ctx); err != nil {
			return 0, false, fmt.Errorf("the agents: %w", err)
		}
		if w.tables.Snapshot().Revision() != before {
			last = w.clock.boot
			w.clock.advance(clockStep)
			continue
		}
		if w.clock.boot-last >= quietTime && !rolloutInProgress(w.tables.Snapshot(), w.config.Domain) {
			return last - from, true, nil
		}
		if w.clock.boot-last >= maxSettleTime {
			return w.clock.boot - from, false, nil
		}
		w.clock.advance(min(max(next, clockStep), maxClockStep))
	}
}

// rolloutInProgress reports whether a rollout in the domain will complete or fail without a person.
func rolloutInProgress(snap *store.Snapshot, domain string) bool {
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

// simulatedMeasurer answers the control plane's measurements: every gate passes, and no query has an answer.
type simulatedMeasurer struct{}

// Query is part of controlplane.Measurer.
func (simulatedMeasurer) Query(context.Context, string, string) (float64, error) {
	return 0, errors.New("a simulation asks nobody")
}

// Gate is part of controlplane.Measurer.
func (simulatedMeasurer) Gate(context.Context, cluster.Gate) (passed bool, message string, err error) {
	return true, "taken as passed", nil
}

// Run makes the changes of a request in order, and returns the effect on the domain. An error that is or wraps
// cluster.Faults describes faulty changes, with the path of each.
func Run(ctx context.Context, c Config, ask api.SimulateRequest) (*api.Simulation, error) {
	if faults := Check(ask); len(faults) > 0 {
		return nil, faults
	}
	sim, _, err := simulate(ctx, c, ask, nil)
	return sim, err
}

// Traced is the effect of changes and of a trace that is replayed after them.
type Traced struct {
	*api.Simulation
	Replayed *Replayed `json:"replayed"`
}

// RunTrace makes the changes of a request, if any, then replays a trace, and returns the effect on the domain. Errors
// are as with Run. The run time grows with the trace: the caller ends it by the context.
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

// simulate makes changes and replays a trace, unless it is nil.
func simulate(ctx context.Context, c Config, ask api.SimulateRequest, trace *Replay) (*api.Simulation, *Replayed,
	error,
) {
	c.Domain = cmp.Or(ask.Domain, c.Domain)
	w, err := New(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	defer w.Close()
	r := &report{world: w, sim: &api.Simulation{Revision: w.began, At: w.clock.wall, Settled: true}}
	if _, _, err := w.Settle(ctx); err != nil {
		return nil, nil, err
	}
	r.recordBefore()
	for i := range ask.Changes {
		if err := w.Apply(ctx, &ask.Changes[i]); err != nil {
			return nil, nil, locateFaults(err, i)
		}
		lasted, settled, err := w.Settle(ctx)
		if err != nil {
			return nil, nil, err
		}
		r.addStep(Describe(&ask.Changes[i]), lasted, settled)
	}
	var replayed *Replayed
	if trace != nil {
		if replayed, err = r.replay(ctx, trace); err != nil {
			return nil, nil, err
		}
	}
	sim, err := r.finish(ctx)
	return sim, replayed, err
}

// replay replays a trace, after its machines have joined if Join is set.
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
		r.addStep(fmt.Sprintf("add the %d nodes of the trace", len(trace.Trace.Nodes)), lasted, settled)
	}
	replayed, err := w.replay(ctx, trace)
	if err != nil {
		return nil, err
	}
	r.addStep("replay "+trace.Name, time.Duration(replayed.Lasted), true)
	last := &r.sim.Steps[len(r.sim.Steps)-1] // addStep does not record tasks that began and ended in between
	last.Placed, last.Ended = replayed.placed, replayed.ended
	return replayed, nil
}
