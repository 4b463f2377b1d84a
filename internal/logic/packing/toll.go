package packing

import (
	"math"

	"github.com/berthd/berth/internal/cluster"
)

// Toll is what a task costs nodes with the same devices, which it leaves the same: a function of the CPU and the memory
// that such a node has free. It can be asked for one node, and for the least over all that have amounts between two
// others.
type Toll struct {
	devices     int64 // lost by the devices themselves
	cpu, memory charge
}

// charge is what more is short of CPU, or of memory, once the task is there.
type charge struct {
	before, after scarcity
	takes         int64
	// steps are lower bounds, of amounts from first times the width of a step on, and so for each further step; what
	// lies beyond the last of them costs nothing if there are any at all, but then the amounts asked for must not begin
	// below the first.
	steps []int32
	first int64
}

// scarcity is how much is not filled of some free devices because of a limit: a shortage with the one coordinate given,
// which spares what is asked of it again and again half of the work. The zero value is none.
type scarcity struct {
	less    *[limitSteps + 1][roomSteps + 1]int32
	width   int64 // of a step of the limit
	pieces  int32
	at, to  int8  // columns between which the free devices are
	further int16 // from the first of them, in parts of sub
}

func (s *shortage) of(room int64) scarcity {
	if s.step == 0 || room <= 0 {
		return scarcity{}
	}
	pieces := (room + mostRoom - 1) / mostRoom
	y := room * sub / (roomStep * pieces)
	at := int8(y >> subBits)
	return scarcity{&s.less, s.step * pieces, int32(pieces), at, min(at+1, roomSteps), int16(y & (sub - 1))}
}

// short returns what is not filled, in millionths of a device. The limit is not below 0.
func (s *scarcity) short(limit int64) int64 {
	if s.less == nil {
		return 0
	}
	x := min(scale(limit, sub, s.width), limitSteps*sub)
	i := x >> subBits
	return s.blend(s.row(i), s.row(i+1), x&(sub-1))
}

// row returns a row of the table, in parts of sub. Before the first and behind the last they stay the same.
func (s *scarcity) row(i int64) int64 {
	r := &s.less[min(max(i, 0), limitSteps)]
	return int64(r[s.at])*int64(sub-s.further) + int64(r[s.to])*int64(s.further)
}

// blend is short between two rows.
func (s *scarcity) blend(low, high, part int64) int64 {
	return (low*(sub-part) + high*part) >> (2 * subBits) * int64(s.pieces)
}

// MakeToll returns that of a task that takes some CPU and memory, and of devices as in before leaves them as in after.
// Nothing has to be at hand to ask for one node, or for a bound that may be far too low.
func MakeToll(before, after *Stock, takes cluster.Demand) Toll {
	if before.table == nil || after.table == nil {
		return Toll{}
	}
	chargeOf := func(s *shortage, takes int64) charge {
		return charge{before: s.of(before.free), after: s.of(after.free), takes: takes}
	}
	return Toll{
		before.worth - after.worth, chargeOf(&before.table.cpu, int64(takes.CPU)),
		chargeOf(&before.table.memory, int64(takes.Memory)),
	}
}

// Sharpen makes close bounds of what Least returns, but from now on only for amounts from least to most. They are kept
// in room, which is returned with them appended.
func (t *Toll) Sharpen(least, most cluster.Demand, room []int32) []int32 {
	room = t.cpu.sharpen(int64(least.CPU), int64(most.CPU), room)
	return t.memory.sharpen(int64(least.Memory), int64(most.Memory), room)
}

// At returns what the task costs a node with that much free, in millionths of a device.
func (t *Toll) At(free cluster.Demand) int64 {
	return t.devices + t.cpu.of(int64(free.CPU)) + t.memory.of(int64(free.Memory))
}

// Least returns what the task costs at least on any node that has from least to most free.
func (t *Toll) Least(least, most cluster.Demand) int64 {
	return t.devices + t.cpu.least(int64(least.CPU), int64(most.CPU)) +
		t.memory.least(int64(least.Memory), int64(most.Memory))
}

