package cron_test

import (
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/cron"
)

// world is a cron and the state that a caller keeps for it. The cron's moments have equal distances.
type world struct {
	now    time.Time
	every  time.Duration
	spec   *cluster.Cron
	status *cluster.CronStatus
	jobs   []cron.Job
}

// due returns the unhandled moments, the newest MaxMissed of them.
func (w *world) due() (due []time.Time) {
	after := w.spec.Created
	if w.status != nil {
		after = w.status.Last
	}
	for at := after.Truncate(w.every).Add(w.every); !at.After(w.now); at = at.Add(w.every) {
		due = append(due, at)
	}
	return due[max(0, len(due)-cluster.MaxMissed):]
}

// input returns the input of a decision.
func (w *world) input() cron.Input {
	return cron.Input{Spec: w.spec, Status: w.status, Due: w.due(), Jobs: slices.Clone(w.jobs), Now: w.now}
}

// step decides and carries the decision out.
func (w *world) step() cron.Decision {
	d := cron.Decide(w.input())
	w.apply(d)
	return d
}

func (w *world) apply(d cron.Decision) {
	if d.Status != nil {
		w.status = d.Status
	}
	for _, name := range d.Cancel {
		w.finish(name, true)
	}
	w.jobs = slices.DeleteFunc(w.jobs, func(j cron.Job) bool { return slices.Contains(d.Delete, j.Spec.Name) })
	for _, j := range d.Make {
		w.jobs = append(w.jobs, cron.Job{Spec: j})
	}
}

// finish ends a job.
func (w *world) finish(name string, failed bool) bool {
	for i := range w.jobs {
		if j := &w.jobs[i]; j.Spec.Name == name && !j.Done {
			j.Done, j.Failed, j.Finished = true, failed, w.now
			return true
		}
	}
	return false
}
