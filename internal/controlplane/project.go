package controlplane

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/berthd/berth/internal/store"
)

const (
	// projectBatch is how many attempts are projected in one commit.
	projectBatch = 512
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
}

func newProjector(c Config, w *store.Writer, s sentry) *projector {
	return &projector{config: c, writer: w, sentry: s}
}

// run projects whenever plans, attempts or events changed, until the context ends.
func (p *projector) run(ctx context.Context) error {
	follow := p.config.Tables.Follow()
	defer follow.Close()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-follow.Wake():
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

// units is what is to be written from a snapshot: projections first, then trimming.
func (p *projector) units(snap *store.Snapshot) ([]store.Unit, error) {
	prefix := p.config.Tables.Prefix()
	var units []store.Unit
	for e := range snap.Plans() {
		before := len(units)
		for i := range e.Value.Owners {
			o := &e.Value.Owners[i]
			for j := range o.Tasks {
				row, ok := snap.Attempt(o.TaskID(o.Tasks[j].Index), o.Tasks[j].Attempt)
				if !ok || row.DesiredRev != 0 || row.Outcome != nil || row.Desired == nil {
					continue
				}
				u, err := store.ProjectionWithout(prefix, row, p.config.Without)
				if err != nil {
					return nil, err
				}
				units = append(units, u)
			}
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
