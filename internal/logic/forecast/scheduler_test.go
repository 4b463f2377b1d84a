package forecast_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/admission"
	"github.com/berthd/berth/internal/logic/forecast"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/logic/scheduler/cycle"
)

// realQueue is a queue in which the scheduler itself places the tasks, in virtual time. Each pool is one node, so that
// the choice of nodes decides nothing. All run times are known.
type realQueue struct {
	fleet    *scheduler.Fleet
	now      time.Time
	requests []*realRequest
	ends     map[string]time.Time // of the running attempts, by UUID
	in       forecast.Input
}

// realRequest is the request of one job: a row of tasks or a gang.
type realRequest struct {
	tasks       []cluster.Pending // those that wait
	run         time.Duration
	first, last time.Time
}

// spec is what the tests draw of a job.
type spec struct {
	cluster, user, pool string
	priority, tasks     int
	gang                bool
	demand              cluster.Demand
	run, limit          time.Duration
	group               int // the limit of its concurrency group; 0 for none
}

func newRealQueue() *realQueue {
	return &realQueue{fleet: scheduler.NewFleet(), now: noon(), ends: map[string]time.Time{}}
}

func poolName(i int) string { return fmt.Sprint("pool", i) }

// addPool adds a pool of one node.
func (q *realQueue) addPool(cpu int, policy forecast.Policy) {
	i := len(q.in.Nodes)
	capacity := cluster.Demand{CPU: cluster.MilliCPU(1000 * cpu), Memory: 6 * cluster.GiB}
	q.fleet.SetNode(scheduler.Node{
		Name: fmt.Sprint("n", i), Pool: poolName(i), State: cluster.NodeReady, Executors: []string{"process"},
		Capacity: capacity,
	})
	q.in.Nodes = append(q.in.Nodes, amountsOf(capacity))
	q.in.Lines = append(q.in.Lines, forecast.Line{Nodes: []int32{int32(i)}, Policy: policy})
	q.in.Capacity = plus(q.in.Capacity, amountsOf(capacity))
}

func amountsOf(d cluster.Demand) forecast.Amounts {
	return forecast.Amounts{int64(d.CPU), int64(d.Memory)}
}

func policyOf(p forecast.Policy) cluster.QueuePolicy {
	return map[forecast.Policy]cluster.QueuePolicy{
		forecast.EASY: cluster.QueueEASY, forecast.FIFO: cluster.QueueFIFO, forecast.Greedy: cluster.QueueGreedy,
		forecast.SJBF: cluster.QueueSJBF, forecast.Fair: cluster.QueueFair,
	}[p]
}

// userOf returns the number of a user, and adds users that are not known.
func (q *realQueue) userOf(inCluster, user string) int32 {
	clusters, users := []string{"a", "b", "c"}, []string{"x", "y"}
	if q.in.Users == nil {
		for i := range clusters {
			q.in.Clusters = append(q.in.Clusters, forecast.Cluster{Weight: i + 1})
			for range users {
				q.in.Users = append(q.in.Users, forecast.User{Cluster: int32(i)})
			}
		}
	}
	return int32(len(users)*slices.Index(clusters, inCluster) + slices.Index(users, user))
}

// submit adds a waiting job.
func (q *realQueue) submit(s *spec) {
	job, line := fmt.Sprintf("j%02d", len(q.requests)), 0
	for line < len(q.in.Lines) && poolName(line) != s.pool {
		line++
	}
	p := cluster.Pending{
		Task: cluster.JobTask(s.cluster, job, 1, "s", 0), Attempt: 1, Priority: s.priority, Demand: s.demand,
		Owner: cluster.OwnerRef{Kind: cluster.KindJob, Cluster: s.cluster, Name: job}, Plain: true,
		TimeLimit: cluster.Duration(s.limit), User: s.user, Queue: policyOf(q.in.Lines[line].Policy),
		Weight: q.in.Clusters[q.in.Users[q.userOf(s.cluster, s.user)].Cluster].Weight,
		Since:  q.now.Add(-time.Minute), Placement: cluster.Placement{Pool: s.pool},
	}
	if s.group > 0 {
		p.Concurrency = &cluster.Concurrency{Group: "g", Limit: s.group}
	}
	r := &realRequest{run: s.run}
	if s.gang {
		p.Gang, p.GangSize = job, s.tasks
		for i := range s.tasks {
			p.Task = cluster.JobTask(s.cluster, job, 1, "s", i)
			r.tasks = append(r.tasks, p)
		}
	} else {
		p.Further = s.tasks - 1
		r.tasks = []cluster.Pending{p}
	}
	q.requests = append(q.requests, r)
}

