package sim

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/sim/ci"
	"github.com/berthd/berth/internal/store"
)

// lifecycleChecker checks the records of attempts, from their plan record to their outcome.
type lifecycleChecker struct {
	*observation
	leadership   *leadershipChecker
	liveness     *livenessChecker
	services     *serviceChecker
	events       *eventChecker
	proposals    *proposalChecker
	loans        *loanChecker
	plans        map[string]*cluster.PlanRecord
	editedValues map[string]bool // well-formed records that a stranger wrote, by value
	newOutcomes  []string        // outcomes of this revision
	// newPlacements are the attempts that the default domain placed in this revision.
	newPlacements []*attemptHistory
}

// applyPlan processes a plan record.
func (v *lifecycleChecker) applyPlan(key string, c *store.Change) {
	old := v.plans[key]
	still := map[string]bool{}
	if c.Deleted {
		delete(v.plans, key)
	} else if now, err := store.Decode[cluster.PlanRecord](c.Value); err == nil {
		if old == nil && !v.whole {
			v.leadership.checkToken(now)
		}
		for _, d := range placements(now) {
			a := v.attemptOf(d)
			still[d.UUID] = true
			if old == nil {
				v.checkPlacement(a, c.Modified)
				v.checkDriver(a, now.Seq)
				v.proposals.notePlacement(a.uuid, domainOfPlan(now.Seq))
				v.checkNeeds(a)
			}
			a.planned = true
			v.touch(a)
			if old == nil && cluster.DomainOfPlan(now.Seq) == 0 {
				v.newPlacements = append(v.newPlacements, a)
			}
			if old == nil {
				v.checkParallelism(a)
				v.checkLimits(a)
				v.checkJobGroup(a)
				v.loans.checkBorrowing(a)
			}
		}
		v.plans[key] = now
	}
	if old == nil {
		return
	}
	for _, d := range placements(old) {
		a := v.attempts[d.UUID]
		if a == nil || still[a.uuid] {
			continue
		}
		a.planned = false
		v.touch(a)
		if a.desired == nil && !a.ended && !v.overwritten {
			v.breach("plan-vanished", "%s/%d on %s was neither projected nor ended when %s went", a.task, a.number,
				a.node, key)
		}
	}
}

// checkProjections checks that the attempts which were placed in a revision have records of their own in it, if their
// domain asks for that (P3.4).
func (v *lifecycleChecker) checkProjections(revision uint64) {
	placed := v.newPlacements
	v.newPlacements = nil
	r := v.records["domain/"+cluster.DefaultDomain]
	d, err := store.Decode[cluster.Domain](r.Value)
	if err != nil || !d.ProjectsAtOnce() || v.whole || v.overwritten || v.restored {
		return
	}
	for _, a := range placed {
		if d.HasKVScheduler() && !a.commanded && !v.isBound(a) {
			v.breach("uncommanded", "%s/%d was placed on %s at %d, and no record commanded it", a.task, a.number,
				a.node, revision)
		}
		for _, key := range []string{"state/" + a.node + "/" + string(a.task), "state/" + string(a.task)} {
			if v.records[key].Modified != revision {
				v.breach("projected-late", "%s/%d was placed on %s at %d without %s", a.task, a.number, a.node,
					revision, key)
			}
		}
	}
}

// isBound reports whether an attempt may have one node only: that of its daemon, or the one that it moves to.
func (v *lifecycleChecker) isBound(a *attemptHistory) bool {
	parts, ok := a.task.Parts()
	prior := v.outcomes[fmt.Sprint(a.task, "/", a.number-1)]
	return !ok || parts.Owner == "logd" ||
		prior != nil && prior.outcome != nil && prior.outcome.Reason == cluster.ReasonRebalance
}

// checkPlacement checks a placement at the time of its record, which has the revision.
func (v *lifecycleChecker) checkPlacement(a *attemptHistory, revision uint64) {
	if v.overwritten || v.restored || a.number <= 1 {
		return
	}
	for _, noun := range []string{"state/", "status/"} {
		if r, exists := v.records[noun+a.node+"/"+string(a.task)]; exists && r.Modified != revision && !isCommanded(r) {
			v.breach("unclean-node", "%s/%d was placed on %s while %s exists: %s", a.task, a.number, a.node,
				noun+a.node+"/"+string(a.task), r.Value)
		}
	}
	if v.outcomes[fmt.Sprint(a.task, "/", a.number-1)] == nil {
		v.breach("no-prior", "%s/%d was placed on %s, but attempt %d has no outcome", a.task, a.number, a.node,
			a.number-1)
	}
}

