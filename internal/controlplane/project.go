package controlplane

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

const (
	// projectBatch is how many attempts are projected in one commit.
	projectBatch = 512
	// projectPause is how far apart the looks are at what may be trimmed.
	projectPause = 50 * time.Millisecond
	// keptEvents is how many batches of events the log holds; trimming begins trimSlack above it.
	keptEvents = 20_000
	trimSlack  = 500
	// trimUnit is how many batches one unit deletes: Consul takes 128 operations.
	trimUnit = 100
)

// projector writes the per-task records of plan records, in order and behind them (P3.4), deletes plan
// records that are projected, and bounds the event log.
type projector struct {
	config      Config
	writer      *store.Writer
	sentry      sentry
	definitions definitionSweep
	follow      *store.Follower
	next        time.Duration // until a plan record has to be projected; 0 for none
	plans       map[uint64]*planned
	looks       int // how often it looked at all plan records
}

// planned is what the projector knows of a plan record.
type planned struct {
	// owner and task are the first placement of which it is not known that it is projected or has ended.
	owner, task int
	// hurry says that something waits for the record to go, as what stands of an ended attempt goes after it.
	hurry bool
	// touched says that an attempt was projected or ended since it was looked at.
	touched bool
	// seen is the look in which the record was last there.
	seen int
}

func newProjector(c Config, w *store.Writer, s sentry) *projector {
	// to project and to trim
	follow := c.Tables.Follow(store.TopicAttempts, store.TopicOwners, store.TopicPlans, store.TopicEvents,
		store.TopicNodes, store.TopicDomain, store.TopicLeader, // and what the sentry looks at
		store.TopicServers) // which seal records
	return &projector{config: c, writer: w, sentry: s, follow: follow, plans: map[uint64]*planned{}}
}

// run projects whenever plans, attempts or events changed, until the context ends.
func (p *projector) run(ctx context.Context) error {
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
			if again, err = p.step(ctx); err == nil {
				if again && !sleep(ctx, projectPause) { // what is being placed or reported comes first
					return ctx.Err()
				}
				continue
			}
			if ctx.Err() != nil || errors.Is(err, store.ErrClosed) {
				return err
			}
			p.config.Logger.Error("projection is held up", "error", err)
			if !sleep(ctx, retryAfter) {
				return ctx.Err()
			}
			again = true
		}
		if p.next > 0 {
			due.Reset(p.next)
		}
		if !sleep(ctx, projectPause) { // agents report in bursts, which are looked at once
			return ctx.Err()
		}
	}
}

