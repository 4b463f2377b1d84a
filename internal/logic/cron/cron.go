// Package cron decides which jobs a cron makes, cancels and removes.
//
// A decision is a function of values. The caller looks up the moments and writes jobs and status in one transaction. It
// decides again at the next moment and whenever a job of the cron ends. Each moment is handled once: a job is made for
// it, or it is skipped, and the status moves past it. Until then the moment is due. A moment is missed if its job could
// not start on time (see MaxLateness), or if a newer moment has come. The cron's policy decides about missed
// moments.
package cron

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// MaxLateness is the greatest lateness of a job that counts as on time.
const MaxLateness = time.Minute

// Types of the events.
const (
	EventFired   = "cron.fired"   // a job was made
	EventMissed  = "cron.missed"  // moments were missed; one job replaces all of them
	EventSkipped = "cron.skipped" // moments without a job
)

// Input holds everything that a decision about a cron depends on. Decide does not change it.
type Input struct {
	Spec *cluster.Cron // with the defaults filled in
	// Status is the cron's record of handled moments, nil before the first decision.
	Status *cluster.CronStatus
	// Due are the moments of the schedules after Status.Last, or after the cron's creation, up to Now, oldest first. If
	// there are more than MaxMissed, they are the newest MaxMissed.
	Due []time.Time
	// Jobs are jobs of the cluster: at least those that the cron made, and those with the name of a due moment's job.
	// Other jobs have no effect.
	Jobs []Job
	Now  time.Time
}

// Job is a job with its state.
type Job struct {
	Spec *cluster.Job
	// Done says that the job has ended. Failed says that it ended without success; a cancelled job has failed.
	Done, Failed bool
	// Finished is the time at which the job ended.
	Finished time.Time
}

// Decision is the result for an Input. The caller carries it out as a whole. If a job of Make already exists by then,
// the caller decides again.
type Decision struct {
	// Make lists jobs to create, oldest moment first, complete except for their Lifespan.
	Make []*cluster.Job
	// Cancel and Delete are names of jobs to cancel, and to delete because enough newer ones are kept.
	Cancel []string
	Delete []string
	// Status is the record to write, nil if the last one stays.
	Status *cluster.CronStatus
	Events []cluster.Event
	// Message describes the state of the cron, for people.
	Message string
}

// Decide returns the decision for the input.
func Decide(in Input) Decision {
	c := in.Spec
	e := newEvaluation(&in)
	if c.Deleted { // its jobs stay, so that their results can be looked up
		return Decision{Message: "deleted"}
	}
	e.deleteOldJobs()
	due := e.dueMoments() // 1. all due moments
	if c.Suspended {
		e.leaveSuspended(due)
		return e.finish(nil)
	}
	due = e.dropOld(due)      // 2. without moments that are too old
	due = e.dropMissed(due)   // 3. without missed moments that the policy drops
	due = e.dropExisting(due) // 4. without moments whose job exists
	return e.finish(e.startJobs(due))
}

// evaluation is the state of one decision about a cron.
type evaluation struct {
	in      *Input
	spec    *cluster.Cron
	status  cluster.CronStatus // the new record
	ownJobs []Job              // jobs that the cron made, sorted by name
	running []Job              // own jobs that have not ended
	byName  map[string]Job     // all jobs
	d       Decision
}

// newEvaluation joins status and jobs. A cron without a status, or with changed schedules, starts at its last write.
func newEvaluation(in *Input) *evaluation {
	e := &evaluation{in: in, spec: in.Spec, byName: make(map[string]Job, len(in.Jobs))}
	for _, j := range in.Jobs {
		e.byName[j.Spec.Name] = j
		if j.Spec.Cron != e.spec.Name {
			continue
		}
		e.ownJobs = append(e.ownJobs, j)
		if !j.Done {
			e.running = append(e.running, j)
		}
	}
	byName := func(a, b Job) int { return cmp.Compare(a.Spec.Name, b.Spec.Name) }
	slices.SortFunc(e.ownJobs, byName)
	slices.SortFunc(e.running, byName)
	if in.Status != nil {
		e.status = *in.Status
	}
	if schedule := scheduleOf(e.spec); e.status.Schedule != schedule {
		e.status.Schedule = schedule
		e.markHandled(latest(e.spec.Created, e.spec.Updated))
	}
	return e
}

