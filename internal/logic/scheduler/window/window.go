// Package window chooses the requests of a long queue that one placement considers.
//
// A placement of all requests takes time that grows with their number: about a second for a million jobs that all
// differ. Meanwhile nothing else is placed. So a placement considers a window of a queue of more than Sizes.Most
// requests of jobs:
//
//   - the first requests of each queue in the order of placement, Sizes.Head in all
//   - the requests with tasks that have a promise of room, because their room is kept only while they are considered
//   - Sizes.Turns of the others, which take turns
//
// After each change of the queue or of the fleet, all requests get a turn. A request beyond the first ones may be
// placed although a more urgent one fits, too, whose turn is later. That lasts until the turns have gone round once
// (ADR 0106).
package window

import (
	"cmp"
	"container/heap"
	"maps"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/cycle"
)

// Sizes are numbers of requests of jobs.
type Sizes struct {
	// Most is the largest number that one placement considers as a whole.
	Most int
	// Head is how many of the first requests of a longer queue a window has, in equal parts for the queues, with
	// HeadLeast of each at least; Turns is how many others it has.
	Head, HeadLeast, Turns int
}

// DefaultSizes returns the sizes of a leader. A placement of such a window takes 5 to 10 ms.
func DefaultSizes() Sizes { return Sizes{Most: 4096, Head: 512, HeadLeast: 2, Turns: 2048} }

// Queue holds the requests of jobs. It is not for concurrent use.
type Queue struct {
	sizes    Sizes
	jobs     map[cluster.OwnerRef]*job
	list     []*job // by owner; those without requests are gone
	requests int
	heads    map[queueName]*head // by queue; empty between two windows
	// left is how many requests are to have a turn. The next one is that of the number in the order of its job.
	left   int
	owner  cluster.OwnerRef
	number int
	pass   uint32 // the number of windows so far
}

// New returns an empty queue.
func New(sizes Sizes) *Queue {
	return &Queue{sizes: sizes, jobs: map[cluster.OwnerRef]*job{}, heads: map[queueName]*head{}}
}

// job is the requests of a job.
type job struct {
	owner    cluster.OwnerRef
	requests []cluster.Pending
	// The rest is made when the first window needs it. order holds the indices of the requests that may be placed, by
	// queue and then in the order of placement, the members of a gang together. runs are parts of it.
	isOrdered bool
	order     []int32
	runs      []run
	chosen    []uint32 // by request, the last window that has it
	index     *cluster.TaskIndex
}

// run is requests of one job in one queue whose order does not change while they wait, order[from:to] of the job.
type run struct {
	queue    queueName
	first    cycle.Wait // of the first request
	from, to int32
}

// queueName identifies the requests of which the first ones are considered. No cluster hides the requests of another
// one, which it may owe room, and no level of priority those of another one, for which tasks may end. Users of a fair
// queue take turns, so each has its own.
type queueName struct {
	pool, cluster, user string
	policy              cluster.QueuePolicy
	level               int
}

func queueOf(p *cluster.Pending) queueName {
	q := queueName{
		pool: p.Placement.Pool, cluster: p.Owner.Cluster, policy: p.Queue, level: cycle.Level(p.Priority),
	}
	if p.Queue == cluster.QueueFair {
		q.user = p.User
	}
	return q
}

func waitOf(p *cluster.Pending) cycle.Wait {
	return cycle.Wait{Queue: p.Queue, Priority: p.Priority, Since: p.Since, TimeLimit: p.TimeLimit}
}

// Set replaces the requests of a job. The queue keeps the slice, which must not change. Call Restart before the next
// window.
func (q *Queue) Set(o cluster.OwnerRef, requests []cluster.Pending) {
	q.Remove(o)
	if len(requests) == 0 {
		return
	}
	j := &job{owner: o, requests: requests}
	q.jobs[o] = j
	q.requests += len(requests)
	if at, known := q.search(o); known {
		q.list[at] = j
	} else {
		q.list = slices.Insert(q.list, at, j)
	}
}

// search returns the place of a job in the list.
func (q *Queue) search(o cluster.OwnerRef) (at int, known bool) {
	return slices.BinarySearchFunc(q.list, o, func(j *job, o cluster.OwnerRef) int { return j.owner.Compare(o) })
}

