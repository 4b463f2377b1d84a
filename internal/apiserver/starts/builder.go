package starts

import (
	"cmp"
	"hash/fnv"
	"iter"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/admission"
	"github.com/berthd/berth/internal/logic/forecast"
	"github.com/berthd/berth/internal/logic/scheduler"
)

const (
	// maxPast is how far back arrivals are repeated, and maxArrivals their number. Jobs with more than maxJobArrivals
	// steps are left out, as one alone would shorten the record to the time since it came.
	maxPast        = 7 * 24 * time.Hour
	maxArrivals    = 5000
	maxJobArrivals = 500
	// maxLines is the number of lines that a forecast has. Tasks of others have none.
	maxLines = 64
	// Resources of a forecast: CPU, memory, disk, and types of devices.
	dimCPU, dimMemory, dimDisk, dimDevices = 0, 1, 2, 3
)

// builder builds the input of a forecast.
type builder struct {
	*Input
	history *forecast.History
	fleet   *scheduler.Fleet
	// pending are the chosen tasks and, behind chosen ones, the requests of the past. members are the positions of the
	// tasks of each request.
	pending []cluster.Pending
	chosen  int
	members [][]int
	dims    map[string]int // by type of device
	nodes   map[string]int32
	steps   map[stepKey]*cluster.Step
	users   users
	out     forecast.Input
}

// maxOfGroup bounds the requests of a concurrency group of jobs whose jobs have no place in it. Those behind them start
// far in the future, and would take the place of others among the requests that are forecast.
const maxOfGroup = 100

type stepKey struct{ cluster, job, step string }

// choose chooses the tasks of jobs that wait for room or for a limit of their cluster. Members of a gang are one
// request.
func (b *builder) choose(queue iter.Seq[*cluster.Pending]) {
	ofGroup := map[[2]string]int{} // requests of jobs without a place, by concurrency group of jobs
	left := ""                     // the last gang that was left out
	limits := admission.NewDraft(&b.fleet.Limits)
	for p := range queue {
		if len(b.members) >= forecast.MaxRequests {
			break
		}
		if p.Owner.Kind != cluster.KindJob {
			continue
		}
		if why, known := b.Waits(p.Task); !waitsForRoom(why, known) {
			continue
		}
		at, n := len(b.pending), len(b.members)
		if p.Gang != "" && n > 0 && b.pending[b.members[n-1][0]].Gang == p.Gang {
			b.pending = append(b.pending, *p)
			b.members[n-1] = append(b.members[n-1], at)
			continue
		}
		if p.Gang != "" && p.Gang == left {
			continue
		}
		if p.JobConcurrency != nil && limits.WaitsForJobs(p) {
			group := [2]string{p.Owner.Cluster, p.JobConcurrency.Group}
			if ofGroup[group]++; ofGroup[group] > maxOfGroup {
				left = p.Gang
				continue
			}
		}
		b.pending = append(b.pending, *p)
		b.members = append(b.members, []int{at})
	}
	b.chosen = len(b.pending)
	b.sortMembers()
}

// build builds the input.
func (b *builder) build() {
	b.out.Now = b.Now
	b.steps = map[stepKey]*cluster.Step{}
	b.addNodes()
	b.addRunning()
	at := b.choosePast()
	lines, of := scheduler.Lines(b.fleet, b.pending, scheduler.Options{Now: b.Now})
	for i := range lines {
		b.out.Lines = append(b.out.Lines, forecast.Line{Nodes: lines[i]})
	}
	for i := maxLines; i < len(lines); i++ {
		b.out.Lines[i].Nodes = nil
	}
	for i := range b.pending {
		b.out.Lines[of[i]].Policy = policyOf(b.pending[i].Queue)
	}
	for _, members := range b.members {
		p := &b.pending[members[0]]
		r := b.request(p, of[members[0]])
		if p.Gang != "" {
			r.Tasks, r.Gang = len(members), true
		}
		r.Waited = max(b.Now.Sub(p.Since), 0)
		b.out.Waiting = append(b.out.Waiting, r)
	}
	for i, since := range at {
		p := &b.pending[b.chosen+i]
		r := b.request(p, of[b.chosen+i])
		r.Gang = p.GangSize > 0
		b.out.Arrivals = append(b.out.Arrivals, forecast.Arrival{Request: r, At: since})
	}
	b.addCapacity()
	b.addLasting()
	if len(b.pending) > 0 { // a forecast of the same queue gives the same figures
		h := fnv.New64a()
		_, _ = h.Write([]byte(b.pending[0].Task))
		b.out.Seed = h.Sum64()
	}
}