// run adds a task that runs on a node at the time of the forecast.
func (q *realQueue) run(s *spec, node int32, started time.Time) {
	job := fmt.Sprintf("r%02d", len(q.in.Running))
	p := cluster.Pending{
		Task: cluster.JobTask(s.cluster, job, 1, "s", 0), Demand: s.demand, User: s.user,
		TimeLimit: cluster.Duration(s.limit),
		Owner:     cluster.OwnerRef{Kind: cluster.KindJob, Cluster: s.cluster, Name: job},
	}
	q.in.Nodes[node] = minus(q.in.Nodes[node], amountsOf(s.demand))
	q.in.Running = append(q.in.Running, forecast.Running{
		Node: node, Demand: amountsOf(s.demand), Started: started, Limit: s.limit, Runs: forecast.Fixed(s.run),
		User: q.userOf(s.cluster, s.user), Limited: []admission.Holding{admission.HoldingOf(&p)},
	})
	q.start(&p, fmt.Sprint("n", node), started, s.run)
}

// start starts a task of a job.
func (q *realQueue) start(p *cluster.Pending, node string, at time.Time, run time.Duration) {
	uuid := string(p.Task)
	q.fleet.Reserve(scheduler.Reservation{
		UUID: uuid, Task: p.Task, Node: node, Demand: p.Demand, Batch: true, Started: at, User: p.User,
		Limit: time.Duration(p.TimeLimit), Group: admission.HoldingOf(p).Group,
	})
	if p.TimeLimit > 0 {
		run = min(run, time.Duration(p.TimeLimit))
	}
	q.ends[uuid] = at.Add(run)
}

// forecast returns the forecast of the waiting requests, in their order.
func (q *realQueue) forecast() []forecast.Start {
	q.in.Now, q.in.Seed, q.in.Limits = q.now, 1, &q.fleet.Limits
	var pending []cluster.Pending
	var of []int
	for i, r := range q.requests {
		pending, of = append(pending, r.tasks[0]), append(of, i)
	}
	order, _ := cycle.Order(pending, q.now)
	for _, i := range order {
		p, r := &pending[i], q.requests[of[i]]
		w := forecast.Request{
			Demand: amountsOf(p.Demand), Tasks: max(len(r.tasks), p.Tasks()), Gang: p.Gang != "",
			Limit: time.Duration(p.TimeLimit), Runs: forecast.Fixed(r.run), Priority: p.Priority,
			Waited: q.now.Sub(p.Since), User: q.userOf(p.Owner.Cluster, p.User), Pending: p,
		}
		for poolName(w.Line) != p.Placement.Pool {
			w.Line++
		}
		q.in.Waiting = append(q.in.Waiting, w)
	}
	starts := make([]forecast.Start, len(order))
	for k, s := range forecast.Forecast(&q.in) {
		starts[of[order[k]]] = s
	}
	return starts
}

