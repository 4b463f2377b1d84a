package controlplane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/controlplane/projection"
	"github.com/berthd/berth/internal/controlplane/storeloss"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/store"
)

// Rehearsal is the control plane of a store without another leader, whose time the caller sets. Each call of Step is
// one cycle of the leader's loop and of the projection after it. It shows what the control plane would do. Only one
// goroutine at a time may use it.
type Rehearsal struct {
	plane     *Plane
	loop      *loop
	projector *projection.Projector
}

// maxCycleRestarts is how often Step repeats a cycle on its request, before it counts as a cycle that never ends.
const maxCycleRestarts = 100

// Rehearse takes over the domain with the next epoch, from any holder, and returns its control plane. Commits to the
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
	number, ok := c.Tables.Snapshot().DomainNumber(c.Domain)
	if !ok {
		return nil, fmt.Errorf("take over the domain: %w", errNoDomain)
	}
	detector := storeloss.New(c.Domain, number, fence, c.Without)
	p := New(c)
	l := newLoop(p, true)
	l.startTerm(writer, fence, detector, number)
	l.placing.synchronous = true
	l.nodes.IgnoreGaps() // time leaps in a rehearsal
	p.term.Store(l)
	projector := projection.New(p.config.projector(), writer, fence, detector.Twin(), number)
	return &Rehearsal{plane: p, loop: l, projector: projector}, nil
}

// SetDeviceValueModel sets the value model of devices, as Plane.DeviceValueModel returns it; with nil the model is
// learnt from the tasks that hold devices, as by a new leader. It is called before the first Step.
func (r *Rehearsal) SetDeviceValueModel(w *scheduler.ValueModel) { r.loop.waiting.arrivals.fixed = w }

// Step runs one cycle and all projection that follows from it, and waits for the cycle's questions to the outside. It
// returns how long after now the next cycle is due if nothing changes.
func (r *Rehearsal) Step(ctx context.Context) (next time.Duration, err error) {
	for range maxCycleRestarts {
		// No change is missed here, which is why a leader learns everything again now and then.
		r.loop.learner.Postpone(r.loop.config.Now())
		next, err = r.loop.cycle(ctx)
		if !errors.Is(err, errSettled) {
			break
		}
	}
	if err != nil {
		return 0, err
	}
	for more := true; more; {
		if more, err = r.projector.Step(ctx); err != nil {
			return 0, err
		}
	}
	r.loop.asker.running.Wait()
	select {
	case <-r.loop.asker.wake: // an answer came: the next cycle uses it immediately
		return 0, nil
	default:
	}
	return next, nil
}

// Waiting returns why tasks wait, by the last Step, in groups of equal reasons. The groups are shared: callers must not
// change them.
func (r *Rehearsal) Waiting() []cluster.WaitingGroup {
	return r.plane.Reasons(0).Groups
}

// Close ends the rehearsal.
func (r *Rehearsal) Close() {
	r.loop.asker.running.Wait()
	r.loop.follow.Close()
	r.projector.Close()
}
