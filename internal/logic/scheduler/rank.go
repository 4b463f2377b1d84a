package scheduler

import (
	"math/bits"

	"github.com/berthd/berth/internal/cluster"
)

// How nodes that fit are ranked. The lower key wins, of equals the name that sorts first. A key is
// made of, from the most to the least important:
//
//   - whether attempts of the task failed on the node: those last;
//   - with anti-affinity "prefer", the number of tasks of the same group on the node;
//   - how full the node would be, in millionths of its CPU, its memory and its disk, added up: emptiest first to
//     spread, fullest first to binpack;
//   - the number of tasks on the node: fewest first to spread, most first to binpack. It decides
//     among tasks that ask for nothing.
//
// An owner that says nothing of anti-affinity prefers to be apart if it spreads, and does not mind if
// it binpacks: otherwise every job would be spread. All is integers, so that every server finds the
// same order.

// refused is the key of a node that does not take the task.
const refused = 1<<64 - 1

const (
	parts     = 1_000_000 // a resource that is all used
	fillBits  = 22        // hold three resources in parts
	taskBits  = 20
	mostTasks = 1<<taskBits - 1
	shunned   = 1 << 63
)

// key ranks a node that does not refuse the class.
func (y *cycle) key(c *class, n int) uint64 {
	l := &y.loads[n]
	fill := share(int64(l.used.CPU), int64(c.demand.CPU), int64(l.capacity.CPU)) +
		share(int64(l.used.Memory), int64(c.demand.Memory), int64(l.capacity.Memory)) +
		share(int64(l.used.Disk), int64(c.demand.Disk), int64(l.capacity.Disk))
	tasks := uint64(min(l.tasks, mostTasks))
	if c.binpack {
		fill, tasks = 3*parts-fill, mostTasks-tasks
	}
	k := fill<<taskBits | tasks
	if c.affinity != cluster.AntiAffinityNone {
		k |= uint64(c.group.counts[n]) << (fillBits + taskBits)
	}
	if len(c.marked) > 0 && c.shuns(n) {
		k |= shunned
	}
	return k
}

// share returns used + more in millionths of capacity, at most all of it; of nothing, nothing is used.
func share(used, more, capacity int64) uint64 {
	if capacity <= 0 {
		return 0
	}
	total := used + more
	if total <= 0 {
		return 0
	}
	if total >= capacity {
		return parts
	}
	hi, lo := bits.Mul64(uint64(total), parts)
	q, _ := bits.Div64(hi, lo, uint64(capacity))
	return q
}

// ranking keeps the nodes of one class so that the best is known and a change costs the
// square root of their number: nodes stand in blocks of as many as there are blocks, and only the
// blocks in which a key changed are looked through again. On a thousand nodes that is faster than a heap or a
// tournament, whose steps wait for each other.
type ranking struct {
	keys   []uint64 // by node
	shift  int      // the block of node n is n >> shift
	blocks []block
}

// block is the best of some nodes, unless stale.
type block struct {
	key   uint64
	node  int32
	stale bool
}

func newRanking(nodes int) *ranking {
	shift := (bits.Len(uint(nodes)) + 1) / 2
	return &ranking{
		keys:   make([]uint64, nodes),
		shift:  shift,
		blocks: make([]block, (nodes+1<<shift-1)>>shift),
	}
}

func (r *ranking) set(n int, key uint64) {
	r.keys[n] = key
	r.blocks[n>>r.shift].stale = true
}

// best returns the first of the nodes with the lowest key, or -1 if all refused.
func (r *ranking) best() int {
	best, lowest := -1, uint64(refused)
	for i := range r.blocks {
		b := &r.blocks[i]
		if b.stale {
			*b = r.look(i)
		}
		if b.key < lowest {
			best, lowest = int(b.node), b.key
		}
	}
	return best
}

// look finds the best of a block.
func (r *ranking) look(i int) block {
	first := i << r.shift
	b := block{key: refused}
	for n, k := range r.keys[first:min(first+1<<r.shift, len(r.keys))] {
		if k < b.key {
			b.key, b.node = k, int32(first+n)
		}
	}
	return b
}