// checkDriver checks that the domain that placed an attempt owns the node (P7.1).
func (v *lifecycleChecker) checkDriver(a *attemptHistory, plan uint64) {
	n := v.nodeView(a.node).verdict
	if by := domainOfPlan(plan); !v.restored && v.story.claims() && (n == nil || n.Domain != by) {
		v.breach("two-drivers", "the domain %s placed %s/%d on %s, which is of %+v", by, a.task, a.number, a.node, n)
	}
}

// stepOf returns the job of a task and its step, or nil. The job's record is that of the task's run: the record of a
// later run says nothing about it.
func (v *observation) stepOf(parts cluster.TaskParts) (*cluster.Job, *cluster.Step) {
	if parts.Step == "" || v.overwritten || v.restored {
		return nil, nil
	}
	key := strings.TrimPrefix(prefix.Job(parts.Cluster, parts.Owner), string(prefix))
	r := v.records[key]
	d, known := v.decodedJobs[key]
	if !known || d.revision != r.Modified {
		job, err := store.Decode[cluster.Job](r.Value)
		if err != nil {
			job = nil
		}
		d = decodedJob{r.Modified, job}
		v.decodedJobs[key] = d
	}
	if d.job == nil || d.job.Generation != parts.Generation {
		return nil, nil
	}
	return d.job, d.job.Step(parts.Step)
}

// decodedJob is a job with the revision of its record; the job is nil if the record cannot be decoded.
type decodedJob struct {
	revision uint64
	job      *cluster.Job
}

// checkParallelism checks that no more tasks of a step are placed and have not ended than may run at a time.
func (v *lifecycleChecker) checkParallelism(a *attemptHistory) {
	parts, _ := a.task.Parts()
	_, step := v.stepOf(parts)
	if step == nil || step.Parallelism == 0 {
		return
	}
	running := 0
	for i := range step.Count {
		id := cluster.JobTask(parts.Cluster, parts.Owner, parts.Generation, step.Name, i)
		for other := range v.tasks[id] { // order-free: they are counted
			if other.isPlaced() {
				running++
			}
		}
	}
	if running > step.Parallelism {
		v.breach("parallelism", "%s/%d was placed as number %d of at most %d tasks of its step", a.task, a.number,
			running, step.Parallelism)
	}
}

// checkLimits checks that the cluster keeps to its quota of jobs, and the group of a task to its limit of tasks.
func (v *lifecycleChecker) checkLimits(a *attemptHistory) {
	parts, _ := a.task.Parts()
	_, step := v.stepOf(parts)
	if step == nil {
		return
	}
	jobs, members := map[string]bool{}, 0
	steps := map[cluster.TaskParts]*cluster.Step{} // without the index
	for o := range v.placed {                      // order-free: they are counted
		other, ok := o.task.Parts()
		other.Index = 0
		otherStep, known := steps[other]
		if !known && ok && other.Cluster == parts.Cluster {
			_, otherStep = v.stepOf(other)
			steps[other] = otherStep
		}
		if otherStep == nil {
			continue
		}
		jobs[other.Owner] = true
		if step.Concurrency != nil && otherStep.Concurrency != nil &&
			otherStep.Concurrency.Group == step.Concurrency.Group {
			members++
		}
	}
	if limit := v.maxJobs(parts.Cluster); len(jobs) > limit {
		v.breach("quota", "%s/%d was placed, and %d jobs have tasks, at most %d may", a.task, a.number, len(jobs),
			limit)
	}
	if step.Concurrency != nil && members > step.Concurrency.Limit {
		v.breach("concurrency", "%s/%d was placed as number %d of at most %d tasks of its group", a.task, a.number,
			members, step.Concurrency.Limit)
	}
}

// maxJobs returns how many jobs of a cluster may have tasks at the same time.
func (v *lifecycleChecker) maxJobs(name string) int {
	c, err := store.Decode[cluster.Cluster](v.records["cluster/"+name].Value)
	if err != nil || c.Quota == nil || c.Quota.Jobs == 0 {
		return math.MaxInt
	}
	return c.Quota.Jobs
}

// isPlaced reports whether the attempt is placed and has not ended.
func (a *attemptHistory) isPlaced() bool { return a.outcome == nil && (a.planned || a.desired != nil) }

