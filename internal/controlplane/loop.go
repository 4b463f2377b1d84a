package controlplane

import (
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
	// lookAnyway is how often a leader looks at everything without being told of a change.
	lookAnyway = time.Minute
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
	watch   *watch
	reserve map[store.AttemptKey]hold // the attempts that the fleet holds a reservation of

	// dirty owners are decided in the next cycle, all others when their look is due.
	dirty   map[cluster.OwnerRef]bool
	looks   *agenda
	pending map[cluster.OwnerRef][]cluster.Pending
	// unplaced says that pending tasks or the fleet changed since the last placement.
	unplaced bool
	now      time.Time
	clocks   clocks
	// lookedAtAll is when everything was learnt anew, changed or not.
	lookedAtAll time.Time
	// written is the revision that the tables must have reached to show all that this leader wrote: nothing is decided
	// before, or what was placed would be placed again.
	written uint64
}

// hold is what the fleet holds for an attempt.
type hold struct{ uuid, node string }

func newLoop(p *Plane, w *store.Writer, fence *store.Fence) *loop {
	l := &loop{
		config:  p.config,
		plane:   p,
		writer:  w,
		fence:   fence,
		plans:   store.NewPlanLog(w, p.config.Tables),
		fleet:   scheduler.NewFleet(),
		watch:   newWatch(p.config),
		reserve: map[store.AttemptKey]hold{},
		dirty:   map[cluster.OwnerRef]bool{},
		looks:   newAgenda(),
		pending: map[cluster.OwnerRef][]cluster.Pending{},
	}
	if last, ok := p.config.Tables.Snapshot().LastEvents(); ok {
		l.now = last.Value.At
	}
	return l
}

// run turns changes into decisions until the context ends or another leader has taken over.
func (l *loop) run(ctx context.Context) error {
	l.follow = l.config.Tables.Follow()
	defer l.follow.Close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.follow.Wake():
			if !sleep(ctx, gather) {
				return ctx.Err()
			}
		case <-timer.C:
		}
		next, err := l.cycle(ctx)
		switch {
		case errors.Is(err, store.ErrFenced), errors.Is(err, store.ErrClosed), ctx.Err() != nil:
			return err
		case err != nil:
			// What was not written is decided again from what the tables show then.
			l.config.Logger.Error("a cycle ended early", "error", err)
			next = retryAfter
		}
		timer.Reset(next)
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
	// 1. Take what changed, then a snapshot that holds all of it, and all that this leader wrote.
	if _, err := l.config.Tables.WaitFor(ctx, l.written); err != nil {
		return 0, err
	}
	changes := l.follow.Take()
	snap := l.config.Tables.Snapshot()
	l.advance()
	l.learn(snap, changes)
	// 2. Judge the nodes.
	nodes, nextNode := l.watch.judge(snap, changes, l.now)
	l.markTasksOf(snap, nodes.touched)
	// 3. Decide for each owner that changed or is due.
	units := append(l.tellJump(), nodes.units...)
	decided := l.decide(snap, &units)
	// 4. Commit what does not need placement.
	if err := l.commit(ctx, units); err != nil {
		l.dirtyAgain(decided)
		return 0, err
	}
	// 5. Place what waits.
	placed, err := l.place(ctx)
	if err != nil {
		return 0, err
	}
	if m := l.config.Metrics; m != nil {
		m.Cycled(l.config.Clock()-began, placed, l.waitingCount())
	}
	return l.until(nextNode), nil
}

// advance moves the decision's clock: never back, and not behind what was last committed (P9.1).
func (l *loop) advance() {
	if now := l.config.Now(); now.After(l.now) {
		l.now = now
	}
}

// learn brings the loop's own view, the fleet and the list of owners to decide for, to the snapshot.
func (l *loop) learn(snap *store.Snapshot, c store.Changes) {
	if c.Resync || l.now.Sub(l.lookedAtAll) >= lookAnyway {
		l.lookedAtAll = l.now
		l.learnAll(snap)
		return
	}
	for key := range c.Attempts { // order-free: each attempt is charged by itself
		l.charge(snap, key)
	}
	for name := range c.Nodes { // order-free: each node is set by itself
		l.setNode(snap, name)
	}
	for o := range c.Owners { // order-free: a set
		l.dirty[o] = true
	}
	if c.Clusters {
		l.dirtyAll(snap)
	}
	if len(c.Definitions) > 0 {
		l.dirtyUsers(snap, c.Definitions)
	}
}

