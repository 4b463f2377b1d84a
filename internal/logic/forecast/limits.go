package forecast

import (
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/admission"
)

// limits are the limits of clusters in a future: the scheduler's ledger, and what was placed at this moment.
type limits struct {
	ledger *admission.Ledger // nil if no request is limited, although running tasks may be
	draft  admission.Draft
	placed []admission.Holding // at this moment
	ends   int                 // number of ends of tasks that count, and 1
	// refusedAt holds, by limit class, the value of ends when it was refused for the last time. Until the next end it
	// is refused, as placements take of limits alone.
	refusedAt []int
	mayBorrow bool
	deferred  []int32
	// left counts the tasks that run or wait of each job with a concurrency group. begun holds the jobs that have a
	// place. fullAt holds, by group, the value of ends when the group had no place: until the next end it has none.
	left   map[jobKey]int
	begun  map[jobKey]bool
	fullAt map[groupKey]int
}

type jobKey struct{ cluster, job string }

type groupKey struct{ cluster, group string }

// newLimits returns the limits at the start of a future.
func newLimits(p *plan) limits {
	l := limits{ends: 1, refusedAt: make([]int, len(p.admitted))}
	if len(p.admitted) == 0 {
		return l
	}
	ledger := p.Limits.Clone()
	l.ledger, l.left, l.begun, l.fullAt = &ledger, map[jobKey]int{}, map[jobKey]bool{}, map[groupKey]int{}
	for _, at := range ledger.Begun() {
		l.begun[jobKey{at.Cluster, at.Job}] = true
	}
	for i := range p.Running {
		for _, h := range p.Running[i].Limited {
			l.countLeft(&h, 1)
		}
	}
	for i := range p.waitingLimits {
		r := &p.Waiting[i]
		if r.Pending != nil && r.Pending.JobConcurrency != nil {
			l.left[jobKey{r.Pending.Owner.Cluster, r.Pending.Owner.Name}] += max(r.Tasks, 1)
		}
	}
	for _, o := range p.Lasting {
		l.left[jobKey{o.Cluster, o.Name}]++
	}
	return l
}

// countLeft counts a task of a job with a concurrency group, which leaves its place with the last one.
func (l *limits) countLeft(h *admission.Holding, sign int) {
	if h.Job == "" || h.JobGroup == "" {
		return
	}
	key := jobKey{h.Cluster, h.Job}
	if l.left[key] += sign; l.left[key] == 0 {
		l.ledger.SetBegun(h.Cluster, h.Job, 0, "")
		delete(l.begun, key)
	}
}

// isBarred reports whether the request is of a job without a place in a group that is known to have none. Such a
// request costs nothing, as a group may have many of them.
func (l *limits) isBarred(e *entry) bool {
	p := e.request
	return p != nil && p.JobConcurrency != nil && !l.begun[jobKey{p.Owner.Cluster, p.Owner.Name}] &&
		l.fullAt[groupKey{p.Owner.Cluster, p.JobConcurrency.Group}] == l.ends
}

// noteRefusal remembers that the limits refused a task. It holds until the next end of a task that counts.
func (l *limits) noteRefusal(e *entry, p *cluster.Pending) {
	l.refusedAt[e.limit] = l.ends
	if p.JobConcurrency != nil && l.draft.WaitsForJobs(p) {
		l.fullAt[groupKey{p.Owner.Cluster, p.JobConcurrency.Group}] = l.ends
	}
}

// begin counts a task that was placed. Its job has its place from now on.
func (l *limits) begin(h *admission.Holding) {
	l.ledger.Add(h, 1)
	if h.Job == "" || h.JobGroup == "" {
		return
	}
	parts, _ := h.Task.Parts()
	l.begun[jobKey{h.Cluster, h.Job}] = true
	l.ledger.SetBegun(h.Cluster, h.Job, parts.Generation, h.JobGroup)
}

func (l *limits) takeDeferred() []int32 {
	later := l.deferred
	l.deferred = nil
	return later
}

// beginMoment begins with no placements.
func (l *limits) beginMoment() {
	if l.ledger != nil {
		l.draft = admission.NewDraft(l.ledger)
	}
}

// endMoment counts what was placed at this moment.
func (l *limits) endMoment() {
	for i := range l.placed {
		l.begin(&l.placed[i])
	}
	l.placed = l.placed[:0]
}

// end no longer counts tasks.
func (l *limits) end(held []admission.Holding) {
	if l.ledger == nil {
		return
	}
	for i := range held {
		l.ledger.Add(&held[i], -1)
		l.countLeft(&held[i], -1)
		l.ends++
	}
}

// judge returns whether the limits let the next task of a request start now.
func (f *future) judge(e *entry) outcome {
	l := &f.limits
	if e.limit < 0 {
		return placed
	}
	if l.refusedAt[e.limit] == l.ends {
		return refused
	}
	f.work -= workPerJudgement
	p := e.next(0)
	switch l.draft.Judge(&p) {
	case admission.Refused:
		l.noteRefusal(e, &p)
		return refused
	case admission.Borrows:
		if !l.mayBorrow {
			return putOff
		}
	case admission.Within:
	}
	return placed
}

// judgeGang is judge for a gang, so many members of which find room.
func (f *future) judgeGang(e *entry, c *class, room int) outcome {
	l := &f.limits
	if e.limit < 0 {
		return placed
	}
	if l.refusedAt[e.limit] == l.ends {
		return refused
	}
	o, n := placed, 0
	for ; n < c.gang && n <= room; n++ {
		f.work -= workPerJudgement
		p := e.next(n)
		v := l.draft.Judge(&p)
		if v == admission.Refused {
			o = refused
			l.noteRefusal(e, &p)
		} else if v == admission.Borrows && !l.mayBorrow {
			o = putOff
		}
		if o != placed || n == room {
			break
		}
		l.draft.Add(&p, 1)
	}
	for n--; n >= 0; n-- {
		p := e.next(n)
		l.draft.Add(&p, -1)
	}
	return o
}

// admitted returns the first of the members whose tasks the limits allow at the same time: as many as possible, or all
// tasks of a gang.
func (f *future) admitted(members []int32) []int32 {
	first := &f.queue[members[0]]
	if first.limit < 0 {
		return members
	}
	l, number := &f.limits, map[int32]int{}
	var added []func()
	defer func() {
		for _, undo := range added {
			undo()
		}
	}()
	admits := func(q int32) bool {
		f.work -= workPerJudgement
		p := f.queue[q].next(number[q])
		if number[q]++; l.draft.Judge(&p) == admission.Refused {
			return false
		}
		l.draft.Add(&p, 1)
		added = append(added, func() { l.draft.Add(&p, -1) })
		return true
	}
	if gang := f.classes[first.class].gang; gang > 1 {
		for range gang {
			if !admits(members[0]) {
				return nil
			}
		}
		return members
	}
	for i, q := range members {
		if !admits(q) {
			return members[:i]
		}
	}
	return members
}
