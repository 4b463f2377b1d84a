package scheduler

import (
	"cmp"
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// reservedGroup is an anti-affinity group of reservations, which are counted together. For a service it holds the tasks
// of one definition: a new version may use the nodes of the old one, and spreads by itself. For a job it holds the
// tasks of one step.
type reservedGroup struct {
	definition  cluster.Ref // zero for steps, and where it is unknown
	counts      map[slotGeneration]int32
	generations []generationCount // ordered by generation
	next        *reservedGroup    // the same tasks with another definition
}

// slotGeneration is a slot and, in the lower bits, the generation of a service's task.
type slotGeneration uint64

const generationBits = 36

func slotGenerationOf(slot int32, generation uint64) slotGeneration {
	return slotGeneration(slot)<<generationBits | slotGeneration(min(generation, 1<<generationBits-1))
}

func (s slotGeneration) slot() int32 { return int32(s >> generationBits) }

func (s slotGeneration) generation() uint64 { return uint64(s & (1<<generationBits - 1)) }

// generationCount is the number of a group's tasks of one generation.
type generationCount struct {
	generation uint64
	tasks      int32
}

func (c *reservedGroup) add(at slotGeneration) {
	c.counts[at]++
	i, found := c.findGeneration(at.generation())
	if !found {
		c.generations = slices.Insert(c.generations, i, generationCount{generation: at.generation()})
	}
	c.generations[i].tasks++
}

func (c *reservedGroup) remove(at slotGeneration) {
	if c.counts[at]--; c.counts[at] == 0 {
		delete(c.counts, at)
	}
	i, _ := c.findGeneration(at.generation())
	if c.generations[i].tasks--; c.generations[i].tasks == 0 {
		c.generations = slices.Delete(c.generations, i, i+1)
	}
}

func (c *reservedGroup) findGeneration(generation uint64) (i int, found bool) {
	return slices.BinarySearchFunc(c.generations, generation, func(v generationCount, g uint64) int {
		return cmp.Compare(v.generation, g)
	})
}

// of returns the group of a definition in the chain, or nil.
func (c *reservedGroup) of(definition cluster.Ref) *reservedGroup {
	for c != nil && c.definition != definition {
		c = c.next
	}
	return c
}
