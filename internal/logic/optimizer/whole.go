package optimizer

import (
	"fmt"

	"github.com/berthd/berth/internal/cluster"
)

// wholesome brings together what is left of the nodes, so that it can be used.
type wholesome struct{}

func (wholesome) cause() Cause { return CauseWhole }

func (wholesome) of() cluster.Strategy { return cluster.StrategyWhole }

// best looks at every node. It goes where fewer of its kind are than where it is, and where it likes it as much.
func (wholesome) best(b *board, s *seat) (int32, int64) {
	c, from := s.class, s.node
	x := &b.nodes[from]
	left := stranded(sharesOf(x.used.sub(c.demand), x.capacity), x.capacity) - x.stranded
	crowd := b.scatter(c)
	own := b.siblings[from]
	best, least := int32(-1), int64(0)
	for n := range b.nodes {
		o := &b.nodes[n]
		if !b.opens(o) || int32(n) == from || !o.fits(&c.demand) || c.closes(b.sweeps, int32(n)) ||
			crowd && b.siblings[n] >= own || c.liked != nil && c.liked[n] < c.liked[from] {
			continue
		}
		if more := left - o.stranded + stranded(o.share.add(c.shares[o.shape]), o.capacity); more < least {
			best, least = int32(n), more
		}
	}
	b.wipe(c)
	if best < 0 {
		return best, 0
	}
	return best, -b.strands(c, from, best)
}

// strands returns by how much more is stranded, in units, as a task of the class goes from one node to another.
func (b *board) strands(c *class, from, to int32) int64 {
	x, y := &b.nodes[from], &b.nodes[to]
	after := stranded(sharesOf(x.used.sub(c.demand), x.capacity), x.capacity) +
		stranded(sharesOf(y.used.add(c.demand), y.capacity), y.capacity)
	return (after - x.stranded - y.stranded) << shareBits
}

// stranded returns the share of a node's CPU that is free beyond the share of its memory, or the other way around.
func stranded(share, capacity amounts) int64 {
	if capacity[0] <= 0 || capacity[1] <= 0 {
		return 0
	}
	d := min(share[0], one) - min(share[1], one)
	return max(d, -d)
}

func (wholesome) why(b *board, _ *class, from, to int32) string {
	x, y := &b.nodes[from], &b.nodes[to]
	return fmt.Sprintf("node %s has %d %% of its CPU and %d %% of its memory left, %s %d %% and %d %%", x.Name,
		free(x, 0), free(x, 1), y.Name, free(y, 0), free(y, 1))
}

func free(n *node, r int) int64 { return 100 - (100*min(one, n.share[r])+one/2)/one }
