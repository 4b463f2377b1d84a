package controlplane

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/logic/watcher"
	"github.com/berthd/berth/internal/store"
)

const (
	// preemptEvery is how often a leader looks, at most, whether tasks should end for others; preemptAnyway how often
	// it does while some wait and nothing changes. As each look is at all attempts, it takes at most one part in
	// preemptShare of the time.
	preemptEvery  = time.Second
	preemptAnyway = 10 * time.Second
	preemptShare  = 20
	// preemptMost bounds for how many tasks that wait a look is.
	preemptMost = 1000
)

// preempting is what a leader has others end for. The stop of a victim names the attempt that its room is promised to:
// a new leader takes up the promises of which a victim still stands. When the last one has gone all of the room is
// free, and the more urgent task is placed first.
type preempting struct {
	wants   map[cluster.TaskID]*want
	victims map[string]*reconciler.Leave // by UUID
	// next is when to look again; hopeful says that tasks wait that might have others end.
	next, anyway time.Duration
	hopeful      bool
	// fresh says that owners are to be decided for at once.
	fresh bool
}

// want is a task for which others end, or leave: the node is promised to it until it is placed.
type want struct {
	owner   cluster.OwnerRef
	attempt int
	node    string
	victims []string
	since   time.Time
}

func newPreempting() preempting {
	return preempting{wants: map[cluster.TaskID]*want{}, victims: map[string]*reconciler.Leave{}}
}

// of says why an attempt is to end, if it is for another task.
func (p *preempting) of(row *store.AttemptRow) *reconciler.Leave {
	if len(p.victims) == 0 || row.Desired == nil || row.Outcome != nil {
		return nil
	}
	return p.victims[row.Desired.UUID]
}

// promised returns the owners of tasks that have a promise: they are decided for before all others, so that nothing
// else is given what was freed for them.
func (p *preempting) promised() map[cluster.OwnerRef]bool {
	owners := make(map[cluster.OwnerRef]bool, len(p.wants))
	for _, w := range p.wants { // order-free: a set
		owners[w.owner] = true
	}
	return owners
}

// recoverPromises takes up what the leader before promised.
func (l *loop) recoverPromises(snap *store.Snapshot) {
	p := &l.preempting
	for row := range snap.AllAttempts() {
		d := row.Desired
		if d == nil || d.Stop == nil || d.Stop.For == "" || !row.Standing() {
			continue
		}
		w := p.wants[d.Stop.For]
		if w == nil {
			owner, ok := (&store.AttemptRow{Task: d.Stop.For}).Ref()
			if !ok {
				continue
			}
			w = &want{owner: owner, attempt: d.Stop.ForAttempt, node: row.Node, since: l.now}
			p.wants[d.Stop.For] = w
		}
		w.victims = append(w.victims, d.UUID)
	}
}

// promise tells the scheduler which nodes were promised to those that wait. A promise ends when its task is not asked
// for any more.
func (l *loop) promise(pending []cluster.Pending) {
	p := &l.preempting
	if len(p.wants) == 0 {
		return
	}
	asked := make(map[cluster.TaskID]bool, len(p.wants))
	for i := range pending {
		if w := p.wants[pending[i].Task]; w != nil && w.attempt == pending[i].Attempt {
			pending[i].Promised = w.node
			asked[pending[i].Task] = true
		}
	}
	for task, w := range p.wants { // order-free: each by itself
		if !asked[task] && !l.dirty[w.owner] {
			l.dropWant(task)
		}
	}
}

// dropWant ends a promise: those of its victims that were not told to stop go on.
func (l *loop) dropWant(task cluster.TaskID) {
	p := &l.preempting
	for _, uuid := range p.wants[task].victims {
		delete(p.victims, uuid)
	}
	delete(p.wants, task)
}

// preempt finds room for tasks that wait, among what others of lower priority hold, and says of them what they wait
// for. Placements are what the cycle is about to commit.
func (l *loop) preempt(snap *store.Snapshot, pending []cluster.Pending, r *scheduler.Result) {
	p := &l.preempting
	p.fresh = false
	if len(r.Waiting) == 0 {
		p.hopeful = false
		return
	}
	switch now := l.config.Clock(); {
	case now < p.next:
		p.hopeful, p.anyway = true, p.next // who knows
	default:
		l.lookForRoom(snap, pending, r)
		after := l.config.Clock()
		p.next, p.anyway = after+max(preemptEvery, (after-now)*preemptShare),
			after+max(preemptAnyway, (after-now)*preemptShare)
	}
	if len(p.wants) == 0 {
		return
	}
	for i := range r.Waiting {
		w := &r.Waiting[i]
		if wanted := p.wants[w.Task]; wanted != nil {
			w.Sentence = fmt.Sprintf("waits for %s to leave node %s; %s", wanted.what(), wanted.node, w.Sentence)
			w.Refusals = slices.Concat(
				[]cluster.RefusalCount{{
					Refusal: cluster.Refusal{Code: cluster.ReasonPreempted, Detail: wanted.node},
					Nodes:   1,
				}}, w.Refusals)
		}
	}
}

