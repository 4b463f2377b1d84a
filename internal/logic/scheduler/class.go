package scheduler

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// cycle is the state of one call of Schedule. Nodes are numbered by the order of their names, so
// that of equals the smaller number wins.
type cycle struct {
	fleet   *Fleet
	pending []cluster.Pending
	opts    Options

	loads []load
	ports []*portSet // those that the cycle changed; nil: as in the fleet
	// touched lists the nodes in the order in which the cycle placed tasks on them. A class
	// remembers how much of it has gone into its ranking.
	touched []int32

	groups  map[string]*group // by the tasks that their names say
	classOf []*class          // by position in the order of decisions

	spareRankings []*ranking
	spareCounts   [][]int32
}

// class is the pending tasks that ask for exactly the same, so that what is found out about a node
// holds for all of them.
type class struct {
	*cluster.Pending // one of them
	group            *group
	binpack          bool
	affinity         cluster.AntiAffinity
	demand           cluster.Demand
	fixed            []int   // ports that they name
	clash            int     // a port that they name twice
	auto, autoFixed  int     // ports to be assigned; fixed ones among those that could be
	marked           []int32 // nodes where an earlier attempt stands, then those where attempts failed

	left    int   // tasks not yet decided
	avoided int32 // of the marked nodes those of the first kind
	single  bool  // for one node
	visited bool  // the ranking is made, or was not worth it
	full    bool  // no node is left; as a cycle only takes, it stays so
	ranking *ranking
	seen    int // how much of cycle.touched is in the ranking

	refusals []cluster.RefusalCount
	sentence string
}

// group is the tasks that anti-affinity keeps apart.
type group struct {
	next    *group // of the same owner, another version
	classes []*class
	apart   bool    // a class of it looks at counts
	strict  bool    // a class of it demands to be apart
	counts  []int32 // by node, reserved and placed; nil while nobody needs it
	left    int
}

func newCycle(f *Fleet, pending []cluster.Pending, opts Options) *cycle {
	y := &cycle{
		fleet: f, pending: pending, opts: opts,
		loads:  make([]load, len(f.order)),
		groups: map[string]*group{},
	}
	for n, i := range f.order {
		y.loads[n] = f.loads[i]
	}
	return y
}

// classify finds the class of each task. Tasks that ask for the same mostly stand side by side.
func (y *cycle) classify(order []int32) {
	y.classOf = make([]*class, len(order))
	var last *class
	var prefix string // of its tasks
	for i, p := range order {
		task := &y.pending[p]
		own := withoutIndex(task.Task)
		if last == nil || own != prefix || task.Restarted != last.Restarted || task.Definition != last.Definition || !alike(task, last.Pending) {
			last, prefix = y.class(task), own
		}
		last.left++
		last.group.left++
		y.classOf[i] = last
	}
}

// class returns the class of the task in its group, a new one if there is none. A task for one node has its own: there is
// nothing to share.
func (y *cycle) class(p *cluster.Pending) *class {
	tasks, _, _ := tasksOf(p.Task, p.Definition)
	g := y.groups[tasks]
	for g != nil && !sameVersion(p, g.classes[0].Pending) {
		g = g.next
	}
	if g == nil {
		g = &group{next: y.groups[tasks]}
		y.groups[tasks] = g
	}
	if p.Only == "" {
		for _, c := range g.classes {
			if alike(p, c.Pending) {
				return c
			}
		}
	}
	c := y.newClass(p)
	c.group = g
	g.classes = append(g.classes, c)
	g.apart = g.apart || c.affinity != cluster.AntiAffinityNone
	g.strict = g.strict || c.affinity == cluster.AntiAffinityDemand
	return c
}

func (y *cycle) newClass(p *cluster.Pending) *class {
	c := &class{Pending: p, demand: clamp(p.Demand), affinity: p.Placement.AntiAffinity}
	c.binpack = y.strategy(p) == cluster.StrategyBinpack
	if c.affinity == "" {
		c.affinity = cluster.AntiAffinityPrefer
		if c.binpack {
			c.affinity = cluster.AntiAffinityNone
		}
	}
	for _, port := range p.Ports {
		switch {
		case port.Port == 0:
			c.auto++
		case slices.Contains(c.fixed, port.Port):
			c.clash = port.Port
		default:
			c.fixed = append(c.fixed, port.Port)
			if port.Port >= cluster.FirstAutoPort && port.Port <= cluster.LastAutoPort {
				c.autoFixed++
			}
		}
	}
	c.single = p.Only != ""
	y.mark(c, p.Avoid)
	c.avoided = int32(len(c.marked))
	y.mark(c, p.Shun)
	return c
}

