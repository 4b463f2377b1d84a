package scheduler

import (
	"cmp"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// crowd is the reservations that are counted together: those of which anti-affinity keeps apart. Of a service these are
// the tasks of one definition, so that a new version can be rolled out onto the nodes of the old one, and holds its
// distance when that is gone; of a job those of one step.
type crowd struct {
	definition cluster.Ref // zero for steps, and where it is not known
	at         map[spot]int32
	versions   []version // the generations of them, ordered
	next       *crowd    // of the same tasks, another definition
}

// spot is a slot and, in the lower bits, the generation of a service's task.
type spot uint64

const generationBits = 36

func spotOf(slot int32, generation uint64) spot {
	return spot(slot)<<generationBits | spot(min(generation, 1<<generationBits-1))
}

func (s spot) slot() int32 { return int32(s >> generationBits) }

func (s spot) generation() uint64 { return uint64(s & (1<<generationBits - 1)) }

// version is how many of a crowd are of one generation.
type version struct {
	generation uint64
	tasks      int32
}

func (c *crowd) add(at spot) {
	c.at[at]++
	i, found := c.version(at.generation())
	if !found {
		c.versions = slices.Insert(c.versions, i, version{generation: at.generation()})
	}
	c.versions[i].tasks++
}

func (c *crowd) remove(at spot) {
	if c.at[at]--; c.at[at] == 0 {
		delete(c.at, at)
	}
	i, _ := c.version(at.generation())
	if c.versions[i].tasks--; c.versions[i].tasks == 0 {
		c.versions = slices.Delete(c.versions, i, i+1)
	}
}

func (c *crowd) version(generation uint64) (i int, found bool) {
	return slices.BinarySearchFunc(c.versions, generation, func(v version, g uint64) int {
		return cmp.Compare(v.generation, g)
	})
}

// of returns the crowd of a definition in the chain, or nil.
func (c *crowd) of(definition cluster.Ref) *crowd {
	for c != nil && c.definition != definition {
		c = c.next
	}
	return c
}

// gather returns a crowd without anybody.
func (f *Fleet) gather(definition cluster.Ref, next *crowd) *crowd {
	last := len(f.spare) - 1
	if last < 0 {
		return &crowd{definition, map[spot]int32{}, nil, next}
	}
	c := f.spare[last]
	f.spare = f.spare[:last]
	c.definition, c.next = definition, next
	return c
}

// mostSpare bounds the crowds that are kept to be used again, as their maps stay as large as they were.
const mostSpare = 16

// disperse takes a crowd out that has nobody left.
func (f *Fleet) disperse(tasks string, c *crowd) {
	first := f.crowds[tasks]
	switch {
	case first != c:
		for first.next != c {
			first = first.next
		}
		first.next = c.next
	case c.next != nil:
		f.crowds[tasks] = c.next
	default:
		delete(f.crowds, tasks)
	}
	if len(f.spare) < mostSpare {
		f.spare = append(f.spare, c)
	}
}

// tasksOf says which tasks are counted together with one: <cluster>.<service> and a definition, with the generation
// apart; or all of the task's id but its index, for one of a job's step and for one whose definition is not known.
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

// withoutIndex returns all of a task's id but its index.
func withoutIndex(id cluster.TaskID) string {
	if dot := strings.LastIndexByte(string(id), '.'); dot >= 0 {
		return string(id[:dot])
	}
	return string(id)
}
