// Package preemption finds the tasks that end for a leader's more urgent ones, and keeps the promises of their room.
package preemption

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/controlplane/fleetview"
	"github.com/berthd/berth/internal/controlplane/nodewatch"
	"github.com/berthd/berth/internal/controlplane/queue"
	"github.com/berthd/berth/internal/logic/admission"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/logic/scheduler/window"
	"github.com/berthd/berth/internal/logic/watcher"
	"github.com/berthd/berth/internal/observe"
	"github.com/berthd/berth/internal/store"
)

const (
	// minPreemptInterval is the least time between two searches for victims, and maxPreemptInterval the longest while
	// tasks wait and nothing changes. A search covers all attempts, so searches take at most one part in
	// preemptTimeDivisor of the time.
	minPreemptInterval = time.Second
	maxPreemptInterval = 10 * time.Second
	preemptTimeDivisor = 20
	// maxPreemptTasks bounds the waiting tasks that one search covers.
	maxPreemptTasks = 1000
)

// Preemption holds the promises of a leader and their victims. The stop of a victim names the attempt that gets its
// room, so a new leader recovers the promises with a victim that still runs. Once the last victim is gone, all of the
// room is free, and the more urgent task is placed first.
type Preemption struct {
	clock    func() time.Duration // boot-time clock
	view     *fleetview.View
	nodes    *nodewatch.Watch
	queue    *queue.Owners
	promises map[cluster.TaskID]*promise
	victims  map[string]*cluster.Victim // by UUID
	// nextSearch is the earliest time of the next search, latestSearch the latest, on the boot-time clock.
	// mayFindVictims says that a search may find victims for a task that waits.
	nextSearch, latestSearch time.Duration
	mayFindVictims           bool
	// hasNewVictims says that owners of new victims need a decision without delay.
	hasNewVictims bool
	// changed says that promises changed since the last TakeChanged.
	changed bool
}

// promise is a node that is promised to a task until it is placed. Its victims end, or leave the node.
type promise struct {
	owner   cluster.OwnerRef
	attempt int
	node    string
	victims []string
	since   time.Time
	why     string // what the victims have in common, for people
}

// What victims have in common. A leader that takes over promises does not know it of them until its first search.
const (
	lessUrgent  = "of lower priority"
	beyondQuota = "beyond the quota of its cluster"
	notKnown    = "that ends for it"
)

// New returns a preemption without promises. clock reads the boot-time clock (P9).
func New(clock func() time.Duration, view *fleetview.View, nodes *nodewatch.Watch, queue *queue.Owners) *Preemption {
	return &Preemption{
		clock: clock, view: view, nodes: nodes, queue: queue,
		promises: map[cluster.TaskID]*promise{}, victims: map[string]*cluster.Victim{},
	}
}

// LeaveReason returns why an attempt is to end for another task, or nil.
func (p *Preemption) LeaveReason(row *store.AttemptRow) *reconciler.Leave {
	if len(p.victims) == 0 || row.Desired == nil || row.Outcome != nil {
		return nil
	}
	if v := p.victims[row.Desired.UUID]; v != nil {
		return reconciler.PreemptedLeave(v)
	}
	return nil
}

// ListVictims returns the victims, ordered by UUID.
func (p *Preemption) ListVictims() []cluster.Victim {
	list := make([]cluster.Victim, 0, len(p.victims))
	for _, uuid := range slices.Sorted(maps.Keys(p.victims)) {
		list = append(list, *p.victims[uuid])
	}
	return list
}

// IsSearchDue reports whether a search for victims is due though nothing changed.
func (p *Preemption) IsSearchDue() bool { return p.mayFindVictims && p.clock() >= p.latestSearch }

// NextSearchDelay returns the wait until a search for victims is due though nothing changed, and false if none is.
func (p *Preemption) NextSearchDelay() (time.Duration, bool) {
	return p.latestSearch - p.clock(), p.mayFindVictims
}

// HasNewVictims reports whether owners of new victims need a decision without delay.
func (p *Preemption) HasNewVictims() bool { return p.hasNewVictims }

// TakeChanged reports whether promises changed since the last call.
func (p *Preemption) TakeChanged() bool {
	changed := p.changed
	p.changed = false
	return changed
}

// PromisedOwners returns the owners of tasks with a promise. They are decided before all others, so that nothing else
// gets the room that was freed for them.
func (p *Preemption) PromisedOwners() map[cluster.OwnerRef]bool {
	owners := make(map[cluster.OwnerRef]bool, len(p.promises))
	for _, w := range p.promises { // order-free: a set
		owners[w.owner] = true
	}
	return owners
}