// what says what a task waits for.
func (w *want) what() string {
	switch n := len(w.victims); n {
	case 0:
		return "tasks that are on their way out"
	case 1:
		return "1 task of lower priority"
	default:
		return fmt.Sprintf("%d tasks of lower priority", n)
	}
}

// lookForRoom asks the scheduler anew which tasks should end for which.
func (l *loop) lookForRoom(snap *store.Snapshot, pending []cluster.Pending, r *scheduler.Result) {
	p := &l.preempting
	waiting := l.worthy(snap, pending, r.Waiting)
	highest := 0
	for i := range waiting {
		highest = max(highest, waiting[i].Priority)
	}
	var found []scheduler.Preemption
	g := &victims{}
	if highest-cluster.PreemptionGap >= l.lowest(snap) {
		g = l.gatherVictims(snap, highest-cluster.PreemptionGap)
	}
	if p.hopeful = g.lower > 0 || len(p.wants) > 0; p.hopeful {
		for i := range r.Placements { // what is placed now takes room, too
			pl := &r.Placements[i]
			l.fleet.Reserve(pl.Reservation(&pending[pl.Pending], placingUUID(pl)))
		}
		found = scheduler.Preempt(scheduler.PreemptInput{
			Fleet: l.fleet, Waiting: waiting, Victims: g.victims, Spare: g.spare, Least: cluster.PreemptionGap,
		}, l.config.Scheduler)
		for i := range r.Placements {
			l.fleet.Release(placingUUID(&r.Placements[i]))
		}
	}
	l.want(waiting, found, g)
}

func placingUUID(pl *scheduler.Placement) string { return "placing/" + string(pl.Task) }

