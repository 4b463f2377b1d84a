package optimizer

import (
	"fmt"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// even brings down how unevenly tasks stand.
type even struct{}

func (even) cause() Cause { return CauseEven }

func (even) of() cluster.Strategy { return cluster.StrategySpread }

// best looks at every node. What is gained is the sum of four parts: nodes that are used more evenly, fewer tasks of
// the same version on one node, values of attributes that are nearer to their targets, and wishes that are met.
func (even) best(b *board, s *seat) (int32, int64) {
	c, from := s.class, s.node
	left := b.leave(c, from)
	pair := b.apart(c)
	b.scatter(c)
	own := int64(b.siblings[from]) - 1
	best, most := int32(-1), int64(0)
	for n := range b.nodes {
		o := &b.nodes[n]
		if !b.opens(o) || int32(n) == from || !o.fits(&c.demand) || c.closes(b.sweeps, int32(n)) {
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
		if c.liked != nil {
			gain += c.liked[n] - c.liked[from]
		}
		if gain > most && (!b.whole || b.strands(c, from, int32(n)) <= 0) {
			best, most = int32(n), gain
		}
	}
	b.wipe(c)
	if best < 0 {
		return best, 0
	}
	return best, b.gain(c, from, best) // shares were added up, which is not exactly the share of the sum
}

// gain returns exactly what is gained by a task of the class that goes from one node to another, in units.
func (b *board) gain(c *class, from, to int32) int64 {
	gain := b.leave(c, from) - b.arrive(c, to) + b.apart(c)*int64(c.group.at[from]-1-c.group.at[to])
	for i := range c.group.spreads {
		gain += c.group.spreads[i].gain(from, to)
	}
	if c.liked != nil {
		gain += c.liked[to] - c.liked[from]
	}
	return gain
}

// leave returns by how much the square of a node's fill goes down as a task of the class leaves.
func (b *board) leave(c *class, n int32) int64 {
	o := &b.nodes[n]
	after := sharesOf(o.used.sub(c.demand), o.capacity)
	return square(o.share) - square(after)
}

// arrive returns by how much it goes up as one comes.
func (b *board) arrive(c *class, n int32) int64 {
	o := &b.nodes[n]
	after := sharesOf(o.used.add(c.demand), o.capacity)
	return square(after) - square(o.share)
}

func square(a amounts) int64 { return a[0]*a[0] + a[1]*a[1] + a[2]*a[2] }

// apart returns what it is worth that two tasks of the class' version do not share a node: as much as emptying one
// where each could have a node of its own, the less the more of them have to share one anyway. It is 0 where they do
// not mind.
func (b *board) apart(c *class) int64 {
	if c.affinity == cluster.AntiAffinityNone || c.group.count < 2 || b.open == 0 {
		return 0
	}
	return unit / int64(max(c.group.count, b.open)) * int64(b.open)
}

func (even) why(b *board, c *class, from, to int32) string {
	x, y := &b.nodes[from], &b.nodes[to]
	fill := b.leave(c, from) - b.arrive(c, to)
	message := fmt.Sprintf("node %s is %d %% full, %s %d %%", x.Name, percent(x), y.Name, percent(y))
	most := fill
	if own, other := c.group.at[from], c.group.at[to]; b.apart(c)*int64(own-1-other) > most {
		most = b.apart(c) * int64(own-1-other)
		message = fmt.Sprintf("node %s has %d of its tasks, %s %s", x.Name, own, y.Name, number(int(other)))
	}
	for i := range c.group.spreads {
		s := &c.group.spreads[i]
		if gain := s.gain(from, to); gain > most {
			most = gain
			message = fmt.Sprintf("%s %q has %d of its tasks, %q %s", s.attribute, s.text(from), s.counts[s.at[from]],
				s.text(to), number(s.counts[s.at[to]]))
		}
	}
	if c.liked != nil && c.liked[to]-c.liked[from] > most {
		message = fmt.Sprintf("node %s meets more of its wishes than %s", y.Name, x.Name)
	}
	return message
}

// percent returns how much of the resource is used of which the most is.
func percent(n *node) int64 { return (100*max(n.share[0], n.share[1], n.share[2]) + one/2) / one }

func number(n int) string {
	if n == 0 {
		return "none"
	}
	return fmt.Sprint(n)
}

// valuesOf is an attribute with its value on each node.
type valuesOf struct {
	attribute string
	names     []string // ordered
	at        []int32  // by node, its number in names
}

// attribute returns the values of an attribute.
func (b *board) attribute(name string) *valuesOf {
	if v := b.values[name]; v != nil {
		return v
	}
	v := &valuesOf{attribute: name, at: make([]int32, len(b.nodes))}
	for n := range b.nodes {
		v.names = append(v.names, valueOf(&b.nodes[n].Node, name))
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

// valueOf returns an attribute of a node, empty where it has none.
func valueOf(n *scheduler.Node, name string) string {
	switch name {
	case "node.name":
		return n.Name
	case "node.arch":
		return n.Arch
	case "node.os":
		return n.OS
	case "node.kernel":
		return n.Kernel
	case "node.pool":
		return n.Pool
	case "node.class":
		return n.Labels["class"]
	}
	key, ok := strings.CutPrefix(name, "label.")
	if !ok {
		return ""
	}
	return n.Labels[key]
}

// spreadOf is the spread of a version's tasks over the values of an attribute.
type spreadOf struct {
	*valuesOf
	weight  int64
	wish    *cluster.Spread
	usable  []bool  // values of nodes that its constraints allow
	counts  []int   // of its tasks, by value
	targets []int64 // in 1024ths of a task
	mean    int64   // tasks to a value
}

// newGroup returns a group without tasks.
func (b *board) newGroup(p *cluster.Placement) *group {
	g := &group{at: map[int32]int32{}}
	for i := range p.Spread {
		wish := &p.Spread[i]
		s := spreadOf{valuesOf: b.attribute(wish.Attribute), wish: wish, weight: int64(wish.Weight)}
		if s.weight == 0 {
			s.weight = cluster.DefaultWeight
		}
		s.usable, s.counts, s.targets = make([]bool, len(s.names)), make([]int, len(s.names)),
			make([]int64, len(s.names))
		for n := range b.nodes {
			if _, refused := b.refuses(p, int32(n), true); !refused && b.nodes[n].open {
				s.usable[s.at[n]] = true
			}
		}
		g.spreads = append(g.spreads, s)
	}
	return g
}

// aim finds the targets once all tasks of the group are known: so many, on the nodes of at.
func (s *spreadOf) aim(count int, at map[int32]int32) {
	rest, others := int64(count)<<10, 0
	named := make([]bool, len(s.names))
	for _, t := range s.wish.Targets {
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

// gain returns what the spread gains, in units, by a task that goes from one node to another.
func (s *spreadOf) gain(from, to int32) int64 {
	v, w := s.at[from], s.at[to]
	if v == w {
		return 0
	}
	closer := s.off(v) - s.off(w) - 1<<10
	return closer * s.weight * (unit >> 10) / (cluster.DefaultWeight * s.mean)
}

// off returns by how many 1024ths of a task a value has more than it should.
func (s *spreadOf) off(v int32) int64 { return int64(s.counts[v])<<10 - s.targets[v] }

func (s *spreadOf) shift(from, to int32) {
	s.counts[s.at[from]]--
	s.counts[s.at[to]]++
}

func (s *spreadOf) text(n int32) string { return s.names[s.at[n]] }
