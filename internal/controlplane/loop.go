package controlplane

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/controlplane/crons"
	"github.com/berthd/berth/internal/controlplane/external"
	"github.com/berthd/berth/internal/controlplane/fleetview"
	"github.com/berthd/berth/internal/controlplane/gates"
	"github.com/berthd/berth/internal/controlplane/nodewatch"
	"github.com/berthd/berth/internal/controlplane/preemption"
	"github.com/berthd/berth/internal/controlplane/queue"
	"github.com/berthd/berth/internal/controlplane/rebalancing"
	"github.com/berthd/berth/internal/controlplane/scaling"
	"github.com/berthd/berth/internal/controlplane/storeloss"
	"github.com/berthd/berth/internal/store"
)

const (
	// burstDelay is how long a cycle waits for more changes after the first one, so that one decision covers a burst.
	burstDelay = 2 * time.Millisecond
	// maxIdleInterval is the longest time between two cycles of a leader, even if nothing changes.
	maxIdleInterval = time.Minute
	// maxTasksPerCycle bounds the tasks that a cycle decides for, so that urgent tasks do not wait for all the others.
	maxTasksPerCycle = 32768
	// retryDelay is the wait after a commit that failed for a reason that may pass.
	retryDelay = 200 * time.Millisecond
)

// loop is one leadership term of a server: the parts that a cycle runs, each with what it has learnt since the term
// began. One goroutine runs it.
type loop struct {
	config Config
	plane  *Plane
	follow *store.Follower
	// term is nil until the server leads.
	term *term

	// The leader's knowledge of the domain, and the owners and tasks that need a decision.
	nodes      *nodewatch.Watch
	view       *fleetview.View
	learner    *fleetview.Learner
	violations *fleetview.Violations
	queue      *queue.Owners
	waiting    *waitingTasks
	runs       limitedRuns

	// Decisions with state of their own. It is soft: each leader begins without it.
	asker       *asker
	gates       *gates.Gates
	scaling     *scaling.Scaling
	crons       *crons.Crons
	rebalancing *rebalancing.Rebalancing
	preemption  *preemption.Preemption
	external    *external.Scheduler

	clock   termClock
	pace    pace
	placing placing
	// hasCycled says that the nodes were judged once in this term.
	hasCycled bool
}

// newLoop returns the loop of a future leader: it may learn, but decides nothing before startTerm. One that rehearses
// places the tasks of a domain with an external scheduler, too.
func newLoop(p *Plane, rehearses bool) *loop {
	c := p.config
	nodes := nodewatch.New(nodewatch.Config{
		Tables: c.Tables, Domain: c.Domain, Logger: c.Logger, Clock: c.Clock, Without: c.Without,
	}, 0, func() bool { return false })
	view, queue := fleetview.New(c.Domain, nodes), queue.NewOwners(c.Tables.Prefix(), maxTasksPerCycle)
	asker, tables := newAsker(), crons.NewTimetables()
	gate := gates.Config{Ask: asker.ask, Now: c.Now, Clock: c.Clock}
	scale := scaling.Config{
		Tables: c.Tables, Domain: c.Domain, Logger: c.Logger, Clock: c.Clock, Ask: asker.ask, LastMoment: tables.Last,
		Demand: view.Demand,
	}
	if c.Measurer != nil {
		gate.Check, scale.Query = c.Measurer.Gate, c.Measurer.Query
	}
	l := &loop{
		config: c, plane: p, follow: c.Tables.Follow(),
		nodes: nodes, view: view, queue: queue, waiting: newWaitingTasks(c.Window), runs: limitedRuns{},
		learner:    fleetview.NewLearner(view, queue),
		violations: fleetview.NewViolations(view, queue),
		asker:      asker,
		gates:      gates.New(gate),
		scaling:    scaling.New(scale),
		crons:      crons.New(c.Tables.Prefix(), c.Domain, c.Logger, tables, queue),
		rebalancing: rebalancing.New(rebalancing.Config{
			Domain: c.Domain, Logger: c.Logger, Clock: c.Clock, MarkTask: queue.MarkTask, Reason: p.reasons.Get,
		}),
		preemption: preemption.New(c.Clock, view, nodes, queue),
		clock:      termClock{config: c, publish: func(at clockTimes) { p.since.Store(&at) }},
	}
	l.external = external.New(external.Config{
		Domain: c.Domain, Prefix: c.Tables.Prefix(), Logger: c.Logger, Clock: c.Clock, Mailbox: p.mailbox, View: view,
		Waiting:     func(yield func(cluster.OwnerRef) bool) { maps.Keys(l.waiting.pending)(yield) },
		Pending:     func(o cluster.OwnerRef) []cluster.Pending { return l.waiting.pending[o] },
		IsUndecided: queue.IsMarked, MarkTask: queue.MarkTask, BuiltinAlone: rehearses,
	})
	l.waiting.noteOwner = l.external.NoteOwner
	return l
}

// startTerm makes l the loop of a leader. It keeps what l learnt from the store; what a leader has to see itself begins
// again. domain is the number of the domain.
func (l *loop) startTerm(w *store.Writer, fence *store.Fence, d *storeloss.Detector, domain uint64) {
	l.term = newTerm(l.config, w, fence, d, domain)
	l.nodes.StartTerm(fence.Incarnation, l.term.hasUnknownPlacements)
	l.learner.Postpone(l.config.Now())
	l.view.RecheckAll()
	l.clock.startTerm(l.config.Tables.Snapshot())
	l.external.StartTerm(fence.Epoch)
}

// run turns changes into decisions until the context ends or another leader has taken over.
func (l *loop) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer l.asker.running.Wait() // its questions end with its context
	defer func() { _ = l.awaitInFlight() }()
	defer l.external.EndTerm()
	if m := l.config.Metrics; m != nil {
		defer m.Ended()
	}
	defer cancel()
	timer := time.NewTimer(maxIdleInterval)
	defer timer.Stop()
	for {
		next, err := l.cycle(ctx)
		switch {
		case errors.Is(err, store.ErrFenced), errors.Is(err, store.ErrClosed), isBehind(err), ctx.Err() != nil:
			return err
		case err != nil:
			// The next cycle decides again, from what the tables then show, whatever was not written.
			l.config.Logger.Error("a cycle ended early", "error", err)
			next = retryDelay
		}
		timer.Reset(next)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.follow.Wake():
			if !l.gatherBurst(ctx) {
				return ctx.Err()
			}
		case <-l.asker.wake:
		case <-l.plane.mailbox.Wake():
		case <-l.term.plans.done():
		case <-timer.C:
		}
	}
}