// simulate lets the scheduler place the tasks until all have started or nothing runs any more.
func (q *realQueue) simulate() {
	for {
		var pending []cluster.Pending
		byJob := map[string]*realRequest{}
		for _, r := range q.requests {
			pending = append(pending, r.tasks...)
			if len(r.tasks) > 0 {
				byJob[r.tasks[0].Owner.Name] = r
			}
		}
		if len(pending) > 0 {
			res := scheduler.Schedule(q.fleet, pending, scheduler.Options{Now: q.now})
			for _, placement := range res.Placements {
				p := res.Pending[placement.Pending].Single()
				r := byJob[p.Owner.Name]
				q.start(&p, placement.Node, q.now, r.run)
				r.took(q.now)
			}
		}
		if len(pending) == 0 || len(q.ends) == 0 {
			return
		}
		next := time.Time{}
		for _, at := range q.ends {
			if next.IsZero() || at.Before(next) {
				next = at
			}
		}
		q.now = next
		for uuid, at := range q.ends {
			if !at.After(q.now) {
				q.fleet.Release(uuid)
				delete(q.ends, uuid)
			}
		}
	}
}

// took notes that a task has started: the first one that waits.
func (r *realRequest) took(now time.Time) {
	if r.first.IsZero() {
		r.first = now
	}
	if first := &r.tasks[0]; first.Further > 0 {
		*first = first.Skip(1)
		return
	}
	if r.tasks = r.tasks[1:]; len(r.tasks) == 0 {
		r.last = now
	}
}

// drawRealQueue draws a queue with running and waiting jobs.
func drawRealQueue(t *rapid.T, policies []forecast.Policy, quotas bool) *realQueue {
	q := newRealQueue()
	for range rapid.IntRange(1, 2).Draw(t, "pools") {
		q.addPool(8, rapid.SampledFrom(policies).Draw(t, "policy"))
	}
	if quotas {
		for _, name := range []string{"a", "b", "c"} {
			q.fleet.Limits.SetQuota(name, drawQuota(t))
		}
	}
	number := 0
	drawSpec := func(running bool) *spec {
		number++
		unique := time.Duration(number*number*number) * time.Microsecond // no two ends at the same time
		s := &spec{
			cluster:  rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "cluster"),
			user:     rapid.SampledFrom([]string{"x", "y"}).Draw(t, "user"),
			pool:     poolName(rapid.IntRange(0, len(q.in.Nodes)-1).Draw(t, "pool")),
			priority: rapid.SampledFrom([]int{500, 500, 500, 650}).Draw(t, "priority"),
			tasks:    rapid.IntRange(1, 4).Draw(t, "tasks"), gang: rapid.Bool().Draw(t, "gang"),
			demand: cluster.Demand{
				CPU:    cluster.MilliCPU(1000 * rapid.IntRange(1, 9).Draw(t, "cpu")),
				Memory: cluster.Bytes(rapid.IntRange(0, 2).Draw(t, "memory")) * cluster.GiB,
			},
			run:   time.Duration(drawMinutes(t, "run", 1))*time.Minute + unique,
			limit: time.Duration(drawMinutes(t, "limit", 0)) * time.Minute,
		}
		if s.gang { // the scheduler seeks promises for few gangs that never find room
			s.tasks = max(min(s.tasks, 8000/int(s.demand.CPU), 6*int(cluster.GiB)/max(int(s.demand.Memory), 1)), 1)
		}
		if s.limit > 0 {
			s.limit += 7 * unique
		}
		if quotas && rapid.IntRange(0, 4).Draw(t, "grouped") == 0 {
			s.group = rapid.IntRange(1, 3).Draw(t, "group")
		}
		if running {
			s.tasks, s.gang = 1, false
		}
		return s
	}
	for i := range rapid.IntRange(0, 8).Draw(t, "running") {
		s := drawSpec(true)
		s.demand.CPU = min(s.demand.CPU, 4000)
		node := slices.IndexFunc(q.in.Lines, func(l forecast.Line) bool { return poolName(int(l.Nodes[0])) == s.pool })
		if !covers(q.in.Nodes[node], amountsOf(s.demand)) {
			continue
		}
		q.run(s, int32(node), q.now.Add(time.Duration(i-9)*time.Minute))
	}
	for range rapid.IntRange(4, 14).Draw(t, "waiting") {
		q.userOf("a", "x")
		q.submit(drawSpec(false))
	}
	return q
}

