package preemption

// freeable is what the victims of a node can free, for any task class, by levels of priority from the lowest. It is
// valid until the node changes.
type freeable struct {
	known  bool
	stamp  int32
	levels []freeableLevel
}

// freeableLevel is the victims of a node up to a priority.
type freeableLevel struct {
	priority        int
	frees, maxFrees amounts // in all; by one victim at most
}

// freeableIndex keeps, for each node, what its victims can free. An entry is valid while the stamp of its node is the
// same.
type freeableIndex struct {
	victims *victimSet
	nodes   []freeable      // by slot
	levels  []freeableLevel // backs the levels of all nodes
}

// levelsOf returns the levels of a node. It counts whole devices of any type.
func (x *freeableIndex) levelsOf(slot int32) []freeableLevel {
	o := &x.nodes[slot]
	if o.known && o.stamp == x.victims.stamp[slot] {
		return o.levels
	}
	o.known, o.stamp = true, x.victims.stamp[slot]
	from, sum := len(x.levels), freeableLevel{}
	for _, n := range x.victims.on(slot) {
		v := &x.victims.list[n]
		if v.gone {
			continue
		}
		frees := amountsOf(v.frees, v.devices)
		sum.frees = sum.frees.plus(frees)
		for i := range frees {
			sum.maxFrees[i] = max(sum.maxFrees[i], frees[i])
		}
		if last := len(x.levels) - 1; last < from || x.levels[last].priority != v.Priority {
			x.levels = append(x.levels, freeableLevel{})
		}
		sum.priority = v.Priority
		x.levels[len(x.levels)-1] = sum
	}
	o.levels = x.levels[from:len(x.levels):len(x.levels)]
	return o.levels
}
