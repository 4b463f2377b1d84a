// Package projection writes the per-task records of plan records, some time after them (P3.4). It also tidies the store
// for a leader: plan records that are not needed any more, old events, and versions of definitions that nothing uses.
package projection

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/berthd/berth/internal/clause"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/controlplane/storeloss"
	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/publishing"
	"github.com/berthd/berth/internal/store"
)

const (
	// projectionBatchSize is the number of projected attempts from which a commit takes no further plan records.
	projectionBatchSize = 512
	// projectionInterval is the pause between two steps of the projector.
	projectionInterval = 50 * time.Millisecond
	// retryInterval is the wait after a commit that failed for a reason that may pass.
	retryInterval = 200 * time.Millisecond
)

// Projector writes the per-task records of plan records, in order and some time after them (P3.4). It also deletes plan
// records whose attempts are all projected, and bounds the event log.
type Projector struct {
	config       Config
	domain       uint64 // the number of the domain
	writer       *store.Writer
	fence        *store.Fence
	lossDetector *storeloss.Detector
	definitions  definitionSweep
	follow       *store.Follower
	next         time.Duration // time until the next plan record has to be projected; 0 for none
	plans        map[uint64]*planProgress
	scans        int // number of scans over all plan records
}

// Config is what New needs.
type Config struct {
	Tables *store.Tables
	Domain string
	Logger *slog.Logger
	// Now reads the wall clock, Clock the boot-time clock (P9).
	Now   func() time.Time
	Clock func() time.Duration
	// ProjectAfter is the age at which the attempts of a plan record get records of their own.
	ProjectAfter time.Duration
	// KeepDefinitions is how long versions of task definitions are kept that nothing names; 0 means for ever.
	KeepDefinitions time.Duration
	// Without switches clauses off, in proofs only.
	Without clause.Set
}

// planProgress is what the projector knows of a plan record.
type planProgress struct {
	// owner and task point to the first placement that may be neither projected nor ended.
	owner, task int
	// urgent says that something waits for the plan record to go: the other records of an ended attempt are deleted
	// after it.
	urgent bool
	// changed says that an attempt was projected or ended since the last check.
	changed bool
	// scan is the last scan that found the plan record.
	scan int
}

// New returns the projector of the term with the fence, for the domain with the number. It starts nothing.
func New(c Config, w *store.Writer, fence *store.Fence, d *storeloss.Detector, domain uint64) *Projector {
	// The first topics are for projecting and trimming.
	follow := c.Tables.Follow(store.TopicAttempts, store.TopicOwners, store.TopicPlans, store.TopicEvents,
		store.TopicNodes, store.TopicDomain, store.TopicLeader) // for the loss detector
	return &Projector{
		config: c, domain: domain, writer: w, fence: fence, lossDetector: d, follow: follow,
		plans:       map[uint64]*planProgress{},
		definitions: definitionSweep{keep: c.KeepDefinitions, now: c.Now},
	}
}

// Close ends a projector that does not run.
func (p *Projector) Close() { p.follow.Close() }

// Run projects whenever plans, attempts or events changed, until the context ends.
func (p *Projector) Run(ctx context.Context) error {
	defer p.follow.Close()
	due := time.NewTimer(p.config.ProjectAfter)
	defer due.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.follow.Wake():
		case <-due.C:
		}
		for again := true; again; {
			var err error
			if again, err = p.Step(ctx); err == nil {
				if again && pause.For(ctx, projectionInterval) != nil { // placements and reports come first
					return ctx.Err()
				}
				continue
			}
			if ctx.Err() != nil || errors.Is(err, store.ErrClosed) {
				return err
			}
			p.config.Logger.Error("plan records cannot be projected", "error", err)
			if pause.For(ctx, retryInterval) != nil {
				return ctx.Err()
			}
			again = true
		}
		if p.next > 0 {
			due.Reset(p.next)
		}
		if pause.For(ctx, projectionInterval) != nil { // agents report in bursts: one step covers a burst
			return ctx.Err()
		}
	}
}

// Step does the work of one commit and reports whether more may be waiting.
func (p *Projector) Step(ctx context.Context) (more bool, err error) {
	changes := p.follow.Take()
	snap := p.config.Tables.Snapshot()
	p.learn(snap, changes)
	if p.lossDetector.Check(snap, changes, p.config.Now()) {
		return false, nil
	}
	units, err := p.units(snap)
	if err != nil || len(units) == 0 {
		return false, err
	}
	applied, revision, err := p.writer.Commit(ctx, units)
	if err != nil {
		return false, err
	}
	wait, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	_, err = p.config.Tables.WaitFor(wait, revision)
	// If all units were refused, something else has to change first.
	return slices.Contains(applied, true), err
}

// learn takes note of what changed.
func (p *Projector) learn(snap *store.Snapshot, c store.Changes) {
	if c.Resync {
		clear(p.plans)
		for row := range snap.AllAttempts() {
			p.noteAttempt(row)
		}
	}
	for key := range c.Attempts { // order-free: each is noted by itself
		if row, ok := snap.Attempt(key.Task, key.Number); ok {
			p.noteAttempt(row)
		}
	}
	for o := range c.Owners { // order-free: each by itself
		if !isDeleted(snap, o) {
			continue
		}
		for row := range snap.Attempts(o) {
			if g := p.plans[row.Plan]; g != nil {
				g.urgent = true
			}
		}
	}
}

