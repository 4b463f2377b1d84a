package rebalance

import (
	"fmt"
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// evenAspect reduces the unevenness of tasks.
type evenAspect struct{}

func (evenAspect) cause() cluster.RebalanceCause { return cluster.CauseEven }

func (evenAspect) of() cluster.Strategy { return cluster.StrategySpread }

// best evaluates every node. The gain has four parts: more even nodes, fewer tasks of one version on a node, values
// nearer to their targets, and preferences that are satisfied.
func (evenAspect) best(b *state, s *movable) (int32, int64) {
	c, from := s.class, s.node
	left := b.squareDecrease(c, from)
	pair := b.siblingPenalty(c)
	b.loadSiblings(c)
	own := int64(b.siblings[from]) - 1
	best, most := int32(-1), int64(0)
	for n := range b.nodes {
		o := &b.nodes[n]
		if !b.acceptsMoves(o) || int32(n) == from || !o.fits(&c.demand) || c.hasRefused(b.sweeps, int32(n)) {
			continue
		}
		d := &c.shares[o.shape]
		gain := left - d[0]*(2*o.share[0]+d[0]) - d[1]*(2*o.share[1]+d[1]) - d[2]*(2*o.share[2]+d[2])
		if pair > 0 {
			gain += pair * (own - int64(b.siblings[n]))
		}
		for i := range c.group.spreads {
			gain += c.group.spreads[i].gain(from, int32(n))
		}
		if c.preferenceValues != nil {
			gain += c.preferenceValues[n] - c.preferenceValues[from]
		}
		if gain > most && (!b.hasWhole || b.strandedIncrease(c, from, int32(n)) <= 0) {
			best, most = int32(n), gain
		}
	}
	b.clearSiblings(c)
	if best < 0 {
		return best, 0
	}
	return best, b.gain(c, from, best) // the sum of rounded shares is not exact
}

// gain returns the exact gain of moving a task of the class between two nodes, in units.
func (b *state) gain(c *class, from, to int32) int64 {
	gain := b.squareDecrease(c, from) - b.squareIncrease(c, to)
	gain += b.siblingPenalty(c) * int64(c.group.at[from]-1-c.group.at[to])
	for i := range c.group.spreads {
		gain += c.group.spreads[i].gain(from, to)
	}
	if c.preferenceValues != nil {
		gain += c.preferenceValues[to] - c.preferenceValues[from]
	}
	return gain
}

// squareDecrease returns the decrease of the squares of a node's fill when a task of the class leaves.
func (b *state) squareDecrease(c *class, n int32) int64 {
	o := &b.nodes[n]
	after := sharesOf(o.used.sub(c.demand), o.capacity)
	return square(o.share) - square(after)
}

// squareIncrease returns their increase when a task of the class arrives.
func (b *state) squareIncrease(c *class, n int32) int64 {
	o := &b.nodes[n]
	after := sharesOf(o.used.add(c.demand), o.capacity)
	return square(after) - square(o.share)
}

func square(a amounts) int64 { return a[0]*a[0] + a[1]*a[1] + a[2]*a[2] }

// siblingPenalty returns the gain of two tasks of the class's version not sharing a node. It equals emptying a node if
// each task could have its own node, and shrinks as more tasks must share. It is 0 without anti-affinity.
func (b *state) siblingPenalty(c *class) int64 {
	if c.affinity == cluster.AntiAffinityNone || c.group.count < 2 || b.openNodes == 0 {
		return 0
	}
	return unit / int64(max(c.group.count, b.openNodes)) * int64(b.openNodes)
}

func (evenAspect) why(b *state, c *class, from, to int32) string {
	x, y := &b.nodes[from], &b.nodes[to]
	fill := b.squareDecrease(c, from) - b.squareIncrease(c, to)
	message := fmt.Sprintf("node %s is %d %% full, %s %d %%", x.Name, percent(x), y.Name, percent(y))
	most := fill
	if own, other := c.group.at[from], c.group.at[to]; b.siblingPenalty(c)*int64(own-1-other) > most {
		most = b.siblingPenalty(c) * int64(own-1-other)
		message = fmt.Sprintf("node %s has %d of its tasks, %s %s", x.Name, own, y.Name, countText(int(other)))
	}
	for i := range c.group.spreads {
		s := &c.group.spreads[i]
		if gain := s.gain(from, to); gain > most {
			most = gain
			message = fmt.Sprintf("%s %q has %d of its tasks, %q %s", s.attribute, s.text(from), s.counts[s.at[from]],
				s.text(to), countText(s.counts[s.at[to]]))
		}
	}
	if c.preferenceValues != nil && c.preferenceValues[to]-c.preferenceValues[from] > most {
		message = fmt.Sprintf("node %s meets more of its preferences than %s", y.Name, x.Name)
	}
	return message
}

// percent returns the usage of the node's most used resource.
func percent(n *node) int64 {
	return (100*max(n.share[0], n.share[1], n.share[2]) + shareOne/2) / shareOne
}

func countText(n int) string {
	if n == 0 {
		return "none"
	}
	return fmt.Sprint(n)
}

// attributeValues is an attribute with its value on each node.
type attributeValues struct {
	attribute string
	names     []string // ordered
	at        []int32  // by node, the index in names
}

// valuesOfAttribute returns the values of an attribute, and caches them.
func (b *state) valuesOfAttribute(name string) *attributeValues {
	if v := b.values[name]; v != nil {
		return v
	}
	v := &attributeValues{attribute: name, at: make([]int32, len(b.nodes))}
	for n := range b.nodes {
		v.names = append(v.names, b.nodes[n].Value(name))
	}
	all := slices.Clone(v.names)
	slices.Sort(v.names)
	v.names = slices.Compact(v.names)
	for n, value := range all {
		at, _ := slices.BinarySearch(v.names, value)
		v.at[n] = int32(at)
	}
	b.values[name] = v
	return v
}

// spreadState is the spread of a version's tasks over the values of an attribute.
type spreadState struct {
	*attributeValues
	weight  int64
	spread  *cluster.Spread
	usable  []bool  // by value: a node with it meets the constraints
	counts  []int   // number of its tasks, by value
	targets []int64 // by value, in 1024ths of a task
	mean    int64   // mean number of tasks of a value
}

// newGroup returns a group without tasks.
func (b *state) newGroup(p *cluster.Placement) *group {
	g := &group{at: map[int32]int32{}}
	for i := range p.Spread {
		spread := &p.Spread[i]
		s := spreadState{
			attributeValues: b.valuesOfAttribute(spread.Attribute), spread: spread, weight: int64(spread.Weight),
		}
		if s.weight == 0 {
			s.weight = cluster.DefaultWeight
		}
		s.usable, s.counts, s.targets = make([]bool, len(s.names)), make([]int, len(s.names)),
			make([]int64, len(s.names))
		for n := range b.nodes {
			if _, refused := b.staticRefusal(p, int32(n), true); !refused && b.nodes[n].isOpen {
				s.usable[s.at[n]] = true
			}
		}
		g.spreads = append(g.spreads, s)
	}
	return g
}

// setTargets computes the targets once all tasks of the group are known: their number, and their nodes.
func (s *spreadState) setTargets(count int, at map[int32]int32) {
	rest, others := int64(count)<<10, 0
	named := make([]bool, len(s.names))
	for _, t := range s.spread.Targets {
		if v, found := slices.BinarySearch(s.names, t.Value); found && !named[v] {
			named[v] = true
			s.targets[v] = int64(count) << 10 * int64(t.Percent) / 100
			rest -= s.targets[v]
		}
	}
	usable := 0
	for v := range s.names {
		if s.usable[v] {
			usable++
		}
		if s.usable[v] && !named[v] {
			others++
		}
	}
	for v := range s.names {
		if s.usable[v] && !named[v] {
			s.targets[v] = max(0, rest) / int64(others)
		}
	}
	s.mean = max(1, int64(count)/int64(max(1, usable)))
	for n, k := range at { // order-free: sums
		s.counts[s.at[n]] += int(k)
	}
}

// gain returns the spread's gain of moving a task between two nodes, in units.
func (s *spreadState) gain(from, to int32) int64 {
	v, w := s.at[from], s.at[to]
	if v == w {
		return 0
	}
	closer := s.excess(v) - s.excess(w) - 1<<10
	return closer * s.weight * (unit >> 10) / (cluster.DefaultWeight * s.mean)
}

// excess returns how many 1024ths of a task a value has above its target.
func (s *spreadState) excess(v int32) int64 { return int64(s.counts[v])<<10 - s.targets[v] }

func (s *spreadState) shift(from, to int32) {
	s.counts[s.at[from]]--
	s.counts[s.at[to]]++
}

func (s *spreadState) text(n int32) string { return s.names[s.at[n]] }
