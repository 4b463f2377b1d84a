package index

import (
	"math"
	"slices"
	"sort"
	"strings"
)

// Names keeps slots in the order of their nodes' names. Each slot has a number in order that sorts like its name. If
// two nodes are equal otherwise, the scheduler takes the lower number.
type Names struct {
	Of     func(slot int32) string
	blocks [][]int32 // none is empty; the slots in them are in order
	Count  int
	Order  []uint64 // by slot, also of slots without a name here
}

const (
	maxBlockSlots = 512
	// orderStep is the distance between the numbers of names that are added in order.
	orderStep = 1 << 36
)

// find returns the position of a name, or where it belongs.
func (o *Names) find(name string) (block, at int) {
	if len(o.blocks) == 0 {
		return 0, 0
	}
	block = sort.Search(len(o.blocks), func(b int) bool { return o.Of(o.blocks[b][0]) > name })
	block = max(block-1, 0)
	at, _ = slices.BinarySearchFunc(o.blocks[block], name, func(s int32, name string) int {
		return strings.Compare(o.Of(s), name)
	})
	return block, at
}

// Add adds a slot. Its name must not be there yet.
func (o *Names) Add(slot int32) {
	o.Count++
	if len(o.blocks) == 0 {
		o.blocks = append(o.blocks, []int32{slot})
		o.Order[slot] = math.MaxUint64 / 2
		return
	}
	b, at := o.find(o.Of(slot))
	low, high := uint64(0), uint64(math.MaxUint64)
	switch {
	case at > 0:
		low = o.Order[o.blocks[b][at-1]]
	case b > 0:
		low = o.Order[o.blocks[b-1][len(o.blocks[b-1])-1]]
	}
	switch {
	case at < len(o.blocks[b]):
		high = o.Order[o.blocks[b][at]]
	case b+1 < len(o.blocks):
		high = o.Order[o.blocks[b+1][0]]
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
	o.Order[slot] = low + min((high-low)/2, orderStep)
}

// renumber spaces the numbers evenly.
func (o *Names) renumber() {
	step := uint64(math.MaxUint64) / uint64(o.Count+1)
	next := step
	for slot := range o.All {
		o.Order[slot] = next
		next += step
	}
}

// Remove removes a slot.
func (o *Names) Remove(slot int32) {
	b, at := o.find(o.Of(slot))
	o.Count--
	o.blocks[b] = slices.Delete(o.blocks[b], at, at+1)
	if len(o.blocks[b]) == 0 {
		o.blocks = slices.Delete(o.blocks, b, b+1)
	}
}

// All yields the slots in order.
func (o *Names) All(yield func(slot int32) bool) {
	for _, block := range o.blocks {
		for _, slot := range block {
			if !yield(slot) {
				return
			}
		}
	}
}

// Clone returns an independent copy, with another function that names slots.
func (o *Names) Clone(of func(slot int32) string) Names {
	c := Names{Of: of, blocks: make([][]int32, len(o.blocks)), Count: o.Count, Order: slices.Clone(o.Order)}
	for i, block := range o.blocks {
		c.blocks[i] = slices.Clone(block)
	}
	return c
}