func policyOf(q cluster.QueuePolicy) forecast.Policy {
	switch q {
	case cluster.QueueFIFO:
		return forecast.FIFO
	case cluster.QueueGreedy, "":
		return forecast.Greedy
	case cluster.QueueSJBF:
		return forecast.SJBF
	case cluster.QueueFair:
		return forecast.Fair
	default:
		return forecast.EASY
	}
}

// request returns the request of pending tasks.
func (b *builder) request(p *cluster.Pending, line int) forecast.Request {
	parts, _ := p.Task.Parts()
	limit := time.Duration(p.TimeLimit)
	r := forecast.Request{
		Demand: b.amounts(p.Demand, p.Devices), Tasks: p.Tasks(), Limit: limit, Line: line,
		Runs:     b.history.Runs(kindOf(parts.Cluster, parts.Owner, parts.Step), limit),
		Priority: p.Priority, User: b.userOf(p.Owner.Cluster, p.User), Devices: len(p.Devices) > 0,
	}
	if b.isLimited(p.Owner.Cluster, p.Concurrency != nil || p.JobConcurrency != nil) {
		r.Pending = p
	}
	return r
}

// amounts returns a demand. Devices count in thousandths.
func (b *builder) amounts(d cluster.Demand, devices []cluster.DeviceRequest) (a forecast.Amounts) {
	a[dimCPU], a[dimMemory], a[dimDisk] = int64(d.CPU), int64(d.Memory), int64(d.Disk)
	for i := range devices {
		if dim := b.dimOf(devices[i].Type); dim >= 0 {
			a[dim] += cmp.Or(int64(devices[i].Share), int64(max(devices[i].Count, 1))*cluster.WholeDevice)
		}
	}
	return a
}

// dimOf returns the resource of a type of devices, -1 if there are too many types.
func (b *builder) dimOf(kind string) int {
	kind = cmp.Or(kind, cluster.DefaultDeviceType)
	dim, known := b.dims[kind]
	if !known {
		if dim = dimDevices + len(b.dims); dim >= forecast.Dims {
			dim = -1
		}
		b.dims[kind] = dim
	}
	return dim
}

// addNodes adds what is free on each node, in the order of names.
func (b *builder) addNodes() {
	names := b.fleet.Nodes()
	b.nodes = make(map[string]int32, len(names))
	for i, name := range names {
		b.nodes[name] = int32(i)
		n, used, _ := b.fleet.Node(name)
		free := b.amounts(n.Capacity.Sub(used), nil)
		for k := range n.Devices {
			if dim := b.dimOf(n.Devices[k].Type); dim >= 0 {
				free[dim] += cluster.WholeDevice
			}
		}
		b.out.Nodes = append(b.out.Nodes, free)
	}
}

// addRunning adds the running tasks of jobs, and takes the devices of all tasks from their nodes.
func (b *builder) addRunning() {
	var held []scheduler.Reservation
	for r := range b.fleet.Held { // order-free: sorted below
		held = append(held, r)
	}
	slices.SortFunc(held, func(x, y scheduler.Reservation) int {
		return cmp.Or(cmp.Compare(x.Task, y.Task), cmp.Compare(x.UUID, y.UUID))
	})
	b.addLimits(held)
	gangs := map[string]int{}
	for i := range held {
		r := &held[i]
		node, known := b.nodes[r.Node]
		if !known {
			continue
		}
		demand := b.amounts(r.Demand, r.Requests)
		for dim := dimDevices; dim < forecast.Dims; dim++ {
			b.out.Nodes[node][dim] -= demand[dim]
		}
		parts, ok := r.Task.Parts()
		if !r.Batch || !ok {
			continue
		}
		run := forecast.Running{
			Node: node, Demand: demand, Started: r.Started, Limit: r.Limit,
			Runs: b.history.Runs(kindOf(parts.Cluster, parts.Owner, parts.Step), r.Limit),
			User: b.userOf(parts.Cluster, r.User),
		}
		if h := r.Holding(); b.isLimited(h.Cluster, h.Group != "" || h.JobGroup != "") {
			run.Limited = []admission.Holding{h}
		}
		if run.Started.IsZero() {
			run.Started = b.Now
		}
		if s := b.step(parts.Cluster, parts.Owner, parts.Step); s != nil && s.Gang != nil {
			name := parts.Cluster + "." + parts.Owner + "." + parts.Step
			if gangs[name] == 0 {
				gangs[name] = len(gangs) + 1
			}
			run.Gang = gangs[name]
		} else {
			run.Alone = s != nil && s.Count > 1
		}
		b.out.Running = append(b.out.Running, run)
	}
}

