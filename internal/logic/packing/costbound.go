package packing

import (
	"math"

	"github.com/berthd/berth/internal/cluster"
)

// CostBound is what a task costs nodes with equal devices, which it leaves equal: a function of the node's free CPU and
// memory. It answers for one node, and gives a lower bound for ranges of free CPU and memory.
type CostBound struct {
	devices     int64 // the devices' own loss
	cpu, memory resourceCost
}

// resourceCost is the growth of a shortage of CPU, or of memory, by the task.
type resourceCost struct {
	before, after shortageOfDevices
	demand        int64
	// bounds are lower bounds by step of the free amount, from firstStep on. Beyond the last step the cost is 0. If
	// there are bounds, requested amounts must not be below the first step.
	bounds    []int32
	firstStep int64
}

// shortageOfDevices is a shortage with fixed free devices: how much of them stays unfilled for want of CPU or memory.
// Fixing the devices saves half of the work of repeated look-ups. The zero value means no shortage.
type shortageOfDevices struct {
	less               *[limitSteps + 1][roomSteps + 1]int32
	width              int64 // of a step of the limit
	pieces             int32
	column, nextColumn int8  // table columns around the free devices
	part               int16 // position between the columns, in units of 1/stepParts
}

func (s *shortage) forDevices(room int64) shortageOfDevices {
	if s.step == 0 || room <= 0 {
		return shortageOfDevices{}
	}
	pieces := (room + maxRoom - 1) / maxRoom
	y := room * stepParts / (roomStep * pieces)
	at := int8(y >> stepPartBits)
	return shortageOfDevices{
		&s.less, s.step * pieces, int32(pieces), at, min(at+1, roomSteps), int16(y & (stepParts - 1)),
	}
}

// short returns what stays unfilled, in millionths of a device. The limit must not be negative.
func (s *shortageOfDevices) short(limit int64) int64 {
	if s.less == nil {
		return 0
	}
	x := min(scale(limit, stepParts, s.width), limitSteps*stepParts)
	i := x >> stepPartBits
	return s.interpolate(s.row(i), s.row(i+1), x&(stepParts-1))
}

// row returns a row of the table at the free devices, times stepParts. Rows outside of the table equal the nearest row.
func (s *shortageOfDevices) row(i int64) int64 {
	r := &s.less[min(max(i, 0), limitSteps)]
	return int64(r[s.column])*int64(stepParts-s.part) + int64(r[s.nextColumn])*int64(s.part)
}

// interpolate returns the shortage between two rows.
func (s *shortageOfDevices) interpolate(low, high, part int64) int64 {
	return (low*(stepParts-part) + high*part) >> (2 * stepPartBits) * int64(s.pieces)
}

// NewCostBound returns the cost of a task that takes CPU and memory, and turns the devices before into after. Least may
// return far too low bounds until Tighten is called.
func NewCostBound(before, after *DeviceValue, takes cluster.Demand) CostBound {
	if before.table == nil || after.table == nil {
		return CostBound{}
	}
	chargeOf := func(s *shortage, takes int64) resourceCost {
		return resourceCost{before: s.forDevices(before.free), after: s.forDevices(after.free), demand: takes}
	}
	return CostBound{
		before.value - after.value, chargeOf(&before.table.cpu, int64(takes.CPU)),
		chargeOf(&before.table.memory, int64(takes.Memory)),
	}
}

// Tighten tightens the bounds of Least for amounts from least to most; later calls of Least must stay in that range.
// The bounds are appended to room, which is returned.
func (t *CostBound) Tighten(least, most cluster.Demand, room []int32) []int32 {
	room = t.cpu.tighten(int64(least.CPU), int64(most.CPU), room)
	return t.memory.tighten(int64(least.Memory), int64(most.Memory), room)
}

// At returns the cost of the task on a node with the given free amounts, in millionths of a device.
func (t *CostBound) At(free cluster.Demand) int64 {
	return t.devices + t.cpu.at(int64(free.CPU)) + t.memory.at(int64(free.Memory))
}

// Least returns a lower bound of the task's cost on nodes with free amounts from least to most.
func (t *CostBound) Least(least, most cluster.Demand) int64 {
	return t.devices + t.cpu.least(int64(least.CPU), int64(most.CPU)) +
		t.memory.least(int64(least.Memory), int64(most.Memory))
}

