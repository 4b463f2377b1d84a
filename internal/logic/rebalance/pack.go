package rebalance

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// emptyNodes empties nodes that only hold tasks of strategy binpack, the emptiest first. All tasks of a node move to
// other nodes in use, or none of them. It repeats until no more nodes can be emptied.
func (b *state) emptyNodes() {
	if !b.hasBinpack {
		return
	}
	for again := true; again && !b.isOver(); {
		again = false
		b.sweeps++
		for _, n := range b.emptiableNodes() {
			if b.spendWork(1) {
				return
			}
			again = b.emptyNode(n) || again
		}
	}
}

// emptiableNodes returns the nodes that may be emptied, the least used first.
func (b *state) emptiableNodes() []int32 {
	var out []int32
	for n := range b.nodes {
		o := &b.nodes[n]
		if o.nonDaemonTasks > 0 && !o.hasUnknown && o.nonDaemonTasks == b.countLeaving(int32(n)) {
			out = append(out, int32(n))
		}
	}
	slices.SortStableFunc(out, func(x, y int32) int {
		return cmp.Or(cmp.Compare(b.nodes[x].fill(), b.nodes[y].fill()),
			cmp.Compare(len(b.nodes[x].tasks), len(b.nodes[y].tasks)))
	})
	return out
}

// countLeaving returns the number of tasks on the node, daemons aside; -1 if one of them must stay or has another
// strategy.
func (b *state) countLeaving(n int32) int {
	count := 0
	for _, i := range b.nodes[n].tasks {
		t := &b.tasks[i]
		if t.Daemon {
			continue
		}
		if c := b.classOf[i]; t.Unmovable != "" || c.hasRelations || c.strategy != cluster.StrategyBinpack {
			return -1
		}
		count++
	}
	return count
}

// fill returns the usage of a node, all resources added up.
func (n *node) fill() int64 { return n.share[0] + n.share[1] + n.share[2] }

// emptyNode moves all tasks of a node away, or none.
func (b *state) emptyNode(n int32) bool {
	var tasks []int32
	for _, i := range b.nodes[n].tasks {
		if !b.tasks[i].Daemon {
			tasks = append(tasks, i)
		}
	}
	each := int64(unit / max(1, len(tasks)))
	if len(tasks) > b.movesLeft() {
		b.bounded = true
		return false
	}
	if points(each) < b.opts.MinGain {
		return false
	}
	slices.SortFunc(tasks, func(x, y int32) int { // the largest first, because they fit on the fewest nodes
		a, c := sharesOf(amountsOf(b.tasks[x].Demand), b.nodes[n].capacity),
			sharesOf(amountsOf(b.tasks[y].Demand), b.nodes[n].capacity)
		return cmp.Or(cmp.Compare(c[0]+c[1]+c[2], a[0]+a[1]+a[2]), cmp.Compare(x, y))
	})
	var done []appliedMove
	for _, i := range tasks {
		m, ok := b.moveToFullest(i, n)
		if !ok {
			for _, m := range slices.Backward(done) {
				b.revertMove(m)
			}
			b.sweeps++ // nodes that refused a task because of the reverted moves may take it now
			return false
		}
		done = append(done, m)
	}
	for _, m := range done {
		b.addMove(m, cluster.CauseEmpty, each, fmt.Sprintf("node %s can be emptied", b.nodes[n].Name))
	}
	return true
}

// moveToFullest moves a task to the fullest node in use that takes it.
func (b *state) moveToFullest(i, from int32) (appliedMove, bool) {
	c := b.classOf[i]
	for {
		to := int32(-1)
		if b.spendWork(len(b.nodes)) {
			return appliedMove{}, false
		}
		for n := range b.nodes {
			o := &b.nodes[n]
			if !b.mayGo(c, from, int32(n)) {
				continue
			}
			if to < 0 || o.fill() > b.nodes[to].fill() {
				to = int32(n)
			}
		}
		if to < 0 {
			return appliedMove{}, false
		}
		if r, ok := b.ask(i, to); ok {
			return b.applyMove(i, c, r), true
		}
		b.noteRefusals(i, c, to)
	}
}

// mayGo reports whether the class may move to a node and has no lower preference value there. The scheduler has not
// checked it yet.
func (b *state) mayGo(c *class, from, to int32) bool {
	o := &b.nodes[to]
	if !b.acceptsMoves(o) || to == from || c.hasRefused(b.sweeps, to) || !o.fits(&c.demand) {
		return false
	}
	if c.preferenceValues != nil && c.preferenceValues[to] < c.preferenceValues[from] {
		return false
	}
	return c.affinity != cluster.AntiAffinityPrefer || c.group.count < 2 || c.group.at[to] < c.group.at[from]
}