// step does one commit's worth of work and reports whether more may be waiting.
func (p *projector) step(ctx context.Context) (more bool, err error) {
	changes := p.follow.Take()
	snap := p.config.Tables.Snapshot()
	p.learn(snap, changes)
	if p.sentry.look(snap, changes, p.config.Now()) {
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
	// Where all was refused, something else has to change first.
	return slices.Contains(applied, true), err
}

// learn takes note of what changed.
func (p *projector) learn(snap *store.Snapshot, c store.Changes) {
	if c.Resync {
		clear(p.plans)
		for row := range snap.AllAttempts() {
			p.note(row)
		}
	}
	for key := range c.Attempts { // order-free: each is noted by itself
		if row, ok := snap.Attempt(key.Task, key.Number); ok {
			p.note(row)
		}
	}
	for o := range c.Owners { // order-free: each by itself
		if !lifespan(snap, o).Deleted {
			continue
		}
		for row := range snap.Attempts(o) {
			if g := p.plans[row.Plan]; g != nil {
				g.hurry = true
			}
		}
	}
}

// note takes note of an attempt of which a plan record tells.
func (p *projector) note(row *store.AttemptRow) {
	if row.PlanRev == 0 {
		return
	}
	g := p.plans[row.Plan]
	if g == nil {
		g = new(planned)
		p.plans[row.Plan] = g
	}
	if row.Outcome == nil && row.DesiredRev == 0 {
		return
	}
	g.touched = true
	if out := row.Outcome; out != nil && out.State != cluster.StateSucceeded {
		g.hurry = true // the next attempt may go to the same node once nothing stands there (P3.6)
	}
}

// units is what is to be written from a snapshot: projections first, then trimming. A young plan record speaks for its
// attempts itself, unless something waits for it to go.
func (p *projector) units(snap *store.Snapshot) ([]store.Unit, error) {
	prefix, now := p.config.Tables.Prefix(), p.config.Now()
	p.next = 0
	p.looks++
	var units []store.Unit
	for e := range snap.Plans() {
		g := p.plans[e.Value.Seq]
		if g == nil { // it holds nothing, or nothing that is left
			g = &planned{touched: true}
		}
		g.seen = p.looks
		before := len(units)
		left := p.config.ProjectAfter - now.Sub(e.Value.At)
		if young := left > 0 && left <= p.config.ProjectAfter; !young || g.hurry {
			var err error
			if units, err = p.project(snap, e.Value, units); err != nil {
				return nil, err
			}
		} else if len(e.Value.Owners) > 0 && (p.next == 0 || left < p.next) {
			p.next = left
		}
		if len(units) > before {
			if len(units) >= projectBatch {
				return units, nil
			}
			continue
		}
		if !g.touched || !g.passed(snap, e.Value) {
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
		g.owner, g.task = 0, 0 // somebody took back what was so
	}
	maps.DeleteFunc(p.plans, func(_ uint64, g *planned) bool { return g.seen < p.looks })
	units = append(units, trimEvents(snap)...)
	seals, err := p.seals(snap)
	if err != nil {
		return nil, err
	}
	units = append(units, seals...)
	unused, err := p.definitions.units(snap, prefix, p.config.Clock())
	if left := p.definitions.due - p.config.Clock(); left > 0 && (p.next == 0 || left < p.next) {
		p.next = left
	}
	return append(units, unused...), err
}

// passed reports whether all of a plan record's attempts seem to be projected or ended. It goes on where it stopped
// before.
func (g *planned) passed(snap *store.Snapshot, record *cluster.PlanRecord) bool {
	g.touched = false
	for ; g.owner < len(record.Owners); g.owner, g.task = g.owner+1, 0 {
		o := &record.Owners[g.owner]
		for ; g.task < len(o.Tasks); g.task++ {
			r, ok := snap.Attempt(o.TaskID(o.Tasks[g.task].Index), o.Tasks[g.task].Attempt)
			if ok && r.Outcome == nil && r.DesiredRev == 0 {
				return false
			}
		}
	}
	g.touched = true
	return true
}

// project adds the projections of a plan record's attempts that have none.
func (p *projector) project(snap *store.Snapshot, record *cluster.PlanRecord, units []store.Unit) ([]store.Unit,
	error,
) {
	for i := range record.Owners {
		o := &record.Owners[i]
		for j := range o.Tasks {
			row, ok := snap.Attempt(o.TaskID(o.Tasks[j].Index), o.Tasks[j].Attempt)
			if !ok || row.DesiredRev != 0 || row.Outcome != nil || row.Desired == nil {
				continue
			}
			u, err := store.ProjectionWithout(p.config.Tables.Prefix(), row, p.config.Without)
			if err != nil {
				return nil, err
			}
			units = append(units, u)
		}
	}
	return units, nil
}

// trimEvents deletes the oldest batches beyond what is kept.
func trimEvents(snap *store.Snapshot) []store.Unit {
	excess := snap.EventCount() - keptEvents
	if excess < trimSlack {
		return nil
	}
	var units []store.Unit
	left := min(excess, trimSlack)
	for e := range snap.EventBatches() {
		if left == 0 {
			break
		}
		left--
		if n := len(units); n == 0 || len(units[n-1].Ops) == trimUnit {
			units = append(units, store.Unit{})
		}
		units[len(units)-1].Delete(e.Key)
	}
	return units
}
