package cluster

import (
	"maps"
	"slices"
	"time"
)

// Cron makes a job at each of its moments. Writer: the user, Lifespan by the API server.
type Cron struct {
	Cluster string `json:"cluster,omitempty"`
	Name    string `json:"name"`
	Labels  Labels `json:"labels,omitempty"`
	// Schedules are each five fields: minute, hour, day of the month, month, day of the week; or "@daily" and its kin.
	Schedules []string `json:"schedules"`
	// Zone is a name of the time zone database, such as "Europe/Paris". Default UTC. A moment that the change to summer
	// time skips fires right after it; a moment that occurs twice fires once.
	Zone string `json:"zone,omitempty"`
	// Concurrency decides what happens at a moment while a job of an earlier moment runs. Default forbid.
	Concurrency CronConcurrency `json:"concurrency,omitempty"`
	// Missed decides what happens to moments at which no job could start: no leader, suspended, or forbidden. Default
	// once.
	Missed CronMissed `json:"missed,omitempty"`
	// Within is how late a job may still start. Default 1 h. An older moment is skipped, with an event.
	Within Duration `json:"within,omitempty"`
	// KeepSucceeded is the number of succeeded jobs that are kept. Default 3.
	KeepSucceeded *int `json:"keep_succeeded,omitempty"`
	// KeepFailed is the number of failed jobs that are kept. Default 3.
	KeepFailed *int `json:"keep_failed,omitempty"`
	// Suspended keeps the cron from making jobs. Missed says what follows at its end.
	Suspended bool `json:"suspended,omitempty"`
	// Job is what each job of the cron is made from.
	Job CronJob `json:"job"`

	Lifespan
}

// CronJob is the template of a cron's jobs.
type CronJob struct {
	Labels Labels `json:"labels,omitempty"`
	Steps  []Step `json:"steps"`
	// Needs are services and jobs that each job of the cron waits for, as Job.needs.
	Needs []string `json:"needs,omitempty"`
	// Priority precedes the tasks of lower ones. Default DefaultPriority.
	Priority Priority `json:"priority,omitempty"`
	// Deadline, unless 0, cancels a job that long after it was made.
	Deadline Duration `json:"deadline,omitempty"`
}

// NewJob returns a job of the cron. It shares nothing with the cron that a decoder or SetDefaults changes.
func (c *Cron) NewJob(name string) *Job {
	return &Job{
		Cluster: c.Cluster, Name: name, Labels: maps.Clone(c.Job.Labels), Steps: slices.Clone(c.Job.Steps),
		Needs: slices.Clone(c.Job.Needs), Priority: c.Job.Priority, Deadline: c.Job.Deadline,
	}
}

// CronConcurrency decides what happens at a moment while a job of an earlier moment runs.
type CronConcurrency string

// Policies of concurrency.
const (
	CronForbid  CronConcurrency = "forbid"  // the moment is missed, see Missed
	CronAllow   CronConcurrency = "allow"   // both run
	CronReplace CronConcurrency = "replace" // the earlier one is cancelled
)

// Values returns every CronConcurrency, in the order of the constants.
func (CronConcurrency) Values() []CronConcurrency {
	return []CronConcurrency{CronForbid, CronAllow, CronReplace}
}

// CronMissed decides what happens to missed moments.
type CronMissed string

// Policies for missed moments.
const (
	CronSkip CronMissed = "skip" // nothing
	CronOnce CronMissed = "once" // one job for all of them, for the newest moment
	CronAll  CronMissed = "all"  // one job for each, at most MaxMissed jobs
)

// Values returns every CronMissed, in the order of the constants.
func (CronMissed) Values() []CronMissed {
	return []CronMissed{CronSkip, CronOnce, CronAll}
}

// Defaults and bounds of crons.
const (
	DefaultCronWithin = Duration(time.Hour)
	DefaultCronKeep   = 3
	MaxMissed         = 100
	// MaxCronName leaves room for the moment in a job's name.
	MaxCronName = MaxName - 13
)

// CronStatus is the progress of a cron: the record fired/<cluster>/<cron>. Writer: the control plane.
type CronStatus struct {
	// Last is the newest moment that was dealt with: a job was made for it, or it was skipped. Moments up to it are not
	// handled again.
	Last time.Time `json:"last"`
	// Schedule holds the schedules and the zone of the moments up to Last. After a change of them, moments from before
	// the change do not fire.
	Schedule string `json:"schedule,omitempty"`
	// Job is the name of the newest job, Made when it was made, and Message why the last moment has none.
	Job     string    `json:"job,omitempty"`
	Made    time.Time `json:"made,omitzero"`
	Message string    `json:"message,omitempty"`
}

// Owner returns the reference of this cron, for its events.
func (c *Cron) Owner() OwnerRef { return OwnerRef{KindCron, c.Cluster, c.Name} }

// JobName returns the name of a cron's job for a moment: the cron's with the minute in UTC, such as
// "backup-202611201230".
func (c *Cron) JobName(at time.Time) string { return c.Name + "-" + at.UTC().Format("200601021504") }
