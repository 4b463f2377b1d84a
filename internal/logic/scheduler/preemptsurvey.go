package scheduler

import (
	"cmp"
	"container/heap"
	"maps"
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// price is what a set of victims costs.
type price struct {
	highest int // priority among them
	sum     int // of their priorities
	count   int
}

func (a price) compare(b price) int {
	return cmp.Or(cmp.Compare(a.highest, b.highest), cmp.Compare(a.sum, b.sum), cmp.Compare(a.count, b.count))
}

func (a price) add(b price) price {
	return price{max(a.highest, b.highest), a.sum + b.sum, a.count + b.count}
}

// prospect is a node with what it would cost to make room there.
type prospect struct {
	price
	exact   bool // else the true price and rank are not below these
	slot    int32
	stamp   int32 // of the node when this was found out
	rank    rank  // with the victims gone
	label   uint64
	victims []int32
}

// survey is what is known of all nodes for a class of tasks of one priority: a heap with the cheapest node on top. Most
// prices are found exactly only when they come to the top. Of a node that changed an older prospect is void.
type survey struct {
	p        *preempt
	c        *class
	priority int
	heap     []prospect
	seen     int // how much of preempt.changed is in the heap
	volatile bool
}

func (s *survey) Len() int { return len(s.heap) }

func (s *survey) Swap(i, j int) { s.heap[i], s.heap[j] = s.heap[j], s.heap[i] }

func (s *survey) Push(x any) {
	if r, ok := x.(prospect); ok {
		s.heap = append(s.heap, r)
	}
}

func (s *survey) Pop() any {
	last := s.heap[len(s.heap)-1]
	s.heap = s.heap[:len(s.heap)-1]
	return last
}

func (s *survey) Less(i, j int) bool {
	a, b := &s.heap[i], &s.heap[j]
	if d := a.price.compare(b.price); d != 0 {
		return d < 0
	}
	if a.rank != b.rank {
		return a.rank.less(b.rank)
	}
	return a.label < b.label
}

// mostSurveys bounds how many are kept: each is as large as the fleet.
const mostSurveys = 8

// choose returns the best node for the task at a position.
func (p *preempt) choose(position int32) (best prospect, found bool) {
	c, task := p.classOf[position], p.task(position)
	if slot, known := p.fleet.search(task.Promised); known && p.admits(c, slot) {
		if code, _ := p.lacks(c, slot); code == "" {
			return prospect{slot: slot}, true
		}
	}
	s := p.surveys[c]
	if s == nil || s.priority != task.Priority || s.volatile {
		p.discard(c)
		if len(p.surveys) >= mostSurveys {
			p.discard(slices.Collect(maps.Keys(p.surveys))...) // order-free: all go
		}
		s = p.newSurvey(c, task.Priority)
		p.surveys[c] = s
	}
	return s.best()
}

// discard forgets surveys. The room of their heaps is used again.
func (p *preempt) discard(classes ...*class) {
	for _, c := range classes {
		if s := p.surveys[c]; s != nil {
			p.heaps = append(p.heaps, s.heap[:0])
			delete(p.surveys, c)
		}
	}
}

// newSurvey looks at all nodes. What holds of a node changes with others where the terms of the class say so: then
// nothing is kept.
func (p *preempt) newSurvey(c *class, priority int) *survey {
	s := &survey{p: p, c: c, priority: priority, seen: len(p.changed), volatile: c.dynamic || c.each || c.revives}
	s.volatile = s.volatile || slices.ContainsFunc(c.spreads, func(t spreadTerm) bool { return t.view.table == nil })
	if last := len(p.heaps) - 1; last >= 0 {
		s.heap, p.heaps = p.heaps[last], p.heaps[:last]
	}
	p.search.begin(p, c, priority)
	add := func(slot int32) {
		if r, ok := s.look(slot); ok {
			s.heap = append(s.heap, r)
		}
	}
	if slots, few := p.candidates(c); few {
		for _, slot := range slots {
			add(slot)
		}
	} else {
		for _, class := range c.sieve.takes {
			if p.settled() && c.dynamic && c.closed(class) {
				continue
			}
			p.visit(p.fleet.catalog.trees[byFill][class].page, add)
		}
	}
	heap.Init(s)
	return s
}

// best returns the cheapest node. It stays in the heap, until something changes there.
func (s *survey) best() (prospect, bool) {
	s.p.search.begin(s.p, s.c, s.priority)
	for ; s.seen < len(s.p.changed); s.seen++ {
		if r, ok := s.look(s.p.changed[s.seen]); ok {
			heap.Push(s, r)
		}
	}
	for len(s.heap) > 0 {
		top := &s.heap[0]
		switch {
		case top.stamp != s.p.stamp[top.slot]:
			heap.Pop(s)
		case top.exact && s.p.may(top.victims):
			return *top, true
		default:
			r, ok := s.p.search.cheapest(top.slot)
			if !ok {
				heap.Pop(s)
				continue
			}
			r.stamp, r.label = top.stamp, top.label
			*top = r
			heap.Fix(s, 0)
		}
	}
	return prospect{}, false
}

// look returns what a node costs at least, or exactly where that is nothing; ok is false where no victims would do.
func (s *survey) look(slot int32) (r prospect, ok bool) {
	p := s.p
	r = prospect{slot: slot, stamp: p.stamp[slot], label: p.fleet.names.label[slot]}
	if !p.admits(s.c, slot) || p.stays(s.c, slot) {
		return r, false
	}
	short := p.search.short(slot)
	if short == (amounts{}) {
		if code, _ := p.lacks(s.c, slot); code == "" {
			r.exact, r.rank = true, p.rankOf(s.c, slot)
			return r, true
		}
	}
	price, level := p.search.least(slot, short)
	if level == nil {
		return r, false
	}
	r.price, r.rank = price, p.search.bestRank(slot, short, level, price.count)
	return r, true
}

// admits reports whether nothing keeps the class from the node but what victims could cure.
func (p *preempt) admits(c *class, slot int32) bool {
	l := p.load(slot)
	if l.class < 0 || !c.sieve.passes[l.class] || !p.meets(c.sieve, slot) || c.Only != "" &&
		c.Only != p.node(slot).Name {
		return false
	}
	return !slices.Contains(c.avoided, slot) && (c.deviceless == nil || !c.deviceless[l.class])
}

// may reports whether the owners can spare the victims.
func (p *preempt) may(victims []int32) bool {
	ok := true
	for _, v := range victims {
		if o := p.victims[v].owner; o >= 0 {
			p.spare[o]--
			ok = ok && p.spare[o] >= 0
		}
	}
	for _, v := range victims {
		if o := p.victims[v].owner; o >= 0 {
			p.spare[o]++
		}
	}
	return ok
}

// rankWithout returns the rank of a node when victims have ended.
func (p *preempt) rankWithout(c *class, slot int32, victims []int32) rank {
	for _, v := range victims {
		p.lift(v, -1, c)
	}
	r := p.rankOf(c, slot)
	for _, v := range victims {
		p.lift(v, 1, c)
	}
	return r
}

// amounts are of CPU, memory, disk and whole devices.
type amounts [4]int64

func amountsOf(d cluster.Demand, devices int64) amounts {
	return amounts{int64(d.CPU), int64(d.Memory), int64(d.Disk), devices}
}

// less takes amounts away, to nothing at the least.
func (a amounts) less(b amounts) amounts {
	for i := range a {
		a[i] = max(a[i]-b[i], 0)
	}
	return a
}

func (a amounts) minus(b amounts) amounts {
	for i := range a {
		a[i] -= b[i]
	}
	return a
}

func (a amounts) plus(b amounts) amounts {
	for i := range a {
		a[i] += b[i]
	}
	return a
}
