package controlplane

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/store"
)

const (
	// gather is how long a cycle waits for more changes after the first, so that what comes in a
	// burst is decided at once.
	gather = 2 * time.Millisecond
	// lookAnyway is how long a leader rests at most where nothing changes.
	lookAnyway = time.Minute
	// decideMost is how many tasks a cycle decides for, so that what is urgent does not wait for all the others.
	decideMost = 32768
	// retryAfter is waited after a commit that failed for a reason that may pass.
	retryAfter = 200 * time.Millisecond
)

// loop is one leader's reign: what it has learnt since it began.
type loop struct {
	config  Config
	plane   *Plane
	writer  *store.Writer
	fence   *store.Fence
	plans   *store.PlanLog
	follow  *store.Follower
	fleet   *scheduler.Fleet
	pricing pricing
	watch   *watch
	sentry  sentry
	reserve map[store.AttemptKey]hold // the attempts that the fleet holds a reservation of
	// flight is what is being committed, nil for nothing, and aloft the attempts that the tables did not show yet when
	// they were charged.
	flight *flight
	aloft  map[store.AttemptKey]bool
	placed int // how many tasks were placed since the last cycle
	// alone says that nothing is decided while a flight is on its way.
	alone bool

	// dirty owners are decided in the next cycle, all others when their look is due.
	dirty   map[cluster.OwnerRef]bool
	looks   *agenda
	pending map[cluster.OwnerRef][]cluster.Pending
	moves   map[cluster.OwnerRef][]reconciler.Move
	// manners are what the specs of owners say of their tasks to others.
	manners map[cluster.OwnerRef]manners
	// murky are nodes where nobody knows what runs, by the record that hides it.
	murky map[store.AttemptKey]fog
	// rest are the owners that were left to the next cycle, and how often in a row: the longer, the sooner they come.
	rest map[cluster.OwnerRef]int
	// faces are those of nodes where daemons have something to mind; nodesChanged says that they have to look again.
	faces        map[string]face
	nodesChanged bool
	// What is soft, and begins anew with each leader: what was seen outside, and what services with scaling wished for.
	asker   *asker
	gates   *gates
	scaling *scaling
	crons   *crons
	// rebalancing are the moves of the rebalancing that runs which are open now.
	rebalancing *rebalancing
	// misfits are attempts that may not stay where they are.
	misfits    misfits
	preempting preempting
	// reservations are those of the domain, by node.
	reservations reservations
	// unplaced says that pending tasks or the fleet changed since the last placement.
	unplaced   bool
	now        time.Time
	clocks     clocks
	since      time.Time // deadlines do not count what was before: this leader began, or its clock was set
	asked      asked
	relearning relearning
	// decided are the owners' units of the next commit.
	decided []ownerUnits
	// began says that the first cycle of the reign is over.
	began bool
	pace  pace
	// written is the revision that the tables must have reached to show all that this leader wrote: nothing is decided
	// before, or what was placed would be placed again.
	written uint64
	// probed is when it was last asked how far the tables should be, on the boot-time clock, and probedFor the answer.
	probed    time.Duration
	probedFor uint64
}

// hold is what the fleet holds for an attempt.
type hold struct{ uuid, node string }

// newLoop returns the loop of a leader to be: it may learn, but decides nothing before its reign.
func newLoop(p *Plane) *loop {
	asker, tables := newAsker(), newTimetables()
	return &loop{
		faces:       map[string]face{},
		asker:       asker,
		gates:       newGates(p.config, asker),
		scaling:     newScaling(p.config, asker, tables),
		crons:       newCrons(tables),
		rebalancing: newRebalancing(),
		misfits:     newMisfits(),
		preempting:  newPreempting(),
		config:      p.config,
		plane:       p,
		follow:      p.config.Tables.Follow(),
		fleet:       scheduler.NewFleet(),
		watch:       newWatch(p.config, 0, func() bool { return false }),
		reserve:     map[store.AttemptKey]hold{},
		aloft:       map[store.AttemptKey]bool{},
		dirty:       map[cluster.OwnerRef]bool{},
		looks:       newAgenda(),
		pending:     map[cluster.OwnerRef][]cluster.Pending{},
		moves:       map[cluster.OwnerRef][]reconciler.Move{},
		manners:     map[cluster.OwnerRef]manners{},
		murky:       map[store.AttemptKey]fog{},
	}
}

