package controlplane

import (
	"context"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/controlplane/nodewatch"
	"github.com/berthd/berth/internal/controlplane/writes"
	"github.com/berthd/berth/internal/store"
)

// cycle decides once. It returns the longest wait before the next cycle if nothing changes.
func (l *loop) cycle(ctx context.Context) (time.Duration, error) {
	began := l.config.Clock()
	if err := l.term.tables.check(ctx); err != nil {
		return 0, err
	}
	if err := l.collectInFlight(); err != nil {
		return 0, err
	}
	// 1. Take what changed, then a snapshot that holds all of it. The snapshot also holds all that this leader wrote,
	// except what is in flight.
	if err := l.term.awaitWritten(ctx); err != nil {
		return 0, err
	}
	changes := l.follow.Take()
	snap := l.config.Tables.Snapshot()
	if l.clock.advance() { // all due times were computed with another time
		changes.Resync = true
	}
	l.config.Scheduler.Now = l.clock.now
	l.learn(snap, changes)
	if !l.hasCycled { // the standby loop learnt this state, but no decision used it
		changes.Resync = true
		l.queue.MarkAll(snap)
		l.preemption.RecoverPromises(snap, l.clock.now)
	}
	l.crons.Learn(snap, changes)
	held := l.term.detector.Check(snap, changes, l.clock.now)
	// 2. Judge the nodes.
	verdicts, nextNode := l.judgeNodes(snap, changes, held)
	l.hasCycled = true
	if held { // P1.7: only the alarm and verdicts are written
		if err := l.awaitInFlight(); err != nil {
			return 0, err
		}
		return min(nextNode, maxIdleInterval), l.commitHeld(ctx, snap, &verdicts)
	}
	// 3. Continue rebalancings, which mark owners. Decide for each owner that changed or is due, then for crons,
	// scaling and gates. Each step appends its writes to the units.
	units := l.clock.takeJumps()
	if len(units) > 0 {
		l.nodes.RestartSilence(l.config.Clock())
	}
	firstVerdict := len(units)
	units = append(units, verdicts.Units...)
	nextMove := l.rebalancing.Advance(snap, l.clock.now, &units)
	nextScheduler := l.external.Advance(snap, l.clock.now, &units)
	decided := l.decide(snap, &units)
	fired := l.crons.Fire(snap, l.clock.now, &units)
	nextScale := l.scaling.Decide(ctx, l.builder(snap), &units)
	nextGate := l.gates.AskDue(ctx)
	// 4. Commit what does not need placement.
	applied, err := l.term.commit(ctx, units)
	l.noteLost(&verdicts, applied[min(firstVerdict, len(applied)):])
	l.queue.MarkOwners(decided.refused(applied))
	if err != nil {
		l.queue.MarkOwners(decided.owners)
		l.crons.MarkAgain(fired)
		return 0, err
	}
	if err := l.commitLast(ctx, &decided, applied); err != nil {
		return 0, err
	}
	// 5. Place what waits.
	launched, err := l.place(ctx, snap)
	if err != nil {
		return 0, err
	}
	l.external.Publish(l.observed(snap).NextAttempts)
	l.noteCycle(began, launched)
	return l.nextCycleDelay(min(nextNode, nextScale, nextGate, nextMove, nextScheduler)), nil
}

// learn brings the leader's view of the domain to a snapshot.
func (l *loop) learn(snap *store.Snapshot, changes store.Changes) {
	l.learner.Learn(snap, changes, l.clock.now)
	if !l.term.hasUnknownPlacements() {
		l.view.Confirm(snap)
	}
	if l.clock.since.IsZero() {
		l.clock.startDeadlines()
	}
}

// judgeNodes judges the nodes and finds the attempts that may not stay there. It returns the verdicts to be written,
// and the wait until nodes are judged next.
func (l *loop) judgeNodes(snap *store.Snapshot, changes store.Changes, held bool) (nodewatch.Judged, time.Duration) {
	_, recovered := snap.Recovery(l.config.Domain)
	l.nodes.SetRecovery(recovered, held)
	verdicts, next := l.nodes.Judge(snap, changes, l.clock.now)
	l.learner.LearnVerdicts(snap, verdicts.Touched, l.hasCycled) // the first cycle decides for all owners
	l.violations.Update(snap, l.view.Rechecks, l.clock.now)
	l.term.plans.noteChecked(l.view.Rechecks)
	l.view.Rechecks.Clear()
	return verdicts, next
}

