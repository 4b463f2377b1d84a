// Package controlplane runs the decisions of a domain: the leader takes a snapshot, lets the pure packages under logic
// decide, and commits what they propose.
//
// Servers campaign; the winner leads until another server takes over or its store is lost. A leader runs a loop of
// cycles. A cycle reads only the changes since the last one. The cycle's own commits come back through the tables, like
// all other writes. So nothing is lost when a leader dies between two lines of code: the next leader decides from the
// same records.
//
// cycle.go names the steps of a cycle. A step is a part with its own state, mostly in a package below this one. The
// loop holds the parts and their order; it decides nothing itself.
package controlplane

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/berthd/berth/internal/clause"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/controlplane/explain"
	"github.com/berthd/berth/internal/controlplane/projection"
	"github.com/berthd/berth/internal/controlplane/storeloss"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/logic/scheduler/window"
	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/scheduling"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/election"
	"github.com/berthd/berth/internal/telemetry"
)

// Config is what New needs.
type Config struct {
	Engine store.Engine
	// Foreign, unless nil, is the engine that has to be told to deliver the writes of other programs soon.
	Foreign store.ForeignFollower
	// Member is this server's member of the engine; nil where the engine has none in Berth's servers.
	Member store.EngineMember
	Tables *store.Tables
	// Domain is the one whose nodes and clusters the plane drives.
	Domain string
	// Server is this server's id, the same after a restart.
	Server string
	// Spread, unless nil, says which server should lead, so that the leaders of several domains are spread.
	Spread Spread
	// Random gives the jitter of campaigns. No other goroutine may use it.
	Random *rand.Rand
	// NewID returns the identity of a new attempt, unique forever (P3.6); nil means random UUIDs.
	NewID  func() string
	Logger *slog.Logger
	// Now reads the wall clock, Clock the boot-time clock (P9).
	Now   func() time.Time
	Clock func() time.Duration
	// Scheduler tunes placement.
	Scheduler scheduler.Options
	// Window is the sizes of the windows of a long queue; the zero value means window.DefaultSizes.
	Window window.Sizes
	// Measurer asks systems outside of Berth. If it is nil, no gate passes and no query has an answer.
	Measurer Measurer
	// Metrics receives counts of the plane's work; it may be nil.
	Metrics Metrics
	// Tracer makes spans of decisions; nil makes none.
	Tracer *telemetry.Tracer
	// ProjectAfter is the age at which the attempts of a plan record get records of their own; 0 means the
	// constant ProjectAfter.
	ProjectAfter time.Duration
	// KeepDefinitions is how long the leader keeps versions of task definitions that nothing names; 0 means for ever.
	KeepDefinitions time.Duration
	// Without switches clauses off, in tests only.
	Without clause.Set
}

// Spread says which server should lead a domain. Its methods return immediately and are safe for concurrent use.
type Spread interface {
	// Defer returns how long this server leaves the domain to other servers when it has no leader.
	Defer() time.Duration
	// Yields reports whether another server should lead in place of this one.
	Yields() bool
}

const (
	// spreadInterval is how often a leader asks whether another server should lead.
	spreadInterval = 10 * time.Second
	// yieldTimeout bounds the write that hands a domain over.
	yieldTimeout = time.Second
)

// ProjectAfter is the default age at which the attempts of a plan record get records of their own. It is earlier if
// something waits for the plan record to go. Attempts that end before need no records of their own.
const ProjectAfter = 30 * time.Second

// Metrics counts what a leader does. The calls must return immediately.
type Metrics interface {
	// Cycled receives the duration of a cycle and the numbers of tasks that the cycle placed and left waiting.
	Cycled(took time.Duration, placed, waiting int)
	// Unplaced receives the number of tasks that a placement found no node for. A waiting task counts at each try.
	Unplaced(tasks int)
	// PlacementsRefused receives the number of placements that the store refused, since their owner or task changed.
	PlacementsRefused(placements int)
	// NodesLost receives the number of nodes that the leader declared down, once this is written.
	NodesLost(nodes int)
	// Ended says that the term of the leader ended: this server knows of no waiting tasks any more.
	Ended()
}

