package optimizer

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// pack empties nodes that nothing keeps in use but tasks of strategy binpack, the emptiest first. All of a node's tasks
// find places on other nodes that are in use, or none of them moves. It goes over the nodes until no more can be
// emptied.
func (b *board) pack() {
	if !b.packs {
		return
	}
	for again := true; again && !b.over(); {
		again = false
		b.sweeps++
		for _, n := range b.sources() {
			if b.spent(1) {
				return
			}
			again = b.empty(n) || again
		}
	}
}

// sources returns the nodes that could be emptied, those first that are used least.
func (b *board) sources() []int32 {
	var out []int32
	for n := range b.nodes {
		o := &b.nodes[n]
		if o.busy > 0 && !o.strange && o.busy == b.leaving(int32(n)) {
			out = append(out, int32(n))
		}
	}
	slices.SortStableFunc(out, func(x, y int32) int {
		return cmp.Or(cmp.Compare(b.nodes[x].fill(), b.nodes[y].fill()),
			cmp.Compare(len(b.nodes[x].tasks), len(b.nodes[y].tasks)))
	})
	return out
}

// leaving returns how many tasks the node has beside those of daemons, or -1 if one of them must stay or is of another
// strategy.
func (b *board) leaving(n int32) int {
	count := 0
	for _, i := range b.nodes[n].tasks {
		t := &b.tasks[i]
		if t.Daemon {
			continue
		}
		if c := b.kinds[i]; t.Stay != "" || c.tied || c.strategy != cluster.StrategyBinpack {
			return -1
		}
		count++
	}
	return count
}

// fill is how much of a node is used, all resources together.
func (n *node) fill() int64 { return n.share[0] + n.share[1] + n.share[2] }

// empty moves all tasks of a node away, or none.
func (b *board) empty(n int32) bool {
	var tasks []int32
	for _, i := range b.nodes[n].tasks {
		if !b.tasks[i].Daemon {
			tasks = append(tasks, i)
		}
	}
	each := int64(unit / max(1, len(tasks)))
	if len(tasks) > b.room() {
		b.bounded = true
		return false
	}
	if points(each) < b.opts.MinGain {
		return false
	}
	slices.SortFunc(tasks, func(x, y int32) int { // the largest first: it is the hardest to find a place for
		a, c := sharesOf(amountsOf(b.tasks[x].Demand), b.nodes[n].capacity),
			sharesOf(amountsOf(b.tasks[y].Demand), b.nodes[n].capacity)
		return cmp.Or(cmp.Compare(c[0]+c[1]+c[2], a[0]+a[1]+a[2]), cmp.Compare(x, y))
	})
	var done []moved
	for _, i := range tasks {
		m, ok := b.stow(i, n)
		if !ok {
			for _, m := range slices.Backward(done) {
				b.back(m)
			}
			return false
		}
		done = append(done, m)
	}
	for _, m := range done {
		b.note(m, CauseEmpty, each, fmt.Sprintf("node %s can be emptied", b.nodes[n].Name))
	}
	return true
}

// stow moves a task to the fullest node that is in use and takes it.
func (b *board) stow(i, from int32) (moved, bool) {
	c := b.kinds[i]
	for {
		to := int32(-1)
		if b.spent(len(b.nodes)) {
			return moved{}, false
		}
		for n := range b.nodes {
			o := &b.nodes[n]
			if !b.takes(c, from, int32(n)) {
				continue
			}
			if to < 0 || o.fill() > b.nodes[to].fill() {
				to = int32(n)
			}
		}
		if to < 0 {
			return moved{}, false
		}
		if r, ok := b.ask(i, to); ok {
			return b.carry(i, c, r), true
		}
		b.shut(i, c, to)
	}
}

// takes reports whether, as far as the columns tell, the class may go to a node, and likes to be there as much as where
// it is.
func (b *board) takes(c *class, from, to int32) bool {
	o := &b.nodes[to]
	if !b.opens(o) || to == from || c.closes(b.sweeps, to) || !o.fits(&c.demand) {
		return false
	}
	if c.liked != nil && c.liked[to] < c.liked[from] {
		return false
	}
	return c.affinity != cluster.AntiAffinityPrefer || c.group.count < 2 || c.group.at[to] < c.group.at[from]
}