// drawQuota draws a quota, nil for none.
func drawQuota(t *rapid.T) *cluster.Quota {
	if rapid.IntRange(0, 3).Draw(t, "unlimited") == 0 {
		return nil
	}
	v := &cluster.Quota{
		CPU:   cluster.MilliCPU(1000 * rapid.IntRange(0, 9).Draw(t, "quota of cpu")),
		Tasks: rapid.IntRange(0, 4).Draw(t, "quota of tasks"), Jobs: rapid.IntRange(0, 3).Draw(t, "quota of jobs"),
	}
	if rapid.Bool().Draw(t, "borrows") {
		v.Borrow = &cluster.QuotaBorrow{
			CPU:   cluster.MilliCPU(1000 * rapid.IntRange(0, 6).Draw(t, "borrowed cpu")),
			Tasks: rapid.IntRange(0, 3).Draw(t, "borrowed tasks"),
		}
	}
	return v
}

// checkForecast compares a forecast with what the scheduler then does.
func checkForecast(t *rapid.T, q *realQueue) {
	got := q.forecast()
	q.simulate()
	for i, r := range q.requests {
		for _, c := range []struct {
			name string
			want time.Time
			got  forecast.Interval
		}{{"first", r.first, got[i].First}, {"last", r.last, got[i].Last}} {
			if c.want.IsZero() && c.got.From.Equal(q.in.Now) {
				t.Fatalf("job %d never starts, and the forecast says from now on", i)
			}
			want := forecast.Interval{From: c.want, Median: c.want, To: c.want}
			if c.want.IsZero() { // it never starts, and From is as far as the forecast went
				want.From = c.got.From
			}
			if want != c.got {
				t.Fatalf("job %d: the %s task starts at %s, and the forecast says %v", i, c.name, c.want, c.got)
			}
		}
	}
}

// TestSameAsScheduler compares forecasts with known run times with the starts that the scheduler then decides on.
func TestSameAsScheduler(t *testing.T) {
	for _, policy := range []forecast.Policy{
		forecast.EASY, forecast.FIFO, forecast.Greedy, forecast.SJBF, forecast.Fair,
	} {
		for _, quotas := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/quotas=%t", policyOf(policy), quotas), func(t *testing.T) {
				rapid.Check(t, func(t *rapid.T) {
					checkForecast(t, drawRealQueue(t, []forecast.Policy{policy}, quotas))
				})
			})
		}
	}
}

// TestPromisesOfFairUsers checks that a user who holds nothing gets two promises for a row of two tasks. So the small
// and long task of the user who holds almost all waits, though the first promise leaves it room.
func TestPromisesOfFairUsers(t *testing.T) {
	for _, quota := range []*cluster.Quota{nil, {CPU: 100_000}} {
		q := newRealQueue()
		q.addPool(16, forecast.Fair)
		q.fleet.Limits.SetQuota("a", quota)
		cpus := func(user string, cpu, tasks int, limit time.Duration) *spec {
			return &spec{
				cluster: "a", user: user, pool: poolName(0), priority: 500, tasks: tasks, run: limit, limit: limit,
				demand: cluster.Demand{CPU: cluster.MilliCPU(1000 * cpu)},
			}
		}
		for _, s := range []*spec{
			cpus("x", 2, 1, 10*time.Minute), cpus("x", 1, 1, 20*time.Minute), cpus("x", 12, 1, 40*time.Minute),
		} {
			q.run(s, 0, q.now)
		}
		q.submit(cpus("y", 2, 2, time.Hour))
		q.submit(cpus("x", 1, 1, time.Hour))
		got := q.forecast()
		for i, after := range []time.Duration{10 * time.Minute, 40 * time.Minute} {
			if want := noon().Add(after); !got[i].First.Median.Equal(want) {
				t.Errorf("job %d is expected at %s, want %s", i, got[i].First.Median, want)
			}
		}
		q.simulate()
		for i, r := range q.requests {
			if !got[i].First.Median.Equal(r.first) || !got[i].Last.Median.Equal(r.last) {
				t.Errorf("job %d starts at %s to %s, and is expected at %v", i, r.first, r.last, got[i])
			}
		}
	}
}
