package forecast

import "github.com/berthd/berth/internal/logic/admission"

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
		l.ledger.Add(&l.placed[i], 1)
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
		l.refusedAt[e.limit] = l.ends
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
			o, l.refusedAt[e.limit] = refused, l.ends
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