// Plane is one server's part in deciding for a domain.
type Plane struct {
	config     Config
	reasons    explain.Reasons
	traces     explain.Traces
	term       atomic.Pointer[loop] // nil on a server that does not lead
	valueModel atomic.Pointer[scheduler.ValueModel]
	since      atomic.Pointer[clockTimes] // of the present term; nil on a server that does not lead
	mailbox    *scheduling.Mailbox
	// parts run in parallel to the loop of a leader. They do not change once Run was called.
	parts []namedPart
}

// projector is the configuration of the projector.
func (c *Config) projector() projection.Config {
	return projection.Config{
		Tables: c.Tables, Domain: c.Domain, Logger: c.Logger, Now: c.Now, Clock: c.Clock, ProjectAfter: c.ProjectAfter,
		KeepDefinitions: c.KeepDefinitions, Without: c.Without,
	}
}

// New returns a plane; Run campaigns and leads.
func New(c Config) *Plane {
	c.ProjectAfter = cmp.Or(c.ProjectAfter, ProjectAfter)
	c.Window = cmp.Or(c.Window, window.DefaultSizes())
	c.Logger = c.Logger.With("domain", c.Domain)
	if c.NewID == nil {
		c.NewID = uuid.NewString
	}
	p := &Plane{config: c, mailbox: scheduling.NewMailbox()}
	p.Register("foreign records", p.followForeign)
	return p
}

// Waiting returns why a task waits, by the last decision of this server as leader.
func (p *Plane) Waiting(task cluster.TaskID) (cluster.Waiting, bool) { return p.reasons.Get(task) }

// Victims returns the attempts that are to end for others, by the last decision of this server as leader, ordered by
// UUID. It may be called at any time from any goroutine; callers must not change the result.
func (p *Plane) Victims() []cluster.Victim { return p.reasons.ListVictims() }

// Reasons returns why tasks wait and which attempts end for others, by the last decision of this server as leader.
// Servers that do not lead request the report. If the version equals after, the report holds the version alone. The
// report is shared: callers must not change it. It may be called at any time from any goroutine.
func (p *Plane) Reasons(after uint64) cluster.WaitingReport { return p.reasons.ReportAfter(after) }

// DecisionTrace returns the decision trace of an attempt. It has one only if this server placed the attempt while it
// led, and not too long ago. It may be called at any time from any goroutine; callers must not change what it returns.
func (p *Plane) DecisionTrace(task cluster.TaskID, attempt int) (cluster.DecisionTrace, bool) {
	return p.traces.Get(task, attempt)
}

// Propose has the leader on this server answer a proposal of a scheduler. It waits for the answer until the context
// ends. The errors are scheduling.ErrNotLeading, ErrBusy, ErrUnknown, and scheduling.FencedError. It may be called at
// any time from any goroutine.
func (p *Plane) Propose(ctx context.Context, r *scheduling.Request) (cluster.ProposalAnswer, error) {
	return p.mailbox.Submit(ctx, r)
}

// SchedulingState returns the state of the domain for schedulers, nil if this server does not lead. It may be called at
// any time from any goroutine.
func (p *Plane) SchedulingState() *scheduling.Feed { return p.mailbox.Feed() }

// Gates returns the leader's results for the gates of a service's rollout, in the order of its spec. It returns nil if
// this server does not lead, or checks no gates for the service. It may be called at any time from any goroutine.
func (p *Plane) Gates(service cluster.OwnerRef) []cluster.GateResult {
	if l := p.term.Load(); l != nil {
		return l.gates.Seen(service)
	}
	return nil
}

// Since returns the time from which the leader on this server counts deadlines: the start of its term, or the last jump
// of its wall clock. clockSet is the time at which the wall clock was set, zero if it was not. Both are zero if this
// server does not lead. It may be called at any time from any goroutine.
func (p *Plane) Since() (since, clockSet time.Time) {
	if at := p.since.Load(); at != nil {
		return at.since, at.set
	}
	return since, clockSet
}

