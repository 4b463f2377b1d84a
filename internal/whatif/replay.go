package whatif

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/traces"
)

// Limits of a replay.
const (
	// DefaultTraceTasks and MaxTraceTasks are the default and the greatest number of replayed tasks.
	DefaultTraceTasks = 50_000
	MaxTraceTasks     = 1_000_000
	// DefaultTraceTime and MaxTraceTime are the default and the longest duration of a replay.
	DefaultTraceTime = 366 * 24 * time.Hour
	MaxTraceTime     = 10 * DefaultTraceTime

	// maxObjectsPerApply limits the objects of one write. maxCyclesPerMoment is the number of cycles at one moment
	// after which the replay is considered endless.
	maxObjectsPerApply = 500
	maxCyclesPerMoment = 10_000
	// momentsPerProgress is the number of moments between two calls of Progress.
	momentsPerProgress = 64
	// maxStride limits the advance of the clock while nothing happens. An action that depends only on the clock may be
	// late by this time. Strides begin short, for actions that are retried soon, and grow by strideFactor.
	maxStride, strideFactor = time.Hour, 60
)

// Replay is a trace with the parameters of its replay.
type Replay struct {
	// Name is the trace's name in the answer.
	Name  string
	Trace *traces.Trace
	// Join lets the machines of the trace join the domain before.
	Join bool
	// Fill lets the jobs arrive one second apart, in the order of the trace, and never end.
	Fill bool
	// Strategy is the placement strategy of the tasks; empty for the domain's.
	Strategy cluster.Strategy
	// Queue is the policy of the queue; empty for the default, or with Fill for greedy: nothing ends, so a task that
	// lacks room would keep it from all others. With fair, each user of the trace has a cluster of its own.
	Queue cluster.QueuePolicy
	// Tasks limits the number of tasks, default DefaultTraceTasks. The first job beyond it, and all later ones, are
	// left out. Time is the duration after which the replay ends, default DefaultTraceTime.
	Tasks int
	Time  time.Duration
	// Progress, unless nil, is called now and then.
	Progress func(Progress)
	// Observe, unless nil, is called at each moment with the time since the first arrival and the state, once the
	// control plane and the agents are at rest.
	Observe func(after time.Duration, s *store.Snapshot)
	// Begun, unless nil, is called for each job once all of its tasks are placed, with the time that it waited.
	Begun func(job *traces.Job, waited time.Duration)
}

// Progress is the progress of a replay.
type Progress struct {
	// Jobs is the number of jobs that have arrived, Of the number of all jobs. Waiting counts jobs with a task that
	// waits.
	Jobs, Of, Waiting int
	// After is the time in the trace, from the first arrival.
	After time.Duration
}

// replayRun is a replay in progress.
type replayRun struct {
	Replay
	world  *World
	follow *store.Follower
	// in is the cluster of the jobs, and the prefix of the names of definitions and of the clusters of users.
	in     string
	users  map[string]string // the clusters of users; nil if all have the same one
	began  time.Duration     // on the World's boot-time clock
	next   int               // index of the next arriving job
	jobs   []replayJob       // in the order of their arrival
	byName map[string]*replayJob
	counts replayCounts
	stride time.Duration // advance of the clock while nothing happens
	cut    bool          // the time limit was reached
}

// replayJob is a job of the trace.
type replayJob struct {
	*traces.Job
	name        string
	in          string        // its cluster
	arrives     time.Duration // from the first arrival
	run         time.Duration // 0 for a job that never ends
	tasks       int           // each with mergedTasks times the shape
	mergedTasks int
	placed      int // tasks that were placed
	done        int // tasks that have ended
}

