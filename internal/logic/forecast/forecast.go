// Package forecast estimates when waiting tasks of jobs start: a median and an interval that holds the start with a
// probability of 90 %.
//
// A forecast simulates several futures of the queue. A future draws the run time of each running and waiting task from
// the run times of similar tasks that have ended (see [History]), and lets arrivals of the past arrive again. Its queue
// is the leader's: tasks start in the order of the queue. The first task of a line that finds no room gets a promise,
// by the time limits of running tasks. Tasks behind it start early if they keep the promise (ADR 0088). The turns of
// users in fair queues are those of package fair, and what quotas and concurrency groups allow is what package
// admission says. The starts of a task in all futures are a sample of its start.
//
// Predictions of run times make such a simulation a forecast of waiting times: Smith, Taylor and Foster, "Using
// run-time predictions to estimate queue wait times and improve scheduler performance", 1999. The interval is from the
// earliest to the latest start of all futures. If the real future was one of them, an interval of 29 would hold a share
// of 28/30 of the starts, 93 %. Futures vary less than reality does, and the share on logs is about 90 % (ADR 0091).
//
// Jobs of one name resemble each other: in one future all of them draw the same quantile of their run times. Otherwise
// the errors of their run times would cancel each other, and the intervals would be too narrow. Tasks of a step with
// several tasks draw each for itself, unless they are a gang.
//
// A forecast is a function of its input: the random numbers follow from Input.Seed.
//
// # Size
//
// A future is a small scheduler over one queue and one set of nodes. Each of its methods is a step of the simulation,
// and each step reads and changes the same clock, promises and free room.
package forecast

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/admission"
)

// Dims is the number of resources that a forecast knows.
const Dims = 6

// Amounts holds an amount of each resource. The caller chooses the resources. No demand is negative.
type Amounts [Dims]int64

// Bounds of a forecast.
const (
	// Futures is the number of simulated futures.
	Futures = 29
	// MaxRequests is the number of requests that are forecast, from the first of the queue on.
	MaxRequests = 2000
	// MaxNodes is the number of nodes that a forecast names.
	MaxNodes = 3
	// Horizon is the time from now on that a forecast covers.
	Horizon = 30 * 24 * time.Hour

	// workPerFuture bounds the cost of a future, in steps of a few nanoseconds.
	workPerFuture = 2_000_000
	// workPerFairTurn and workPerJudgement are the cost of a turn in a fair queue, and of asking the limits of a
	// cluster.
	workPerFairTurn  = 20
	workPerJudgement = 100
	// maxDepth is the number of waiting requests, from the first of the queue on, that may start at one moment of a
	// future.
	maxDepth = 500
)

// Input is the state of the queue at one time. Forecast does not change it.
type Input struct {
	Now time.Time
	// Nodes holds what is free on each node.
	Nodes []Amounts
	// Lines are the sets of nodes for which requests wait.
	Lines   []Line
	Running []Running
	Waiting []Request // in the order of the queue
	// Arrivals are requests of the past, in the order of their arrival. They arrive again in the futures. Past is how
	// long before Now their record begins.
	Arrivals []Arrival
	Past     time.Duration
	// Users are the users whose tasks run, wait or arrive, and Clusters their clusters. They are needed if a line is
	// Fair, and Capacity then, which is what the nodes have together.
	Users    []User
	Clusters []Cluster
	Capacity Amounts
	// Limits has the quotas and what attempts hold of them, those of Running and others. It is needed if a request has
	// limits.
	Limits *admission.Ledger
	// Lasting are jobs with tasks that neither run nor wait here, such as those of steps that wait for other steps.
	// Their places in concurrency groups of jobs do not come free. The other jobs leave theirs at the end of their last
	// task.
	Lasting []cluster.OwnerRef
	Seed    uint64
}

// Policy says which requests of a line may start before one that is ahead of them.
type Policy uint8

