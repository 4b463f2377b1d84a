package scheduler

import (
	"cmp"
	"slices"
	"strings"

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

// newReservedGroup returns an empty group.
func (f *Fleet) newReservedGroup(definition cluster.Ref, next *reservedGroup) *reservedGroup {
	last := len(f.spareGroups) - 1
	if last < 0 {
		return &reservedGroup{definition, map[slotGeneration]int32{}, nil, next}
	}
	c := f.spareGroups[last]
	f.spareGroups = f.spareGroups[:last]
	c.definition, c.next = definition, next
	return c
}

// maxSpareGroups limits the groups kept for reuse: their maps never shrink.
const maxSpareGroups = 16

// removeReservedGroup removes a group that has become empty.
func (f *Fleet) removeReservedGroup(tasks string, c *reservedGroup) {
	first := f.reservedGroups[tasks]
	switch {
	case first != c:
		for first.next != c {
			first = first.next
		}
		first.next = c.next
	case c.next != nil:
		f.reservedGroups[tasks] = c.next
	default:
		delete(f.reservedGroups, tasks)
	}
	if len(f.spareGroups) < maxSpareGroups {
		f.spareGroups = append(f.spareGroups, c)
	}
}

// tasksOf returns the name under which a task is counted. With a known definition of a service it is
// <cluster>.<service>, and the generation is returned apart. For a step of a job, and for an unknown definition, it is
// the task's id without its index.
func tasksOf(id cluster.TaskID, definition cluster.Ref) (tasks string, generation uint64, known cluster.Ref) {
	tasks = withoutIndex(id)
	if definition.Name == "" {
		return tasks, 0, cluster.Ref{}
	}
	dot := strings.LastIndexByte(tasks, '.')
	if dot < 0 {
		return tasks, 0, cluster.Ref{}
	}
	for _, c := range []byte(tasks[dot+1:]) {
		if c < '0' || c > '9' { // a step
			return tasks, 0, cluster.Ref{}
		}
		generation = generation*10 + uint64(c-'0')
	}
	return tasks[:dot], generation, definition
}

// withoutIndex returns a task's id without its index.
func withoutIndex(id cluster.TaskID) string {
	if dot := strings.LastIndexByte(string(id), '.'); dot >= 0 {
		return string(id[:dot])
	}
	return string(id)
}
