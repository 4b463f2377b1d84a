package admission

import (
	"cmp"
	"maps"
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// jobKey identifies a job.
type jobKey struct{ cluster, job string }

// jobRun is one run of a job of a cluster. The next run has to get a place of its own: while attempts of the run before
// hold room, other jobs may have begun.
type jobRun struct {
	job        string
	generation uint64
}

// runOf returns the run of a job's task.
func runOf(job string, task cluster.TaskID) jobRun {
	parts, _ := task.Parts()
	return jobRun{job, parts.Generation}
}

// place is a place in a group.
type place struct {
	group string
	run   jobRun
}

// jobGroups are the concurrency groups of jobs. A run of a job has its place in a group while an attempt of it holds
// room, and while it has begun and not ended by its records. The zero value is empty.
type jobGroups struct {
	places map[groupKey]map[jobRun]int // what keeps each place: attempts and records
	begun  map[jobKey]place            // of jobs that have begun and not ended by their records
}

// add counts one more of what keeps the place of a run with a sign of 1, and one less with -1.
func (g *jobGroups) add(key groupKey, run jobRun, sign int) {
	if g.places == nil {
		g.places = map[groupKey]map[jobRun]int{}
	}
	runs := g.places[key]
	if runs == nil {
		runs = map[jobRun]int{}
		g.places[key] = runs
	}
	if runs[run] += sign; runs[run] == 0 {
		delete(runs, run)
	}
	if len(runs) == 0 {
		delete(g.places, key)
	}
}

func (g *jobGroups) clone() jobGroups {
	c := jobGroups{places: make(map[groupKey]map[jobRun]int, len(g.places)), begun: maps.Clone(g.begun)}
	for key, runs := range g.places { // order-free: a copy
		c.places[key] = maps.Clone(runs)
	}
	return c
}

// SetBegun says in which concurrency group a run of a job has its place by its records: it has begun and not ended. An
// empty group is none. It reports whether that is a change.
func (l *Ledger) SetBegun(inCluster, job string, generation uint64, group string) (changed bool) {
	g, key := &l.jobs, jobKey{inCluster, job}
	var now place
	if group != "" {
		now = place{group, jobRun{job, generation}}
	}
	was := g.begun[key]
	if was == now {
		return false
	}
	if was.group != "" {
		g.add(groupKey{inCluster, was.group}, was.run, -1)
		delete(g.begun, key)
	}
	if group != "" {
		if g.begun == nil {
			g.begun = map[jobKey]place{}
		}
		g.begun[key] = now
		g.add(groupKey{inCluster, group}, now.run, 1)
	}
	return true
}

// JobPlace is the place of a run of a job in a concurrency group of jobs of its cluster.
type JobPlace struct {
	Cluster, Job string
	Generation   uint64
	Group        string
}

// Begun returns the places that jobs have by their records, ordered by cluster and job.
func (l *Ledger) Begun() []JobPlace {
	var all []JobPlace
	for key, at := range l.jobs.begun { // order-free: sorted below
		all = append(all, JobPlace{key.cluster, key.job, at.run.generation, at.group})
	}
	slices.SortFunc(all, func(a, b JobPlace) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Job, b.Job))
	})
	return all
}

// RetainBegun forgets the records of the jobs that keep does not accept. It reports whether there were some.
func (l *Ledger) RetainBegun(keep func(inCluster, job string) bool) (changed bool) {
	for key := range l.jobs.begun { // order-free: each by itself
		if !keep(key.cluster, key.job) {
			changed = l.SetBegun(key.cluster, key.job, 0, "") || changed
		}
	}
	return changed
}

// jobPlace returns how many jobs of the group of the task's job have begun and not ended, and whether that keeps the
// job from beginning. It does not if the run has its place.
func (d *Draft) jobPlace(p *cluster.Pending) (begun int, full bool) {
	c := p.JobConcurrency
	if c == nil || p.Owner.Kind != cluster.KindJob {
		return 0, false
	}
	key := groupKey{p.Owner.Cluster, c.Group}
	held, added := d.ledger.jobs.places[key], d.added.jobs.places[key]
	if run := runOf(p.Owner.Name, p.Task); held[run] > 0 || added[run] > 0 {
		return 0, false
	}
	begun = len(held)
	for run := range added { // order-free: counted
		if held[run] == 0 {
			begun++
		}
	}
	return begun, begun >= c.Limit
}

// WaitsForJobs reports whether a task waits for the end of other jobs of its job's concurrency group.
func (d *Draft) WaitsForJobs(p *cluster.Pending) bool {
	_, full := d.jobPlace(p)
	return full
}