// PromisedTasks returns the tasks with a promise, ordered.
func (p *Preemption) PromisedTasks() (tasks []window.Task) {
	for _, task := range slices.Sorted(maps.Keys(p.promises)) {
		tasks = append(tasks, window.Task{Owner: p.promises[task].owner, Task: task})
	}
	return tasks
}

// RecoverPromises takes over the promises of the former leader.
func (p *Preemption) RecoverPromises(snap *store.Snapshot, now time.Time) {
	for row := range snap.AllAttempts() {
		d := row.Desired
		if d == nil || d.Stop == nil || d.Stop.For == "" || !row.Standing() {
			continue
		}
		w := p.promises[d.Stop.For]
		if w == nil {
			owner, ok := d.Stop.For.Owner()
			if !ok {
				continue
			}
			w = &promise{owner: owner, attempt: d.Stop.ForAttempt, node: row.Node, since: now, why: notKnown}
			p.promises[d.Stop.For] = w
		}
		w.victims = append(w.victims, d.UUID)
	}
}

// ApplyPromises marks the promised nodes in the pending tasks, and returns them with a request of its own for each task
// that has a promise. A promise ends when its task is not pending any more.
func (p *Preemption) ApplyPromises(pending []cluster.Pending) []cluster.Pending {
	if len(p.promises) == 0 {
		return pending
	}
	pending = slices.Clone(cluster.Isolate(pending, slices.Collect(maps.Keys(p.promises))))
	stillPending := make(map[cluster.TaskID]bool, len(p.promises))
	for i := range pending {
		if w := p.promises[pending[i].Task]; w != nil && w.attempt == pending[i].Attempt {
			pending[i].Promised = w.node
			stillPending[pending[i].Task] = true
		}
	}
	for task, w := range p.promises { // order-free: each by itself
		if !stillPending[task] && !p.queue.IsMarked(w.owner) {
			p.dropPromise(task)
		}
	}
	return pending
}

// dropPromise ends a promise. Those of its victims without a stop continue.
func (p *Preemption) dropPromise(task cluster.TaskID) {
	for _, uuid := range p.promises[task].victims {
		delete(p.victims, uuid)
	}
	delete(p.promises, task)
}

// Search searches for victims of tasks that wait, if it is time, and extends the tasks' reasons to wait. The placements
// of r are what the cycle is about to commit.
func (p *Preemption) Search(domain *observe.Domain, r *scheduler.Result, options scheduler.Options) {
	p.hasNewVictims = false
	if len(r.Waiting) == 0 {
		p.mayFindVictims = false
		return
	}
	switch now := p.clock(); {
	case now < p.nextSearch:
		p.mayFindVictims, p.latestSearch = true, p.nextSearch // the next search decides
	default:
		p.searchVictims(domain, r, options)
		after := p.clock()
		p.nextSearch, p.latestSearch = after+max(minPreemptInterval, (after-now)*preemptTimeDivisor),
			after+max(maxPreemptInterval, (after-now)*preemptTimeDivisor)
	}
	if len(p.promises) == 0 {
		return
	}
	r.Waiting = cluster.IsolateWaiting(r.Waiting, slices.Collect(maps.Keys(p.promises)))
	for i := range r.Waiting {
		w := &r.Waiting[i]
		if wanted := p.promises[w.Task]; wanted != nil {
			w.Sentence = fmt.Sprintf("waits for %s to leave node %s; %s", wanted.victimText(), wanted.node, w.Sentence)
			w.Refusals = slices.Concat(
				[]cluster.RefusalCount{{
					Refusal: cluster.Refusal{Code: cluster.ReasonPreempted, Detail: wanted.node},
					Nodes:   1,
				}}, w.Refusals)
		}
	}
}

// victimText says which tasks have to go.
func (w *promise) victimText() string {
	switch n := len(w.victims); n {
	case 0:
		return "tasks that are stopping"
	case 1:
		return "1 task " + w.why
	default:
		why := strings.NewReplacer("its cluster", "their cluster", "ends", "end").Replace(w.why)
		return fmt.Sprintf("%d tasks %s", n, why)
	}
}