// noteLost counts the nodes whose loss was written. applied says which units of the verdicts were.
func (l *loop) noteLost(verdicts *nodewatch.Judged, applied []bool) {
	lost := 0
	for _, i := range verdicts.Lost {
		if i < len(applied) && applied[i] {
			lost++
		}
	}
	if m := l.config.Metrics; m != nil && lost > 0 {
		m.NodesLost(lost)
	}
}

// recoverySentence is why all tasks wait during a recovery.
const recoverySentence = "nothing is placed or stopped: the store went back to an earlier state, and the " +
	"operator decides how to continue (berth operator recover)"

// commitHeld commits what a leader may write that is held back: the alarm, and verdicts that neither release a node nor
// claim one (watcher.Input.Held).
func (l *loop) commitHeld(ctx context.Context, snap *store.Snapshot, verdicts *nodewatch.Judged) error {
	if l.term.isDeposed(snap) {
		return store.ErrFenced
	}
	l.plane.reasons.SetHeld(recoverySentence)
	l.placing.isLong = false
	l.external.RefuseAll(recoverySentence)
	u, alarm, ok, err := l.term.detector.AlarmUnit(snap, l.config.Tables.Prefix())
	switch {
	case err != nil:
		l.config.Logger.Error("the alarm cannot be written", "error", err)
	case ok:
		verdicts.Units = append(verdicts.Units, u)
	}
	if alarm != nil {
		// The alarm follows once the sessions have ended, so that a decision on it finds nodes without a full report.
		reports, err := l.term.detector.FullReports(snap)
		if err == nil && len(reports) > 0 {
			_, err = l.term.commit(ctx, reports)
		}
		if err != nil {
			return err
		}
		l.config.Logger.Error("the store went back; the operator decides how to continue", "cause", alarm.Cause)
	}
	applied, err := l.term.commit(ctx, verdicts.Units)
	l.noteLost(verdicts, applied)
	return err
}

// decisions are the owners that a cycle decided for, and the ranges of the cycle's units that are theirs.
type decisions struct {
	owners []cluster.OwnerRef
	units  []ownerUnits
}

// ownerUnits is the range of a commit's units that one owner's decision produced. last, unless nil, is committed once
// all of them are written.
type ownerUnits struct {
	owner    cluster.OwnerRef
	from, to int
	last     *store.Unit
}

// commitLast commits the last units of the owners whose other units are written. So the end of a large job is written
// in one cycle, and its room comes free at once.
func (l *loop) commitLast(ctx context.Context, d *decisions, applied []bool) error {
	var units []store.Unit
	last := decisions{}
	for _, u := range d.units {
		if u.last == nil || u.to > len(applied) || slices.Contains(applied[u.from:u.to], false) {
			continue
		}
		last.units = append(last.units, ownerUnits{owner: u.owner, from: len(units), to: len(units) + 1})
		units = append(units, *u.last)
	}
	applied, err := l.term.commit(ctx, units)
	l.queue.MarkOwners(last.refused(applied))
	if err != nil {
		l.queue.MarkOwners(d.owners)
	}
	return err
}

// refused returns the owners with a refused unit. The cause of the refusal may be no event for the owner, such as a
// record that has been projected. Then nothing else would bring the decision back.
func (d *decisions) refused(applied []bool) (owners []cluster.OwnerRef) {
	for _, u := range d.units {
		if u.to <= len(applied) && slices.Contains(applied[u.from:u.to], false) {
			owners = append(owners, u.owner)
		}
	}
	return owners
}

