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
	// burstDelay is how long a cycle waits for more changes after the first one, so that one decision covers a burst.
	burstDelay = 2 * time.Millisecond
	// maxIdleInterval is the longest time between two cycles of a leader, even if nothing changes.
	maxIdleInterval = time.Minute
	// maxTasksPerCycle bounds the tasks that a cycle decides for, so that urgent tasks do not wait for all the others.
	maxTasksPerCycle = 32768
	// retryDelay is the wait after a commit that failed for a reason that may pass.
	retryDelay = 200 * time.Millisecond
)

// loop is one leadership term of a server: all that the leader has learnt since the term began.
type loop struct {
	config Config
	plane  *Plane
	writer *store.Writer
	fence  *store.Fence
	plans  *store.PlanLog
	follow *store.Follower

	// What the leader knows of the domain, and what it is to decide for.
	nodes      *nodeWatch
	view       *fleetView
	learner    *learner
	rechecks   *recheckSet
	violations *violations
	queue      *ownerQueue
	waiting    *waitingTasks

	lossDetector lossDetector
	// inFlight is what is being committed in the background, or nil.
	inFlight *inFlightPlan
	placed   int // tasks placed since the last cycle
	// synchronous says that a cycle waits for its plan records, so that nothing is decided while they are in flight.
	synchronous bool
	// placeAgain says that the last placement did not end well.
	placeAgain bool

	// The following state is soft; each leader begins without it: results from outside, and the wishes of scaled
	// services.
	asker   *asker
	gates   *gates
	scaling *scaling
	crons   *crons
	// rebalancing holds the open moves of the rebalancing that runs.
	rebalancing *rebalancing
	preemption  *preemption

	now    time.Time
	clocks clocks
	since  time.Time // deadlines count from here: the start of the term, or the last jump of the wall clock
	// decidedUnits maps the units of the next commit to their owners.
	decidedUnits []ownerUnits
	// hasCycled says that the first cycle of the term is over.
	hasCycled bool
	pace      pace
	// writtenRevision is the revision at which the tables show all writes of this leader. Nothing is decided from older
	// tables, or tasks would be placed again.
	writtenRevision uint64
	// probedAt is the time of the last probe, on the boot-time clock; probedRevision is its result.
	probedAt       time.Duration
	probedRevision uint64
}

// newLoop returns the loop of a future leader: it may learn, but decides nothing before startTerm.
func newLoop(p *Plane) *loop {
	asker, tables := newAsker(), newTimetables()
	nodes := newNodeWatch(nodeWatchConfig{
		Tables: p.config.Tables, Domain: p.config.Domain, Logger: p.config.Logger, Clock: p.config.Clock,
		Without: p.config.Without,
	}, 0, func() bool { return false })
	rechecks, queue := newRecheckSet(), newOwnerQueue(p.config.Tables.Prefix())
	view := newFleetView(p.config.Domain, nodes, rechecks)
	return &loop{
		config: p.config, plane: p, follow: p.config.Tables.Follow(),
		nodes: nodes, view: view, rechecks: rechecks, queue: queue, waiting: newWaitingTasks(),
		learner:     &learner{view: view, queue: queue, rechecks: rechecks},
		violations:  newViolations(view, queue),
		asker:       asker,
		gates:       newGates(p.config, asker),
		scaling:     newScaling(p.config, asker, tables, view),
		crons:       newCrons(p.config, tables),
		rebalancing: newRebalancing(p.config, queue, &p.reasons),
		preemption:  newPreemption(p.config.Clock, view, nodes, queue),
	}
}

// startTerm makes l the loop of a leader. It keeps what l learnt from the store; what a leader has to see itself begins
// anew.
func (l *loop) startTerm(w *store.Writer, s lossDetector) {
	fence := s.fence
	l.writer, l.fence, l.plans = w, fence, store.NewPlanLog(w, l.config.Tables)
	l.lossDetector = s
	l.nodes.startTerm(fence.Incarnation, func() bool { return l.inFlight != nil || l.plans.Unsettled() })
	l.learner.postpone(l.config.Now())
	l.rechecks.all = true
	if last, ok := l.config.Tables.Snapshot().LastEvents(); ok {
		l.now = last.Value.At
	}
}

