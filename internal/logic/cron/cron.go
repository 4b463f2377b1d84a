// Package cron decides which jobs a cron makes, cancels and removes.
//
// A decision is a function of values: the caller finds the moments, writes jobs and status in one transaction, and
// looks again at the next moment and whenever a job of the cron ends. A moment is dealt with once: either a job is made
// for it or it is skipped, and the status moves past it. Until then it is due. A moment is missed if it could not be
// started on time, see OnTime, or if a newer one has come meanwhile; what happens then is the cron's policy.
package cron

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// OnTime is how late a job may be made for a moment that does not count as missed.
const OnTime = time.Minute

// Types of the events.
const (
	EventFired   = "cron.fired"   // a job was made
	EventMissed  = "cron.missed"  // moments passed; one job stands for them, or they get theirs late
	EventSkipped = "cron.skipped" // moments get no job
)

// Input is what is known when a cron is looked at. Decide changes nothing in it.
type Input struct {
	Spec *cluster.Cron // with the defaults filled in
	// Status is how far the cron has come, nil where it was never looked at.
	Status *cluster.CronStatus
	// Due are the moments of the schedules after Status.Last, or after the cron's creation, up to Now: oldest first,
	// and where there are more than MaxMissed the newest of them.
	Due []time.Time
	// Jobs are the cluster's jobs, at least those that the cron made and those that have the name of a due moment's
	// job. Of the others nothing is taken.
	Jobs []Job
	Now  time.Time
}

// Job is a job and how it stands.
type Job struct {
	Spec *cluster.Job
	// Done says that the job has ended, and Failed that it ended in any way but success: a job that was cancelled has
	// failed.
	Done, Failed bool
	// Finished is when it ended.
	Finished time.Time
}

// Decision is what follows. The caller carries it out as a whole: if a job of Make exists meanwhile, it decides anew.
type Decision struct {
	// Make are jobs to create, oldest moment first, complete but for their Lifespan.
	Make []*cluster.Job
	// Cancel and Delete are names of jobs: to cancel, and to delete because enough newer ones are kept.
	Cancel []string
	Delete []string
	// Status is the record to write, nil where it stands as it is.
	Status *cluster.CronStatus
	Events []cluster.Event
	// Message says how the cron stands, for people.
	Message string
}

// Decide returns what follows from the input.
func Decide(in Input) Decision {
	c := in.Spec
	l := begin(&in)
	if c.Deleted { // its jobs stay: what they did may still be looked up
		return Decision{Message: "deleted"}
	}
	l.history()
	due := l.due() // 1. the moments that are to be looked at
	if c.Suspended {
		l.suspend(due)
		return l.end(nil)
	}
	due = l.fresh(due)    // 2. without those that are too old
	due = l.missed(due)   // 3. and without those that the policy for missed ones takes out
	due = l.existing(due) // 4. and without those whose job exists
	return l.end(l.start(due))
}

// look is one look at a cron while it is decided on.
type look struct {
	in      *Input
	spec    *cluster.Cron
	status  cluster.CronStatus // the record as it will be
	own     []Job              // the jobs that the cron made, by name
	running []Job              // those of them that have not ended
	byName  map[string]Job     // all jobs
	d       Decision
}

// begin joins status and jobs. A cron that is looked at for the first time, or whose schedules changed, begins at its
// last write.
func begin(in *Input) *look {
	l := &look{in: in, spec: in.Spec, byName: make(map[string]Job, len(in.Jobs))}
	for _, j := range in.Jobs {
		l.byName[j.Spec.Name] = j
		if j.Spec.Cron != l.spec.Name {
			continue
		}
		l.own = append(l.own, j)
		if !j.Done {
			l.running = append(l.running, j)
		}
	}
	byName := func(a, b Job) int { return cmp.Compare(a.Spec.Name, b.Spec.Name) }
	slices.SortFunc(l.own, byName)
	slices.SortFunc(l.running, byName)
	if in.Status != nil {
		l.status = *in.Status
	}
	if schedule := scheduleOf(l.spec); l.status.Schedule != schedule {
		l.status.Schedule = schedule
		l.pass(latest(l.spec.Created, l.spec.Updated))
	}
	return l
}

