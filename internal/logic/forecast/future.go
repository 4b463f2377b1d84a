package forecast

import (
	"math"
	"slices"
	"sort"
	"strconv"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/admission"
	"github.com/berthd/berth/internal/logic/scheduler/cycle"
)

// never is a time that no future reaches.
const never = math.MaxInt64

// future is one future of the queue. Times are nanoseconds from the time of the forecast.
type future struct {
	*plan
	random random
	shared uint64 // seed of the quantiles of jobs
	now    int64
	work   int // steps that are left

	free     []Amounts // of each node
	lineFree []Amounts
	tasks    []held
	ends     endHeap
	byLimit  []int32 // tasks that run, in the order of their limits; ended ones are removed now and then
	ended    int     // of byLimit

	queue    []entry // the forecast requests, then arrivals
	waiting  []int32 // entries that wait, in the order of the queue
	open     int     // forecast requests that wait
	lines    []lineState
	kept     []keptRoom // of each node
	keptOn   []int32
	touched  []int32 // nodes on which there may be more room than before
	isTouch  []bool
	moment   int32   // number of the present moment, from 2 on, so that a deniedAt of 0 is of no moment before
	deniedAt []int32 // moment at which a class found no room, for the last time

	arrival   int   // index of the next arrival
	offset    int64 // added to the time of an arrival
	extra     []Amounts
	extraOn   []int32
	gangSlots []gangSlot
	places    []place // of a promise
	members   []int32
	order     reordering
	fair      fairQueues
	limits    limits
	started   bool // a request has started at this moment
}

// held is a task, or several equal ones, on a node.
type held struct {
	node    int32
	source  int32 // index into Input.Running; -1 for a task that started in the future
	over    bool
	demand  Amounts
	count   int64               // number of tasks
	limitAt int64               // latest end, never if unknown
	user    int32               // index into Input.Users
	limited []admission.Holding // what counts for limits
}

// entry is a request in the queue.
type entry struct {
	class       int32
	left        int // tasks that wait
	tasks       int // all of them
	alone       bool
	runs        *Runs
	key         int64
	order       int64 // of decision, in fair queues
	user        int32
	gang        bool
	devices     bool
	limit       int32            // its limit class, or -1
	request     *cluster.Pending // for limits
	wait        cycle.Wait
	place       cycle.Place
	first, last int64 // starts; never
	// node is where the first task started, and gangNodes are all nodes of a gang.
	node      int32
	gangNodes []int32
}

// appendNodes appends where the first task started, or the gang.
func (e *entry) appendNodes(nodes []int32) []int32 {
	switch {
	case e.first == never:
		return nodes
	case e.gangNodes != nil:
		return append(nodes, e.gangNodes...)
	}
	return append(nodes, e.node)
}

// lineState is what is known of a line at a moment.
type lineState struct{ promised, blocked bool }

// keptRoom is what the promise of another request leaves on a node from a time on.
type keptRoom struct {
	kept  bool
	until int64
	spare Amounts
}

type gangSlot struct {
	node  int32
	count int64
}

func newFuture(p *plan, seed uint64) *future {
	f := &future{
		plan: p, random: random(seed), work: workPerFuture,
		free: slices.Clone(p.Nodes), lineFree: slices.Clone(p.free), tasks: slices.Clone(p.running),
		lines: make([]lineState, len(p.Lines)), kept: make([]keptRoom, len(p.Nodes)),
		isTouch: make([]bool, len(p.Nodes)), deniedAt: make([]int32, len(p.classes)), moment: 1,
		extra: make([]Amounts, len(p.Nodes)), fair: newFairQueues(p),
	}
	f.limits = newLimits(p)
	f.byLimit = make([]int32, len(f.tasks))
	f.shared = f.random.next()
	f.ends = make(endHeap, 0, len(f.tasks)+64)
	gangs := map[int]time.Duration{}
	for i := range f.tasks {
		f.byLimit[i] = int32(i)
		f.countHeld(f.tasks[i].user, &f.tasks[i].demand, 1)
		r := &p.Running[f.tasks[i].source]
		run, drawn := gangs[r.Gang]
		if !drawn || r.Gang == 0 {
			run = f.draw(r.Runs, p.Now.Sub(r.Started), r.Alone)
			if r.Gang != 0 {
				gangs[r.Gang] = run
			}
		}
		at := min(max(int64(r.Started.Add(run).Sub(p.Now)), 1), f.tasks[i].limitAt)
		f.ends = append(f.ends, end{at: at, task: int32(i)})
	}
	f.ends.init()
	f.work -= 4 * len(f.tasks)
	for i, c := range p.waiting {
		r := &p.Waiting[i]
		e := f.newEntry(r, c)
		e.limit = p.waitingLimits[i]
		if e.order = e.key; i > 0 { // as the requests are given in their order
			e.order = max(e.order, f.queue[i-1].order)
		}
		f.queue = append(f.queue, e)
		if p.mayStart(c, e.limit) {
			f.open++
			f.enqueue(int32(i))
		}
	}
	f.repeatPast()
	return f
}

