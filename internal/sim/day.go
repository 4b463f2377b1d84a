package sim

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/sim/ci"
	"github.com/berthd/berth/internal/store"
)

// day is the work of a CI system in a fleet: its users, who submit jobs and change them, and the checks of its jobs.
type day struct {
	*fleet
	acts    []ci.Act
	length  time.Duration
	checker *dayChecker
	acting  atomic.Int32 // users who have not acted for the last time
}

// commitLatency is the longest time of a commit: the store of a day is on disks. The leader pauses for twice the length
// of its last cycle, so without this time it would decide anew after each report.
const commitLatency = 150 * time.Millisecond

// newDay returns the day of a fleet.
func newDay(f *fleet, config ci.Config) *day {
	c := newDayChecker(f.checker, int(config.Length/time.Hour))
	f.checker.day, f.checker.changedJobs = c, map[string]bool{}
	f.disk.latency = commitLatency
	return &day{
		fleet: f, acts: ci.Generate(config), checker: c, length: max(config.Length, c.fair.end()+fairRest),
	}
}

// begin lets the users act, and watches the jobs.
func (d *day) begin() {
	d.background.Go(func() { d.act(d.ctx) })
	d.acting.Add(1)
	for _, u := range ci.FairUsers() {
		d.acting.Add(1)
		d.background.Go(func() { d.actFairly(d.ctx, &u) })
	}
	d.background.Go(func() { d.watch(d.ctx) })
}

// dayOf returns the size of a day of CI, or of a part of one: 10,000 jobs in 24 hours.
func dayOf(seed uint64, length time.Duration) *ci.Config {
	const jobsPerDay = 10_000
	return &ci.Config{Seed: seed, Length: length, Jobs: int(jobsPerDay * length / (24 * time.Hour))}
}

// setUpDay writes the cluster of the day and its definitions, and gives the nodes its programs.
func (f *fleet) setUpDay() {
	for _, c := range ci.Clusters() {
		f.putRecord(prefix.Cluster(c.Name), c)
	}
	for _, d := range ci.Definitions() {
		f.addDefinition(d)
	}
}

// act carries out the acts of the users, each at its time.
func (d *day) act(ctx context.Context) {
	for i := range d.acts {
		a := &d.acts[i]
		if pause.For(ctx, a.At-time.Since(d.began)) != nil {
			return
		}
		d.carryOut(ctx, a)
	}
	d.leave()
}

// leave notes that a user has acted for the last time.
func (d *day) leave() {
	if d.acting.Add(-1) == 0 {
		d.checker.noteLastAct()
	}
}

// carryOut repeats an act at any server until it is acknowledged, or is no longer possible.
func (d *day) carryOut(ctx context.Context, a *ci.Act) {
	for ctx.Err() == nil {
		dice := d.random.roll("ci-user")
		if s := d.hosts[dice.below(len(d.hosts))].liveServer(); s != nil {
			limited, cancel := context.WithTimeout(ctx, 10*time.Second)
			done := d.tryAct(limited, s, a)
			cancel()
			if done {
				return
			}
		}
		_ = pause.For(ctx, 300*time.Millisecond)
	}
}

// tryAct tries an act once, at one server, and reports whether nothing of it is left to do.
func (d *day) tryAct(ctx context.Context, s *server, a *ci.Act) (done bool) {
	key := prefix.Job(a.Cluster, a.Job)
	old, modified, err := readJob(ctx, s, key)
	if err != nil {
		return false
	}
	job := d.draft(a, old)
	if job == nil {
		return true
	}
	value, err := store.Encode(job)
	if err != nil {
		panic(err) // a fault of the simulator
	}
	return commitSpec(ctx, s, key, modified, value)
}

// readJob reads a job; old is nil if there is none.
func readJob(ctx context.Context, s *server, key string) (old *cluster.Job, modified uint64, err error) {
	r, err := readSpec(ctx, s, key)
	if err != nil || r.Modified == 0 {
		return nil, 0, err
	}
	old, err = store.Decode[cluster.Job](r.Value)
	return old, r.Modified, err
}

// draft returns the job after an act, or nil if the act is not possible. A job is submitted once.
func (d *day) draft(a *ci.Act, old *cluster.Job) *cluster.Job {
	now := time.Now().UTC()
	if a.Verb == ci.Submit {
		if old != nil {
			return nil // an earlier try was written, and its acknowledgement lost
		}
		job := *a.Spec
		job.Lifespan = cluster.Lifespan{Generation: 1, Created: now, Updated: now}
		job.Submitted = now
		return &job
	}
	if old == nil || old.Deleted {
		return nil
	}
	job := *old
	switch job.Updated = now; a.Verb {
	case ci.Cancel:
		job.Cancelled = true
	case ci.Hold, ci.Release:
		job.Hold = a.Verb == ci.Hold
	case ci.Hurry:
		job.Priority = min(job.Priority+20, cluster.MaxPriority)
	case ci.Restart:
		job.Generation++
		job.Submitted, job.NeedsMet, job.Retried = now, time.Time{}, cluster.JobRetries{}
		job.Cancelled, job.CancelReason = false, ""
	case ci.Retry:
		job.Retried.All = d.checker.lastFailure(&job)
		if job.Cancelled || job.Retried.All.IsZero() {
			return nil
		}
	case ci.Submit:
	}
	return &job
}

// watch checks the jobs of the day again and again.
func (d *day) watch(ctx context.Context) {
	for pause.For(ctx, sampleInterval) == nil {
		d.sample()
	}
}

// sample compares the jobs of the day with what the leader knows.
func (d *day) sample() {
	open := d.checker.openJobs()
	d.checker.sampleShares()
	leader := d.leader()
	if leader == nil || leader.ctx.Err() != nil || leader.paused.Load() {
		d.checker.noteLeaderless()
		return
	}
	d.checker.checkJobs(open, leader.jobViews())
}

// awaitEnd waits until the last job has ended, at most until the end of the day, and reports what has not ended.
func (d *day) awaitEnd() {
	for d.waitUntil(min(d.length, time.Since(d.began)+sampleInterval)) && time.Since(d.began) < d.length {
		if d.checker.isDone() {
			return
		}
	}
	d.checker.checkEnd()
}