// Policies of a line.
const (
	EASY   Policy = iota // one that does not delay the promise to the first
	FIFO                 // none
	Greedy               // each that finds room
	SJBF                 // as with EASY, in an order that changes with time (cycle.Wait)
	Fair                 // as with EASY, while users take turns (package fair)
)

// Line holds the nodes on which requests of one kind may run. Each line has one promise.
type Line struct {
	Nodes  []int32 // indices into Input.Nodes, ascending
	Policy Policy
}

// Running is a task, or several tasks of a gang on one node, that hold room.
type Running struct {
	Node    int32
	Demand  Amounts
	Started time.Time
	Limit   time.Duration // 0 for no limit
	Runs    *Runs
	// Gang, unless 0, is the number of the gang: all of its tasks run equally long.
	Gang int
	// Alone says that the task draws its run time for itself, because its step has several tasks.
	Alone bool
	User  int32 // index into Input.Users, if there are some
	// Limited is what the task counts for limits of its cluster; nil for nothing.
	Limited []admission.Holding
}

// Request is one waiting task, or several equal ones that wait next to each other.
type Request struct {
	Demand Amounts // of one task
	// Tasks is the number of tasks, at least 1. They start together if Gang is set, else one by one.
	Tasks int
	Gang  bool
	Limit time.Duration // 0 for no limit
	Runs  *Runs
	Line  int // index into Input.Lines
	// Priority is that of the job, and Waited is how long the request has waited; 0 for an arrival. They order arrivals
	// among the waiting requests, and all requests if the line is SJBF.
	Priority int
	Waited   time.Duration
	User     int32 // index into Input.Users, if there are some
	// Devices says that the tasks request devices. In a fair queue a user gets one promise at a time for such tasks.
	Devices bool
	// Pending, unless nil, is what limits of its cluster depend on: its first task, or the first member of a gang.
	Pending *cluster.Pending
}

// Arrival is a request of the past.
type Arrival struct {
	Request
	// At is the time from the beginning of the record to the arrival.
	At time.Duration
}

// Start is the forecast of the start of a request.
type Start struct {
	First Interval // of its first task
	Last  Interval // of its last task
	// Nodes, as indices into Input.Nodes, are where the first task starts in most futures: one node, or at most
	// MaxNodes of which it is one or another, the likeliest first. Of a gang they are the nodes that have tasks of it
	// in most futures. They are empty if the nodes differ more than that between the futures, and if the start is now.
	Nodes []int32
}

// Interval holds a start with a probability of 90 %. A zero time is unknown, because it is beyond what was simulated.
// From is always known.
type Interval struct {
	From, Median, To time.Time
}

// Forecast returns the start of each waiting request. It is zero for a request for which there is no room, or which
// limits of its cluster do not allow, even when all tasks have ended. There is none for requests beyond MaxRequests.
//
// Its cost is bounded whatever the number of nodes, tasks and requests: Futures times workPerFuture steps, and in each
// future a copy of the running tasks and of Input.Limits.
func Forecast(in *Input) []Start {
	n := min(len(in.Waiting), MaxRequests)
	if n == 0 {
		return nil
	}
	p := newPlan(in, n)
	first, last, nodes := make([][]int64, n), make([][]int64, n), make([][]int32, n)
	reached := make([]int64, 0, Futures)
	for i := range uint64(Futures) {
		f := newFuture(p, in.Seed*Futures+i)
		f.run()
		reached = append(reached, f.now)
		for r := range n {
			first[r] = append(first[r], f.queue[r].first)
			last[r] = append(last[r], f.queue[r].last)
			nodes[r] = f.queue[r].appendNodes(nodes[r])
		}
	}
	slices.Sort(reached)
	starts := make([]Start, n)
	for r := range starts {
		if !p.mayStart(p.waiting[r], p.waitingLimits[r]) {
			continue
		}
		s := &starts[r]
		s.First, s.Last = interval(in.Now, first[r], reached), interval(in.Now, last[r], reached)
		if s.First.Median.After(in.Now) {
			s.Nodes = likelyNodes(nodes[r], in.Waiting[r].Gang)
		}
	}
	return starts
}