// mark adds the numbers of nodes, without those that the fleet does not have.
func (y *cycle) mark(c *class, names []string) {
	for _, name := range names {
		if n, found := y.fleet.search(name); found {
			c.marked = append(c.marked, int32(n))
		}
	}
}

// avoids reports whether an earlier attempt stands on the node.
func (c *class) avoids(n int) bool { return slices.Contains(c.marked[:c.avoided], int32(n)) }

// shuns reports whether attempts failed on the node.
func (c *class) shuns(n int) bool { return slices.Contains(c.marked[c.avoided:], int32(n)) }

func (y *cycle) strategy(p *cluster.Pending) cluster.Strategy {
	switch {
	case p.Placement.Strategy != "":
		return p.Placement.Strategy
	case p.Owner.Kind == cluster.KindJob && y.opts.Jobs != "":
		return y.opts.Jobs
	case p.Owner.Kind == cluster.KindJob:
		return cluster.StrategyBinpack
	case y.opts.Services != "":
		return y.opts.Services
	}
	return cluster.StrategySpread
}

// sameVersion reports whether anti-affinity keeps two tasks apart: they are of one step, or of one service and definition and on the
// same side of the last restart.
func sameVersion(a, b *cluster.Pending) bool {
	if a.Definition != b.Definition || a.Restarted != b.Restarted {
		return false
	}
	if same := withoutIndex(a.Task) == withoutIndex(b.Task); same || a.Definition.Name == "" {
		return same
	}
	tasks, generation, _ := tasksOf(a.Task, a.Definition)
	others, other, _ := tasksOf(b.Task, b.Definition)
	return tasks == others && (generation >= a.Restarted) == (other >= a.Restarted)
}

// alike reports whether two tasks of one group ask for the same.
func alike(a, b *cluster.Pending) bool {
	return a.Demand == b.Demand &&
		a.NeedsImage == b.NeedsImage &&
		a.Owner.Kind == b.Owner.Kind &&
		a.Placement.Strategy == b.Placement.Strategy &&
		a.Placement.AntiAffinity == b.Placement.AntiAffinity &&
		a.Daemon == b.Daemon && a.Only == b.Only &&
		len(a.Ports) == len(b.Ports) && len(a.Avoid) == len(b.Avoid) && len(a.Shun) == len(b.Shun) &&
		len(a.Placement.Constraints) == len(b.Placement.Constraints) &&
		(len(a.Ports)+len(a.Avoid)+len(a.Shun)+len(a.Placement.Constraints) == 0 || alikeInLists(a, b)) // mostly none
}

func alikeInLists(a, b *cluster.Pending) bool {
	return slices.Equal(a.Ports, b.Ports) && slices.Equal(a.Avoid, b.Avoid) && slices.Equal(a.Shun, b.Shun) &&
		slices.EqualFunc(a.Placement.Constraints, b.Placement.Constraints, sameConstraint)
}

func sameConstraint(a, b cluster.Constraint) bool {
	return a.Attribute == b.Attribute && a.Op == b.Op && a.Value == b.Value && slices.Equal(a.Values, b.Values)
}

// best returns the best node for a task of the class, or -1 if all refuse it.
func (y *cycle) best(c *class) int {
	if c.full {
		return -1
	}
	if c.single {
		return y.only(c)
	}
	var best int
	if !c.visited {
		y.count(c.group)
	}
	switch {
	case !c.visited && c.left == 1:
		best = y.scan(c)
	case !c.visited:
		c.ranking = y.rank(c)
		best = c.ranking.best()
	default:
		y.refresh(c)
		best = c.ranking.best()
	}
	c.visited = true
	c.seen = len(y.touched)
	c.full = best < 0
	return best
}

// only returns the one node that the class is for, or -1 if it refuses it.
func (y *cycle) only(c *class) int {
	y.count(c.group)
	n, found := y.fleet.search(c.Only)
	if !found || y.keyOrRefused(c, n) == refused {
		c.full = true
		return -1
	}
	return n
}

// scan looks at every node once: for a class of one task, that is less work than a ranking.
func (y *cycle) scan(c *class) int {
	best, lowest := -1, uint64(refused)
	for n := range y.loads {
		if code, _ := y.lacks(c, n); code != "" {
			continue
		}
		if k := y.key(c, n); k < lowest {
			if code, _ := y.bars(c, n); code == "" {
				best, lowest = n, k
			}
		}
	}
	return best
}