// candidate is the configuration of the candidate.
func (c *Config) candidate() election.CandidateConfig {
	e := election.CandidateConfig{
		Engine: c.Engine, Member: c.Member, Prefix: c.Tables.Prefix(), Domain: c.Domain, Server: c.Server,
		Random: c.Random, Without: c.Without,
	}
	if c.Spread != nil {
		e.Defer = c.Spread.Defer
	}
	if c.Domain != cluster.DefaultDomain {
		e.Idle = func() bool { return isIdle(c.Tables.Snapshot(), c.Domain) }
	}
	return e
}

// isIdle reports whether a domain has neither clusters nor nodes.
func isIdle(snap *store.Snapshot, domain string) bool {
	for e := range snap.Clusters() {
		if e.Value.InDomain() == domain {
			return false
		}
	}
	for e := range snap.Nodes() {
		if e.Value.Domain == domain {
			return false
		}
	}
	return true
}

// errYields ends the leadership of a server in favour of another one.
var errYields = errors.New("another server leads the domain, so that the leaders of domains are spread")

// awaitYield returns errYields once another server should lead, or the context's error.
func (p *Plane) awaitYield(ctx context.Context) error {
	for {
		if err := pause.For(ctx, spreadInterval); err != nil {
			return err
		}
		if p.config.Spread.Yields() {
			return errYields
		}
	}
}

// handOver releases a domain that this server led.
func (p *Plane) handOver(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, yieldTimeout)
	defer cancel()
	err := election.HandOver(ctx, p.config.Engine, p.config.Tables.Prefix(), p.config.Domain, p.config.Server)
	if err != nil {
		p.config.Logger.Info("the leadership could not be handed over; another server takes it after a silence",
			"error", err)
	}
}

// errNoDomain ends the leadership of a domain that was deleted.
var errNoDomain = errors.New("the domain does not exist")

// Run campaigns, leads, and campaigns again, until the context ends.
func (p *Plane) Run(ctx context.Context) error {
	candidate := election.NewCandidate(p.config.candidate())
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
		p.reasons.Set(nil, nil)
		if errors.Is(err, errYields) {
			p.handOver(ctx)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		p.config.Logger.Warn("leadership ended", "epoch", leadership.Leader.Epoch, "error", err)
		p.config.awaitCaughtUp(ctx, err)
	}
}

// lead runs the leader's loops until the leadership ends.
func (p *Plane) lead(leadership *election.Leadership, l *loop) error {
	defer leadership.Resign()
	ctx := leadership.Context()
	// P1.5: nothing is committed until the tables hold the epoch record, and so all records written before it.
	snap := p.config.Tables.Snapshot()
	if !p.config.Without.Off(clause.EpochSeen) {
		var err error
		if snap, err = p.config.awaitRevision(ctx, leadership.Record.Modified); err != nil {
			return err
		}
		leader, ok := snap.Leader(p.config.Domain)
		if !ok || leader.Modified != leadership.Record.Modified {
			return store.ErrFenced
		}
	}
	// The record of the domain cannot change its number while this epoch lasts: a deletion of the domain ends it.
	number, ok := snap.DomainNumber(p.config.Domain)
	if !ok {
		return errNoDomain
	}
	fence := leadership.Fence()
	p.config.Logger.Info("leading", "epoch", fence.Epoch)
	writer := store.NewWriter(p.config.Engine, p.config.Tables.Prefix(), fence, nil)
	writer.Without = p.config.Without

	group, ctx := errgroup.WithContext(ctx)
	detector := storeloss.New(p.config.Domain, number, fence, p.config.Without)
	l.startTerm(writer, fence, detector, number)
	p.term.Store(l)
	defer p.term.Store(nil)
	defer p.valueModel.Store(nil)
	defer p.since.Store(nil)
	group.Go(func() error { return l.run(ctx) })
	if p.config.Spread != nil {
		group.Go(func() error { return p.awaitYield(ctx) })
	}
	group.Go(func() error {
		return projection.New(p.config.projector(), writer, fence, detector.Twin(), number).Run(ctx)
	})
	var parts sync.WaitGroup
	fenced := &TermWriter{p.config.Engine, fence, writer}
	for _, n := range p.parts {
		parts.Go(func() { p.runPart(ctx, n, fenced) })
	}
	err := group.Wait()
	ended := leadership.Err()
	leadership.Resign() // a part that takes long to end must not keep the domain
	parts.Wait()
	if ended == nil {
		return err
	}
	return ended
}
