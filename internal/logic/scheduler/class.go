package scheduler

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// class is the pending tasks that ask for exactly the same, so that what is found out about a node
// holds for all of them.
type class struct {
	*cluster.Pending // one of them
	group            *group
	strategy         cluster.Strategy
	affinity         cluster.AntiAffinity
	now              time.Time
	demand           cluster.Demand
	need             cluster.Demand // demand, with what any node has for a resource that is not asked for
	fixed            []int          // ports that they name
	clash            int            // a port that they name twice
	auto, autoFixed  int            // ports to be assigned; fixed ones among those that could be
	requests         []cluster.DeviceRequest
	priced           bool                 // what devices are worth decides for it
	pricings         *pricings            // nil until somebody asks
	images           []map[int32]struct{} // of each image, the nodes that have it
	commonImages     bool                 // these are too many to be looked at one by one
	avoided, shunned []int32              // nodes where an earlier attempt stands, and where attempts failed

	left  int // tasks not yet decided
	sieve *sieve
	terms
	settled bool // its terms are prepared
	visited bool // best was asked for it
	full    bool // no node was left when fullAt nodes were touched; as a cycle only takes, that mostly stays so
	fullAt  int
	epoch   int // of the cycle, when the latter and floors were found
	// by node class, how many of the group are at least on a node that takes the class; none if there is no such node
	floors  []int32
	ranking *ranking
	rosters map[int32]*roster // by class of nodes whose devices have a price; nil while none is made
	seen    int               // how much of cycle.touched is in the ranking
	ranked  int64             // what leasts said when it was made

	refusals []cluster.RefusalCount
	sentence string
}

// group is the tasks that anti-affinity keeps apart.
type group struct {
	next    *group // of the same owner, another version
	classes []*class
	apart   bool             // a class of it looks at the others
	views   map[string]*view // by attribute
	found   bool             // known and unknown are looked up
	known   *crowd           // of the fleet, with the generations that count; either may be nil
	unknown *crowd
	counted []uint64
	placed  map[int32]int32 // by slot, in this cycle; nil while none is
	counts  []int32         // by slot, all of them; nil unless there is a ranking
	left    int             // tasks not yet decided
	strict  bool            // a class of it demands to be apart
}

// classify finds the class of each task. Tasks that ask for the same mostly stand side by side.
func (y *cycle) classify(order []int32) {
	y.classOf = make([]*class, len(order))
	var last *class
	var prefix string // of its tasks
	for i, p := range order {
		task := &y.pending[p]
		own := withoutIndex(task.Task)
		if last == nil || task.Promised != "" || own != prefix || task.Restarted != last.Restarted ||
			task.Definition != last.Definition || !alike(task, last.Pending) {
			last, prefix = y.class(task), own
		}
		last.left++
		last.group.left++
		y.classOf[i] = last
	}
}

// class returns the class of the task in its group, a new one if there is none. A task for one node, or with the
// promise of one, has its own: there is nothing to share.
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
	if p.Only == "" && p.Promised == "" {
		for _, c := range g.classes {
			if alike(p, c.Pending) {
				return c
			}
		}
	}
	c := y.newClass(p)
	c.group = g
	g.classes = append(g.classes, c)
	g.strict = g.strict || c.affinity == cluster.AntiAffinityDemand
	g.apart = g.apart || c.affinity != cluster.AntiAffinityNone || len(p.Placement.Distinct)+len(p.Placement.Spread) > 0
	y.classes = append(y.classes, c)
	return c
}

func (y *cycle) newClass(p *cluster.Pending) *class {
	c := &class{Pending: p, now: y.opts.Now, demand: clamp(p.Demand), affinity: p.Placement.AntiAffinity}
	c.strategy = y.opts.Strategy(p)
	c.priced = y.fleet.worth != nil && (p.Placement.Strategy == "" || c.strategy == cluster.StrategyWhole)
	if c.affinity == "" {
		c.affinity = cluster.AntiAffinityNone
		if c.strategy == cluster.StrategySpread {
			c.affinity = cluster.AntiAffinityPrefer
		}
	}
	c.need = needOf(c.demand)
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
	if len(p.Devices) > 0 {
		c.requests = requests(p.Devices)
	}
	c.avoided, c.shunned = y.slots(p.Avoid), y.slots(p.Shun)
	return c
}

// needOf returns what a node must have free. Of what is not asked for it may have less than nothing.
func needOf(d cluster.Demand) cluster.Demand {
	if d.CPU == 0 {
		d.CPU = math.MinInt64
	}
	if d.Memory == 0 {
		d.Memory = math.MinInt64
	}
	if d.Disk == 0 {
		d.Disk = math.MinInt64
	}
	return d
}

// slots returns those of nodes, without those that the fleet does not have.
func (y *cycle) slots(names []string) (slots []int32) {
	for _, name := range names {
		if n, found := y.fleet.search(name); found && !slices.Contains(slots, n) {
			slots = append(slots, n)
		}
	}
	return slots
}

// Strategy returns the strategy of a task: that of its owner or, where that names none, the one that Services and Jobs
// say.
func (o Options) Strategy(p *cluster.Pending) cluster.Strategy {
	own := o.Services
	if p.Owner.Kind == cluster.KindJob {
		own = o.Jobs
	}
	switch {
	case p.Placement.Strategy != "":
		return p.Placement.Strategy
	case own != "":
		return own
	case len(p.Devices) > 0:
		return cluster.StrategyWhole
	case p.Owner.Kind == cluster.KindJob:
		return cluster.StrategyBinpack
	}
	return cluster.StrategySpread
}

