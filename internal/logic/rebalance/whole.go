package rebalance

import (
	"fmt"

	"github.com/berthd/berth/internal/cluster"
)

// wholeAspect reduces stranded resources: CPU and memory that are left should be usable together.
type wholeAspect struct{}

func (wholeAspect) cause() cluster.RebalanceCause { return cluster.CauseWhole }

func (wholeAspect) of() cluster.Strategy { return cluster.StrategyWhole }

// best evaluates every node with fewer tasks of its version than here, and with no lower preference value.
func (wholeAspect) best(b *state, s *movable) (int32, int64) {
	c, from := s.class, s.node
	x := &b.nodes[from]
	left := stranded(sharesOf(x.used.sub(c.demand), x.capacity), x.capacity) - x.stranded
	keepsApart := b.loadSiblings(c)
	own := b.siblings[from]
	best, least := int32(-1), int64(0)
	for n := range b.nodes {
		o := &b.nodes[n]
		if !b.acceptsMoves(o) || int32(n) == from || !o.fits(&c.demand) || c.hasRefused(b.sweeps, int32(n)) ||
			keepsApart && b.siblings[n] >= own ||
			c.preferenceValues != nil && c.preferenceValues[n] < c.preferenceValues[from] {
			continue
		}
		if more := left - o.stranded + stranded(o.share.add(c.shares[o.shape]), o.capacity); more < least {
			best, least = int32(n), more
		}
	}
	b.clearSiblings(c)
	if best < 0 {
		return best, 0
	}
	return best, -b.strandedIncrease(c, from, best)
}

// strandedIncrease returns the increase of stranded resources when a task of the class moves, in units.
func (b *state) strandedIncrease(c *class, from, to int32) int64 {
	x, y := &b.nodes[from], &b.nodes[to]
	after := stranded(sharesOf(x.used.sub(c.demand), x.capacity), x.capacity) +
		stranded(sharesOf(y.used.add(c.demand), y.capacity), y.capacity)
	return (after - x.stranded - y.stranded) << shareBits
}

// stranded returns the difference between the used shares of a node's CPU and memory.
func stranded(share, capacity amounts) int64 {
	if capacity[0] <= 0 || capacity[1] <= 0 {
		return 0
	}
	d := min(share[0], shareOne) - min(share[1], shareOne)
	return max(d, -d)
}

func (wholeAspect) why(b *state, _ *class, from, to int32) string {
	x, y := &b.nodes[from], &b.nodes[to]
	return fmt.Sprintf("node %s has %d %% of its CPU and %d %% of its memory left, %s %d %% and %d %%", x.Name,
		free(x, 0), free(x, 1), y.Name, free(y, 0), free(y, 1))
}

func free(n *node, r int) int64 { return 100 - (100*min(shareOne, n.share[r])+shareOne/2)/shareOne }
