package whatif

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/traces"
)

// Bounds of a replay.
const (
	// DefaultTraceTasks is how many tasks of a trace are replayed unless more are asked for, and MaxTraceTasks how many
	// can be.
	DefaultTraceTasks = 50_000
	MaxTraceTasks     = 1_000_000
	// DefaultTraceTime is for how long a trace is replayed unless more is asked for, and MaxTraceTime for how long it
	// can be.
	DefaultTraceTime = 366 * 24 * time.Hour
	MaxTraceTime     = 10 * DefaultTraceTime

	// applyMost is how many objects are written at once, and restMost after how many cycles at one moment it will never
	// come to rest.
	applyMost = 500
	restMost  = 10_000
	// progressEvery is after how many moments the caller is told how far it is.
	progressEvery = 64
	// strideMost is by how much the clock goes on at most while nothing happens: so much later than in its time
	// something may be done that goes by the clock. It begins with a short stride, for what is tried again soon, and
	// each further one is strideGrows times as long.
	strideMost, strideGrows = time.Hour, 60
)

// Replay is a trace, and how it is replayed.
type Replay struct {
	// Name is what the answer calls it.
	Name  string
	Trace *traces.Trace
	// Join has the machines of the trace join the domain before.
	Join bool
	// Fill has the jobs arrive a second apart, in the order of the trace, and never end.
	Fill bool
	// Strategy is that of the tasks; empty where the domain is to say.
	Strategy cluster.Strategy
	// Tasks is how many tasks may come, default DefaultTraceTasks: the first job that is too much, and all behind it,
	// is left out. Time is after how long it ends, however far it is, default DefaultTraceTime.
	Tasks int
	Time  time.Duration
	// Progress, unless nil, is told now and then how far it is.
	Progress func(Progress)
}

// Progress is how far a replay is.
type Progress struct {
	// Jobs came, of so many that are to come; Waiting are those of which a task still waits for a place.
	Jobs, Of, Waiting int
	// After is the time in the trace, from the first arrival.
	After time.Duration
}

// replaying is a replay on its way.
type replaying struct {
	Replay
	world  *World
	follow *store.Follower
	// in is the cluster that the jobs are in, and begins the names of definitions.
	in     string
	began  time.Duration // on the World's boot-time clock
	next   int           // the job that arrives next
	jobs   []replayed    // in the order of their arrival
	byName map[string]*replayed
	tally  tally
	idle   time.Duration // by how much the clock goes on while nothing happens
	ended  bool          // because its time was up
}

// replayed is a job of the trace.
type replayed struct {
	*traces.Job
	name    string
	arrives time.Duration // from the first arrival
	run     time.Duration // 0 for ever
	tasks   int           // so many, and of each so many times its shape
	times   int
	placed  int // tasks that have had a place
	done    int // tasks that have ended
}

// replay has the jobs of a trace arrive, and end, in their time, as if their users ran them.
func (w *World) replay(ctx context.Context, ask *Replay) (*Replayed, error) {
	p := &replaying{Replay: *ask, world: w, byName: map[string]*replayed{}}
	p.Tasks, p.Time = cmp.Or(p.Tasks, DefaultTraceTasks), cmp.Or(p.Time, DefaultTraceTime)
	p.line()
	p.follow = w.tables.Follow()
	defer p.follow.Close()
	if err := p.prepare(ctx); err != nil {
		return nil, err
	}
	w.agents.run = func(task cluster.TaskID) time.Duration {
		if j := p.jobOf(task); j != nil {
			return j.run
		}
		return 0
	}
	p.began = w.clock.boot
	p.tally.begin(p)
	for moments := 0; ; moments++ {
		// 0. What has ended leaves no history, which would make the way longer and longer
		if err := p.forget(ctx); err != nil {
			return nil, err
		}
		if p.Progress != nil && moments%progressEvery == 0 {
			p.Progress(Progress{Jobs: p.next, Of: len(p.jobs), Waiting: p.tally.waiting, After: p.after()})
		}
		if err := p.arrive(ctx); err != nil { // 1. What comes now
			return nil, err
		}
		next, err := p.rest(ctx) // 2. What follows from it, and from what ended
		if err != nil {
			return nil, err
		}
		at, ok := p.event() // 3. On to what comes or ends next, or to when the control plane wants to look
		if !ok {
			break
		}
		if p.ended = at-p.began > p.Time && p.after() >= p.Time; p.ended {
			break
		}
		p.idle = min(strideGrows*max(p.idle, next, step), strideMost)
		p.pass(min(at-w.clock.boot, p.idle, p.began+p.Time-w.clock.boot))
	}
	if !p.ended { // nothing will come or end any more; what can be placed still is
		if _, _, err := w.Settle(ctx); err != nil {
			return nil, err
		}
		p.note()
	}
	return p.result(), nil
}