// Remove removes the requests of a job.
func (q *Queue) Remove(o cluster.OwnerRef) {
	if j := q.jobs[o]; j != nil {
		q.requests -= len(j.requests)
		*j = job{owner: o}
		delete(q.jobs, o)
	}
	if len(q.list) > 64 && len(q.list) > 2*len(q.jobs) {
		q.list = slices.DeleteFunc(q.list, func(j *job) bool { return len(j.requests) == 0 })
	}
}

// IsLong reports whether a placement considers a window of the queue, and not all of it.
func (q *Queue) IsLong() bool { return q.requests > q.sizes.Most }

// Restart gives all requests a turn again: the queue or the fleet has changed.
func (q *Queue) Restart() { q.left = q.requests }

// EndTurns ends the turns: another scheduler places the tasks.
func (q *Queue) EndTurns() { q.left = 0 }

// HasTurns reports whether requests of a long queue have not had their turn.
func (q *Queue) HasTurns() bool { return q.left > 0 && q.IsLong() }

// Request is a request of a window: the one with an index among those of a job.
type Request struct {
	Owner cluster.OwnerRef
	Index int
}

// Task is a task of a job.
type Task struct {
	Owner cluster.OwnerRef
	Task  cluster.TaskID
}

// Window is the requests of jobs that a placement considers, with the job and the index of each. The order has no
// meaning.
type Window struct {
	Pending []cluster.Pending
	Of      []Request
}

// Next returns the next window. promised are tasks with a promise of room.
func (q *Queue) Next(now time.Time, promised []Task) *Window {
	q.pass++
	w, room := chooser{Queue: q, now: now}, min(q.sizes.Head+q.sizes.Turns+len(promised), q.requests)
	w.window.Pending, w.window.Of = make([]cluster.Pending, 0, room), make([]Request, 0, room)
	for _, t := range promised {
		w.addPromised(t)
	}
	w.addHeads()
	w.addTurns()
	return &w.window
}

// chooser makes one window.
type chooser struct {
	*Queue
	now    time.Time
	window Window
}

// add adds the request at a place in the order of a job, with the other members of its gang, unless the window has it.
// It returns the place after them.
func (w *chooser) add(j *job, at int32) (next int32) {
	gang := j.requests[j.order[at]].Gang
	for next = at; next < int32(len(j.order)); next++ {
		i := j.order[next]
		if p := &j.requests[i]; next > at && (gang == "" || p.Gang != gang) {
			break
		}
		if j.chosen[i] != w.pass {
			j.chosen[i] = w.pass
			w.window.Pending = append(w.window.Pending, j.requests[i])
			w.window.Of = append(w.window.Of, Request{j.owner, int(i)})
		}
	}
	return next
}

// addPromised adds the request of a task with a promise, or all of its gang.
func (w *chooser) addPromised(t Task) {
	j := w.jobs[t.Owner]
	if j == nil {
		return
	}
	j.sort()
	if j.index == nil {
		j.index = cluster.IndexTasks(cluster.RangesOf(j.requests))
	}
	i, found := j.index.Find(t.Task)
	if !found || j.chosen[i] == w.pass {
		return
	}
	gang := j.requests[i].Gang
	for at := range int32(len(j.order)) {
		if k := j.order[at]; int(k) == i || gang != "" && j.requests[k].Gang == gang {
			w.add(j, at)
			return
		}
	}
}

// addHeads adds the first requests of each queue.
func (w *chooser) addHeads() {
	for _, j := range w.list {
		j.sort()
		for i := range j.runs {
			r := &j.runs[i]
			h := w.heads[r.queue]
			if h == nil {
				h = &head{}
				w.heads[r.queue] = h
			}
			h.runs = append(h.runs, headRun{job: j, at: r.from, to: r.to, place: r.first.Place(w.now)})
		}
	}
	maps.DeleteFunc(w.heads, func(_ queueName, h *head) bool { return h.Len() == 0 })
	each := max(w.sizes.Head/max(len(w.heads), 1), w.sizes.HeadLeast)
	for _, h := range w.heads { // order-free: each by itself; a window has no order
		heap.Init(h)
		for had := len(w.window.Pending); h.Len() > 0 && len(w.window.Pending)-had < each; {
			r := &h.runs[0]
			if r.at = w.add(r.job, r.at); r.at == r.to {
				heap.Pop(h)
				continue
			}
			next := waitOf(r.next())
			r.place = next.Place(w.now)
			heap.Fix(h, 0)
		}
		clear(h.runs)
		h.runs = h.runs[:0]
	}
}