// rank looks at every node and keeps the order.
func (y *cycle) rank(c *class) *ranking {
	r := y.spareRanking()
	for n := range y.loads {
		r.set(n, y.keyOrRefused(c, n))
	}
	return r
}

// refresh brings a class's ranking up to what was placed since its last turn. A node that refused the
// class goes on to refuse it, as a cycle only takes.
func (y *cycle) refresh(c *class) {
	for _, n := range y.touched[c.seen:] {
		if c.ranking.keys[n] != refused {
			c.ranking.set(int(n), y.keyOrLacking(c, int(n)))
		}
	}
}

func (y *cycle) keyOrRefused(c *class, n int) uint64 {
	if code, _ := y.bars(c, n); code != "" {
		return refused
	}
	return y.keyOrLacking(c, n)
}

func (y *cycle) keyOrLacking(c *class, n int) uint64 {
	if code, _ := y.lacks(c, n); code != "" {
		return refused
	}
	return y.key(c, n)
}

// place charges a task of the class to the node.
func (y *cycle) place(c *class, n, pending int) Placement {
	p := &y.pending[pending]
	l := &y.loads[n]
	l.used = l.used.Add(c.demand)
	l.tasks++
	if c.group.counts != nil {
		c.group.counts[n]++
	}
	y.touched = append(y.touched, int32(n))
	pl := Placement{Pending: pending, Task: p.Task, Node: y.node(n).Name}
	if len(p.Ports) > 0 {
		pl.Ports = y.ownPorts(n).assign(p)
	}
	return pl
}

// leave notes that a task of the class is decided, and takes back what the class no longer needs.
func (y *cycle) leave(c *class) {
	c.left--
	c.group.left--
	if (c.left == 0 || c.full) && c.ranking != nil {
		y.spareRankings = append(y.spareRankings, c.ranking)
		c.ranking = nil
	}
	// Of a strict group that could not be placed the counts tell why.
	if g := c.group; g.left == 0 && g.counts != nil && !g.strict {
		y.spareCounts = append(y.spareCounts, g.counts)
		g.counts = nil
	}
}

// count makes the group's counts if a class of it looks at them.
func (y *cycle) count(g *group) {
	if !g.apart || g.counts != nil {
		return
	}
	if last := len(y.spareCounts) - 1; last >= 0 {
		g.counts, y.spareCounts = y.spareCounts[last], y.spareCounts[:last]
		clear(g.counts)
	} else {
		g.counts = make([]int32, len(y.loads))
	}
	p := g.classes[0].Pending
	tasks, generation, definition := tasksOf(p.Task, p.Definition)
	after := generation >= p.Restarted
	y.tally(g, y.fleet.crowds[tasks].of(definition), func(at spot) bool { return (at.generation() >= p.Restarted) == after })
	if definition.Name != "" {
		unknown, _, _ := tasksOf(p.Task, cluster.Ref{})
		y.tally(g, y.fleet.crowds[unknown].of(cluster.Ref{}), func(spot) bool { return true })
	}
}

// tally adds those tasks of a crowd, which may be nil, to the group's counts.
func (y *cycle) tally(g *group, c *crowd, counts func(spot) bool) {
	if c == nil {
		return
	}
	for at, k := range c.at { // order-free: a sum
		if !counts(at) {
			continue
		}
		if n, found := y.fleet.search(y.fleet.slots[at.slot()].node.Name); found {
			g.counts[n] += k
		}
	}
}

func (y *cycle) spareRanking() *ranking {
	if last := len(y.spareRankings) - 1; last >= 0 {
		r := y.spareRankings[last]
		y.spareRankings = y.spareRankings[:last]
		return r
	}
	return newRanking(len(y.loads))
}

func (y *cycle) node(n int) *Node { return &y.fleet.slots[y.fleet.order[n]].node }

// portsOf returns the ports taken on the node, to be read.
func (y *cycle) portsOf(n int) *portSet {
	if y.ports != nil && y.ports[n] != nil {
		return y.ports[n]
	}
	return &y.fleet.slots[y.fleet.order[n]].ports
}

// ownPorts returns the cycle's own set of the ports taken on the node, to be changed.
func (y *cycle) ownPorts(n int) *portSet {
	if y.ports == nil {
		y.ports = make([]*portSet, len(y.loads))
	}
	if y.ports[n] == nil {
		own := y.portsOf(n).clone()
		y.ports[n] = &own
	}
	return y.ports[n]
}
