// Package controlplane runs the decisions of a domain: the leader takes a snapshot, lets the pure
// packages under logic decide, and commits what they propose.
//
// A server campaigns; the winner leads until it is replaced or loses its store. Leading is a loop
// of cycles. A cycle looks only at what changed since the last one, and what it commits comes back to it
// through the tables like everybody else's writes; so nothing is lost when a leader dies between
// two lines: the next one decides from the same records.
package controlplane

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/berthd/berth/internal/clause"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/telemetry"
)

// Config is what New needs.
type Config struct {
	Engine store.Engine
	Tables *store.Tables
	// Domain whose nodes and clusters the plane drives.
	Domain string
	// Server is this server's id, the same after a restart.
	Server string
	// Random makes the jitter of campaigns; the plane alone uses it.
	Random *rand.Rand
	// NewID gives an attempt its identity (P3.6), which no other ever had; nil stands for random ones.
	NewID  func() string
	Logger *slog.Logger
	// Now reads the wall clock, Clock the boot-time clock (P9).
	Now   func() time.Time
	Clock func() time.Duration
	// Scheduler tunes placement.
	Scheduler scheduler.Options
	// Measurer asks what is outside of Berth; where it is nil, no gate passes and no query has an answer.
	Measurer Measurer
	// Metrics is told what the plane does; it may be nil.
	Metrics Metrics
	// Tracer makes spans of decisions; nil makes none.
	Tracer *telemetry.Tracer
	// ProjectAfter is how long a plan record speaks for its attempts before they get records of their own; 0 stands for
	// ProjectAfter.
	ProjectAfter time.Duration
	// Without switches clauses off, in tests only.
	Without clause.Set
}

// ProjectAfter is how long a plan record speaks for its attempts, unless something waits for it to go: those that end
// before have no records of their own that ask for them.
const ProjectAfter = 30 * time.Second

// Metrics counts what a leader does. The calls must return at once.
type Metrics interface {
	// Cycled tells how long a cycle took and how many tasks it placed and left waiting.
	Cycled(took time.Duration, placed, waiting int)
}

// Plane is one server's part in deciding for a domain.
type Plane struct {
	config  Config
	reasons reasons
	grounds grounds
	gates   atomic.Pointer[gates] // of the present reign, nil where this server does not lead
	worth   atomic.Pointer[scheduler.Worth]
	since   atomic.Pointer[time.Time] // of the present term, nil where this server does not lead
}

// New returns a plane; Run campaigns and leads.
func New(c Config) *Plane {
	c.ProjectAfter = cmp.Or(c.ProjectAfter, ProjectAfter)
	if c.NewID == nil {
		c.NewID = uuid.NewString
	}
	return &Plane{config: c}
}

// Waiting returns why a task waits, as the leader on this server last decided.
func (p *Plane) Waiting(task cluster.TaskID) (cluster.Waiting, bool) { return p.reasons.of(task) }

// Reasons returns why all tasks wait that do, as the leader on this server last decided, in groups of equal reasons,
// and the version of that; for servers that do not lead. Where the version is the one given, it returns no groups. What
// it returns is shared: nobody may change it. It may be called at any time from any goroutine.
func (p *Plane) Reasons(after uint64) (version uint64, groups []cluster.WaitingGroup) {
	return p.reasons.all(after)
}

// Grounds returns why an attempt of a task was placed where it was, if this server decided that while it led, and it is
// not too long ago. It may be called at any time from any goroutine; nobody may change what it returns.
func (p *Plane) Grounds(task cluster.TaskID, attempt int) (cluster.Grounds, bool) {
	return p.grounds.of(task, attempt)
}

// Gates returns what the leader on this server has seen of the gates of a service's rollout, in the order of its spec;
// nil where it does not lead, or looks at none. It may be called at any time from any goroutine.
func (p *Plane) Gates(service cluster.OwnerRef) []cluster.GateResult {
	if g := p.gates.Load(); g != nil {
		return g.seen(service)
	}
	return nil
}

// Since returns since when the leader on this server counts deadlines: since it began to lead, or since its wall clock
// was set. It is zero where this server does not lead. It may be called at any time from any goroutine.
func (p *Plane) Since() time.Time {
	if at := p.since.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

// Run campaigns, leads, and campaigns again, until the context ends.
func (p *Plane) Run(ctx context.Context) error {
	candidate := store.NewCandidate(store.CandidateConfig{
		Engine: p.config.Engine,
		Prefix: p.config.Tables.Prefix(),
		Domain: p.config.Domain,
		Server: p.config.Server,
		Random: p.config.Random, Without: p.config.Without,
	})
	for {
		s := p.standBy(ctx)
		leadership, err := candidate.Campaign(ctx)
		l := s.end()
		if err != nil {
			l.follow.Close()
			return err
		}
		err = p.lead(leadership, l)
		l.follow.Close()
		p.reasons.set(nil)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		p.config.Logger.Warn("leadership ended", "domain", p.config.Domain, "epoch", leadership.Leader.Epoch, "error",
			err)
		p.config.yield(ctx, err)
	}
}

// lead runs the leader's loops until the leadership ends.
func (p *Plane) lead(leadership *store.Leadership, l *loop) error {
	defer leadership.Resign()
	ctx := leadership.Context()
	// P1.5: nothing is committed until the tables hold the epoch record, and so everything before it.
	if !p.config.Without.Off(clause.EpochSeen) {
		snap, err := p.config.await(ctx, leadership.Record.Modified)
		if err != nil {
			return err
		}
		leader, ok := snap.Leader(p.config.Domain)
		if !ok || leader.Modified != leadership.Record.Modified {
			return store.ErrFenced
		}
	}
	fence := leadership.Fence()
	p.config.Logger.Info("leading", "domain", p.config.Domain, "epoch", fence.Epoch)
	writer := store.NewWriter(p.config.Engine, p.config.Tables.Prefix(), fence, nil)
	writer.Without = p.config.Without

	group, ctx := errgroup.WithContext(ctx)
	watched := sentry{config: p.config, fence: fence, shared: new(alarms)}
	l.reign(writer, watched)
	p.gates.Store(l.gates)
	defer p.gates.Store(nil)
	defer p.worth.Store(nil)
	defer p.since.Store(nil)
	group.Go(func() error { return l.run(ctx) })
	group.Go(func() error { return newProjector(p.config, writer, watched).run(ctx) })
	if err := group.Wait(); leadership.Err() == nil {
		return err
	}
	return leadership.Err()
}