// likelyNodes returns the nodes of Start.Nodes, from the nodes of all futures.
func likelyNodes(all []int32, gang bool) (likely []int32) {
	const most = Futures/2 + 1
	slices.Sort(all)
	type count struct {
		node  int32
		times int
	}
	var counts []count
	for i, n := range all {
		if i == 0 || all[i-1] != n {
			counts = append(counts, count{node: n})
		}
		counts[len(counts)-1].times++
	}
	slices.SortStableFunc(counts, func(a, b count) int { return cmp.Compare(b.times, a.times) })
	sum := 0
	for _, c := range counts[:min(len(counts), MaxNodes)] {
		if gang && c.times < most {
			break
		}
		likely = append(likely, c.node)
		if sum += c.times; sum >= most && !gang {
			return likely
		}
	}
	if gang {
		return likely
	}
	return nil
}

// interval returns the interval of a sample of starts. A start that was not simulated is later than the time that its
// future reached.
func interval(now time.Time, starts, reached []int64) Interval {
	slices.Sort(starts)
	at := func(i int) time.Time {
		if starts[i] == never {
			return time.Time{}
		}
		return now.Add(time.Duration(starts[i]))
	}
	v := Interval{From: at(0), Median: at(len(starts) / 2), To: at(len(starts) - 1)}
	if v.From.IsZero() {
		v.From = now.Add(time.Duration(reached[0]))
	}
	return v
}

// plan is what all futures of a forecast share.
type plan struct {
	*Input
	requests int // that are forecast
	dims     int
	classes  []class
	fits     []bool    // by class: whether it has room when all running tasks have ended
	waiting  []int32   // classes of the waiting requests
	arrivals []int32   // classes of the arrivals
	linesOf  [][]int32 // lines of each node
	free     []Amounts // of each line
	running  []held    // in the order of their limits
	// waitingLimits and arrivalLimits are the limit classes of the requests, -1 for none. What limits refuse to a
	// request they refuse to all others of its limit class.
	waitingLimits, arrivalLimits []int32
	// admitted says, by limit class, whether limits allow the request while nothing is held.
	admitted []bool
	reorders bool // the order changes with time
}

// class is the part of a request on which it depends whether it may start.
type class struct {
	demand Amounts
	line   int
	limit  int64 // of its run time, in nanoseconds; never for none
	gang   int   // number of tasks that start together
}

func newPlan(in *Input, requests int) *plan {
	p := &plan{Input: in, requests: requests, dims: 1}
	index := map[class]int32{}
	p.waiting = make([]int32, requests)
	for i := range p.waiting {
		p.waiting[i] = p.classOf(&in.Waiting[i], index)
	}
	p.arrivals = make([]int32, len(in.Arrivals))
	for i := range p.arrivals {
		p.arrivals[i] = p.classOf(&in.Arrivals[i].Request, index)
	}
	p.findLimits()
	p.linesOf = make([][]int32, len(in.Nodes))
	p.free = make([]Amounts, len(in.Lines))
	for l := range in.Lines {
		p.reorders = p.reorders || in.Lines[l].Policy == SJBF
		for _, n := range in.Lines[l].Nodes {
			p.linesOf[n] = append(p.linesOf[n], int32(l))
			for d := range p.dims {
				p.free[l][d] += in.Nodes[n][d]
			}
		}
	}
	p.findFitting()
	p.running = make([]held, 0, len(in.Running))
	for i := range in.Running {
		r := &in.Running[i]
		h := held{
			node: r.Node, demand: r.Demand, limitAt: never, count: 1, source: int32(i), user: r.User,
			limited: r.Limited,
		}
		if r.Limit > 0 {
			h.limitAt = max(int64(r.Started.Add(r.Limit).Sub(in.Now)), 1)
		}
		p.running = append(p.running, h)
	}
	slices.SortStableFunc(p.running, func(a, b held) int {
		if a.limitAt == never && b.limitAt == never {
			return in.Running[a.source].Started.Compare(in.Running[b.source].Started)
		}
		return cmp.Or(cmp.Compare(a.limitAt, b.limitAt), cmp.Compare(a.node, b.node))
	})
	return p
}