func (l *loop) learnAll(snap *store.Snapshot) {
	keys := map[store.AttemptKey]bool{}
	for r := range snap.AllAttempts() {
		keys[store.AttemptKey{Task: r.Task, Number: r.Number}] = true
		if o, ok := r.Ref(); ok {
			l.dirty[o] = true
		}
	}
	for k := range l.reserve { // order-free: a set
		keys[k] = true
	}
	for k := range keys { // order-free: each attempt is charged by itself
		l.charge(snap, k)
	}
	for _, name := range l.fleet.Nodes() {
		l.setNode(snap, name)
	}
	for e := range snap.Nodes() {
		l.setNode(snap, e.Value.Name)
	}
	l.dirtyAll(snap)
}

func (l *loop) dirtyAll(snap *store.Snapshot) {
	for e := range snap.Services("") {
		l.dirty[e.Value.Owner()] = true
	}
	for e := range snap.Jobs("") {
		l.dirty[e.Value.Owner()] = true
	}
}

// dirtyUsers marks the owners that ask for one of the definitions.
func (l *loop) dirtyUsers(snap *store.Snapshot, refs map[cluster.Ref]bool) {
	for e := range snap.Services("") {
		if refs[e.Value.Definition] {
			l.dirty[e.Value.Owner()] = true
		}
	}
	for e := range snap.Jobs("") {
		for i := range e.Value.Steps {
			if refs[e.Value.Steps[i].Definition] {
				l.dirty[e.Value.Owner()] = true
			}
		}
	}
}

func (l *loop) dirtyAgain(owners []cluster.OwnerRef) {
	for _, o := range owners {
		l.dirty[o] = true
	}
}

// charge keeps the fleet's reservation of an attempt: from its placement until nothing of it is left.
func (l *loop) charge(snap *store.Snapshot, key store.AttemptKey) {
	held, isHeld := l.reserve[key]
	row, ok := snap.Attempt(key.Task, key.Number)
	over := !ok || !row.Standing() || row.Observed != nil && row.Observed.Gone
	var d *cluster.Desired
	if !over {
		d = l.occupant(snap, row)
	}
	if isHeld && (over || d != nil && (hold{d.UUID, row.Node}) != held) {
		l.fleet.Release(held.uuid)
		delete(l.reserve, key)
		l.unplaced, isHeld = true, false
	}
	if isHeld || d == nil {
		return
	}
	r := scheduler.Reservation{UUID: d.UUID, Task: row.Task, Node: row.Node}
	if def, ok := snap.Definition(d.Definition); ok {
		r.Demand = def.Value.Demand()
	}
	for _, port := range d.Ports { // order-free: a set
		r.Ports = append(r.Ports, port)
	}
	l.fleet.Reserve(r)
	l.reserve[key] = hold{r.UUID, r.Node}
}

// occupant returns what takes up room for an attempt: its desired record, or where that cannot be read (P3.5), or
// only a status stands, what the task's owner asks for. It is nil if nobody knows.
func (l *loop) occupant(snap *store.Snapshot, row *store.AttemptRow) *cluster.Desired {
	if row.Desired != nil {
		return row.Desired
	}
	d := &cluster.Desired{Task: row.Task, Node: row.Node, UUID: "unread/" + row.Node + "/" + string(row.Task)}
	if row.Observed != nil {
		d.UUID = row.Observed.UUID
	}
	if !l.describe(snap, d) {
		return nil
	}
	return d
}