// repeatPast lets the arrivals after the same time of a random day of the record follow.
func (f *future) repeatPast() {
	const day = int64(24 * time.Hour)
	days := int64(f.Past) / day
	if days < 1 {
		f.arrival = len(f.Arrivals)
		return
	}
	from := int64(f.Past) - day*(1+int64(f.random.next()%uint64(days))) + f.now%day
	f.offset = f.now - from
	f.arrival, _ = slices.BinarySearchFunc(f.Arrivals, from, func(a Arrival, at int64) int {
		if int64(a.At) <= at {
			return -1
		}
		return 1
	})
}

// nextArrival returns the time of the next arrival.
func (f *future) nextArrival() int64 {
	if f.arrival < len(f.Arrivals) {
		return int64(f.Arrivals[f.arrival].At) + f.offset
	}
	return never
}

// draw returns a run time of a task that has run for a time. In one future, tasks of a job's name draw the same
// quantile unless they draw alone.
func (f *future) draw(r *Runs, ran time.Duration, alone bool) time.Duration {
	if r != nil && r.group != 0 && !alone {
		shared := random(r.group ^ f.shared)
		return r.Draw(shared.float(), ran)
	}
	return r.Draw(f.random.float(), ran)
}

// run lets the future happen until all requests have started, or up to its bounds.
func (f *future) run() {
	for n := range f.Nodes {
		f.touch(int32(n))
	}
	f.schedule()
	for f.open > 0 && f.work > 0 && f.now < int64(Horizon) {
		at := f.nextArrival()
		if len(f.ends) > 0 {
			at = min(at, f.ends[0].at)
		}
		if at == never {
			return
		}
		f.now = max(at, f.now)
		for len(f.ends) > 0 && f.ends[0].at <= f.now {
			f.end(f.ends.pop().task)
		}
		for f.nextArrival() <= f.now {
			f.arrive()
		}
		if f.arrival == len(f.Arrivals) {
			f.repeatPast()
		}
		f.schedule()
	}
}

// at returns the time of this moment.
func (f *future) at() time.Time { return f.Now.Add(time.Duration(f.now)) }

// enqueue appends a request to those that wait.
func (f *future) enqueue(q int32) {
	if f.isFair(q) {
		user := f.queue[q].user
		f.fair.waiting[user] = append(f.fair.waiting[user], q)
		return
	}
	f.waiting = append(f.waiting, q)
}

// next returns the n-th of its tasks that wait.
func (e *entry) next(n int) cluster.Pending {
	p := e.request.Single()
	p.Task = p.Task.Offset(e.tasks - e.left + n)
	return p
}

// newEntry returns the entry of a request that arrives now, or has waited before.
func (f *future) newEntry(r *Request, class int32) entry {
	since := f.at().Add(-r.Waited)
	e := entry{
		class: class, left: max(r.Tasks, 1), tasks: max(r.Tasks, 1), alone: r.Tasks > 1 && !r.Gang, runs: r.Runs,
		key: f.now - int64(r.Waited) - int64(r.Priority)*int64(cycle.AgeStep), first: never, last: never,
		user: r.User, gang: r.Gang, devices: r.Devices, limit: -1, request: r.Pending,
		wait: cycle.Wait{Priority: r.Priority, Since: since, TimeLimit: cluster.Duration(r.Limit)},
	}
	if f.Lines[r.Line].Policy == SJBF {
		e.wait.Queue = cluster.QueueSJBF
	}
	return e
}

// arrive puts the next arrival into the queue.
func (f *future) arrive() {
	e := f.newEntry(&f.Arrivals[f.arrival].Request, f.arrivals[f.arrival])
	if e.limit = f.arrivalLimits[f.arrival]; e.limit >= 0 {
		e.request = again(e.request, len(f.queue))
	}
	f.arrival++
	f.work--
	if !f.mayStart(e.class, e.limit) {
		return
	}
	if e.order = e.key; f.Lines[f.classes[e.class].line].Policy == Fair {
		f.work -= workPerFairTurn
		f.queue = append(f.queue, e)
		f.fair.arrive(f, int32(len(f.queue)-1))
		return
	}
	i := len(f.waiting)
	for i > 0 && f.queue[f.waiting[i-1]].key > e.key {
		i--
	}
	f.work -= 10 + (len(f.waiting)-i)/8
	f.waiting = slices.Insert(f.waiting, i, int32(len(f.queue)))
	f.queue = append(f.queue, e)
}