// scheduleOf returns what tells one timetable from another.
func scheduleOf(c *cluster.Cron) string {
	return strings.Join(append(slices.Clone(c.Schedules), c.Zone), ";")
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// pass notes that moments up to that one are dealt with.
func (l *look) pass(at time.Time) { l.status.Last = latest(l.status.Last, at) }

// due returns the moments that were not dealt with, oldest first, each once.
func (l *look) due() []time.Time {
	due := make([]time.Time, 0, len(l.in.Due))
	for _, at := range l.in.Due {
		if at.After(l.status.Last) && !at.After(l.in.Now) {
			due = append(due, at)
		}
	}
	slices.SortFunc(due, time.Time.Compare)
	return slices.CompactFunc(due, func(a, b time.Time) bool { return l.spec.JobName(a) == l.spec.JobName(b) })
}

// suspend leaves the moments for later, unless missed ones get nothing anyway.
func (l *look) suspend(due []time.Time) {
	l.d.Message = "suspended"
	if len(due) == 0 {
		return
	}
	if l.spec.Missed == cluster.CronSkip {
		l.pass(due[len(due)-1])
		l.status.Message = "the cron was suspended"
		return
	}
	l.d.Message = "suspended; due: " + l.moments(due)
}

// fresh takes out the moments that are older than the cron allows. Where one job stands for all that were missed, only
// the newest counts.
func (l *look) fresh(due []time.Time) []time.Time {
	old := func(at time.Time) bool { return l.in.Now.Sub(at) > time.Duration(l.spec.Within) }
	n := 0
	for n < len(due) && old(due[n]) {
		n++
	}
	if l.spec.Missed == cluster.CronOnce && n < len(due) {
		return due
	}
	if n > 0 {
		l.skip(due[:n], fmt.Sprintf("more than %s ago", l.spec.Within))
	}
	return due[n:]
}

// missed takes out the moments that were missed and are to get no job of their own.
func (l *look) missed(due []time.Time) []time.Time {
	last := len(due) - 1
	if last < 0 || l.spec.Missed == cluster.CronAll {
		return due
	}
	if l.spec.Missed != cluster.CronSkip {
		return due[last:] // once; start tells of the others
	}
	if l.in.Now.Sub(due[last]) > OnTime {
		l.skip(due, "not started on time")
		return nil
	}
	if last > 0 {
		l.skip(due[:last], "not started on time")
	}
	if l.spec.Concurrency == cluster.CronForbid && len(l.running) > 0 {
		l.skip(due[last:], fmt.Sprintf("job %s still ran", l.running[0].Spec.Name))
		return nil
	}
	return due[last:]
}

// existing takes out the moments whose job exists: made by this cron for them, or by somebody else under that name.
func (l *look) existing(due []time.Time) []time.Time {
	return slices.DeleteFunc(slices.Clone(due), func(at time.Time) bool {
		name := l.spec.JobName(at)
		j, found := l.byName[name]
		switch {
		case !found:
			return false
		case j.Spec.Cron == l.spec.Name && j.Spec.At.Equal(at):
			l.pass(at)
			l.status.Job, l.status.Message = name, ""
		default:
			l.skip([]time.Time{at}, fmt.Sprintf("a job %s exists already", name))
		}
		return true
	})
}

// start makes the jobs that may run now, and returns the moments that wait.
func (l *look) start(due []time.Time) (waiting []time.Time) {
	if len(due) == 0 {
		return nil
	}
	switch l.spec.Concurrency {
	case cluster.CronAllow:
		for _, at := range due {
			l.make(at)
		}
		return nil
	case cluster.CronReplace:
		for _, j := range l.running {
			if !j.Spec.Cancelled && !j.Spec.Deleted {
				l.d.Cancel = append(l.d.Cancel, j.Spec.Name)
			}
		}
	case cluster.CronForbid, "":
		if len(l.running) > 0 {
			return due
		}
	}
	l.make(due[0])
	return due[1:]
}

// make makes the job for a moment.
func (l *look) make(at time.Time) {
	c := l.spec
	job := &cluster.Job{
		Cluster: c.Cluster, Name: c.JobName(at), Labels: maps.Clone(c.Job.Labels), Steps: slices.Clone(c.Job.Steps),
		Priority: c.Job.Priority, Cron: c.Name, At: at,
	}
	if c.Missed == cluster.CronOnce {
		l.superseded(at, job.Name)
	}
	l.d.Make = append(l.d.Make, job)
	l.pass(at)
	l.status.Job, l.status.Made, l.status.Message = job.Name, l.in.Now, ""
	message := fmt.Sprintf("job %s, for %s", job.Name, stamp(at))
	if late := l.in.Now.Sub(at); late > OnTime {
		message += fmt.Sprintf(", %s late", late.Round(time.Second))
	}
	l.event(EventFired, cluster.ReasonSchedule, 0, message)
}

// superseded tells of the moments before that one for which the one job stands.
func (l *look) superseded(at time.Time, job string) {
	var before []time.Time
	for _, m := range l.due() {
		if m.Before(at) {
			before = append(before, m)
		}
	}
	if len(before) > 0 {
		l.event(EventMissed, cluster.ReasonMissed, len(before),
			fmt.Sprintf("%s missed: job %s stands for all", l.moments(before), job))
	}
}

// skip passes moments without a job.
func (l *look) skip(due []time.Time, why string) {
	l.pass(due[len(due)-1])
	l.status.Message = fmt.Sprintf("%s skipped: %s", l.moments(due), why)
	l.event(EventSkipped, cluster.ReasonMissed, len(due), l.status.Message)
}

func (l *look) event(kind string, reason cluster.ReasonCode, count int, message string) {
	owner := l.spec.Owner()
	l.d.Events = append(l.d.Events, cluster.Event{
		Type: kind, Cluster: l.spec.Cluster, Owner: &owner, Reason: reason, Message: message, Count: count,
	})
}

// history deletes the jobs that ended beyond those that are kept: the newest stay.
func (l *look) history() {
	ended := slices.DeleteFunc(slices.Clone(l.own), func(j Job) bool { return !j.Done || j.Spec.Deleted })
	slices.SortStableFunc(ended, func(a, b Job) int {
		return cmp.Or(b.Finished.Compare(a.Finished), b.Spec.At.Compare(a.Spec.At),
			cmp.Compare(b.Spec.Name, a.Spec.Name))
	})
	keep := map[bool]int{false: kept(l.spec.KeepSucceeded), true: kept(l.spec.KeepFailed)}
	for _, j := range ended {
		if keep[j.Failed]--; keep[j.Failed] < 0 {
			l.d.Delete = append(l.d.Delete, j.Spec.Name)
		}
	}
	slices.Sort(l.d.Delete)
}

func kept(n *int) int {
	if n == nil {
		return cluster.DefaultCronKeep
	}
	return max(0, *n)
}

// end puts the decision together.
func (l *look) end(waiting []time.Time) Decision {
	old := l.in.Status
	if old == nil || !old.Last.Equal(l.status.Last) || old.Schedule != l.status.Schedule || old.Job != l.status.Job {
		l.d.Status = &l.status
	}
	switch {
	case l.d.Message != "":
	case len(waiting) > 0 && len(l.running) > 0:
		l.d.Message = fmt.Sprintf("due, once job %s has ended: %s", l.running[0].Spec.Name, l.moments(waiting))
	case len(waiting) > 0:
		l.d.Message = "due, one after the other: " + l.moments(waiting)
	case l.status.Last.Sub(l.in.Now) > OnTime:
		l.d.Message = fmt.Sprintf("nothing before %s: the clock went back, and moments up to then were dealt with",
			stamp(l.status.Last))
	case l.status.Message != "":
		l.d.Message = l.status.Message
	case l.status.Job != "":
		l.d.Message = "newest job: " + l.status.Job
	}
	return l.d
}

// moments tells how many moments there are and when they were. Where there were more than a look is given, that is the
// least.
func (l *look) moments(list []time.Time) string {
	n := len(list)
	switch {
	case len(l.in.Due) >= cluster.MaxMissed && list[0].Equal(l.in.Due[0]):
		return fmt.Sprintf("%d moments or more up to %s", n, stamp(list[n-1]))
	case n == 1:
		return stamp(list[0])
	}
	return fmt.Sprintf("%d moments from %s to %s", n, stamp(list[0]), stamp(list[n-1]))
}

func stamp(at time.Time) string { return at.UTC().Format("2006-01-02T15:04Z") }