func (c *resourceCost) at(free int64) int64 {
	return c.after.short(max(free-c.demand, 0)) - c.before.short(max(free, 0))
}

// least is at for an interval.
func (c *resourceCost) least(low, high int64) int64 {
	low, high = max(low, 0), max(high, 0)
	// A shortage grows as less is free. So the shortage at the upper end after the task, less the shortage at the lower
	// end before it, is a lower bound. It is exact if both ends are equal.
	bound := c.after.short(max(high-c.demand, 0)) - c.before.short(low)
	if low == high || len(c.bounds) == 0 {
		return bound
	}
	from, to := low/c.before.width-c.firstStep, high/c.before.width-c.firstStep
	if from < 0 {
		return bound
	}
	found := int64(0) // the bound beyond the last step
	if to < int64(len(c.bounds)) {
		found = int64(c.bounds[to])
	}
	for _, l := range c.bounds[min(from, int64(len(c.bounds))):min(to, int64(len(c.bounds)))] {
		found = min(found, int64(l))
	}
	return max(bound, found)
}

// maxBounds limits the bounds of a resourceCost. More are needed only if less is free than the task takes.
const maxBounds = 2 * limitSteps

// tighten computes the bounds of the steps from low to high.
func (c *resourceCost) tighten(low, high int64, room []int32) []int32 {
	if c.before.less == nil || c.after.less == nil { // least is exact already
		return room
	}
	low, high = max(low, 0), max(high, 0)
	width := c.before.width
	first, end := low/width, min(high/width+1, c.demand/width+limitSteps+2)
	if end-first > maxBounds || width > 1<<(62-stepPartBits) { // absurd amounts
		return room
	}
	from := len(room)
	if c.before.pieces == c.after.pieces {
		room = c.appendBounds(first, end, room)
	} else {
		for k := first; k < end; k++ {
			room = append(room, int32(c.boundByParts(k*width, width)))
		}
	}
	c.firstStep, c.bounds = first, room[from:len(room):len(room)]
	return room
}

// boundByParts returns a lower bound for one step, which it divides into parts.
func (c *resourceCost) boundByParts(from, width int64) int64 {
	const parts = 4
	found := int64(math.MaxInt64)
	for i := range int64(parts) {
		found = min(found, c.after.short(max(from+(width*(i+1)+parts-1)/parts-c.demand, 0))-c.before.short(
			from+width*i/parts))
	}
	return found
}

// appendBounds appends lower bounds of steps, for tables before and after with steps of one width. Rounding aside, both
// are linear between their steps. The steps of after start inside the steps of before. So each step is two intervals,
// and the minimum of an interval is at one of its ends.
func (c *resourceCost) appendBounds(first, end int64, steps []int32) []int32 {
	width, before, after := c.before.width, &c.before, &c.after
	shift, part := c.demand/width, c.demand%width
	inside := part * stepParts / width                   // where a step of after starts inside a step of before
	behind := stepParts - (part*stepParts+width-1)/width // where a step of before starts inside a step of after
	round := func(a, b int64) int64 {                    // upper bound of the rounding errors of an interval's rows
		return int64(before.pieces) * (3 + (a+b)>>(2*stepPartBits))
	}
	b0, a0, a1 := before.row(first), after.row(first-shift-1), after.row(first-shift)
	start := after.interpolate(a0, a1, behind) - before.interpolate(b0, b0, 0)
	for k := first; k < end; k++ {
		b1, a2 := before.row(k+1), after.row(k-shift+1)
		afterMiddle, afterEnd := after.interpolate(a1, a1, 0), after.interpolate(a1, a2, behind)
		shortStart, shortMiddle, shortEnd := before.interpolate(b0, b0, 0), before.interpolate(b0, b1, inside),
			before.interpolate(b1, b1, 0)
		middle, last := afterMiddle-shortMiddle, afterEnd-shortEnd
		lower := max(afterMiddle-shortStart, min(start, middle)-round(a0-a1, b0-b1))
		upper := max(afterEnd-shortMiddle, min(middle, last)-round(a1-a2, b0-b1))
		steps = append(steps, int32(min(lower, upper)))
		b0, a0, a1, start = b1, a1, a2, last
	}
	return steps
}