// searchVictims asks the scheduler which tasks should end for which.
func (p *Preemption) searchVictims(domain *observe.Domain, r *scheduler.Result, options scheduler.Options) {
	fleet := p.view.Fleet
	waiting := candidates(domain.Snapshot, &fleet.Limits, r)
	highest := 0
	for i := range waiting {
		highest = max(highest, waiting[i].Priority)
	}
	var found []scheduler.Preemption
	g, loans := &victimSet{}, admission.Loans{}
	if len(waiting) > 0 {
		loans = fleet.Limits.Loans()
	}
	if highest-cluster.PreemptionGap >= lowestPriority(domain.Snapshot) || !loans.IsEmpty() {
		g = p.collectVictims(domain, highest-cluster.PreemptionGap, &loans)
	}
	if p.mayFindVictims = g.eligible > 0 || len(p.promises) > 0; p.mayFindVictims {
		for i := range r.Placements { // the placements of this cycle take room, too
			pl := &r.Placements[i]
			fleet.Reserve(pl.Reservation(&r.Pending[pl.Pending], placingUUID(pl)))
		}
		found = scheduler.Preempt(scheduler.PreemptInput{
			Fleet: fleet, Waiting: waiting, Victims: g.victims, Spare: g.spareTasks, Least: cluster.PreemptionGap,
		}, options)
		for i := range r.Placements {
			fleet.Release(placingUUID(&r.Placements[i]))
		}
	}
	p.setPromises(waiting, found, g, domain.Now)
}

func placingUUID(pl *scheduler.Placement) string { return "placing/" + string(pl.Task) }

// setPromises replaces the promises by what a search found. Owners of new victims are decided for.
func (p *Preemption) setPromises(waiting []cluster.Pending, found []scheduler.Preemption, g *victimSet,
	now time.Time,
) {
	was := p.victims
	wants := make(map[cluster.TaskID]*promise, len(found))
	p.victims = map[string]*cluster.Victim{}
	for task, w := range p.promises { // order-free: each by itself
		undecided := p.queue.IsMarked(w.owner) && !slices.ContainsFunc(waiting, func(t cluster.Pending) bool {
			return t.Task == task
		})
		// A leader that has just begun does not know yet what the node holds.
		if undecided || p.view.RefusesTasks(w.node) {
			wants[task] = w
			for _, uuid := range w.victims {
				if was[uuid] != nil {
					p.victims[uuid] = was[uuid]
				}
			}
		}
	}
	for i := range found {
		f := &found[i]
		task := &waiting[f.Pending]
		w := &promise{
			owner: task.Owner, attempt: task.Attempt, node: f.Node, victims: f.Victims, since: now,
			why: lessUrgent,
		}
		if f.Reclaims {
			w.why = beyondQuota
		}
		if before := p.promises[f.Task]; before != nil && before.node == f.Node {
			w.since = before.since
			if len(f.Victims) == 0 {
				w.why = before.why
			}
			all := slices.Concat(f.Victims, p.stillHolding(before.victims))
			w.victims = slices.Compact(slices.Sorted(slices.Values(all)))
		}
		wants[f.Task] = w
		for _, uuid := range f.Victims {
			p.victims[uuid] = &cluster.Victim{
				UUID: uuid, For: f.Task, ForAttempt: task.Attempt, Priority: task.Priority, Node: f.Node,
				Since: w.since, Reclaims: f.Reclaims,
			}
			if was[uuid] == nil {
				p.queue.Mark(g.owner[uuid])
				p.hasNewVictims = true
			}
		}
	}
	p.promises = wants
	if p.hasNewVictims || len(found) > 0 {
		p.changed = true // promises take effect at the next placement
	}
}

// stillHolding returns those of the attempts that still hold room.
func (p *Preemption) stillHolding(uuids []string) (left []string) {
	for _, uuid := range uuids {
		if p.view.HoldsRoom(uuid) {
			left = append(left, uuid)
		}
	}
	return left
}

// candidates returns waiting tasks of a result for which others may have to end, the most urgent first; gangs as a
// whole. Tasks that a limit keeps waiting, or that would borrow, are not among them, except in gangs: nothing ends for
// them.
func candidates(snap *store.Snapshot, limits *admission.Ledger, r *scheduler.Result) (out []cluster.Pending) {
	pending, waits := r.Pending, r.Waiting
	draft := admission.NewDraft(limits)
	for i := range r.Placements {
		draft.Add(&pending[r.Placements[i].Pending], 1)
	}
	byTask := cluster.IndexTasks(cluster.RangesOf(pending))
	may := map[string]bool{}
	gang := ""
	for i := range waits {
		at, ok := byTask.Find(waits[i].Task)
		if !ok || pending[at].Priority == 0 || pending[at].Hold != (cluster.Hold{}) {
			continue
		}
		task := &pending[at]
		name := task.Owner.Cluster
		if _, known := may[name]; !known {
			c, ok := snap.Cluster(name)
			may[name] = !ok || c.Value.Preemption != cluster.PreemptNever
		}
		if !may[name] {
			continue
		}
		if task.Gang == "" && draft.Judge(task) != admission.Within {
			continue
		}
		if len(out) >= maxPreemptTasks && (task.Gang == "" || task.Gang != gang) {
			break
		}
		gang = task.Gang
		for id := range waits[i].Range().Each {
			if len(out) >= maxPreemptTasks && gang == "" {
				break
			}
			one := task.Single()
			one.Task = id
			out = append(out, one)
		}
	}
	return out
}