// run turns changes into decisions until the context ends or another leader has taken over.
func (l *loop) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer l.asker.running.Wait() // its questions end with its context
	defer func() { _ = l.awaitInFlight() }()
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
		case <-l.inFlightDone():
		case <-timer.C:
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// cycle decides once. It returns the longest wait before the next cycle if nothing changes.
func (l *loop) cycle(ctx context.Context) (time.Duration, error) {
	began := l.config.Clock()
	if err := l.probe(ctx); err != nil {
		return 0, err
	}
	if err := l.collectInFlight(); err != nil {
		return 0, err
	}
	// 1. Take what changed, then a snapshot that holds all of it. The snapshot also holds all that this leader wrote,
	// except what is in flight.
	if _, err := l.config.awaitRevision(ctx, l.writtenRevision); err != nil {
		return 0, err
	}
	changes := l.follow.Take()
	snap := l.config.Tables.Snapshot()
	l.advance()
	l.learner.learn(snap, changes, l.now)
	if l.inFlight == nil && !l.plans.Unsettled() {
		l.view.confirm(snap)
	}
	if l.since.IsZero() {
		l.setSince(l.now)
	}
	if !l.hasCycled { // the standby loop learnt this state, but nobody decided from it
		changes.Resync = true
		l.queue.markAll(snap)
		l.preemption.recoverPromises(snap, l.now)
	}
	l.crons.learn(snap, changes)
	held := l.lossDetector.check(snap, changes, l.now)
	// 2. Judge the nodes.
	_, recovered := snap.Recovery(l.config.Domain)
	l.nodes.setRecovery(recovered, held)
	verdicts, nextNode := l.nodes.judgeNodes(snap, changes, l.now)
	l.learner.learnVerdicts(snap, verdicts.touched, l.hasCycled) // the first cycle decides for all owners
	l.violations.update(snap, l.rechecks, l.now)
	if l.inFlight != nil {
		l.inFlight.noteChecked(l.rechecks)
	}
	l.rechecks.clear()
	l.hasCycled = true
	if held { // P1.7: only the alarm and verdicts are written
		if err := l.awaitInFlight(); err != nil {
			return 0, err
		}
		return min(nextNode, maxIdleInterval), l.commitHeld(ctx, snap, verdicts.units)
	}
	// 3. Decide for each owner that changed or is due.
	units := append(l.noteClockJump(), verdicts.units...)
	nextMove := l.rebalancing.advance(snap, l.now, &units)
	decided := l.decide(snap, &units)
	fired := l.crons.fire(snap, l.now, &units)
	nextScale := l.scaling.decide(ctx, l.unitBuilder(snap), &units)
	nextGate := l.gates.askDue(ctx)
	// 4. Commit what does not need placement.
	if err := l.commit(ctx, units); err != nil {
		l.queue.markOwners(decided)
		l.crons.markAgain(fired)
		return 0, err
	}
	// 5. Place what waits.
	launched, err := l.place(ctx, snap)
	if err != nil {
		return 0, err
	}
	ended := l.config.Clock()
	l.pace.noteCycle(began, ended, launched)
	if m := l.config.Metrics; m != nil {
		m.Cycled(ended-began, l.placed, l.waiting.count())
	}
	l.placed = 0
	return l.nextCycleDelay(min(nextNode, nextScale, nextGate, nextMove)), nil
}

// advance moves the clock of decisions: never back, and never behind the last committed time (P9.1).
func (l *loop) advance() {
	if now := l.config.Now(); now.After(l.now) {
		l.now = now
	}
	l.config.Scheduler.Now = l.now
}

