package scheduler

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// taskClass is the pending tasks with equal requests: what is found out about a node holds for all of them.
type taskClass struct {
	*cluster.Pending    // one of the tasks
	group               *group
	strategy            cluster.Strategy
	affinity            cluster.AntiAffinity
	now                 time.Time
	demand              cluster.Demand
	need                cluster.Demand // demand, with the least integer for resources that are not asked for
	fixed               []int          // ports that the tasks name
	doubledPort         int            // a port that they name twice, or 0
	auto, autoFixed     int            // ports to be assigned; fixed ports in the assignable range
	requests            []cluster.DeviceRequest
	usesValueModel      bool                 // the value of devices counts in its ranks
	deviceFits          *deviceFits          // nil until first used
	images              []map[int32]struct{} // by image, the nodes that have it
	commonImages        bool                 // too many nodes have them to judge each by itself
	excluded, penalized []int32              // nodes with an earlier attempt; nodes where attempts failed

	left   int // undecided tasks
	filter *feasibilityFilter
	terms
	prepared bool // terms are complete
	visited  bool // best was called before
	// isFull says that all nodes refused when fullAt nodes were touched. Usage only grows in a cycle, so it mostly
	// stays true.
	isFull    bool
	fullAt    int
	undoCount int // of the cycle, when isFull and minGroupTasks were found
	// minGroupTasks is, by node class, a lower bound of the group's tasks on a feasible node; -1 if none is feasible.
	minGroupTasks []int32
	ranking       *ranking
	// candidateHeaps are by node class, -1 for one heap of all; nil until one is made.
	candidateHeaps map[int32]*candidateHeap
	seen           int   // how much of cycle.touched the ranking contains
	rankedMinimums int64 // spreadMinimums when the ranking was made

	refusals []cluster.RefusalCount
	sentence string
}

// group is an anti-affinity group: pending tasks that count each other.
type group struct {
	next        *group // the same owner with another version
	classes     []*taskClass
	isCounted   bool             // a class of it needs the counts
	views       map[string]*view // by attribute
	hasReserved bool             // findReserved ran
	// sameDefinition and noDefinition are the fleet's reservations to be counted: those of countedGenerations, and
	// those whose definition is unknown. Either may be nil.
	sameDefinition     *reservedGroup
	noDefinition       *reservedGroup
	countedGenerations []uint64
	placed             map[int32]int32 // by slot, in this cycle; nil if none
	counts             []int32         // by slot, of all tasks; nil unless a ranking needs them
	left               int             // undecided tasks
	hasDemand          bool            // a class of it requires anti-affinity
}

// classify finds the class of each task. Tasks with equal requests are mostly adjacent.
func (y *cycle) classify(order []int32) {
	y.taskClassAt = make([]*taskClass, len(order))
	var last *taskClass
	var prefix string // the id of its tasks without the index
	for i, p := range order {
		task := &y.pending[p]
		own := withoutIndex(task.Task)
		if last == nil || task.Promised != "" || own != prefix || task.Restarted != last.Restarted ||
			task.Definition != last.Definition || !alike(task, last.Pending) {
			last, prefix = y.taskClassOf(task), own
		}
		last.left++
		last.group.left++
		y.taskClassAt[i] = last
	}
}

// taskClassOf returns the class of the task in its group, and adds one if there is none. A task for one node, or with a
// promise, has a class of its own.
func (y *cycle) taskClassOf(p *cluster.Pending) *taskClass {
	tasks, _, _ := tasksOf(p.Task, p.Definition)
	g := y.groups[tasks]
	for g != nil && !sameVersion(p, g.classes[0].Pending) {
		g = g.next
	}
	if g == nil {
		g = &group{next: y.groups[tasks]}
		y.groups[tasks] = g
	}
	if p.OnlyNode == "" && p.Promised == "" {
		for _, c := range g.classes {
			if alike(p, c.Pending) {
				return c
			}
		}
	}
	c := y.newClass(p)
	c.group = g
	g.classes = append(g.classes, c)
	g.hasDemand = g.hasDemand || c.affinity == cluster.AntiAffinityDemand
	g.isCounted = g.isCounted || c.affinity != cluster.AntiAffinityNone ||
		len(p.Placement.Distinct)+len(p.Placement.Spread) > 0
	y.taskClasses = append(y.taskClasses, c)
	return c
}

func (y *cycle) newClass(p *cluster.Pending) *taskClass {
	c := &taskClass{Pending: p, now: y.opts.Now, demand: clamp(p.Demand), affinity: p.Placement.AntiAffinity}
	c.strategy = y.opts.Strategy(p)
	c.usesValueModel = y.fleet.valueModel != nil && (p.Placement.Strategy == "" || c.strategy == cluster.StrategyWhole)
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
			c.doubledPort = port.Port
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
	c.excluded, c.penalized = y.slots(p.ExcludedNodes), y.slots(p.PenalizedNodes)
	return c
}