// replay lets the jobs of a trace arrive and end in their time, as if their users ran them.
func (w *World) replay(ctx context.Context, ask *Replay) (*Replayed, error) {
	p := &replayRun{Replay: *ask, world: w, byName: map[string]*replayJob{}}
	p.Tasks, p.Time = cmp.Or(p.Tasks, DefaultTraceTasks), cmp.Or(p.Time, DefaultTraceTime)
	p.orderJobs()
	p.follow = w.tables.Follow()
	defer p.follow.Close()
	if err := p.prepare(ctx); err != nil {
		return nil, err
	}
	w.agents.runTime = func(task cluster.TaskID) time.Duration {
		if j := p.jobOf(task); j != nil {
			return j.run
		}
		return 0
	}
	p.began = w.clock.boot
	p.counts.start(p)
	for moments := 0; ; moments++ {
		// 0. Ended jobs are deleted: a growing history would slow the replay down.
		if err := p.deleteEndedJobs(ctx); err != nil {
			return nil, err
		}
		if p.Progress != nil && moments%momentsPerProgress == 0 {
			p.Progress(Progress{Jobs: p.next, Of: len(p.jobs), Waiting: p.counts.waiting, After: p.traceTime()})
		}
		if err := p.arrive(ctx); err != nil { // 1. Jobs arrive
			return nil, err
		}
		next, err := p.settleMoment(ctx) // 2. The control plane reacts to arrivals and ends
		if err != nil {
			return nil, err
		}
		if p.Observe != nil {
			p.Observe(p.traceTime(), p.world.Snapshot())
		}
		at, ok := p.nextEvent() // 3. Advance to the next event or decision
		if !ok {
			break
		}
		if p.cut = at-p.began > p.Time && p.traceTime() >= p.Time; p.cut {
			break
		}
		p.stride = min(strideFactor*max(p.stride, next, clockStep), maxStride)
		p.advance(min(at-w.clock.boot, p.stride, p.began+p.Time-w.clock.boot))
	}
	if !p.cut { // no more events; waiting tasks may still be placed
		if _, _, err := w.Settle(ctx); err != nil {
			return nil, err
		}
		p.recordChanges()
	}
	return p.result(), nil
}

// orderJobs sorts the jobs that are replayed.
func (p *replayRun) orderJobs() {
	jobs := make([]*traces.Job, 0, len(p.Trace.Jobs))
	for i := range p.Trace.Jobs {
		jobs = append(jobs, &p.Trace.Jobs[i])
	}
	if !p.Fill {
		slices.SortStableFunc(jobs, func(a, b *traces.Job) int { return cmp.Compare(a.Arrived, b.Arrived) })
	}
	tasks := 0
	for i, j := range jobs {
		r := replayJob{
			Job: j, name: p.jobName(i, j), run: j.Run, tasks: j.Tasks, mergedTasks: 1,
			arrives: j.Arrived - jobs[0].Arrived,
		}
		if p.Fill {
			r.arrives, r.run = time.Duration(i)*time.Second, 0
		}
		if r.tasks > cluster.MaxGang { // too large a gang: merge several tasks into one
			r.mergedTasks = (j.Tasks + cluster.MaxGang - 1) / cluster.MaxGang
			r.tasks = (j.Tasks + r.mergedTasks - 1) / r.mergedTasks
		}
		if tasks += r.tasks; tasks > p.Tasks || r.arrives > p.Time {
			break
		}
		p.jobs = append(p.jobs, r)
		p.byName[r.name] = nil // taken
	}
	for i := range p.jobs {
		p.byName[p.jobs[i].name] = &p.jobs[i]
	}
}

// jobName returns the name of a job: the trace's own one if it is valid.
func (p *replayRun) jobName(i int, j *traces.Job) string {
	for _, name := range []string{strings.ToLower(j.ID), "job-" + strings.ToLower(j.ID)} {
		if _, taken := p.byName[name]; !taken && cluster.ValidName(name) {
			return name
		}
	}
	for name := fmt.Sprintf("job-%07d", i); ; name += "-x" {
		if _, taken := p.byName[name]; !taken {
			return name
		}
	}
}

// jobOf returns the job of a task, nil if the trace does not contain it.
func (p *replayRun) jobOf(task cluster.TaskID) *replayJob {
	parts, ok := task.Parts()
	if !ok || parts.Step == "" {
		return nil
	}
	if j := p.byName[parts.Owner]; j != nil && j.in == parts.Cluster {
		return j
	}
	return nil
}

