package starts

import (
	"cmp"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/forecast"
	"github.com/berthd/berth/internal/store"
)

const (
	// maxGroups is the number of groups of a history.
	maxGroups = 20_000
	// maxSamples is the number of ended tasks that a history learns from, the last ones.
	maxSamples = 100_000
	// samplesOfStep is the number of tasks of a step that a history learns from. Otherwise one step of many tasks would
	// be all that a group remembers. A gang is one sample.
	samplesOfStep = 10
)

// ended is a task that ended by itself or at its limit.
type ended struct {
	task  cluster.TaskID
	at    time.Time
	run   time.Duration
	limit time.Duration
}

// learn returns the history of the ended tasks of jobs in the tables.
func learn(snap *store.Snapshot) *forecast.History {
	l := learner{snap: snap}
	for row := range snap.AllAttempts() {
		o := row.Outcome
		if o == nil || o.Owner.Kind != cluster.KindJob || o.Begun.IsZero() || !saysRunTime(o) {
			continue
		}
		if parts, ok := row.Task.Parts(); !ok || parts.Index >= samplesOfStep {
			continue
		}
		l.add(row.Task, o.Begun, o.Ended)
	}
	for e := range snap.AllPackedTasks() {
		p := e.Value
		if p.Unreadable || p.Count() == 0 || p.Part >= samplesOfStep {
			continue
		}
		if o := p.Outcome(p.Indices[p.Count()/2]); o != nil {
			l.add(o.Task, o.Begun, o.Ended)
		}
	}
	slices.SortFunc(l.all, func(a, b ended) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.task, b.task)) })
	h := forecast.NewHistory(maxGroups)
	for _, e := range l.all[max(0, len(l.all)-maxSamples):] {
		if parts, ok := e.task.Parts(); ok {
			h.Learn(kindOf(parts.Cluster, parts.Owner, parts.Step), forecast.Sample{Ran: e.run, Limit: e.limit})
		}
	}
	return h
}

// saysRunTime reports whether the run time of an attempt says something about others: it ended by itself, or at its
// limit.
func saysRunTime(o *cluster.Outcome) bool {
	return o.State == cluster.StateSucceeded || o.State == cluster.StateFailed &&
		(o.Reason == cluster.ReasonExit || o.Reason == cluster.ReasonTimeLimit || o.Reason == cluster.ReasonOOM)
}

// learner collects ended tasks.
type learner struct {
	snap *store.Snapshot
	all  []ended
	// job is that of the last task, as tasks of a job follow each other.
	job   cluster.OwnerRef
	steps map[string]*cluster.Step
}

func (l *learner) add(task cluster.TaskID, begun, end time.Time) {
	parts, ok := task.Parts()
	if !ok || parts.Step == "" || !end.After(begun) {
		return
	}
	if o := (cluster.OwnerRef{Kind: cluster.KindJob, Cluster: parts.Cluster, Name: parts.Owner}); o != l.job {
		l.job, l.steps = o, map[string]*cluster.Step{}
		if e, ok := l.snap.Job(o.Cluster, o.Name); ok {
			for i := range e.Value.Steps {
				l.steps[e.Value.Steps[i].Name] = &e.Value.Steps[i]
			}
		}
	}
	var limit time.Duration
	if s := l.steps[parts.Step]; s != nil {
		if s.Gang != nil && parts.Index > 0 {
			return
		}
		limit = time.Duration(s.TimeLimit)
	}
	l.all = append(l.all, ended{task: task, at: end, run: end.Sub(begun), limit: limit})
}