// findLimits sets the limit classes.
func (p *plan) findLimits() {
	index := map[string]int32{}
	p.waitingLimits = make([]int32, p.requests)
	for i := range p.waitingLimits {
		p.waitingLimits[i] = p.limitClassOf(&p.Waiting[i], index)
	}
	p.arrivalLimits = make([]int32, len(p.Arrivals))
	for i := range p.arrivalLimits {
		p.arrivalLimits[i] = p.limitClassOf(&p.Arrivals[i].Request, index)
	}
}

// mayStart reports whether a request can ever start, by its class and its limit class.
func (p *plan) mayStart(class, limit int32) bool {
	return p.fits[class] && (limit < 0 || p.admitted[limit])
}

func (p *plan) limitClassOf(r *Request, index map[string]int32) int32 {
	if r.Pending == nil || p.Limits == nil {
		return -1
	}
	w := r.Pending
	key := fmt.Sprint(w.Owner.Cluster, w.Demand, w.Devices)
	if q := p.Limits.Quotas()[w.Owner.Cluster]; q != nil && q.Jobs > 0 {
		key += " " + w.Owner.Name
	}
	if r.Gang {
		key += fmt.Sprint(" gang ", r.Tasks)
	}
	if w.Concurrency != nil {
		key += fmt.Sprint(*w.Concurrency)
	}
	if w.JobConcurrency != nil { // a job that has its place is not refused one
		key += " " + w.Owner.Name
	}
	i, found := index[key]
	if !found {
		i = int32(len(index))
		index[key] = i
		p.admitted = append(p.admitted, p.isEverAdmitted(r))
	}
	return i
}

// isEverAdmitted reports whether limits allow a request, or all tasks of a gang, while nothing is held.
func (p *plan) isEverAdmitted(r *Request) bool {
	var empty admission.Ledger
	for name, q := range p.Limits.Quotas() { // order-free: each by itself
		empty.SetQuota(name, q)
	}
	draft := admission.NewDraft(&empty)
	tasks := 1
	if r.Gang {
		tasks = r.Tasks
	}
	one := r.Pending.Single()
	for i := range tasks {
		one.Task = r.Pending.Task.Offset(i)
		if !draft.Admits(&one) {
			return false
		}
		draft.Add(&one, 1)
	}
	return true
}

// findFitting sets fits.
func (p *plan) findFitting() {
	emptied := slices.Clone(p.Nodes)
	for i := range p.Running {
		r := &p.Running[i]
		for d := range p.dims {
			emptied[r.Node][d] += r.Demand[d]
		}
	}
	p.fits = make([]bool, len(p.classes))
	for i := range p.classes {
		c := &p.classes[i]
		need := int64(c.gang)
		for _, n := range p.Lines[c.line].Nodes {
			if need -= slotsIn(&emptied[n], c, p.dims); need <= 0 {
				p.fits[i] = true
				break
			}
		}
	}
}

func (p *plan) classOf(r *Request, index map[class]int32) int32 {
	c := class{demand: r.Demand, line: r.Line, limit: never, gang: 1}
	if r.Limit > 0 {
		c.limit = int64(r.Limit)
	}
	if r.Gang {
		c.gang = max(r.Tasks, 1)
	}
	for d, need := range r.Demand {
		if need > 0 {
			p.dims = max(p.dims, d+1)
		}
	}
	i, found := index[c]
	if !found {
		i = int32(len(p.classes))
		index[c] = i
		p.classes = append(p.classes, c)
	}
	return i
}
