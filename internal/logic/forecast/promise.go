package forecast

import (
	"cmp"
	"slices"
)

// place is the place of a promised task: the task may start there once a running task has ended, by its limit.
type place struct {
	node  int32
	until int64
}

// promise keeps room for requests that find none: for all tasks of the first one if that is a gang, else for one task
// of each; a request may be there several times. Running tasks end one after the other, by their limits, until all
// have a place. It reports whether there is a promise. The places are those of the leader (scheduler/trial.go).
func (f *future) promise(members []int32) bool {
	f.places, f.extraOn = f.places[:0], f.extraOn[:0]
	c := &f.classes[f.queue[members[0]].class]
	t := trial{future: f, members: members, need: len(members), line: int32(c.line)}
	if c.gang > 1 {
		t.gang, t.need = c, c.gang
		for _, n := range f.Lines[c.line].Nodes { // the places that are free now
			f.work--
			t.takeAll(n, 0)
		}
	}
	t.endLimited()
	t.endOthers()
	found := len(f.places) >= max(c.gang, 1)
	if found && t.gang != nil {
		t.leaveFreeNodes()
	}
	for i := range f.places {
		if found {
			f.keep(&f.places[i])
		}
	}
	for _, n := range f.extraOn {
		f.extra[n] = Amounts{}
	}
	return found
}

// trial finds the places of a promise. The room that ends make, less what the places take, is in future.extra.
type trial struct {
	*future
	members []int32
	gang    *class // nil for single tasks
	need    int    // number of tasks
	line    int32
	last    int64   // time of the last end
	ended   []int32 // nodes, in the order of the ends
	unread  int     // index into byLimit
}

// class returns the class of the next task.
func (t *trial) class() *class {
	if t.gang != nil {
		return t.gang
	}
	return &t.classes[t.queue[t.members[len(t.places)]].class]
}

// takeAll gives places on a node to as many of the next tasks as fit there.
func (t *trial) takeAll(node int32, until int64) {
	if t.kept[node].kept {
		return
	}
	for len(t.places) < t.need {
		c := t.class()
		free := t.after(node)
		if slotsIn(&free, c, t.dims) == 0 || !slices.Contains(t.linesOf[node], int32(c.line)) {
			return
		}
		t.work--
		t.addExtra(node, &c.demand, -1)
		t.places = append(t.places, place{node, until})
	}
}

// end ends a running task and gives places on its node. Several equal ones end one after the other, as far as
// necessary.
func (t *trial) end(r *held, until int64) {
	if r.over || t.kept[r.node].kept || !slices.Contains(t.linesOf[r.node], t.line) {
		return
	}
	one := r.demand
	for d := range t.dims {
		one[d] /= r.count
	}
	t.ended, t.last = append(t.ended, r.node), until
	for n := r.count; n > 0 && (len(t.places) < t.need || t.gang != nil && until < never); n-- {
		t.addExtra(r.node, &one, 1)
		t.takeAll(r.node, until)
	}
}

// endLimited ends running tasks with a limit until all tasks have a place.
func (t *trial) endLimited() {
	for ; len(t.places) < t.need && t.unread < len(t.byLimit); t.unread++ {
		r := &t.tasks[t.byLimit[t.unread]]
		if r.limitAt == never {
			return
		}
		t.work--
		t.end(r, r.limitAt)
	}
}

// endOthers ends running tasks without a limit until all tasks have a place: the first one of each node, then the
// second ones, so that the fewest have to end.
func (t *trial) endOthers() {
	if len(t.places) >= t.need || t.unread >= len(t.byLimit) {
		return
	}
	type open struct{ number, task int32 }
	rest := t.byLimit[t.unread:]
	t.work -= 4 * len(rest)
	opens, numbers := make([]open, 0, len(rest)), map[int32]int32{}
	for _, i := range rest {
		if r := &t.tasks[i]; !r.over && r.limitAt == never {
			opens = append(opens, open{numbers[r.node], i})
			numbers[r.node]++
		}
	}
	slices.SortStableFunc(opens, func(a, b open) int {
		return cmp.Or(cmp.Compare(a.number, b.number), cmp.Compare(t.tasks[a.task].node, t.tasks[b.task].node))
	})
	for _, o := range opens {
		if len(t.places) >= t.need {
			return
		}
		t.end(&t.tasks[o.task], never)
	}
}

// leaveFreeNodes gives the members of a gang other places: on the nodes first whose room becomes free last, among them
// those where tasks end at the same time. The nodes that are free before are left to tasks that run for longer.
func (t *trial) leaveFreeNodes() {
	for ; t.last < never && t.unread < len(t.byLimit); t.unread++ {
		r := &t.tasks[t.byLimit[t.unread]]
		if r.limitAt != t.last {
			break
		}
		t.work--
		t.end(r, r.limitAt)
	}
	before := slices.Clone(t.places)
	for _, p := range before {
		t.addExtra(p.node, &t.gang.demand, 1)
	}
	t.places = t.places[:0]
	for _, n := range slices.Backward(t.ended) {
		t.takeAll(n, t.last)
	}
	for _, p := range before {
		t.takeAll(p.node, t.last)
	}
	for i := range t.places { // the gang starts together
		t.places[i].until = t.last
	}
}

// addExtra adds room to a node for the trial, or takes it.
func (f *future) addExtra(node int32, demand *Amounts, sign int64) {
	for d := range f.dims {
		f.extra[node][d] += sign * demand[d]
	}
	f.extraOn = append(f.extraOn, node)
}

// after returns what is free on a node after the ends that were counted, less the places.
func (f *future) after(node int32) Amounts {
	sum := f.free[node]
	for d := range f.dims {
		sum[d] += f.extra[node][d]
	}
	return sum
}

// keep keeps the room of a place. The trial's other places on the node are counted as well.
func (f *future) keep(p *place) {
	k := &f.kept[p.node]
	if !k.kept {
		*k = keptRoom{kept: true, until: p.until}
		f.keptOn = append(f.keptOn, p.node)
	}
	k.until, k.spare = max(k.until, p.until), f.after(p.node)
}
