package fleet

import (
	"cmp"
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// ReservedGroup is an anti-affinity group of reservations, which are counted together. For a service it holds the tasks
// of one definition: a new version may use the nodes of the old one, and spreads by itself. For a job it holds the
// tasks of one step.
type ReservedGroup struct {
	definition  cluster.Ref // zero for steps, and where it is unknown
	Counts      map[SlotGeneration]int32
	Generations []generationCount // ordered by generation
	next        *ReservedGroup    // the same tasks with another definition
}

// SlotGeneration is a slot and, in the lower bits, the generation of a service's task.
type SlotGeneration uint64

const generationBits = 36

// SlotGenerationOf joins a slot and a generation. It cuts generations that need more bits.
func SlotGenerationOf(slot int32, generation uint64) SlotGeneration {
	return SlotGeneration(slot)<<generationBits | SlotGeneration(min(generation, 1<<generationBits-1))
}

// Slot returns the slot.
func (s SlotGeneration) Slot() int32 { return int32(s >> generationBits) }

// Generation returns the generation.
func (s SlotGeneration) Generation() uint64 { return uint64(s & (1<<generationBits - 1)) }

// generationCount is the number of a group's tasks of one generation.
type generationCount struct {
	Generation uint64
	tasks      int32
}

func (c *ReservedGroup) add(at SlotGeneration) {
	c.Counts[at]++
	i, found := c.findGeneration(at.Generation())
	if !found {
		c.Generations = slices.Insert(c.Generations, i, generationCount{Generation: at.Generation()})
	}
	c.Generations[i].tasks++
}

func (c *ReservedGroup) remove(at SlotGeneration) {
	if c.Counts[at]--; c.Counts[at] == 0 {
		delete(c.Counts, at)
	}
	i, _ := c.findGeneration(at.Generation())
	if c.Generations[i].tasks--; c.Generations[i].tasks == 0 {
		c.Generations = slices.Delete(c.Generations, i, i+1)
	}
}

func (c *ReservedGroup) findGeneration(generation uint64) (i int, found bool) {
	return slices.BinarySearchFunc(c.Generations, generation, func(v generationCount, g uint64) int {
		return cmp.Compare(v.Generation, g)
	})
}

// of returns the group of a definition in the chain, or nil.
func (c *ReservedGroup) of(definition cluster.Ref) *ReservedGroup {
	for c != nil && c.definition != definition {
		c = c.next
	}
	return c
}