// decide runs the reconciler for every owner that is marked or due, and adds the resulting units.
func (l *loop) decide(snap *store.Snapshot, units *[]store.Unit) decisions {
	l.queue.MarkDue(l.clock.now)
	for o := range l.gates.TakeChanged() { // order-free: a set
		l.queue.Mark(o)
	}
	if l.view.TakeDaemonsChanged() {
		l.queue.MarkDaemons(snap)
	}
	l.queue.MarkAwaiting()
	made := decisions{owners: l.queue.Ordered(snap, l.preemption.PromisedOwners(), l.term.plans.has)}
	in, builder := l.proposalInputs(snap, nil), l.builder(snap)
	domain := in.Domain
	repair := writes.NewRepair(builder, writes.RepairConfig{
		Nodes: l.nodes, View: l.view, Logger: l.config.Logger,
		TakeRecord: func(row *store.AttemptRow) (bool, string) { return l.external.TakeRecord(in, row) },
	})
	*units = append(*units, repair.DeleteStrays(l.config.Domain)...)
	room := maxTasksPerCycle
	for i, o := range made.owners {
		if room <= 0 {
			made.owners = made.owners[:i]
			break
		}
		if domainOf(snap, o.Cluster) != l.config.Domain {
			l.gates.Drop(o)
			l.waiting.set(o, nil, nil)
			continue
		}
		l.gates.Follow(snap, o)
		tasks := repair.Tasks(domain, o, units)
		l.runs.note(o, tasks, l.config.Clock())
		d := domain.Decide(o, tasks)
		room -= 1 + len(tasks) + len(d.Pending)
		from := len(*units)
		builder.Requires = l.external.RequiresToLeave(o)
		last, err := builder.AddDecision(o, d, units)
		if err != nil {
			// A record that cannot be encoded is a fault of this program; the owner stays as it is.
			l.config.Logger.Error("a decision cannot be written", "owner", o.String(), "error", err)
		}
		if len(*units) > from {
			made.units = append(made.units, ownerUnits{o, from, len(*units), last})
		}
		l.waiting.set(o, pendingOf(domain, o, tasks, d), d.Moves)
		l.queue.Await(o, neededOwners(snap, o, d.AwaitsNeeds))
		if next := d.NextDecision; !next.IsZero() && next.Before(l.clock.now.Add(retryDelay)) {
			d.NextDecision = l.clock.now.Add(retryDelay) // a refused decision is not retried in a busy loop
		}
		l.queue.SetTimer(o, d.NextDecision)
	}
	for _, o := range l.queue.Finish(made.owners, l.term.plans.has) {
		l.waiting.set(o, nil, nil) // its pending tasks may have been placed since
	}
	return made
}

// neededOwners returns the owners that another one waits for, if it does.
func neededOwners(snap *store.Snapshot, o cluster.OwnerRef, awaits bool) []cluster.OwnerRef {
	if !awaits {
		return nil
	}
	if o.Kind == cluster.KindJob {
		e, _ := snap.Job(o.Cluster, o.Name)
		return cluster.NeededOwners(o.Cluster, e.Value.Needs)
	}
	e, _ := snap.Service(o.Cluster, o.Name)
	return cluster.NeededOwners(o.Cluster, e.Value.Needs)
}

// builder returns what makes units from a snapshot.
func (l *loop) builder(snap *store.Snapshot) writes.Builder {
	b := writes.Builder{Snap: snap, Prefix: l.config.Tables.Prefix(), Token: l.term.token(), Now: l.clock.now}
	if !l.term.plans.isInFlight() { // no owner of a plan in flight is decided for
		b.UnknownPlan = l.term.plans.log.UnknownPlan()
	}
	return b
}

// domainOf returns the domain in which the tasks of a cluster are placed.
func domainOf(snap *store.Snapshot, name string) string {
	c, _ := snap.Cluster(name)
	return c.Value.InDomain()
}

// noteCycle takes note of a cycle that ended well, and of the number of tasks that it had placed.
func (l *loop) noteCycle(began time.Duration, launched int) {
	ended := l.config.Clock()
	l.pace.noteCycle(began, ended, launched)
	if m := l.config.Metrics; m != nil {
		m.Cycled(ended-began, l.placing.placed, l.waiting.tasks)
	}
	l.placing.placed = 0
}

// nextCycleDelay returns the longest wait before the next cycle if nothing changes. most is the shortest of the waits
// that the steps returned.
func (l *loop) nextCycleDelay(most time.Duration) time.Duration {
	next := min(most, maxIdleInterval)
	if !l.queue.IsEmpty() || !l.crons.IsEmpty() {
		next = min(next, retryDelay)
	}
	if l.queue.HasDeferred() || l.preemption.HasNewVictims() || l.waiting.queue.HasTurns() {
		next = l.pace.pause / 2 // the pause is for reports of tasks, and here work is left
	}
	if left, ok := l.preemption.NextSearchDelay(); ok {
		next = min(next, left)
	}
	if left, ok := l.clock.settles(); ok {
		next = min(next, left)
	}
	if at := l.view.NextReservation(); !at.IsZero() {
		next = min(next, at.Sub(l.clock.now))
	}
	for _, timer := range []func() (time.Time, bool){l.queue.Next, l.crons.Next} {
		if at, ok := timer(); ok {
			next = min(next, at.Sub(l.clock.now))
		}
	}
	return max(next, time.Millisecond)
}