func (l *loop) setNode(snap *store.Snapshot, name string) {
	l.unplaced = true
	node, ok := snap.Node(name)
	if !ok || node.Value.Domain != l.config.Domain {
		l.fleet.RemoveNode(name)
		return
	}
	var host *cluster.Host
	if h, ok := snap.Host(name); ok {
		host = h.Value
	}
	var status *cluster.NodeStatus
	if s, ok := snap.NodeStatus(name); ok {
		status = s.Value
	}
	l.fleet.SetNode(scheduler.NodeOf(host, node.Value, status))
}

// markTasksOf marks the owners of all tasks on nodes whose verdict changed.
func (l *loop) markTasksOf(snap *store.Snapshot, nodes []string) {
	for _, name := range nodes {
		for row := range snap.NodeAttempts(name) {
			if o, ok := row.Ref(); ok {
				l.dirty[o] = true
			}
		}
	}
}

// decide runs the reconciler for every owner that is dirty or due, and adds what it wants to be written.
func (l *loop) decide(snap *store.Snapshot, units *[]store.Unit) []cluster.OwnerRef {
	for _, o := range l.looks.due(l.now) {
		l.dirty[o] = true
	}
	owners := make([]cluster.OwnerRef, 0, len(l.dirty))
	for o := range l.dirty { // order-free: sorted next
		owners = append(owners, o)
	}
	slices.SortFunc(owners, func(a, b cluster.OwnerRef) int {
		if a.Less(b) {
			return -1
		}
		return 1
	})
	for _, o := range owners {
		tasks := l.tasks(snap, o, units)
		d := l.reconcile(snap, o, tasks)
		w := &write{loop: l, snap: snap, owner: o}
		if err := w.decision(d, units); err != nil {
			// A record that cannot be encoded is a fault in this program; the owner stays as it is.
			l.config.Logger.Error("a decision cannot be written", "owner", o.String(), "error", err)
		}
		l.setPending(o, slices.DeleteFunc(d.Pending, func(p cluster.Pending) bool { return pinned(snap, p.Task) }))
		if next := d.NextLook; !next.IsZero() && next.Before(l.now.Add(retryAfter)) {
			d.NextLook = l.now.Add(retryAfter) // what is due and was refused is not tried hotly
		}
		l.looks.set(o, d.NextLook)
	}
	clear(l.dirty)
	return owners
}

func (l *loop) setPending(o cluster.OwnerRef, p []cluster.Pending) {
	if len(p) == 0 {
		if len(l.pending[o]) > 0 {
			l.unplaced = true
		}
		delete(l.pending, o)
		return
	}
	l.pending[o] = p
	l.unplaced = true
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
	if o.Kind == cluster.KindJob {
		in := reconciler.JobInput{Owner: o, Tasks: tasks, Definitions: definitions, ClusterConstraints: constraints, Now: l.now}
		if e, ok := snap.Job(o.Cluster, o.Name); ok {
			in.Spec, in.SpecRev = e.Value, e.Modified
		}
		return reconciler.Job(in)
	}
	in := reconciler.ServiceInput{Owner: o, Tasks: tasks, Definitions: definitions, ClusterConstraints: constraints, Now: l.now}
	if e, ok := snap.Service(o.Cluster, o.Name); ok {
		in.Spec, in.SpecRev = e.Value, e.Modified
	}
	return reconciler.Service(in)
}

// commit writes units and waits until the tables show them, so that the next decision sees its own acts.
func (l *loop) commit(ctx context.Context, units []store.Unit) error {
	if len(units) == 0 {
		return nil
	}
	_, revision, err := l.writer.Commit(ctx, units)
	l.written = max(l.written, revision)
	switch {
	case errors.Is(err, store.ErrTooLarge), errors.Is(err, store.ErrInvalid):
		// A fault in this program, which must not keep the others from being served.
		l.config.Logger.Error("a decision cannot be committed", "error", err)
	case err != nil:
		return err
	}
	_, err = l.config.Tables.WaitFor(ctx, revision)
	return err
}

// until is how long nothing needs to be looked at.
func (l *loop) until(node time.Duration) time.Duration {
	next := min(node, lookAnyway)
	if len(l.dirty) > 0 {
		next = min(next, retryAfter)
	}
	if at, ok := l.looks.next(); ok {
		next = min(next, at.Sub(l.now))
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
