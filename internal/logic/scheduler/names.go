package scheduler

import (
	"math"
	"slices"
	"sort"
	"strings"
)

// names keeps slots in the order of their nodes' names. Each slot has a number in order that sorts like its name. Of
// two nodes that are equal otherwise, the scheduler takes the lower number.
type names struct {
	of     func(slot int32) string
	blocks [][]int32 // none is empty; the slots in them are in order
	count  int
	order  []uint64 // by slot, also of slots without a name here
}

const (
	maxBlockSlots = 512
	// orderStep is the distance between the numbers of names that are added in order.
	orderStep = 1 << 36
)

// find returns the position of a name, or where it belongs.
func (o *names) find(name string) (block, at int) {
	if len(o.blocks) == 0 {
		return 0, 0
	}
	block = sort.Search(len(o.blocks), func(b int) bool { return o.of(o.blocks[b][0]) > name })
	block = max(block-1, 0)
	at, _ = slices.BinarySearchFunc(o.blocks[block], name, func(s int32, name string) int {
		return strings.Compare(o.of(s), name)
	})
	return block, at
}

// add adds a slot. Its name must not be there yet.
func (o *names) add(slot int32) {
	o.count++
	if len(o.blocks) == 0 {
		o.blocks = append(o.blocks, []int32{slot})
		o.order[slot] = math.MaxUint64 / 2
		return
	}
	b, at := o.find(o.of(slot))
	low, high := uint64(0), uint64(math.MaxUint64)
	switch {
	case at > 0:
		low = o.order[o.blocks[b][at-1]]
	case b > 0:
		low = o.order[o.blocks[b-1][len(o.blocks[b-1])-1]]
	}
	switch {
	case at < len(o.blocks[b]):
		high = o.order[o.blocks[b][at]]
	case b+1 < len(o.blocks):
		high = o.order[o.blocks[b+1][0]]
	}
	o.blocks[b] = slices.Insert(o.blocks[b], at, slot)
	if block := o.blocks[b]; len(block) > maxBlockSlots {
		half := slices.Clone(block[maxBlockSlots/2:])
		o.blocks[b] = block[:maxBlockSlots/2]
		o.blocks = slices.Insert(o.blocks, b+1, half)
	}
	if high-low < 2 {
		o.renumber()
		return
	}
	o.order[slot] = low + min((high-low)/2, orderStep)
}

// renumber spaces the numbers evenly.
func (o *names) renumber() {
	step := uint64(math.MaxUint64) / uint64(o.count+1)
	next := step
	for slot := range o.all {
		o.order[slot] = next
		next += step
	}
}

// remove removes a slot.
func (o *names) remove(slot int32) {
	b, at := o.find(o.of(slot))
	o.count--
	o.blocks[b] = slices.Delete(o.blocks[b], at, at+1)
	if len(o.blocks[b]) == 0 {
		o.blocks = slices.Delete(o.blocks, b, b+1)
	}
}

// all yields the slots in order.
func (o *names) all(yield func(slot int32) bool) {
	for _, block := range o.blocks {
		for _, slot := range block {
			if !yield(slot) {
				return
			}
		}
	}
}

func (o *names) clone(of func(slot int32) string) names {
	c := names{of: of, blocks: make([][]int32, len(o.blocks)), count: o.count, order: slices.Clone(o.order)}
	for i, block := range o.blocks {
		c.blocks[i] = slices.Clone(block)
	}
	return c
}
