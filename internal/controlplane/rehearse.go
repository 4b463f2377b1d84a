package controlplane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/store"
)

// Rehearsal is the control plane of a store that nobody else leads and whose time is the caller's: each cycle of the
// leader's loop, and of the projection behind it, is one call. It is for finding out what the control plane would do.
// One goroutine at a time may use it.
type Rehearsal struct {
	plane     *Plane
	loop      *loop
	projector *projector
}

// rehearsals is how often a cycle that asks to be begun again at once is begun again before it counts as one that never
// ends.
const rehearsals = 100

// Rehearse takes over the domain by the next epoch, whoever holds it, and returns its control plane. Commits to the
// engine must show in its tables when they return, as those of a store.Branch do. Nothing is decided before the first
// Step.
func Rehearse(ctx context.Context, c Config) (*Rehearsal, error) {
	prefix := c.Tables.Prefix()
	key := prefix.Leader(c.Domain)
	before, _ := c.Tables.Snapshot().Leader(c.Domain)
	leader := cluster.Leader{Epoch: 1, Incarnation: 1, Holder: c.Server, Since: c.Now().UTC()}
	if before.Value != nil {
		leader.Epoch, leader.Incarnation = before.Value.Epoch+1, before.Value.Incarnation
	}
	value, err := store.Encode(leader)
	if err != nil {
		return nil, err
	}
	result, err := c.Engine.Commit(ctx, []store.Group{{
		Compares: []store.Compare{{Key: key, Modified: before.Modified}}, Ops: []store.Op{{Key: key, Value: value}},
	}})
	switch {
	case err != nil:
		return nil, fmt.Errorf("take over the domain: %w", err)
	case !result.Applied[0]:
		return nil, store.ErrFenced
	}
	fence := &store.Fence{Key: key, Modified: result.Revision, Incarnation: leader.Incarnation, Epoch: leader.Epoch}
	writer := store.NewWriter(c.Engine, prefix, fence, nil)
	writer.Clock(c.Now)
	watched := sentry{config: c, fence: fence, shared: new(alarms)}
	p := New(c)
	l := newLoop(p)
	l.reign(writer, watched)
	l.alone, l.watch.options.Gap = true, 1<<62 // time leaps there
	p.gates.Store(l.gates)
	return &Rehearsal{plane: p, loop: l, projector: newProjector(p.config, writer, watched)}, nil
}

// Price has devices be worth what they are to a leader, as Plane.Worth tells; nil has it learn from what stands, as a
// new leader does. It is called before the first Step.
func (r *Rehearsal) Price(w *scheduler.Worth) { r.loop.pricing.given = w }

// Step runs one cycle and all projection that follows from it, waits for what the cycle asked of the outside, and
// returns how long after now nothing needs to be looked at if nothing changes.
func (r *Rehearsal) Step(ctx context.Context) (next time.Duration, err error) {
	for range rehearsals {
		// nothing is lost on the way here, for which a leader looks at all now and then
		r.loop.relearning.at = r.loop.config.Now()
		next, err = r.loop.cycle(ctx)
		if !errors.Is(err, errSettled) {
			break
		}
	}
	if err != nil {
		return 0, err
	}
	for more := true; more; {
		if more, err = r.projector.step(ctx); err != nil {
			return 0, err
		}
	}
	r.loop.asker.running.Wait()
	select {
	case <-r.loop.asker.wake: // an answer came: it counts at once
		return 0, nil
	default:
	}
	return next, nil
}

// Waiting returns why all tasks wait that do, as the last Step decided, in groups of equal reasons. What it returns is
// shared: nobody may change it.
func (r *Rehearsal) Waiting() []cluster.WaitingGroup {
	_, groups := r.plane.Reasons(0)
	return groups
}

// Close ends the rehearsal.
func (r *Rehearsal) Close() {
	r.loop.asker.running.Wait()
	r.loop.follow.Close()
	r.projector.follow.Close()
}