// isDeleted reports whether an owner is marked as deleted.
func isDeleted(snap *store.Snapshot, o cluster.OwnerRef) bool {
	if o.Kind == cluster.KindJob {
		e, ok := snap.Job(o.Cluster, o.Name)
		return ok && e.Value.Deleted
	}
	e, ok := snap.Service(o.Cluster, o.Name)
	return ok && e.Value.Deleted
}

// noteAttempt takes note of an attempt that a plan record placed.
func (p *Projector) noteAttempt(row *store.AttemptRow) {
	if row.PlanRev == 0 || cluster.DomainOfPlan(row.Plan) != p.domain {
		return
	}
	g := p.plans[row.Plan]
	if g == nil {
		g = new(planProgress)
		p.plans[row.Plan] = g
	}
	if row.Outcome == nil && row.DesiredRev == 0 {
		return
	}
	g.changed = true
	if out := row.Outcome; out != nil && out.State != cluster.StateSucceeded {
		g.urgent = true // the next attempt may go to the same node only once no record is there (P3.6)
	}
}

// units returns what is to be written from a snapshot: projections first, then deletions. A young plan record is not
// projected, unless something waits for it to go.
func (p *Projector) units(snap *store.Snapshot) ([]store.Unit, error) {
	prefix, now, after := p.config.Tables.Prefix(), p.config.Now(), p.projectAfter(snap)
	p.next = 0
	p.scans++
	var units []store.Unit
	for e := range snap.Plans(p.domain) {
		g := p.plans[e.Value.Seq]
		if g == nil { // it holds no attempts, or none of them exist any more
			g = &planProgress{changed: true}
		}
		g.scan = p.scans
		before := len(units)
		left := after - now.Sub(e.Value.At)
		if young := left > 0 && left <= after; !young || g.urgent {
			var err error
			if units, err = p.project(snap, e.Value, units); err != nil {
				return nil, err
			}
		} else if len(e.Value.Owners) > 0 && (p.next == 0 || left < p.next) {
			p.next = left
		}
		if len(units) > before {
			if len(units) >= projectionBatchSize {
				return units, nil
			}
			continue
		}
		if !g.changed || !g.isProjected(snap, e.Value, left > 0) {
			continue
		}
		u, ok, err := store.TrimUnit(prefix, snap, e)
		if err != nil {
			return nil, err
		}
		if ok {
			units = append(units, u)
			continue
		}
		g.owner, g.task = 0, 0 // an attempt has changed back since the check
	}
	maps.DeleteFunc(p.plans, func(_ uint64, g *planProgress) bool { return g.scan < p.scans })
	if p.config.Domain != cluster.DefaultDomain {
		return units, nil
	}
	return p.tidy(snap, units)
}

// projectAfter returns the age at which attempts get records of their own. In a domain with the immediate projection
// only attempts without such records remain here: those placed before the domain asked for it, and those of gangs that
// are too large for the transaction of their plan record. They get their records at once.
func (p *Projector) projectAfter(snap *store.Snapshot) time.Duration {
	if e, ok := snap.Domain(p.config.Domain); ok && e.Value.Projection == cluster.ProjectionImmediate {
		return 0
	}
	return p.config.ProjectAfter
}

// tidy adds what removes old events and unused versions of definitions. They belong to no domain, so the leader of the
// default domain does that.
func (p *Projector) tidy(snap *store.Snapshot, units []store.Unit) ([]store.Unit, error) {
	prefix := p.config.Tables.Prefix()
	trim, ok, err := publishing.TrimUnit(snap, prefix, p.writer.MaxUnitOperations())
	if err != nil {
		return nil, err
	}
	if ok {
		units = append(units, trim)
	}
	unused, err := p.definitions.units(snap, prefix, p.config.Clock())
	if left := p.definitions.due - p.config.Clock(); left > 0 && (p.next == 0 || left < p.next) {
		p.next = left
	}
	return append(units, unused...), err
}

// isProjected reports whether all attempts of a plan record seem to be projected or ended. It continues where it
// stopped the last time. A young record also waits for the statuses of ended attempts to go: until then, it tells the
// agents that these attempts have ended.
func (g *planProgress) isProjected(snap *store.Snapshot, record *cluster.PlanRecord, young bool) bool {
	g.changed = false
	for ; g.owner < len(record.Owners); g.owner, g.task = g.owner+1, 0 {
		o := &record.Owners[g.owner]
		for ; g.task < len(o.Tasks); g.task++ {
			r, ok := snap.Attempt(o.TaskID(o.Tasks[g.task].Index), o.Tasks[g.task].Attempt)
			switch {
			case !ok || r.DesiredRev != 0:
			case r.Outcome == nil:
				return false
			case r.ObservedRev != 0 && young:
				g.changed = true // it is checked again, at the latest once the record is not young any more
				return false
			}
		}
	}
	g.changed = true
	return true
}

// project adds the projections of a plan record's attempts that have none.
func (p *Projector) project(snap *store.Snapshot, record *cluster.PlanRecord, units []store.Unit) ([]store.Unit,
	error,
) {
	for i := range record.Owners {
		o := &record.Owners[i]
		for j := range o.Tasks {
			row, ok := snap.Attempt(o.TaskID(o.Tasks[j].Index), o.Tasks[j].Attempt)
			if !ok || row.DesiredRev != 0 || row.Outcome != nil || row.Desired == nil {
				continue
			}
			u, err := store.ProjectionUnit(p.config.Tables.Prefix(), row, p.config.Without)
			if err != nil {
				return nil, err
			}
			units = append(units, u)
		}
	}
	return units, nil
}