// prepare creates the cluster and the definitions of the jobs.
func (p *replayRun) prepare(ctx context.Context) error {
	snap := p.world.Snapshot()
	taken := func(name string) bool {
		for e := range snap.Clusters() {
			if e.Value.Name == name || strings.HasPrefix(e.Value.Name, name+"-u") {
				return true
			}
		}
		for e := range snap.Definitions("") {
			if strings.HasPrefix(e.Value.Name, name+"-") {
				return true
			}
		}
		return false
	}
	p.in = "trace"
	for i := 2; taken(p.in); i++ {
		p.in = fmt.Sprintf("trace%d", i)
	}
	policy := p.Queue
	if policy == "" && p.Fill {
		policy = cluster.QueueGreedy
	}
	own := cluster.Cluster{Queue: &cluster.QueueSettings{Policy: policy}}
	if p.world.config.Domain != cluster.DefaultDomain {
		own.Domain = p.world.config.Domain
	}
	var objects []api.Object
	made := map[cluster.Ref]bool{}
	for i := range p.jobs {
		p.jobs[i].in = p.clusterOf(p.jobs[i].User)
	}
	for _, own.Name = range p.clusters() {
		objects = append(objects, object(cluster.KindCluster, &own))
	}
	for i := range p.jobs {
		ref := p.definition(&p.jobs[i])
		if made[ref] {
			continue
		}
		made[ref] = true
		objects = append(objects, object(cluster.KindTaskDefinition, p.taskDefinition(ref, &p.jobs[i])))
	}
	return p.apply(ctx, objects)
}

// clusterOf returns the cluster of a user's jobs.
func (p *replayRun) clusterOf(user string) string {
	if p.Queue != cluster.QueueFair {
		return p.in
	}
	in, known := p.users[user]
	if !known {
		if p.users == nil {
			p.users = map[string]string{}
		}
		in = fmt.Sprintf("%s-u%d", p.in, len(p.users)+1)
		p.users[user] = in
	}
	return in
}

// clusters returns the clusters of the jobs.
func (p *replayRun) clusters() []string {
	if p.users == nil {
		return []string{p.in}
	}
	return slices.Sorted(maps.Values(p.users))
}

// definition returns the reference of a job's definition.
func (p *replayRun) definition(j *replayJob) cluster.Ref {
	name := fmt.Sprintf("%s-%d", p.in, j.Shape)
	if j.mergedTasks > 1 {
		name += fmt.Sprintf("x%d", j.mergedTasks)
	}
	return cluster.Ref{Name: name, Version: 1}
}

func (p *replayRun) taskDefinition(ref cluster.Ref, j *replayJob) *cluster.TaskDefinition {
	s, times := p.Trace.Shapes[j.Shape], int64(j.mergedTasks)
	r := cluster.Resources{
		CPU:    min(s.CPU*cluster.MilliCPU(times), cluster.MaxCPU),
		Memory: min(s.Memory*cluster.Bytes(times), cluster.MaxMemory),
	}
	if r.Memory > 0 {
		r.Memory = max(r.Memory, cluster.MinMemory)
	}
	if s.GPUs > 0 {
		d := cluster.DeviceRequest{Type: cluster.DefaultDeviceType, Count: s.GPUs * j.mergedTasks, Share: s.Share}
		if s.Models != "" {
			d.Models = strings.Split(s.Models, "|")
		}
		r.Devices = []cluster.DeviceRequest{d}
	}
	return &cluster.TaskDefinition{
		Name: ref.Name, Version: ref.Version,
		Containers: []cluster.Container{{Name: "main", Image: "trace", Resources: r}},
	}
}

// object encodes an object for the API. Objects of this package can always be encoded.
func object(kind cluster.Kind, v any) api.Object {
	spec, _ := json.Marshal(v)
	return api.Object{Kind: kind, Spec: spec}
}