// sameVersion reports whether anti-affinity keeps two tasks apart: they are of one step, or of one service and
// definition and on the same side of the last restart.
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
		a.NeedsImage == b.NeedsImage && a.Plain == b.Plain && a.Network == b.Network &&
		a.Owner.Kind == b.Owner.Kind &&
		a.Placement.Strategy == b.Placement.Strategy &&
		a.Placement.AntiAffinity == b.Placement.AntiAffinity &&
		a.Daemon == b.Daemon && a.Only == b.Only && a.TimeLimit == b.TimeLimit &&
		a.Placement.Reservation == b.Placement.Reservation && a.Promised == b.Promised && a.Count == b.Count &&
		a.Gang == b.Gang &&
		a.Placement.Pool == b.Placement.Pool && maps.Equal(a.Labels, b.Labels) &&
		samePlacement(&a.Placement, &b.Placement) &&
		len(a.Ports) == len(b.Ports) && len(a.Avoid) == len(b.Avoid) && len(a.Shun) == len(b.Shun) &&
		slices.Equal(a.Images, b.Images) && len(a.Devices) == len(b.Devices) &&
		len(a.Placement.Constraints) == len(b.Placement.Constraints) &&
		// mostly none
		(len(a.Devices)+len(a.Ports)+len(a.Avoid)+len(a.Shun)+len(a.Placement.Constraints) == 0 || alikeInLists(a, b))
}

func alikeInLists(a, b *cluster.Pending) bool {
	return slices.EqualFunc(a.Devices, b.Devices, sameRequest) &&
		slices.Equal(a.Ports, b.Ports) && slices.Equal(a.Avoid, b.Avoid) && slices.Equal(a.Shun, b.Shun) &&
		slices.EqualFunc(a.Placement.Constraints, b.Placement.Constraints, sameConstraint)
}

// samePlacement compares the lists that most placements do without.
func samePlacement(a, b *cluster.Placement) bool {
	if len(a.Affinities)+len(b.Affinities)+len(a.Spread)+len(b.Spread)+len(a.Relations)+len(b.Relations)+
		len(a.Distinct)+len(b.Distinct)+len(a.Tolerations)+len(b.Tolerations) == 0 {
		return true
	}
	return slices.EqualFunc(a.Affinities, b.Affinities, func(a, b cluster.Affinity) bool {
		return a.Weight == b.Weight && sameConstraint(a.Constraint, b.Constraint)
	}) && slices.EqualFunc(a.Spread, b.Spread, func(a, b cluster.Spread) bool {
		return a.Attribute == b.Attribute && a.Weight == b.Weight && a.MaxSkew == b.MaxSkew &&
			slices.Equal(a.Targets, b.Targets)
	}) && slices.EqualFunc(a.Relations, b.Relations, cluster.Relation.Equal) && slices.Equal(a.Distinct, b.Distinct) &&
		slices.Equal(a.Tolerations, b.Tolerations)
}

func sameRequest(a, b cluster.DeviceRequest) bool {
	return a.Type == b.Type && a.Count == b.Count && a.Share == b.Share && a.Memory == b.Memory &&
		a.OneNuma == b.OneNuma && slices.Equal(a.Models, b.Models)
}

func sameConstraint(a, b cluster.Constraint) bool {
	return a.Attribute == b.Attribute && a.Op == b.Op && a.Value == b.Value && slices.Equal(a.Values, b.Values)
}

// near counts the tasks of the group on a node, reserved and placed.
func (g *group) near(slot int32) (tasks int32) {
	if g.counts != nil {
		return g.counts[slot]
	}
	if g.known != nil {
		for _, generation := range g.counted {
			tasks += g.known.at[spotOf(slot, generation)]
		}
	}
	if g.unknown != nil {
		tasks += g.unknown.at[spotOf(slot, 0)]
	}
	if g.placed != nil {
		tasks += g.placed[slot]
	}
	return tasks
}

// gather finds those of the fleet that the group's tasks are kept apart from.
func (y *cycle) gather(g *group) {
	if g.found {
		return
	}
	g.found = true
	p := g.classes[0].Pending
	tasks, generation, definition := tasksOf(p.Task, p.Definition)
	after := generation >= p.Restarted
	if g.known = y.fleet.crowds[tasks].of(definition); g.known != nil {
		for _, v := range g.known.versions {
			if (v.generation >= p.Restarted) == after {
				g.counted = append(g.counted, v.generation)
			}
		}
	}
	if definition.Name != "" {
		unknown, _, _ := tasksOf(p.Task, cluster.Ref{})
		g.unknown = y.fleet.crowds[unknown].of(cluster.Ref{})
	}
}

// count makes a list of what near returns.
func (y *cycle) count(g *group) {
	if g.counts != nil {
		return
	}
	var counts []int32
	if last := len(y.spareCounts) - 1; last >= 0 {
		counts, y.spareCounts = y.spareCounts[last], y.spareCounts[:last]
		clear(counts)
	} else {
		counts = make([]int32, len(y.fleet.slots))
	}
	for slot := range g.nodes {
		counts[slot] = g.near(slot)
	}
	g.counts = counts
}

// size returns on how many nodes tasks of the group are, or more.
func (g *group) size() int {
	size := len(g.placed)
	if g.known != nil {
		size += len(g.known.at)
	}
	if g.unknown != nil {
		size += len(g.unknown.at)
	}
	return size
}

// nodes yields each node where tasks of the group are, some more than once, in no order.
func (g *group) nodes(yield func(slot int32) bool) {
	for _, c := range []*crowd{g.known, g.unknown} {
		if c == nil {
			continue
		}
		for at := range c.at { // order-free: who asks takes the best
			if !yield(at.slot()) {
				return
			}
		}
	}
	for slot := range g.placed { // order-free: as above
		if !yield(slot) {
			return
		}
	}
}