// hasBegun reports whether the run of a job has another attempt than one.
func (v *lifecycleChecker) hasBegun(j *cluster.Job, a *attemptHistory) bool {
	for i := range j.Steps {
		for n := range j.Steps[i].Count {
			id := cluster.JobTask(j.Cluster, j.Name, j.Generation, j.Steps[i].Name, n)
			for other := range v.tasks[id] { // order-free: any
				if other != a {
					return true
				}
			}
		}
	}
	return false
}

// checkNeeds checks, when a task of a job is placed, that the tasks of needed steps have succeeded, and for the first
// task that the needs of the job were met.
func (v *lifecycleChecker) checkNeeds(a *attemptHistory) {
	parts, _ := a.task.Parts()
	j, step := v.stepOf(parts)
	if step == nil {
		return
	}
	if j.AwaitsNeeds() && !v.hasBegun(j, a) {
		v.breach("owner-needs", "%s/%d was placed before the needs of its job were met: %v", a.task, a.number, j.Needs)
	}
	if step.Requires == cluster.RequireResolved {
		return
	}
	for _, name := range step.Needs {
		for i := range j.Step(name).Count {
			id := cluster.JobTask(parts.Cluster, parts.Owner, parts.Generation, name, i)
			if !v.hasSucceeded(id) {
				v.breach("needs", "%s/%d was placed, but %s has not succeeded", a.task, a.number, id)
			}
		}
	}
}

func (v *lifecycleChecker) hasSucceeded(id cluster.TaskID) bool {
	for a := range v.tasks[id] { // order-free: any of them
		if a.outcome != nil && a.outcome.State == cluster.StateSucceeded {
			return true
		}
	}
	return false
}

// noteEdit records a value that a stranger is about to write.
func (v *lifecycleChecker) noteEdit(value []byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.editedValues == nil {
		v.editedValues = map[string]bool{}
	}
	v.editedValues[string(value)] = true
}

// applyDesired processes the desired record of an attempt.
func (v *lifecycleChecker) applyDesired(node string, task cluster.TaskID, c *store.Change, was store.Record) {
	var before *attemptHistory
	if old, err := store.Decode[cluster.Desired](was.Value); was.Key != "" && err == nil {
		if before = v.attempts[old.UUID]; before != nil {
			before.desired = nil
			v.touch(before)
		}
	}
	if c.Deleted {
		return
	}
	d, err := store.Decode[cluster.Desired](c.Value)
	if err != nil || d.Task != task || d.Node != node || v.editedValues[string(c.Value)] {
		if before != nil {
			before.erased = true
		}
		return
	}
	a := v.attemptOf(d)
	// The transaction of an outcome projects the attempt if nothing projected it before (P4.2).
	if a.ended && a.endedAt != c.Modified && !d.Ended() && was.Key == "" && !v.isUntrusted(node) && !v.restored {
		v.breach("revived", "%s/%d is wanted on %s again after its outcome", task, d.Attempt, node)
	}
	if d.Stop != nil && !a.stopped {
		a.stopped = true
		v.loans.checkReclaim(a, d.Stop)
		v.proposals.noteLeave(d.UUID, d.Owner, d.Stop.Message)
		if l, ok := v.leadership.presentLeader(d.Plan); ok && !v.restored && d.Token.Epoch < l.Epoch {
			v.breach("fenced", "a stop of %s/%d by epoch %d was written in epoch %d", task, d.Attempt, d.Token.Epoch,
				l.Epoch)
		}
	}
	v.services.checkVoluntaryStop(a, d, was)
	if !a.commanded && isCommanded(was) {
		a.commanded = true
		v.actions.Commanded++
	}
	a.desired = d
	v.touch(a)
}

// applyStatus processes an agent's report of an attempt.
func (v *lifecycleChecker) applyStatus(node string, task cluster.TaskID, c *store.Change, was store.Record) {
	if old, err := store.Decode[cluster.Observed](was.Value); was.Key != "" && err == nil {
		if a := v.attempts[old.UUID]; a != nil && a.node == node {
			a.observed = nil
			v.touch(a)
		}
	}
	if c.Deleted {
		return
	}
	o, err := store.Decode[cluster.Observed](c.Value)
	if err != nil || o.Task != task {
		return
	}
	a := v.attempts[o.UUID]
	if a == nil {
		return // a restore lost the attempt
	}
	if a.node != node {
		v.breach("usurped", "%s said of %s/%d, which is on %s, that it is %s", node, a.task, a.number, a.node, o.State)
		return
	}
	if o.State == cluster.StateStarting && a.batch && !v.restored && (a.stopped && !a.erased || a.ended) &&
		(a.observed == nil || a.observed.State != cluster.StateStarting) {
		v.breach("late-barrier", "%s/%d on %s passed its barrier after its end was written", a.task, a.number, node)
	}
	if o.Gone && a.running > 0 && !a.excused && !v.isUntrusted(node) {
		v.breach("gone-but-runs", "%s/%d is said to be gone from %s, where its program runs", a.task, a.number, node)
	}
	a.observed, a.reported = o, true
	v.touch(a)
}