// scheduleOf returns a text that differs between different timetables.
func scheduleOf(c *cluster.Cron) string {
	return strings.Join(append(slices.Clone(c.Schedules), c.Zone), ";")
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// markHandled records that all moments up to at are handled.
func (e *evaluation) markHandled(at time.Time) { e.status.Last = latest(e.status.Last, at) }

// dueMoments returns the unhandled moments, oldest first, each once.
func (e *evaluation) dueMoments() []time.Time {
	due := make([]time.Time, 0, len(e.in.Due))
	for _, at := range e.in.Due {
		if at.After(e.status.Last) && !at.After(e.in.Now) {
			due = append(due, at)
		}
	}
	slices.SortFunc(due, time.Time.Compare)
	return slices.CompactFunc(due, func(a, b time.Time) bool { return e.spec.JobName(a) == e.spec.JobName(b) })
}

// leaveSuspended leaves the moments for later, unless the policy skips missed moments anyway.
func (e *evaluation) leaveSuspended(due []time.Time) {
	e.d.Message = "suspended"
	if len(due) == 0 {
		return
	}
	if e.spec.Missed == cluster.CronSkip {
		e.markHandled(due[len(due)-1])
		e.status.Message = "the cron was suspended"
		return
	}
	e.d.Message = "suspended; due: " + e.describeMoments(due)
}

// dropOld drops moments that are older than the cron allows. If one job replaces all missed moments, only the age of
// the newest counts.
func (e *evaluation) dropOld(due []time.Time) []time.Time {
	old := func(at time.Time) bool { return e.in.Now.Sub(at) > time.Duration(e.spec.Within) }
	n := 0
	for n < len(due) && old(due[n]) {
		n++
	}
	if e.spec.Missed == cluster.CronOnce && n < len(due) {
		return due
	}
	if n > 0 {
		e.skipMoments(due[:n], fmt.Sprintf("more than %s ago", e.spec.Within))
	}
	return due[n:]
}

// dropMissed drops missed moments that get no job of their own.
func (e *evaluation) dropMissed(due []time.Time) []time.Time {
	last := len(due) - 1
	if last < 0 || e.spec.Missed == cluster.CronAll {
		return due
	}
	if e.spec.Missed != cluster.CronSkip {
		return due[last:] // one job for all; makeJob reports the others
	}
	if e.in.Now.Sub(due[last]) > MaxLateness {
		e.skipMoments(due, "missed")
		return nil
	}
	if last > 0 {
		e.skipMoments(due[:last], "missed")
	}
	if e.spec.Concurrency == cluster.CronForbid && len(e.running) > 0 {
		e.skipMoments(due[last:], fmt.Sprintf("job %s was still running", e.running[0].Spec.Name))
		return nil
	}
	return due[last:]
}

// dropExisting drops moments whose job exists, made by this cron for them or by a user under that name. Where jobs wait
// for each other, such a moment is handled only once all earlier ones are: the record passes moments in their order.
func (e *evaluation) dropExisting(due []time.Time) (left []time.Time) {
	for _, at := range due {
		name := e.spec.JobName(at)
		j, found := e.byName[name]
		switch {
		case !found:
			left = append(left, at)
		case len(left) > 0 && e.spec.Concurrency != cluster.CronAllow:
		case j.Spec.Cron == e.spec.Name && j.Spec.At.Equal(at):
			e.markHandled(at)
			e.status.Job, e.status.Message = name, ""
		case e.spec.Missed == cluster.CronOnce: // the job would have replaced all of them
			e.skipMoments(e.dueMoments(), fmt.Sprintf("job %s already exists", name))
		default:
			e.skipMoments([]time.Time{at}, fmt.Sprintf("job %s already exists", name))
		}
	}
	return left
}

// startJobs makes the jobs that may run now, and returns the moments that wait.
func (e *evaluation) startJobs(due []time.Time) (waiting []time.Time) {
	if len(due) == 0 {
		return nil
	}
	switch e.spec.Concurrency {
	case cluster.CronAllow:
		for _, at := range due {
			e.makeJob(at)
		}
		return nil
	case cluster.CronReplace:
		for _, j := range e.running {
			if !j.Spec.Cancelled && !j.Spec.Deleted {
				e.d.Cancel = append(e.d.Cancel, j.Spec.Name)
			}
		}
	case cluster.CronForbid, "":
		if len(e.running) > 0 {
			return due
		}
	}
	e.makeJob(due[0])
	return due[1:]
}

func (e *evaluation) makeJob(at time.Time) {
	c := e.spec
	job := c.NewJob(c.JobName(at))
	job.Cron, job.At = c.Name, at
	if c.Missed == cluster.CronOnce {
		e.reportSuperseded(at, job.Name)
	}
	e.d.Make = append(e.d.Make, job)
	e.markHandled(at)
	e.status.Job, e.status.Made, e.status.Message = job.Name, e.in.Now, ""
	message := fmt.Sprintf("job %s, for %s", job.Name, formatMoment(at))
	if late := e.in.Now.Sub(at); late > MaxLateness {
		message += fmt.Sprintf(", %s late", cluster.Duration(late.Round(time.Second)))
	}
	e.event(EventFired, cluster.ReasonSchedule, 0, message)
}

// reportSuperseded reports the earlier moments that the one job replaces.
func (e *evaluation) reportSuperseded(at time.Time, job string) {
	var before []time.Time
	for _, m := range e.dueMoments() {
		if m.Before(at) {
			before = append(before, m)
		}
	}
	if len(before) > 0 {
		e.event(EventMissed, cluster.ReasonMissed, len(before),
			fmt.Sprintf("%s missed; job %s replaces them", e.describeMoments(before), job))
	}
}

// skipMoments marks moments as handled without a job.
func (e *evaluation) skipMoments(due []time.Time, why string) {
	e.markHandled(due[len(due)-1])
	e.status.Message = fmt.Sprintf("%s skipped: %s", e.describeMoments(due), why)
	e.event(EventSkipped, cluster.ReasonMissed, len(due), e.status.Message)
}

func (e *evaluation) event(kind string, reason cluster.ReasonCode, count int, message string) {
	owner := e.spec.Owner()
	e.d.Events = append(e.d.Events, cluster.Event{
		Type: kind, Cluster: e.spec.Cluster, Owner: &owner, Reason: reason, Message: message, Count: count,
	})
}

// deleteOldJobs deletes ended jobs beyond the number that is kept: the newest stay.
func (e *evaluation) deleteOldJobs() {
	ended := slices.DeleteFunc(slices.Clone(e.ownJobs), func(j Job) bool { return !j.Done || j.Spec.Deleted })
	slices.SortStableFunc(ended, func(a, b Job) int {
		return cmp.Or(b.Finished.Compare(a.Finished), b.Spec.At.Compare(a.Spec.At),
			cmp.Compare(b.Spec.Name, a.Spec.Name))
	})
	keep := map[bool]int{false: keepCount(e.spec.KeepSucceeded), true: keepCount(e.spec.KeepFailed)}
	for _, j := range ended {
		if keep[j.Failed]--; keep[j.Failed] < 0 {
			e.d.Delete = append(e.d.Delete, j.Spec.Name)
		}
	}
	slices.Sort(e.d.Delete)
}

func keepCount(n *int) int {
	if n == nil {
		return cluster.DefaultCronKeep
	}
	return max(0, *n)
}

// finish assembles the decision.
func (e *evaluation) finish(waiting []time.Time) Decision {
	old := e.in.Status
	if old == nil || !old.Last.Equal(e.status.Last) || old.Schedule != e.status.Schedule || old.Job != e.status.Job {
		e.d.Status = &e.status
	}
	switch {
	case e.d.Message != "":
	case len(waiting) > 0 && len(e.running) > 0:
		e.d.Message = fmt.Sprintf("due once job %s has ended: %s", e.running[0].Spec.Name, e.describeMoments(waiting))
	case len(waiting) > 0:
		e.d.Message = "due, one at a time: " + e.describeMoments(waiting)
	case e.status.Last.Sub(e.in.Now) > MaxLateness:
		e.d.Message = fmt.Sprintf("no job before %s: the clock went back, and the schedule was carried out up to then",
			formatMoment(e.status.Last))
	case e.status.Message != "":
		e.d.Message = e.status.Message
	case e.status.Job != "":
		e.d.Message = "newest job: " + e.status.Job
	}
	return e.d
}

// describeMoments describes the number and times of moments. If Due was cut at MaxMissed, the number is a lower bound.
func (e *evaluation) describeMoments(list []time.Time) string {
	n := len(list)
	switch {
	case len(e.in.Due) >= cluster.MaxMissed && list[0].Equal(e.in.Due[0]):
		return fmt.Sprintf("%d or more starts up to %s", n, formatMoment(list[n-1]))
	case n == 1:
		return formatMoment(list[0])
	}
	return fmt.Sprintf("%d starts from %s to %s", n, formatMoment(list[0]), formatMoment(list[n-1]))
}

func formatMoment(at time.Time) string { return at.UTC().Format("2006-01-02T15:04Z") }