// line puts the jobs that are replayed into their order.
func (p *replaying) line() {
	jobs := make([]*traces.Job, 0, len(p.Trace.Jobs))
	for i := range p.Trace.Jobs {
		jobs = append(jobs, &p.Trace.Jobs[i])
	}
	if !p.Fill {
		slices.SortStableFunc(jobs, func(a, b *traces.Job) int { return cmp.Compare(a.Arrived, b.Arrived) })
	}
	tasks := 0
	for i, j := range jobs {
		r := replayed{
			Job: j, name: p.jobName(i, j), run: j.Run, tasks: j.Tasks, times: 1,
			arrives: j.Arrived - jobs[0].Arrived,
		}
		if p.Fill {
			r.arrives, r.run = time.Duration(i)*time.Second, 0
		}
		if r.tasks > cluster.MaxGang { // so many cannot be placed together: each takes the place of several
			r.times = (j.Tasks + cluster.MaxGang - 1) / cluster.MaxGang
			r.tasks = (j.Tasks + r.times - 1) / r.times
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

// jobName returns the name of a job: what the trace calls it where that can be one.
func (p *replaying) jobName(i int, j *traces.Job) string {
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

// jobOf returns the job that a task is of, nil for none of the trace.
func (p *replaying) jobOf(task cluster.TaskID) *replayed {
	parts, ok := task.Parts()
	if !ok || parts.Cluster != p.in || parts.Step == "" {
		return nil
	}
	return p.byName[parts.Owner]
}

// prepare makes the cluster and the definitions of the jobs.
func (p *replaying) prepare(ctx context.Context) error {
	snap := p.world.Snapshot()
	taken := func(name string) bool {
		if _, there := snap.Cluster(name); there {
			return true
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
	own := cluster.Cluster{Name: p.in}
	if p.world.config.Domain != cluster.DefaultDomain {
		own.Domain = p.world.config.Domain
	}
	objects := []api.Object{object(cluster.KindCluster, &own)}
	made := map[cluster.Ref]bool{}
	for i := range p.jobs {
		ref := p.definition(&p.jobs[i])
		if made[ref] {
			continue
		}
		made[ref] = true
		objects = append(objects, object(cluster.KindTaskDefinition, p.define(ref, &p.jobs[i])))
	}
	return p.apply(ctx, objects)
}

// definition names what a job's tasks run.
func (p *replaying) definition(j *replayed) cluster.Ref {
	name := fmt.Sprintf("%s-%d", p.in, j.Shape)
	if j.times > 1 {
		name += fmt.Sprintf("x%d", j.times)
	}
	return cluster.Ref{Name: name, Version: 1}
}

func (p *replaying) define(ref cluster.Ref, j *replayed) *cluster.TaskDefinition {
	s, times := p.Trace.Shapes[j.Shape], int64(j.times)
	r := cluster.Resources{
		CPU:    min(s.CPU*cluster.MilliCPU(times), cluster.MaxCPU),
		Memory: min(s.Memory*cluster.Bytes(times), cluster.MaxMemory),
	}
	if r.Memory > 0 {
		r.Memory = max(r.Memory, cluster.MinMemory)
	}
	if s.GPUs > 0 {
		d := cluster.DeviceRequest{Type: cluster.DefaultDeviceType, Count: s.GPUs * j.times, Share: s.Share}
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

// object encodes an object for the API. What is encoded here always can be.
func object(kind cluster.Kind, v any) api.Object {
	spec, _ := json.Marshal(v)
	return api.Object{Kind: kind, Spec: spec}
}

// apply writes objects as a user does.
func (p *replaying) apply(ctx context.Context, objects []api.Object) error {
	for part := range slices.Chunk(objects, applyMost) {
		if _, err := p.world.client.Apply(ctx, api.ApplyRequest{Objects: part}); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("run the jobs of the trace: %w", err)
		}
	}
	return nil
}

// arrive runs the jobs whose time has come.
func (p *replaying) arrive(ctx context.Context) error {
	var objects []api.Object
	for ; p.next < len(p.jobs) && p.jobs[p.next].arrives <= p.after(); p.next++ {
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
			object(cluster.KindJob, &cluster.Job{Cluster: p.in, Name: j.name, Steps: []cluster.Step{s}}))
		p.tally.arrived(j)
	}
	return p.apply(ctx, objects)
}

// forget deletes the jobs that have ended.
func (p *replaying) forget(ctx context.Context) error {
	for _, j := range p.tally.over {
		if err := p.world.client.DeleteJob(ctx, p.in, j.name, client.Condition{}); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("delete a job of the trace that has ended: %w", err)
		}
	}
	p.tally.over = p.tally.over[:0]
	return nil
}

// rest lets the control plane and the agents do all that is to be done now, and returns how long the control plane then
// has nothing to look at.
func (p *replaying) rest(ctx context.Context) (time.Duration, error) {
	w := p.world
	for range restMost {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		before := w.tables.Snapshot().Revision()
		next, err := w.plane.Step(ctx)
		if err != nil {
			return 0, fmt.Errorf("decide: %w", err)
		}
		if err := w.agents.act(ctx); err != nil {
			return 0, fmt.Errorf("the agents: %w", err)
		}
		p.note()
		if w.tables.Snapshot().Revision() == before {
			return next, nil
		}
		p.idle = 0
		p.pass(step)
	}
	return 0, fmt.Errorf("%w: over %d cycles at one moment of the trace", ErrTooLong, restMost)
}

// event returns when the next job comes or ends.
func (p *replaying) event() (at time.Duration, ok bool) {
	if p.next < len(p.jobs) {
		at, ok = p.began+p.jobs[p.next].arrives, true
	}
	if ends := p.world.agents.ends; len(ends) > 0 && (!ok || ends[0].at < at) {
		at, ok = ends[0].at, true
	}
	return max(at, p.world.clock.boot), ok
}

// after is the time in the trace.
func (p *replaying) after() time.Duration { return p.world.clock.boot - p.began }

// pass lets time pass.
func (p *replaying) pass(d time.Duration) {
	d = max(d, 0)
	p.tally.pass(d)
	p.world.clock.pass(d)
}

// note takes note of what was placed and what has ended.
func (p *replaying) note() {
	changes, snap := p.follow.Take(), p.world.Snapshot()
	if changes.Resync {
		for row := range snap.AllAttempts() {
			p.tally.note(p, snap, store.AttemptKey{Task: row.Task, Number: row.Number}, row)
		}
	}
	for key := range changes.Attempts { // order-free: each is counted by itself
		row, _ := snap.Attempt(key.Task, key.Number)
		p.tally.note(p, snap, key, row)
	}
	p.tally.look(p)
}