// decide runs the reconciler for every owner that is marked or due, and adds the resulting units. It returns the owners
// that it decided for.
func (l *loop) decide(snap *store.Snapshot, units *[]store.Unit) []cluster.OwnerRef {
	l.decidedUnits = l.decidedUnits[:0]
	l.queue.markDue(l.now)
	for o := range l.gates.takeChanged() { // order-free: a set
		l.queue.mark(o)
	}
	if l.view.takeDaemonsChanged() {
		l.queue.markDaemons(snap)
	}
	owners := l.queue.ordered(snap, l.preemption.promisedOwners(), l.hasInFlight)
	domain, builder := l.observed(snap), l.unitBuilder(snap)
	repair := &recordRepair{unitBuilder: builder, nodes: l.nodes, view: l.view, logger: l.config.Logger}
	room := maxTasksPerCycle
	for i, o := range owners {
		if room <= 0 {
			owners = owners[:i]
			break
		}
		if domainOf(snap, o.Cluster) != l.config.Domain {
			l.gates.drop(o)
			l.waiting.set(o, nil, nil)
			continue
		}
		l.gates.follow(snap, o)
		tasks := repair.tasks(domain, o, units)
		d := domain.Decide(o, tasks)
		room -= 1 + len(tasks) + len(d.Pending)
		w, from := &decisionWriter{builder, o}, len(*units)
		if err := w.writeDecision(d, units); err != nil {
			// A record that cannot be encoded is a fault of this program; the owner stays as it is.
			l.config.Logger.Error("a decision cannot be written", "owner", o.String(), "error", err)
		}
		if len(*units) > from {
			l.decidedUnits = append(l.decidedUnits, ownerUnits{o, from, len(*units)})
		}
		l.waiting.set(o, pendingOf(domain, o, tasks, d), d.Moves)
		if next := d.NextDecision; !next.IsZero() && next.Before(l.now.Add(retryDelay)) {
			d.NextDecision = l.now.Add(retryDelay) // a refused decision is not retried in a busy loop
		}
		l.queue.setTimer(o, d.NextDecision)
	}
	for _, o := range l.queue.finish(owners, l.hasInFlight) {
		l.waiting.set(o, nil, nil) // its pending tasks may have been placed since
	}
	return owners
}

// unitBuilder returns what makes units from a snapshot.
func (l *loop) unitBuilder(snap *store.Snapshot) unitBuilder {
	return unitBuilder{
		snap: snap, prefix: l.config.Tables.Prefix(), now: l.now,
		token: cluster.Token{Incarnation: l.fence.Incarnation, Epoch: l.fence.Epoch},
	}
}

// domainOf returns the domain in which the tasks of a cluster are placed.
func domainOf(snap *store.Snapshot, name string) string {
	c, _ := snap.Cluster(name)
	return c.Value.InDomain()
}

// commit writes units and waits until the tables show them, so that the next decision sees its own acts.
func (l *loop) commit(ctx context.Context, units []store.Unit) error {
	if len(units) == 0 {
		return nil
	}
	applied, revision, err := l.writer.Commit(ctx, units)
	l.writtenRevision = max(l.writtenRevision, revision)
	l.reviseRefused(applied)
	switch {
	case errors.Is(err, store.ErrTooLarge), errors.Is(err, store.ErrInvalid):
		// This is a fault of this program. It must not keep the other owners from being served.
		l.config.Logger.Error("a decision cannot be committed", "error", err)
	case err != nil:
		return err
	}
	_, err = l.config.awaitRevision(ctx, revision)
	return err
}

// ownerUnits is the range of a commit's units that one owner's decision produced.
type ownerUnits struct {
	owner    cluster.OwnerRef
	from, to int
}

// reviseRefused marks the owners with a refused unit. The cause of the refusal may be no event for the owner, such as a
// record that was projected meanwhile. Then nothing else would bring the decision back.
func (l *loop) reviseRefused(applied []bool) {
	for _, u := range l.decidedUnits {
		if u.to <= len(applied) && slices.Contains(applied[u.from:u.to], false) {
			l.queue.mark(u.owner)
		}
	}
	l.decidedUnits = l.decidedUnits[:0]
}

// nextCycleDelay returns the longest wait before the next cycle if nothing changes.
func (l *loop) nextCycleDelay(node time.Duration) time.Duration {
	next := min(node, maxIdleInterval)
	if !l.queue.isEmpty() || !l.crons.isEmpty() {
		next = min(next, retryDelay)
	}
	if l.queue.hasDeferred() || l.preemption.hasNewVictims {
		next = l.pace.pause / 2
	}
	if left, ok := l.preemption.nextSearchDelay(); ok {
		next = min(next, left)
	}
	if at := l.view.reservations.next; !at.IsZero() {
		next = min(next, at.Sub(l.now))
	}
	for _, timer := range []func() (time.Time, bool){l.queue.next, l.crons.next} {
		if at, ok := timer(); ok {
			next = min(next, at.Sub(l.now))
		}
	}
	return max(next, time.Millisecond)
}