// applyOutcome processes the outcome of an attempt.
func (v *lifecycleChecker) applyOutcome(rest string, c *store.Change) {
	i := strings.LastIndexByte(rest, '/')
	task, number := cluster.TaskID(rest[:i]), rest[i+1:]
	n, _ := strconv.Atoi(number)
	old := v.outcomes[rest]
	if c.Deleted {
		delete(v.outcomes, rest)
		if old != nil {
			was := old.outcome
			old.outcome = nil
			v.touch(old)
			v.checkOutcomeDeletion(old, was)
			v.forget(old)
		}
		return
	}
	o, err := store.Decode[cluster.Outcome](c.Value)
	if err != nil {
		v.breach("outcome-fixed", "the outcome %s cannot be read: %v", rest, err)
		return
	}
	v.proposals.noteLeave(o.UUID, o.Owner, o.Message)
	if old != nil && old.outcome != nil {
		v.breach("outcome-fixed", "the outcome %s was %s and is %s", rest, old.outcome.State, o.State)
	}
	a := v.attempts[o.UUID]
	if a == nil {
		a = v.attemptOf(&cluster.Desired{
			Task: task, Attempt: n, UUID: o.UUID, Node: o.Node, Owner: o.Owner,
			Definition: o.Definition,
		})
	}
	if !a.ended {
		a.endedAt = c.Modified
	}
	a.outcome, a.ended = o, true
	v.newOutcomes = append(v.newOutcomes, rest)
	v.outcomes[rest] = a
	v.touch(a)
	v.checkTruth(a, o)
	v.checkCharge(a, o)
	if o.State == cluster.StateLost && a.acknowledged != "" && a.acknowledged != cluster.StateLost &&
		!v.isUntrusted(a.node) &&
		!v.restored {
		v.breach("report-lost", "%s/%d ended %s, which %s knows to be durable, and its outcome is lost", a.task,
			a.number, a.acknowledged, a.node)
	}
	v.liveness.checkLoss(a, o)
}

// checkTruth checks the outcome of a job's attempt against what its program did.
func (v *lifecycleChecker) checkTruth(a *attemptHistory, o *cluster.Outcome) {
	if !a.batch || v.restored || v.isUntrusted(a.node) {
		return
	}
	hasExit := o.State == cluster.StateFailed && o.Reason == cluster.ReasonExit && o.Exit != nil && o.Exit.Signal == 0
	success := a.exit != nil && *a.exit == cluster.Exit{At: a.exit.At} // not Exit.Success, which is to be checked
	switch {
	case !o.Started && a.starts > 0:
		v.breach("outcome-true", "%s/%d is %s and was not started, says its outcome, and its program has run on %s",
			a.task, a.number, o.State, a.node)
	case o.State == cluster.StateSucceeded && !success:
		v.breach("outcome-true", "%s/%d has succeeded, says its outcome, and the end of its program on %s was %+v",
			a.task, a.number, a.node, a.exit)
	case hasExit && (a.exit == nil || a.exit.Code != o.Exit.Code):
		v.breach("outcome-true", "%s/%d exited with code %d, says its outcome, and the end of its program on %s was "+
			"%+v", a.task, a.number, o.Exit.Code, a.node, a.exit)
	}
}

// checkCharge checks that the outcome of a job's attempt uses a retry if and only if the rules of retries say so.
func (v *lifecycleChecker) checkCharge(a *attemptHistory, o *cluster.Outcome) {
	parts, _ := a.task.Parts()
	_, step := v.stepOf(parts)
	if !a.batch || step == nil || o.State == cluster.StateSucceeded || a.number > cluster.MaxDispatches ||
		v.isUntrusted(a.node) {
		return
	}
	if charged := ci.IsCharged(step, o); charged == o.Free {
		v.breach("outcome-true", "the outcome of %s/%d, %s (%s), started %t, is free: %t", a.task, a.number, o.State,
			o.Reason, o.Started, o.Free)
	}
}