// reign makes it the loop of a leader. What it knows of the store stays; what a leader has to see itself begins anew.
func (l *loop) reign(w *store.Writer, s sentry) {
	fence := s.fence
	l.writer, l.fence, l.plans = w, fence, store.NewPlanLog(w, l.config.Tables)
	l.sentry = s
	unkillable := l.watch.unkillable
	l.watch = newWatch(l.config, fence.Incarnation, func() bool { return l.flight != nil || l.plans.Unsettled() })
	l.watch.unkillable = unkillable
	l.relearning.at, l.misfits.all = l.config.Now(), true
	if last, ok := l.config.Tables.Snapshot().LastEvents(); ok {
		l.now = last.Value.At
	}
}

// run turns changes into decisions until the context ends or another leader has taken over.
func (l *loop) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer l.asker.running.Wait() // what it asked ends with its context
	defer func() { _ = l.land() }()
	defer cancel()
	timer := time.NewTimer(lookAnyway)
	defer timer.Stop()
	for {
		next, err := l.cycle(ctx)
		switch {
		case errors.Is(err, store.ErrFenced), errors.Is(err, store.ErrClosed), isBehind(err), ctx.Err() != nil:
			return err
		case err != nil:
			// What was not written is decided again from what the tables show then.
			l.config.Logger.Error("a cycle ended early", "error", err)
			next = retryAfter
		}
		timer.Reset(next)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.follow.Wake():
			if !l.gather(ctx) {
				return ctx.Err()
			}
		case <-l.asker.wake:
		case <-l.landing():
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

// cycle decides once, and returns how soon to decide again if nothing changes.
func (l *loop) cycle(ctx context.Context) (time.Duration, error) {
	began := l.config.Clock()
	if err := l.probe(ctx); err != nil {
		return 0, err
	}
	if err := l.landed(); err != nil {
		return 0, err
	}
	// 1. Take what changed, then a snapshot that holds all of it, and all that this leader wrote but what is on its
	//    way.
	if _, err := l.config.await(ctx, l.written); err != nil {
		return 0, err
	}
	changes := l.follow.Take()
	snap := l.config.Tables.Snapshot()
	l.advance()
	l.learn(snap, changes)
	l.confirm(snap)
	if l.since.IsZero() {
		l.setSince(l.now)
	}
	if !l.began { // what was learnt before the reign is known, but nothing of it was looked at
		changes.Resync = true
		l.dirtyAll(snap)
		l.recoverPromises(snap)
	}
	l.crons.learn(snap, changes, l.config.Tables.Prefix())
	held := l.sentry.look(snap, changes, l.now)
	// 2. Judge the nodes.
	_, l.watch.recovered = snap.Recovery(l.config.Domain)
	l.watch.held = held
	nodes, nextNode := l.watch.judge(snap, changes, l.now)
	l.touch(snap, nodes.touched)
	l.fit(snap)
	l.began = true
	if held { // P1.7: nothing but that is written
		if err := l.land(); err != nil {
			return 0, err
		}
		return min(nextNode, lookAnyway), l.hold(ctx, snap, nodes)
	}
	// 3. Decide for each owner that changed or is due.
	units := append(l.tellJump(), nodes.units...)
	nextMove := l.rebalance(snap, &units)
	decided := l.decide(snap, &units)
	fired := l.fire(snap, &units)
	nextScale := l.scale(ctx, snap, &units)
	nextGate := l.gates.look(ctx)
	// 4. Commit what does not need placement.
	if err := l.commit(ctx, units); err != nil {
		l.dirtyAgain(decided)
		l.crons.again(fired)
		return 0, err
	}
	// 5. Place what waits.
	launched, err := l.place(ctx, snap)
	if err != nil {
		return 0, err
	}
	ended := l.config.Clock()
	l.pace.cycled(began, ended, launched)
	if m := l.config.Metrics; m != nil {
		m.Cycled(ended-began, l.placed, l.waitingCount())
	}
	l.placed = 0
	return l.until(min(nextNode, nextScale, nextGate, nextMove)), nil
}

// advance moves the decision's clock: never back, and not behind what was last committed (P9.1).
func (l *loop) advance() {
	if now := l.config.Now(); now.After(l.now) {
		l.now = now
	}
	l.config.Scheduler.Now = l.now
}

func (l *loop) dirtyAgain(owners []cluster.OwnerRef) {
	for _, o := range owners {
		l.dirty[o] = true
	}
}

// decide runs the reconciler for every owner that is dirty or due, and adds what it wants to be written.
func (l *loop) decide(snap *store.Snapshot, units *[]store.Unit) []cluster.OwnerRef {
	l.decided = l.decided[:0]
	for _, o := range l.looks.due(l.now) {
		l.dirty[o] = true
	}
	for o := range l.gates.take() { // order-free: a set
		l.dirty[o] = true
	}
	l.dirtyDaemons(snap)
	owners := l.turns(snap)
	room := decideMost
	for i, o := range owners {
		if room <= 0 {
			owners = owners[:i]
			break
		}
		if domainOf(snap, o.Cluster) != l.config.Domain {
			l.gates.drop(o)
			l.setPending(o, nil, nil)
			continue
		}
		tasks := l.tasks(snap, o, units)
		d := l.reconcile(snap, o, tasks)
		l.nameStrategies(snap, o, &d)
		l.nameSecrets(snap, &d)
		room -= 1 + len(tasks) + len(d.Pending)
		w, from := &write{loop: l, snap: snap, owner: o}, len(*units)
		if err := w.decision(d, units); err != nil {
			// A record that cannot be encoded is a fault in this program; the owner stays as it is.
			l.config.Logger.Error("a decision cannot be written", "owner", o.String(), "error", err)
		}
		if len(*units) > from {
			l.decided = append(l.decided, ownerUnits{o, from, len(*units)})
		}
		l.setPending(o, slices.DeleteFunc(l.unproven(snap, o, tasks, d), func(p cluster.Pending) bool {
			return pinned(snap, p.Task)
		}), d.Moves)
		if next := d.NextLook; !next.IsZero() && next.Before(l.now.Add(retryAfter)) {
			d.NextLook = l.now.Add(retryAfter) // what is due and was refused is not tried hotly
		}
		l.looks.set(o, d.NextLook)
	}
	for _, o := range owners {
		delete(l.dirty, o)
	}
	rest := make(map[cluster.OwnerRef]int, len(l.dirty))
	for o := range l.dirty { // order-free: each by itself
		if l.flies(o) {
			continue
		}
		rest[o] = l.rest[o] + 1
		l.setPending(o, nil, nil) // what it waited for may have been placed since
	}
	l.rest = rest
	return owners
}

// turns returns the owners to decide for, in order. Where there may be too much for one cycle, those of a high priority
// come first: what they ask for is placed before anything is given to others.
func (l *loop) turns(snap *store.Snapshot) []cluster.OwnerRef {
	owners := make([]cluster.OwnerRef, 0, len(l.dirty))
	priority := map[cluster.OwnerRef]int{}
	many := snap.AttemptCount() > decideMost || len(l.dirty) > decideMost/2
	for o := range l.dirty { // order-free: sorted next
		if l.flies(o) {
			continue
		}
		owners = append(owners, o)
		if many {
			priority[o] = priorityOf(snap, o)
		}
	}
	promised := l.preempting.promised()
	slices.SortFunc(owners, func(a, b cluster.OwnerRef) int {
		switch pa, pb := priority[a], priority[b]; {
		case promised[a] != promised[b]:
			if promised[a] {
				return -1
			}
			return 1
		case l.rest[a] != l.rest[b]: // or those that change all the time would keep others out
			return l.rest[b] - l.rest[a]
		case pa != pb:
			return pb - pa
		case a.Less(b):
			return -1
		}
		return 1
	})
	return owners
}

func priorityOf(snap *store.Snapshot, o cluster.OwnerRef) int {
	if o.Kind == cluster.KindJob {
		if e, ok := snap.Job(o.Cluster, o.Name); ok {
			return e.Value.Priority
		}
		return 0
	}
	if e, ok := snap.Service(o.Cluster, o.Name); ok {
		return e.Value.Priority
	}
	return 0
}

// domainOf returns the domain that a cluster's tasks are placed in.
func domainOf(snap *store.Snapshot, name string) string {
	c, _ := snap.Cluster(name)
	return c.Value.InDomain()
}

// setPending keeps what an owner's tasks wait for.
func (l *loop) setPending(o cluster.OwnerRef, p []cluster.Pending, m []reconciler.Move) {
	if len(p)+len(m)+len(l.pending[o])+len(l.moves[o]) == 0 {
		return
	}
	l.unplaced = true
	l.pricing.arrived(l.pending[o], p)
	delete(l.pending, o)
	delete(l.moves, o)
	if len(p) > 0 {
		l.pending[o] = p
	}
	if len(m) > 0 {
		l.moves[o] = m
	}
}

// reconcile calls the pure function of the owner's kind.
func (l *loop) reconcile(snap *store.Snapshot, o cluster.OwnerRef, tasks []reconciler.Task) reconciler.Decision {
	var constraints []cluster.Constraint
	if c, ok := snap.Cluster(o.Cluster); ok {
		constraints = c.Value.Constraints
	}
	definitions := func(r cluster.Ref) *cluster.TaskDefinition {
		if e, ok := snap.Definition(r); ok {
			return e.Value
		}
		return nil
	}
	recovery := l.recovery(snap)
	if o.Kind == cluster.KindJob {
		in := reconciler.JobInput{
			Owner: o, Tasks: tasks, Definitions: definitions, ClusterConstraints: constraints,
			Recovery: recovery, Now: l.now,
		}
		if e, ok := snap.Job(o.Cluster, o.Name); ok {
			in.Spec, in.SpecRev = e.Value, e.Modified
		}
		if c, ok := snap.Cluster(o.Cluster); ok {
			in.Keep = time.Duration(cmp.Or(c.Value.KeepJobs, cluster.DefaultKeepJobs))
		}
		return reconciler.Job(in)
	}
	return reconciler.Service(l.serviceInput(snap, o, reconciler.ServiceInput{
		Owner: o, Tasks: tasks, Definitions: definitions, ClusterConstraints: constraints, Recovery: recovery,
		Now:     l.now,
		Without: l.config.Without,
	}))
}

// commit writes units and waits until the tables show them, so that the next decision sees its own acts.
func (l *loop) commit(ctx context.Context, units []store.Unit) error {
	if len(units) == 0 {
		return nil
	}
	applied, revision, err := l.writer.Commit(ctx, units)
	l.written = max(l.written, revision)
	l.reviseRefused(applied)
	switch {
	case errors.Is(err, store.ErrTooLarge), errors.Is(err, store.ErrInvalid):
		// A fault in this program, which must not keep the others from being served.
		l.config.Logger.Error("a decision cannot be committed", "error", err)
	case err != nil:
		return err
	}
	_, err = l.config.await(ctx, revision)
	return err
}

// ownerUnits are the units that the decision about an owner became, as a range of the units of a commit.
type ownerUnits struct {
	owner    cluster.OwnerRef
	from, to int
}

// reviseRefused marks the owners of which a unit was refused. What changed under the unit may be no event for the
// owner, such as a record that was projected meanwhile, and would not bring the decision back.
func (l *loop) reviseRefused(applied []bool) {
	for _, u := range l.decided {
		if u.to <= len(applied) && slices.Contains(applied[u.from:u.to], false) {
			l.dirty[u.owner] = true
		}
	}
	l.decided = l.decided[:0]
}

// until is how long nothing needs to be looked at.
func (l *loop) until(node time.Duration) time.Duration {
	next := min(node, lookAnyway)
	if len(l.dirty)+len(l.crons.dirty) > 0 {
		next = min(next, retryAfter)
	}
	if len(l.rest) > 0 || l.preempting.fresh {
		next = l.pace.pause / 2
	}
	if p := &l.preempting; p.hopeful {
		next = min(next, p.anyway-l.config.Clock())
	}
	if at := l.reservations.next; !at.IsZero() {
		next = min(next, at.Sub(l.now))
	}
	for _, a := range []*agenda{l.looks, l.crons.looks} {
		if at, ok := a.next(); ok {
			next = min(next, at.Sub(l.now))
		}
	}
	return max(next, time.Millisecond)
}

func (l *loop) waitingCount() int {
	n := 0
	for _, p := range l.pending { // order-free: a sum
		n += len(p)
	}
	return n
}