// addTurns adds the requests whose turn is next.
func (w *chooser) addTurns() {
	start, known := w.search(w.owner)
	if !known {
		w.number = 0
	} else {
		w.number = w.list[start].gangStart(w.number)
	}
	room := w.sizes.Turns
	for n := 0; n <= len(w.list) && w.left > 0 && room > 0; n++ {
		at := (start + n) % len(w.list)
		j := w.list[at]
		j.sort()
		if w.number == 0 {
			w.left -= len(j.requests) - len(j.order) // the others may not be placed
		}
		next := int32(w.number)
		for next < int32(len(j.order)) && w.left > 0 && room > 0 {
			from, had := next, len(w.window.Pending)
			next = w.add(j, from)
			room -= len(w.window.Pending) - had
			w.left -= int(next - from)
		}
		w.owner, w.number = j.owner, int(next)
		if next < int32(len(j.order)) {
			return
		}
		w.owner, w.number = w.list[(at+1)%len(w.list)].owner, 0
	}
	if room > 0 { // all had their turn, and some of those that were to have one are gone
		w.left = 0
	}
}

// sort makes the order and the runs of a job.
func (j *job) sort() {
	if j.isOrdered {
		return
	}
	j.isOrdered = true
	j.chosen = make([]uint32, len(j.requests))
	all, _ := cycle.Order(j.requests, time.Time{})
	if j.order = all; len(all) == 0 {
		return
	}
	if first := queueOf(&j.requests[all[0]]); slices.ContainsFunc(all, func(i int32) bool {
		return queueOf(&j.requests[i]) != first
	}) {
		number := map[queueName]int{} // steps of one job are in several queues
		for _, i := range all {
			if name := queueOf(&j.requests[i]); number[name] == 0 {
				number[name] = len(number) + 1
			}
		}
		slices.SortStableFunc(j.order, func(a, b int32) int {
			return cmp.Compare(number[queueOf(&j.requests[a])], number[queueOf(&j.requests[b])])
		})
	}
	for at, i := range j.order {
		if at > 0 && j.sameRun(j.order[at-1], i) {
			j.runs[len(j.runs)-1].to = int32(at) + 1
			continue
		}
		p := &j.requests[i]
		j.runs = append(j.runs, run{queue: queueOf(p), first: waitOf(p), from: int32(at), to: int32(at) + 1})
	}
}

// gangStart returns the number of the first member of the gang to which the request of a number belongs, or else the
// number. The requests of the job may have changed since the number was that of a first member.
func (j *job) gangStart(number int) int {
	j.sort()
	for 0 < number && number < len(j.order) {
		gang := j.requests[j.order[number]].Gang
		if gang == "" || j.requests[j.order[number-1]].Gang != gang {
			break
		}
		number--
	}
	return number
}

// sameRun reports whether the order of two requests, the second of which follows the first, does not change with time.
func (j *job) sameRun(a, b int32) bool {
	p, next := &j.requests[a], &j.requests[b]
	if next.Gang != "" && next.Gang == p.Gang {
		return true
	}
	return p.Priority == next.Priority && p.Since.Equal(next.Since) && queueOf(p) == queueOf(next)
}

// head is a heap of the runs of one queue by the places of their next requests.
type head struct{ runs []headRun }

// headRun is the rest of a run, order[at:to] of the job.
type headRun struct {
	job    *job
	at, to int32
	place  cycle.Place
}

func (r *headRun) next() *cluster.Pending { return &r.job.requests[r.job.order[r.at]] }

func (h *head) Len() int { return len(h.runs) }

func (h *head) Less(i, j int) bool {
	a, b := &h.runs[i], &h.runs[j]
	return cmp.Or(a.place.Compare(&b.place), cmp.Compare(a.next().Task, b.next().Task)) < 0
}

func (h *head) Swap(i, j int) { h.runs[i], h.runs[j] = h.runs[j], h.runs[i] }

func (h *head) Push(x any) {
	if r, ok := x.(headRun); ok {
		h.runs = append(h.runs, r)
	}
}

func (h *head) Pop() any {
	last := h.runs[len(h.runs)-1]
	h.runs = h.runs[:len(h.runs)-1]
	return last
}