// checkOutcomeDeletion checks the deletion of an outcome. While the attempt has records, it is the reconnection of an
// attempt that was lost with its node, reports again, and has no later attempt (P6.7): the attempt is open again.
func (v *lifecycleChecker) checkOutcomeDeletion(a *attemptHistory, was *cluster.Outcome) {
	if a.desired == nil || v.overwritten || v.restored {
		return
	}
	later := false
	for other := range v.tasks[a.task] { // order-free: any one
		later = later || other.number > a.number
	}
	isLost := was != nil && was.State == cluster.StateLost && was.Reason == cluster.ReasonNodeDown
	if a.batch || !isLost || later || a.desired.Stop != nil || a.observed == nil || a.observed.State.Terminal() {
		v.breach("outcome-fixed", "the outcome of %s/%d was deleted while its record exists on %s", a.task, a.number,
			a.node)
		return
	}
	a.ended, a.endedAt = false, 0
	v.actions.Reconnects++
}

// checkAcknowledgedReport records which ends were acknowledged to an agent.
func (v *lifecycleChecker) checkAcknowledgedReport(n *node, r reportOf, refused func(uuid string) bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, o := range r {
		a := v.attempts[o.UUID]
		if a == nil || !o.State.Terminal() || refused(o.UUID) || v.isUntrusted(n.name) || v.restored {
			continue
		}
		if a.acknowledged = o.State; a.observed == nil || !a.observed.State.Terminal() {
			if !a.ended {
				v.breach("report-lost", "%s knows that the end of %s/%d (%s) is durable, and the store "+
					"has neither its status nor its outcome", n.name, a.task, a.number, o.State)
			}
		}
	}
}

// checkTouched checks the attempts that one revision touched against the invariants.
func (v *lifecycleChecker) checkTouched(uint64) {
	for _, key := range v.newOutcomes {
		v.events.checkEndReported(key)
	}
	v.newOutcomes = v.newOutcomes[:0]
	tasks, nodes := map[cluster.TaskID]bool{}, map[string]bool{}
	for a := range v.touched { // order-free: sets
		tasks[a.task], nodes[a.node] = true, true
		was := a.healthy
		wanted := a.desired == nil && a.planned && !a.ended || a.desired != nil && a.desired.Stop == nil
		a.healthy = wanted && a.observed.Healthy() && !a.observed.Gone
		if was && !a.healthy && (a.desired == nil || a.desired.Stop == nil) { // not by Berth's own act
			if p, ok := a.task.Parts(); ok {
				v.services.noteServiceChange(p.Cluster + "/" + p.Owner)
			}
		}
	}
	for a := range v.touched { // order-free: each by itself
		v.retire(a)
	}
	clear(v.touched)
	for task := range tasks { // order-free: each task by itself
		v.checkTask(task)
	}
	for node := range nodes { // order-free: each node by itself
		v.checkNode(node)
	}
}

func (v *lifecycleChecker) checkTask(task cluster.TaskID) {
	var first *attemptHistory
	for a := range v.tasks[task] { // order-free: any two of them
		if !a.isOpen() {
			continue
		}
		if first != nil && !v.restored {
			v.breach("one-attempt", "%s has two attempts without an outcome: %d on %s and %d on %s", task, first.number,
				first.node, a.number, a.node)
			return
		}
		first = a
	}
}

func (v *lifecycleChecker) checkNode(node string) {
	if v.isUntrusted(node) || v.restored {
		return // recovered attempts come from reports, which lack ports and sizes
	}
	var used cluster.MilliCPU
	ports := map[int]*attemptHistory{}
	for a := range v.nodeView(node).attempts { // order-free: a sum
		if !a.holdsResources() {
			continue
		}
		used += v.cpu[a.def]
		for _, p := range a.ports { // order-free: a set
			if other := ports[p]; other != nil {
				v.breach("ports", "port %d of %s is held by %s/%d and %s/%d", p, node, other.task, other.number, a.task,
					a.number)
			}
			ports[p] = a
		}
	}
	v.services.checkDaemons(node)
	if used > nodeCPU {
		v.breach("capacity", "%s holds %d of %d mCPU", node, used, nodeCPU)
	}
}

// placements returns the placements of a plan record.
func placements(p *cluster.PlanRecord) []*cluster.Desired {
	var out []*cluster.Desired
	for i := range p.Owners {
		for j := range p.Owners[i].Tasks {
			out = append(out, p.Desired(&p.Owners[i], &p.Owners[i].Tasks[j]))
		}
	}
	return out
}

// reportOf is the attempts of a report.
type reportOf = []cluster.Observed