// want takes over what is to end for whom. Owners of attempts of which that is news are decided for.
func (l *loop) want(waiting []cluster.Pending, found []scheduler.Preemption, g *victims) {
	p := &l.preempting
	was := p.victims
	wants := make(map[cluster.TaskID]*want, len(found))
	p.victims = map[string]*reconciler.Leave{}
	for task, w := range p.wants { // order-free: each by itself
		undecided := l.dirty[w.owner] && !slices.ContainsFunc(waiting, func(t cluster.Pending) bool {
			return t.Task == task
		})
		if undecided || l.barred(w.node) { // what its node holds is not known yet to a leader that has just begun
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
		w := &want{owner: task.Owner, attempt: task.Attempt, node: f.Node, victims: f.Victims, since: l.now}
		if before := p.wants[f.Task]; before != nil && before.node == f.Node {
			w.since = before.since
			w.victims = slices.Compact(slices.Sorted(slices.Values(slices.Concat(f.Victims, l.going(before.victims)))))
		}
		wants[f.Task] = w
		for _, uuid := range f.Victims {
			p.victims[uuid] = &reconciler.Leave{
				Reason: cluster.ReasonPreempted, Since: w.since, Now: true, For: f.Task, ForAttempt: task.Attempt,
				Message: fmt.Sprintf("%s of priority %d takes its place on node %s", f.Task, task.Priority, f.Node),
			}
			if was[uuid] == nil {
				l.dirty[g.owner[uuid]], p.fresh = true, true
			}
		}
	}
	p.wants = wants
	if p.fresh || len(found) > 0 {
		l.unplaced = true // the promises count from the next placement on
	}
}

// going returns those of the attempts that still hold room.
func (l *loop) going(uuids []string) (left []string) {
	for _, uuid := range uuids {
		if _, holds := l.fleet.Reserved(uuid); holds {
			left = append(left, uuid)
		}
	}
	return left
}

// worthy returns those that wait for which others may have to end, the most urgent first; gangs as a whole.
func (l *loop) worthy(snap *store.Snapshot, pending []cluster.Pending,
	waits []cluster.Waiting,
) (out []cluster.Pending) {
	byTask := make(map[cluster.TaskID]int, len(waits))
	for i := range pending {
		byTask[pending[i].Task] = i
	}
	may := map[string]bool{}
	gang := ""
	for i := range waits {
		at, ok := byTask[waits[i].Task]
		if !ok || pending[at].Priority == 0 || pending[at].Lacks != "" {
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
		if len(out) >= preemptMost && (task.Gang == "" || task.Gang != gang) {
			break
		}
		gang = task.Gang
		out = append(out, *task)
	}
	return out
}

// victims are the attempts that may end for others.
type victims struct {
	victims []scheduler.Victim
	owner   map[string]cluster.OwnerRef // by UUID
	spare   map[cluster.OwnerRef]int
	lower   int // how many are of low enough a priority
}

// gatherVictims lists what holds room and is on its way out, or is of a priority of at most so much and may end: tasks
// of jobs, and such of services, never of daemons.
func (l *loop) gatherVictims(snap *store.Snapshot, most int) *victims {
	g := &victims{owner: map[string]cluster.OwnerRef{}, spare: map[cluster.OwnerRef]int{}}
	var last prey
	for row := range snap.AllAttempts() {
		o, ok := row.Ref()
		held, holds := l.reserve[store.AttemptKey{Task: row.Task, Number: row.Number}]
		if !ok || !holds || row.Desired == nil || row.Desired.UUID != held.uuid {
			continue
		}
		if o != last.owner {
			last = l.preyOf(snap, o)
		}
		v := scheduler.Victim{
			UUID: held.uuid, Priority: cmp.Or(last.priority, row.Desired.Priority), Owner: o,
			Leaving: goes(row),
		}
		switch {
		case v.Leaving:
		case row.Outcome != nil: // it moves, and goes on until its next attempt is healthy, which may take its time
			continue
		case last.spared || v.Priority > most || l.watch.absence(row.Node, o.Kind) != watcher.Present:
			continue
		default:
			g.lower++
			g.owner[v.UUID] = o
			v.Gang = last.gang(row.Task)
			v.Unhealthy = !row.Observed.Healthy()
			if _, known := g.spare[o]; !known && o.Kind == cluster.KindService {
				g.spare[o] = l.spare(snap, o)
			}
		}
		g.victims = append(g.victims, v)
	}
	return g
}

// goes reports whether an attempt is on its way out: whatever it holds comes free.
func goes(row *store.AttemptRow) bool {
	return row.Desired.Stop != nil || row.Observed != nil && row.Observed.State.Terminal()
}

// lowest is the lowest priority of an owner.
func (l *loop) lowest(snap *store.Snapshot) int {
	low := cluster.MaxPriority
	for e := range snap.Services("") {
		low = min(low, e.Value.Priority)
	}
	for e := range snap.Jobs("") {
		low = min(low, e.Value.Priority)
	}
	return low
}

// prey is an owner whose attempts may end for others.
type prey struct {
	owner    cluster.OwnerRef
	priority int
	spared   bool
	job      *cluster.Job
}

func (l *loop) preyOf(snap *store.Snapshot, o cluster.OwnerRef) prey {
	out := prey{owner: o}
	if domainOf(snap, o.Cluster) != l.config.Domain {
		out.spared = true
		return out
	}
	if o.Kind == cluster.KindJob {
		if e, ok := snap.Job(o.Cluster, o.Name); ok {
			out.priority, out.job = e.Value.Priority, e.Value
		}
		return out
	}
	e, ok := snap.Service(o.Cluster, o.Name)
	if ok {
		out.priority = e.Value.Priority
	}
	out.spared = ok && e.Value.Mode == cluster.ModeDaemon
	return out
}

// gang names those of a job that end together with a task: the tasks of its step, where they are a gang.
func (p *prey) gang(task cluster.TaskID) string {
	parts, ok := task.Parts()
	if p.job == nil || !ok || p.job.Step(parts.Step) == nil || p.job.Step(parts.Step).Gang == nil {
		return ""
	}
	return fmt.Sprintf("%s.%s.%d", p.owner, parts.Step, parts.Generation)
}

// spare is how many healthy tasks a service may lose to others.
func (l *loop) spare(snap *store.Snapshot, o cluster.OwnerRef) int {
	in := reconciler.ServiceInput{
		Owner: o, Now: l.now, Without: l.config.Without,
		Definitions: func(r cluster.Ref) *cluster.TaskDefinition {
			if e, ok := snap.Definition(r); ok {
				return e.Value
			}
			return nil
		},
	}
	for row := range snap.Attempts(o) {
		if row.Number != 0 {
			in.Tasks = append(in.Tasks, l.task(snap, o, row))
		}
	}
	if e, ok := snap.Wanted(o.Cluster, o.Name); ok {
		in.Spec, in.SpecRev = e.Value, e.Modified
	}
	return reconciler.Spare(in)
}
