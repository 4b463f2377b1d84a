package admission

import (
	"maps"

	"github.com/berthd/berth/internal/cluster"
)

// jobKey identifies a job.
type jobKey struct{ cluster, job string }

// jobGroups are the concurrency groups of jobs. A job has its place in a group while an attempt of it holds room, and
// while it has begun and not ended by its records. The zero value is empty.
type jobGroups struct {
	places map[groupKey]map[string]int // by group and job: what keeps its place, its attempts and its records
	begun  map[jobKey]string           // the groups of jobs that have begun and not ended by their records
}

// add counts one more of what keeps the place of a job with a sign of 1, and one less with -1.
func (g *jobGroups) add(key groupKey, job string, sign int) {
	if g.places == nil {
		g.places = map[groupKey]map[string]int{}
	}
	jobs := g.places[key]
	if jobs == nil {
		jobs = map[string]int{}
		g.places[key] = jobs
	}
	if jobs[job] += sign; jobs[job] == 0 {
		delete(jobs, job)
	}
	if len(jobs) == 0 {
		delete(g.places, key)
	}
}

func (g *jobGroups) clone() jobGroups {
	c := jobGroups{places: make(map[groupKey]map[string]int, len(g.places)), begun: maps.Clone(g.begun)}
	for key, jobs := range g.places { // order-free: a copy
		c.places[key] = maps.Clone(jobs)
	}
	return c
}

// SetBegun says in which concurrency group a job has its place by its records: it has begun and not ended. An empty
// group is none. It reports whether that is a change.
func (l *Ledger) SetBegun(inCluster, job, group string) (changed bool) {
	g, key := &l.jobs, jobKey{inCluster, job}
	was := g.begun[key]
	if was == group {
		return false
	}
	if was != "" {
		g.add(groupKey{inCluster, was}, job, -1)
		delete(g.begun, key)
	}
	if group != "" {
		if g.begun == nil {
			g.begun = map[jobKey]string{}
		}
		g.begun[key] = group
		g.add(groupKey{inCluster, group}, job, 1)
	}
	return true
}

// RetainBegun forgets the records of the jobs that keep does not accept. It reports whether there were some.
func (l *Ledger) RetainBegun(keep func(inCluster, job string) bool) (changed bool) {
	for key := range l.jobs.begun { // order-free: each by itself
		if !keep(key.cluster, key.job) {
			changed = l.SetBegun(key.cluster, key.job, "") || changed
		}
	}
	return changed
}

// jobPlace returns how many jobs of the group of the task's job have begun and not ended, and whether that keeps the
// job from beginning. It does not if the job has its place.
func (d *Draft) jobPlace(p *cluster.Pending) (begun int, full bool) {
	c := p.JobConcurrency
	if c == nil || p.Owner.Kind != cluster.KindJob {
		return 0, false
	}
	key := groupKey{p.Owner.Cluster, c.Group}
	held, added := d.ledger.jobs.places[key], d.added.jobs.places[key]
	if held[p.Owner.Name] > 0 || added[p.Owner.Name] > 0 {
		return 0, false
	}
	begun = len(held)
	for job := range added { // order-free: counted
		if held[job] == 0 {
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