// again returns a request of the past as one of other tasks and of another job.
func again(p *cluster.Pending, number int) *cluster.Pending {
	other := *p
	other.Owner.Name += "+" + strconv.Itoa(number)
	if parts, ok := p.Task.Parts(); ok {
		other.Task = cluster.JobTask(parts.Cluster, other.Owner.Name, parts.Generation, parts.Step, parts.Index)
	}
	return &other
}

// end frees the room of a task.
func (f *future) end(task int32) {
	t := &f.tasks[task]
	t.over = true
	f.ended++
	f.change(t.node, &t.demand, 1)
	f.touch(t.node)
	f.countHeld(t.user, &t.demand, -1)
	f.limits.end(t.limited)
	f.work -= 10 + workPerJudgement*len(t.limited)
}

// change adds room to a node, or takes it.
func (f *future) change(node int32, demand *Amounts, sign int64) {
	for d := range f.dims {
		f.free[node][d] += sign * demand[d]
	}
	for _, l := range f.linesOf[node] {
		for d := range f.dims {
			f.lineFree[l][d] += sign * demand[d]
		}
	}
}

func (f *future) touch(node int32) {
	if !f.isTouch[node] {
		f.isTouch[node] = true
		f.touched = append(f.touched, node)
	}
}

// beginMoment forgets the promises of the moment before.
func (f *future) beginMoment() {
	f.moment++
	for _, n := range f.keptOn {
		f.kept[n].kept = false
		f.touch(n)
	}
	f.keptOn = f.keptOn[:0]
	clear(f.lines)
	f.limits.beginMoment()
	if f.ended > len(f.byLimit)/2 {
		f.byLimit = slices.DeleteFunc(f.byLimit, func(t int32) bool { return f.tasks[t].over })
		f.ended = 0
	}
}

// startTask starts tasks of a request on a node.
func (f *future) startTask(e *entry, c *class, node int32, count int64, run time.Duration) {
	t := held{node: node, source: -1, demand: c.demand, count: count, limitAt: never, user: e.user}
	for n := int64(0); n < count && e.limit >= 0; n++ {
		p := e.next(int(n))
		h := admission.HoldingOf(&p)
		t.limited, f.limits.placed = append(t.limited, h), append(f.limits.placed, h)
		f.limits.draft.Add(&p, 1)
		f.work -= 2 * workPerJudgement
	}
	for d := range f.dims {
		t.demand[d] *= count
	}
	if c.limit < never {
		t.limitAt = f.now + c.limit
	}
	if k := &f.kept[node]; k.kept && (t.limitAt > k.until || k.until == never) {
		for d := range f.dims {
			k.spare[d] -= t.demand[d]
		}
	}
	f.change(node, &t.demand, -1)
	f.countHeld(t.user, &t.demand, 1)
	if e.first == never {
		e.first, e.node = f.now, node
	}
	e.left -= int(count)
	at := int32(len(f.tasks))
	f.tasks = append(f.tasks, t)
	i := sort.Search(len(f.byLimit), func(i int) bool {
		o := &f.tasks[f.byLimit[i]]
		return o.limitAt > t.limitAt || o.limitAt == t.limitAt && t.limitAt < never && o.node > t.node
	})
	f.byLimit = slices.Insert(f.byLimit, i, at)
	f.ends.push(end{at: min(f.now+max(int64(run), 1), t.limitAt), task: at})
	f.work -= 20 + (len(f.byLimit)-i)/32
}

// mayFit reports whether the free room of the line would be enough if it was on one node.
func (f *future) mayFit(c *class) bool {
	free := &f.lineFree[c.line]
	for d := range f.dims {
		if c.demand[d] > 0 && c.demand[d]*int64(c.gang) > free[d] {
			return false
		}
	}
	return true
}

// slots returns how many tasks of a class may start on a node now.
func (f *future) slots(node int32, c *class) int64 {
	slots := slotsIn(&f.free[node], c, f.dims)
	if k := &f.kept[node]; k.kept && slots > 0 && (c.limit == never || k.until == never || f.now+c.limit > k.until) {
		slots = min(slots, slotsIn(&k.spare, c, f.dims))
	}
	return slots
}

// slotsIn returns how many tasks of a class fit into an amount.
func slotsIn(free *Amounts, c *class, dims int) int64 {
	slots := int64(math.MaxInt32)
	for d := range dims {
		if need := c.demand[d]; need > 0 {
			if need > free[d] {
				return 0
			}
			slots = min(slots, free[d]/need)
		}
	}
	return slots
}
