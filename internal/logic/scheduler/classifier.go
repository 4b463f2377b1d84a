package scheduler

import (
	"maps"
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// classifier groups the pending tasks of a cycle by equal requests, and the classes by anti-affinity group.
type classifier struct {
	nodes   *overlay
	opts    Options
	pending []cluster.Pending
	order   []int32           // indices into pending, in the order of decision
	at      []*taskClass      // by position in order
	list    []*taskClass      // in the order of their first tasks
	groups  map[string]*group // by the name that tasksOf returns
}

func newClassifier(nodes *overlay, pending []cluster.Pending, opts Options) classifier {
	pending = nodes.fleet.volumes.constrain(pending, nodes.fleet.name)
	return classifier{nodes: nodes, pending: pending, opts: opts, groups: map[string]*group{}}
}

// task returns the task at a position in the order of decision.
func (k *classifier) task(position int32) *cluster.Pending { return &k.pending[k.order[position]] }

// classify sets the order of decision and finds the class of each task. Tasks with equal requests are mostly adjacent.
func (k *classifier) classify(order []int32) {
	k.order = order
	k.at = make([]*taskClass, len(order))
	var last *taskClass
	var prefix string // the id of its tasks without the index
	for i, p := range order {
		task := &k.pending[p]
		own := withoutIndex(task.Task)
		if last == nil || task.Promised != "" || own != prefix || task.Restarted != last.task.Restarted ||
			task.Definition != last.task.Definition || !alike(task, last.task) {
			last, prefix = k.classOf(task), own
		}
		last.left++
		last.group.left++
		k.at[i] = last
	}
}

// classOf returns the class of the task in its group, and adds one if there is none. A task for one node, or with a
// promise, has a class of its own.
func (k *classifier) classOf(p *cluster.Pending) *taskClass {
	tasks, _, _ := tasksOf(p.Task, p.Definition)
	g := k.groups[tasks]
	for g != nil && !sameVersion(p, g.classes[0].task) {
		g = g.next
	}
	if g == nil {
		g = &group{next: k.groups[tasks]}
		k.groups[tasks] = g
	}
	if p.OnlyNode == "" && p.Promised == "" {
		for _, c := range g.classes {
			if alike(p, c.task) {
				return c
			}
		}
	}
	c := k.newClass(p)
	c.group = g
	g.classes = append(g.classes, c)
	g.hasDemand = g.hasDemand || c.affinity == cluster.AntiAffinityDemand
	g.isCounted = g.isCounted || c.affinity != cluster.AntiAffinityNone ||
		len(p.Placement.Distinct)+len(p.Placement.Spread) > 0
	k.list = append(k.list, c)
	return c
}

func (k *classifier) newClass(p *cluster.Pending) *taskClass {
	c := &taskClass{task: p, now: k.opts.Now, demand: clamp(p.Demand), affinity: p.Placement.AntiAffinity}
	c.strategy = k.opts.Strategy(p)
	c.devices.usesValueModel = k.nodes.fleet.DeviceValueModel() != nil &&
		(p.Placement.Strategy == "" || c.strategy == cluster.StrategyWhole)
	if c.affinity == "" {
		c.affinity = cluster.AntiAffinityNone
		if c.strategy == cluster.StrategySpread {
			c.affinity = cluster.AntiAffinityPrefer
		}
	}
	c.need = needOf(c.demand)
	for i := range p.Ports {
		c.ports.add(p.Ports[i].Port)
	}
	if len(p.Devices) > 0 {
		c.devices.requests = requests(p.Devices)
	}
	c.excluded, c.penalized = k.nodes.slots(p.ExcludedNodes), k.nodes.slots(p.PenalizedNodes)
	return c
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

func sameConstraint(a, b cluster.Constraint) bool {
	return a.Attribute == b.Attribute && a.Op == b.Op && a.Value == b.Value && slices.Equal(a.Values, b.Values)
}