// needOf returns what a node must have free. For resources that are not asked for, a node may be overcommitted.
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

// slots returns the slots of the named nodes that the fleet has.
func (y *cycle) slots(names []string) (slots []int32) {
	for _, name := range names {
		if n, found := y.fleet.search(name); found && !slices.Contains(slots, n) {
			slots = append(slots, n)
		}
	}
	return slots
}

// Strategy returns the strategy of a task: its owner's, else that of Services or Jobs, else the default.
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

// sameVersion reports whether two tasks count for each other's anti-affinity. They belong to one step, or to one
// service and definition, on the same side of the last restart.
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

// alike reports whether two tasks of one group have equal requests.
func alike(a, b *cluster.Pending) bool {
	return a.Demand == b.Demand &&
		a.NeedsImage == b.NeedsImage && a.Plain == b.Plain && a.Network == b.Network &&
		a.Owner.Kind == b.Owner.Kind &&
		a.Placement.Strategy == b.Placement.Strategy &&
		a.Placement.AntiAffinity == b.Placement.AntiAffinity &&
		a.Daemon == b.Daemon && a.OnlyNode == b.OnlyNode && a.TimeLimit == b.TimeLimit &&
		a.Placement.Reservation == b.Placement.Reservation && a.Promised == b.Promised && a.Count == b.Count &&
		a.Gang == b.Gang &&
		a.Placement.Pool == b.Placement.Pool && maps.Equal(a.Labels, b.Labels) &&
		samePlacement(&a.Placement, &b.Placement) &&
		len(a.Ports) == len(b.Ports) && len(a.ExcludedNodes) == len(b.ExcludedNodes) &&
		len(a.PenalizedNodes) == len(b.PenalizedNodes) &&
		slices.Equal(a.Images, b.Images) && len(a.Devices) == len(b.Devices) &&
		len(a.Placement.Constraints) == len(b.Placement.Constraints) &&
		// Most tasks have none of these lists.
		(len(a.Devices)+len(a.Ports)+len(a.ExcludedNodes)+len(a.PenalizedNodes)+len(a.Placement.Constraints) == 0 ||
			alikeInLists(a, b))
}

func alikeInLists(a, b *cluster.Pending) bool {
	return slices.EqualFunc(a.Devices, b.Devices, sameRequest) &&
		slices.Equal(a.Ports, b.Ports) && slices.Equal(a.ExcludedNodes, b.ExcludedNodes) &&
		slices.Equal(a.PenalizedNodes, b.PenalizedNodes) &&
		slices.EqualFunc(a.Placement.Constraints, b.Placement.Constraints, sameConstraint)
}

// samePlacement compares the lists that most placements leave empty.
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

// tasksOn returns the number of the group's tasks on a node, reserved and placed.
func (g *group) tasksOn(slot int32) (tasks int32) {
	if g.counts != nil {
		return g.counts[slot]
	}
	if g.sameDefinition != nil {
		for _, generation := range g.countedGenerations {
			tasks += g.sameDefinition.counts[slotGenerationOf(slot, generation)]
		}
	}
	if g.noDefinition != nil {
		tasks += g.noDefinition.counts[slotGenerationOf(slot, 0)]
	}
	if g.placed != nil {
		tasks += g.placed[slot]
	}
	return tasks
}

// findReserved finds the fleet's reservations that count for the group.
func (y *cycle) findReserved(g *group) {
	if g.hasReserved {
		return
	}
	g.hasReserved = true
	p := g.classes[0].Pending
	tasks, generation, definition := tasksOf(p.Task, p.Definition)
	after := generation >= p.Restarted
	if g.sameDefinition = y.fleet.reservedGroups[tasks].of(definition); g.sameDefinition != nil {
		for _, v := range g.sameDefinition.generations {
			if (v.generation >= p.Restarted) == after {
				g.countedGenerations = append(g.countedGenerations, v.generation)
			}
		}
	}
	if definition.Name != "" {
		unknown, _, _ := tasksOf(p.Task, cluster.Ref{})
		g.noDefinition = y.fleet.reservedGroups[unknown].of(cluster.Ref{})
	}
}

// makeCounts stores the results of tasksOn by slot.
func (y *cycle) makeCounts(g *group) {
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
		counts[slot] = g.tasksOn(slot)
	}
	g.counts = counts
}

// maxNodes returns an upper bound of the number of nodes with tasks of the group.
func (g *group) maxNodes() int {
	size := len(g.placed)
	if g.sameDefinition != nil {
		size += len(g.sameDefinition.counts)
	}
	if g.noDefinition != nil {
		size += len(g.noDefinition.counts)
	}
	return size
}

// nodes yields each node with tasks of the group, some more than once, in no order.
func (g *group) nodes(yield func(slot int32) bool) {
	for _, c := range []*reservedGroup{g.sameDefinition, g.noDefinition} {
		if c == nil {
			continue
		}
		for at := range c.counts { // order-free: the caller takes the best
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