// step returns a step of a job, nil if there is none.
func (b *builder) step(inCluster, job, step string) *cluster.Step {
	key := stepKey{inCluster, job, step}
	s, known := b.steps[key]
	if !known {
		if e, ok := b.Snapshot.Job(inCluster, job); ok {
			s = e.Value.Step(step)
		}
		b.steps[key] = s
	}
	return s
}

// choosePast adds the requests of the last days to pending. It returns when they arrived, from the begin of the record.
func (b *builder) choosePast() (at []time.Duration) {
	var jobs []*cluster.Job
	for e := range b.Snapshot.Jobs("") {
		c, _ := b.Snapshot.Cluster(e.Value.Cluster)
		submitted := e.Value.RunSubmitted()
		if c.Value.InDomain() == b.Domain && !submitted.After(b.Now) && b.Now.Sub(submitted) < maxPast {
			jobs = append(jobs, e.Value)
		}
	}
	if jobs = repeated(jobs); len(jobs) == 0 {
		return nil
	}
	begin := jobs[0].RunSubmitted()
	b.out.Past = b.Now.Sub(begin)
	for _, j := range jobs {
		for i := range j.Steps {
			if p, ok := b.pastRequest(j, &j.Steps[i]); ok {
				b.pending = append(b.pending, p)
				at = append(at, j.RunSubmitted().Sub(begin))
			}
		}
	}
	return at
}

// repeated returns the jobs whose arrivals are repeated, in their order: the newest ones.
func repeated(jobs []*cluster.Job) []*cluster.Job {
	jobs = slices.DeleteFunc(jobs, func(j *cluster.Job) bool { return len(j.Steps) > maxJobArrivals })
	slices.SortFunc(jobs, func(x, y *cluster.Job) int {
		return cmp.Or(x.RunSubmitted().Compare(y.RunSubmitted()), cmp.Compare(x.Cluster, y.Cluster),
			cmp.Compare(x.Name, y.Name))
	})
	arrivals := 0
	for i, j := range slices.Backward(jobs) {
		if arrivals += len(j.Steps); arrivals > maxArrivals {
			return jobs[i+1:]
		}
	}
	return jobs
}

// pastRequest returns the request that a step once was.
func (b *builder) pastRequest(j *cluster.Job, s *cluster.Step) (p cluster.Pending, ok bool) {
	def, ok := b.Snapshot.Definition(s.Definition)
	if !ok || s.Count < 1 {
		return p, false
	}
	p = cluster.Pending{
		Task: cluster.JobTask(j.Cluster, j.Name, j.Generation, s.Name, 0), Attempt: 1, Further: s.Count - 1,
		Owner: j.Owner(), Definition: s.Definition, Count: s.Count, Priority: int(j.Priority), TimeLimit: s.TimeLimit,
		Placement: s.Placement, Demand: def.Value.Demand(), Devices: def.Value.Devices(), Labels: j.Labels,
		Queue: b.Snapshot.QueuePolicy(j.Cluster, s.Placement.Pool), User: j.SubmittedBy, Concurrency: s.Concurrency,
	}
	if c, known := b.Snapshot.Cluster(j.Cluster); known && len(c.Value.Constraints) > 0 {
		p.Placement.Constraints = slices.Concat(c.Value.Constraints, s.Placement.Constraints)
	}
	if s.Gang != nil {
		p.GangSize = s.Count
	}
	return p, true
}
