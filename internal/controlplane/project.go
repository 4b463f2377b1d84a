package controlplane

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

const (
	// projectBatch is how many attempts are projected in one commit.
	projectBatch = 2048
	// projectAfter is for how long an attempt is left to its agent, whose first report projects it for nothing.
	projectAfter = 10 * time.Second
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
	config Config
	writer *store.Writer
	sentry sentry
	next   time.Duration // until a plan record has to be projected; 0 for none
}

func newProjector(c Config, w *store.Writer, s sentry) *projector {
	return &projector{config: c, writer: w, sentry: s}
}

// run projects whenever plans, attempts or events changed, until the context ends.
func (p *projector) run(ctx context.Context) error {
	follow := p.config.Tables.Follow()
	defer follow.Close()
	due := time.NewTimer(projectAfter)
	defer due.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-follow.Wake():
		case <-due.C:
		}
		if p.sentry.look(p.config.Tables.Snapshot(), follow.Take(), p.config.Now()) {
			continue
		}
		for again := true; again; {
			var err error
			again, err = p.step(ctx)
			if err == nil {
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
	snap := p.config.Tables.Snapshot()
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

// units is what is to be written from a snapshot: projections first, then trimming. A young plan record is left to the agents, and
// trimmed once they have reported of all its attempts.
func (p *projector) units(snap *store.Snapshot) ([]store.Unit, error) {
	prefix, now := p.config.Tables.Prefix(), p.config.Now()
	p.next = 0
	var units []store.Unit
	for e := range snap.Plans() {
		before := len(units)
		left := projectAfter - now.Sub(e.Value.At)
		if young := left > 0 && left <= projectAfter; !young {
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
		u, ok, err := store.TrimUnit(prefix, snap, e)
		if err != nil {
			return nil, err
		}
		if ok {
			units = append(units, u)
		}
	}
	return append(units, trimEvents(snap)...), nil
}

// project adds the projections of a plan record's attempts that have none.
func (p *projector) project(snap *store.Snapshot, record *cluster.PlanRecord, units []store.Unit) ([]store.Unit, error) {
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
