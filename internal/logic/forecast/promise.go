package forecast

import "slices"

// promise keeps room for the first request of a line that finds none: running tasks end one after the other, by their
// limits, until it fits. The room is kept on the nodes that become free last, as the leader does.
func (f *future) promise(c *class) {
	need := int64(c.gang)
	have := int64(0)
	eligible := func(n int32) bool {
		return !f.kept[n].kept && slices.Contains(f.linesOf[n], int32(c.line))
	}
	if c.gang > 1 {
		for _, n := range f.Lines[c.line].Nodes {
			f.work--
			if !f.kept[n].kept {
				have += slotsIn(&f.free[n], c, f.dims)
			}
		}
	}
	until := int64(-1)
	f.extraOn = f.extraOn[:0]
	for _, i := range f.byLimit {
		t := &f.tasks[i]
		f.work--
		if until >= 0 && (t.limitAt > until || until == never) {
			break
		}
		if t.over || !eligible(t.node) {
			continue
		}
		free := f.after(t.node)
		before := slotsIn(&free, c, f.dims)
		for d := range f.dims {
			f.extra[t.node][d] += t.demand[d]
			free[d] += t.demand[d]
		}
		f.extraOn = append(f.extraOn, t.node)
		have += slotsIn(&free, c, f.dims) - before
		if have >= need && until < 0 {
			until = t.limitAt
		}
	}
	if have >= need {
		for i := len(f.extraOn) - 1; i >= 0 && need > 0; i-- {
			need = f.keep(f.extraOn[i], c, need, until)
		}
		for _, n := range f.Lines[c.line].Nodes {
			if need <= 0 {
				break
			}
			need = f.keep(n, c, need, until)
		}
	}
	for _, n := range f.extraOn {
		f.extra[n] = Amounts{}
	}
}

// after returns what is free on a node after the ends that were counted.
func (f *future) after(node int32) Amounts {
	sum := f.free[node]
	for d := range f.dims {
		sum[d] += f.extra[node][d]
	}
	return sum
}

// keep keeps room on a node for as many of the needed tasks as fit, and returns how many are left.
func (f *future) keep(node int32, c *class, need, until int64) int64 {
	if f.kept[node].kept {
		return need
	}
	spare := f.after(node)
	slots := min(slotsIn(&spare, c, f.dims), need)
	if slots <= 0 {
		return need
	}
	for d := range f.dims {
		spare[d] -= slots * c.demand[d]
	}
	f.kept[node] = keptRoom{kept: true, until: until, spare: spare}
	f.keptOn = append(f.keptOn, node)
	return need - slots
}