func (c *charge) of(free int64) int64 {
	return c.after.short(max(free-c.takes, 0)) - c.before.short(max(free, 0))
}

// least is of for an interval.
func (c *charge) least(low, high int64) int64 {
	low, high = max(low, 0), max(high, 0)
	// What is short grows as less is free: that of the upper end, when the task is there, less that of the lower end is
	// a bound, and exact where they are one.
	bound := c.after.short(max(high-c.takes, 0)) - c.before.short(low)
	if low == high || len(c.steps) == 0 {
		return bound
	}
	from, to := low/c.before.width-c.first, high/c.before.width-c.first
	if from < 0 {
		return bound
	}
	found := int64(0) // beyond the last step
	if to < int64(len(c.steps)) {
		found = int64(c.steps[to])
	}
	for _, l := range c.steps[min(from, int64(len(c.steps))):min(to, int64(len(c.steps)))] {
		found = min(found, int64(l))
	}
	return max(bound, found)
}

// mostSteps bounds the steps of a charge. There are more only if less is free than the task takes.
const mostSteps = 2 * limitSteps

// sharpen finds the steps from low to high.
func (c *charge) sharpen(low, high int64, room []int32) []int32 {
	if c.before.less == nil || c.after.less == nil { // the bound is exact
		return room
	}
	low, high = max(low, 0), max(high, 0)
	width := c.before.width
	first, end := low/width, min(high/width+1, c.takes/width+limitSteps+2)
	if end-first > mostSteps || width > 1<<(62-subBits) { // amounts that are not of this world
		return room
	}
	from := len(room)
	if c.before.pieces == c.after.pieces {
		room = c.appendSteps(first, end, room)
	} else {
		for k := first; k < end; k++ {
			room = append(room, int32(c.leastOfParts(k*width, width)))
		}
	}
	c.first, c.steps = first, room[from:len(room):len(room)]
	return room
}

// leastOfParts is a bound for a step, which is looked at in parts.
func (c *charge) leastOfParts(from, width int64) int64 {
	const parts = 4
	found := int64(math.MaxInt64)
	for i := range int64(parts) {
		found = min(found, c.after.short(max(from+(width*(i+1)+parts-1)/parts-c.takes, 0))-c.before.short(
			from+width*i/parts))
	}
	return found
}

// appendSteps appends bounds of steps, where tables before and after have steps of one width. Both are linear but for
// rounding between their steps, which for what is there after the task begin somewhere within those before: so each
// step is two intervals, and of an interval one of the ends is the least.
func (c *charge) appendSteps(first, end int64, steps []int32) []int32 {
	width, before, after := c.before.width, &c.before, &c.after
	shift, part := c.takes/width, c.takes%width
	inside := part * sub / width             // of a step before, where one after begins
	behind := sub - (part*sub+width-1)/width // of a step after, where one before begins
	round := func(a, b int64) int64 {        // what the rows of an interval are rounded by at most
		return int64(before.pieces) * (3 + (a+b)>>(2*subBits))
	}
	b0, a0, a1 := before.row(first), after.row(first-shift-1), after.row(first-shift)
	start := after.blend(a0, a1, behind) - before.blend(b0, b0, 0)
	for k := first; k < end; k++ {
		b1, a2 := before.row(k+1), after.row(k-shift+1)
		afterMiddle, afterEnd := after.blend(a1, a1, 0), after.blend(a1, a2, behind)
		shortStart, shortMiddle, shortEnd := before.blend(b0, b0, 0), before.blend(b0, b1, inside),
			before.blend(b1, b1, 0)
		middle, last := afterMiddle-shortMiddle, afterEnd-shortEnd
		lower := max(afterMiddle-shortStart, min(start, middle)-round(a0-a1, b0-b1))
		upper := max(afterEnd-shortMiddle, min(middle, last)-round(a1-a2, b0-b1))
		steps = append(steps, int32(min(lower, upper)))
		b0, a0, a1, start = b1, a1, a2, last
	}
	return steps
}