// victimSet is the attempts that may end for others.
type victimSet struct {
	victims    []scheduler.Victim
	owner      map[string]cluster.OwnerRef // by UUID
	spareTasks map[cluster.OwnerRef]int
	eligible   int // number of victims of low enough a priority, or of clusters that borrowed
}

// collectVictims lists the attempts that hold room and are leaving, or may end: tasks of jobs and services whose
// priority is at most maxPriority, and tasks of jobs of any priority whose clusters borrowed; never tasks of daemons.
func (p *Preemption) collectVictims(domain *observe.Domain, maxPriority int, loans *admission.Loans) *victimSet {
	snap := domain.Snapshot
	g := &victimSet{owner: map[string]cluster.OwnerRef{}, spareTasks: map[cluster.OwnerRef]int{}}
	var last victimOwner
	for row := range snap.AllAttempts() {
		o, ok := row.Ref()
		held, holds := p.view.IsCharged(row)
		if !ok || !holds || row.Desired == nil || row.Desired.UUID != held.UUID {
			continue
		}
		if o != last.owner {
			last = victimOwnerOf(snap, domain.Name, o)
		}
		v := scheduler.Victim{
			UUID: held.UUID, Priority: cmp.Or(last.priority, row.Desired.Priority), Owner: o,
			Leaving: isLeaving(row),
		}
		switch {
		case v.Leaving:
		case row.Outcome != nil: // a move: the attempt runs until its next one is healthy, which may take long
			continue
		case last.exempt || p.nodes.AbsenceOf(row.Node, o.Kind) != watcher.Present:
			continue
		case v.Priority > maxPriority && (o.Kind != cluster.KindJob || !loans.Has(o.Cluster)):
			continue
		default:
			g.eligible++
			g.owner[v.UUID] = o
			v.Gang = last.gang(row.Task)
			v.Unhealthy = !row.Observed.Healthy()
			if _, known := g.spareTasks[o]; !known && o.Kind == cluster.KindService {
				g.spareTasks[o] = spareTasks(domain, o)
			}
		}
		g.victims = append(g.victims, v)
	}
	return g
}

// isLeaving reports whether an attempt is on its way out, so that all its room comes free.
func isLeaving(row *store.AttemptRow) bool {
	return row.Desired.Stop != nil || row.Observed != nil && row.Observed.State.Terminal()
}

// lowestPriority returns the lowest priority of all owners.
func lowestPriority(snap *store.Snapshot) int {
	low := cluster.MaxPriority
	for e := range snap.Services("") {
		low = min(low, int(e.Value.Priority))
	}
	for e := range snap.Jobs("") {
		low = min(low, int(e.Value.Priority))
	}
	return low
}

// victimOwner is an owner whose attempts may end for others.
type victimOwner struct {
	owner    cluster.OwnerRef
	priority int
	exempt   bool
	job      *cluster.Job
}

func victimOwnerOf(snap *store.Snapshot, domain string, o cluster.OwnerRef) victimOwner {
	out := victimOwner{owner: o}
	if c, _ := snap.Cluster(o.Cluster); c.Value.InDomain() != domain {
		out.exempt = true
		return out
	}
	if o.Kind == cluster.KindJob {
		if e, ok := snap.Job(o.Cluster, o.Name); ok {
			out.priority, out.job = int(e.Value.Priority), e.Value
		}
		return out
	}
	e, ok := snap.Service(o.Cluster, o.Name)
	if ok {
		out.priority = int(e.Value.Priority)
	}
	out.exempt = ok && e.Value.Mode == cluster.ModeDaemon
	return out
}

// gang names the tasks of a job that end together with a task: those of its step, if the step is a gang.
func (p *victimOwner) gang(task cluster.TaskID) string {
	parts, ok := task.Parts()
	if p.job == nil || !ok || p.job.Step(parts.Step) == nil || p.job.Step(parts.Step).Gang == nil {
		return ""
	}
	return fmt.Sprintf("%s.%s.%d", p.owner, parts.Step, parts.Generation)
}

// spareTasks returns how many healthy tasks a service may lose to others.
func spareTasks(domain *observe.Domain, o cluster.OwnerRef) int {
	e, _ := domain.Snapshot.Service(o.Cluster, o.Name)
	return reconciler.Spare(domain.ServiceInput(o, e, domain.Tasks(o)))
}