// apply writes objects as a user does.
func (p *replayRun) apply(ctx context.Context, objects []api.Object) error {
	for part := range slices.Chunk(objects, maxObjectsPerApply) {
		if _, err := p.world.client.Apply(ctx, api.ApplyRequest{Objects: part}); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("run the jobs of the trace: %w", err)
		}
	}
	return nil
}

// arrive submits the jobs whose time has come.
func (p *replayRun) arrive(ctx context.Context) error {
	var objects []api.Object
	for ; p.next < len(p.jobs) && p.jobs[p.next].arrives <= p.traceTime(); p.next++ {
		j := &p.jobs[p.next]
		s := cluster.Step{
			Name: "run", Definition: p.definition(j), Count: j.tasks,
			Placement: cluster.Placement{Strategy: p.Strategy},
		}
		if j.tasks > 1 {
			s.Gang = &cluster.Gang{}
		}
		if j.Limit > 0 {
			s.TimeLimit = min(max(cluster.Duration(j.Limit), cluster.MinTimeLimit), cluster.MaxTimeLimit)
		}
		objects = append(objects,
			object(cluster.KindJob, &cluster.Job{Cluster: j.in, Name: j.name, Steps: []cluster.Step{s}}))
		p.counts.arrived(j)
	}
	return p.apply(ctx, objects)
}

// deleteEndedJobs deletes the jobs that have ended.
func (p *replayRun) deleteEndedJobs(ctx context.Context) error {
	for _, j := range p.counts.endedJobs {
		if err := p.world.client.DeleteJob(ctx, j.in, j.name, client.Condition{}); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("delete a job of the trace that has ended: %w", err)
		}
	}
	p.counts.endedJobs = p.counts.endedJobs[:0]
	return nil
}

// settleMoment runs the control plane and the agents until nothing changes at the present time. It returns the time
// until the control plane's next decision.
func (p *replayRun) settleMoment(ctx context.Context) (time.Duration, error) {
	w := p.world
	for range maxCyclesPerMoment {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		before := w.tables.Snapshot().Revision()
		next, err := w.plane.Step(ctx)
		if err != nil {
			return 0, fmt.Errorf("decide: %w", err)
		}
		if err := w.agents.step(ctx); err != nil {
			return 0, fmt.Errorf("the agents: %w", err)
		}
		p.recordChanges()
		if w.tables.Snapshot().Revision() == before {
			return next, nil
		}
		p.stride = 0
		p.advance(clockStep)
	}
	return 0, fmt.Errorf("%w: over %d cycles at one moment of the trace", ErrTooLong, maxCyclesPerMoment)
}

// nextEvent returns when the next job arrives or ends.
func (p *replayRun) nextEvent() (at time.Duration, ok bool) {
	if p.next < len(p.jobs) {
		at, ok = p.began+p.jobs[p.next].arrives, true
	}
	if ends := p.world.agents.ends; len(ends) > 0 && (!ok || ends[0].at < at) {
		at, ok = ends[0].at, true
	}
	return max(at, p.world.clock.boot), ok
}

// traceTime returns the time in the trace.
func (p *replayRun) traceTime() time.Duration { return p.world.clock.boot - p.began }

// advance lets time pass.
func (p *replayRun) advance(d time.Duration) {
	d = max(d, 0)
	p.counts.advance(d)
	p.world.clock.advance(d)
}

// recordChanges records placements and ends.
func (p *replayRun) recordChanges() {
	changes, snap := p.follow.Take(), p.world.Snapshot()
	if changes.Resync {
		for row := range snap.AllAttempts() {
			p.counts.updateAttempt(p, snap, store.AttemptKey{Task: row.Task, Number: row.Number}, row)
		}
	}
	for key := range changes.Attempts { // order-free: independent counts
		row, _ := snap.Attempt(key.Task, key.Number)
		p.counts.updateAttempt(p, snap, key, row)
	}
	p.counts.recordBusiest(p)
}
