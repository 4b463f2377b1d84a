package taskclass

import (
	"maps"
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/devices"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
	"github.com/berthd/berth/internal/logic/scheduler/index"
)

// Classifier groups the pending tasks of a cycle by equal requests, and the classes by anti-affinity group. Jobs whose
// tasks count no others share classes, so a queue of many small jobs has few.
type Classifier struct {
	nodes *fleet.Overlay
	opts  Options
	// Pending are the requests, with what their volumes add; given are the same ones without. TakeFirst adds to both.
	Pending []cluster.Pending
	given   []cluster.Pending // nil if they are equal
	Order   []int32           // indices into pending, in the order of decision
	At      []*Class          // by position in order
	List    []*Class          // in the order of their first tasks
	Groups  map[string]*Group // by the name that fleet.TasksOf returns
	owned   bool              // Pending and given are copies
	// counted holds the steps of jobs of which a task counts the others (see counts), by the name of fleet.TasksOf.
	counted map[string]bool
	shared  map[sharedKey][]*Class
}

// NewClassifier returns a classifier of pending tasks, with the constraints and affinities that their volumes add.
func NewClassifier(nodes *fleet.Overlay, pending []cluster.Pending, opts Options) Classifier {
	return Classifier{
		nodes: nodes, Pending: nodes.Fleet.Volumes.Constrain(pending, nodes.Fleet.Name), given: pending, opts: opts,
		Groups: map[string]*Group{},
	}
}

// Given returns the requests as they were given, followed by those that TakeFirst made of them.
func (k *Classifier) Given() []cluster.Pending {
	if k.given == nil {
		return k.Pending
	}
	return k.given
}

// Task returns the task at a position in the order of decision.
func (k *Classifier) Task(position int32) *cluster.Pending { return &k.Pending[k.Order[position]] }

// Classify sets the order of decision and finds the class of each task. Tasks with equal requests are mostly adjacent.
func (k *Classifier) Classify(order []int32) {
	k.Order = order
	k.At = make([]*Class, len(order))
	for _, p := range order {
		if task := &k.Pending[p]; task.Owner.Kind == cluster.KindJob && k.counts(task) {
			if k.counted == nil {
				k.counted = map[string]bool{}
			}
			k.counted[fleet.WithoutIndex(task.Task)] = true
		}
	}
	var last *Class
	var prefix string // the id of its tasks without the index
	for i, p := range order {
		task := &k.Pending[p]
		own := fleet.WithoutIndex(task.Task)
		if last == nil || task.Promised != "" || own != prefix || task.Restarted != last.Task.Restarted ||
			task.Definition != last.Task.Definition || !alike(task, last.Task) {
			last, prefix = k.classOf(task), own
		}
		last.Left += task.Tasks()
		last.Group.Left += task.Tasks()
		k.At[i] = last
	}
}

// TakeFirst separates the first task of the request at a position, which then stands for the others. It returns the
// position of that task, and whether there are others.
func (k *Classifier) TakeFirst(position int32) (first int32, more bool) {
	if k.Task(position).Further == 0 {
		return position, false
	}
	if !k.owned {
		shared := &k.Pending[0] == &k.given[0]
		k.Pending, k.given, k.owned = slices.Clone(k.Pending), slices.Clone(k.given), true
		if shared {
			k.given = nil
		}
	}
	at := k.Order[position]
	first = int32(len(k.Order))
	k.Order, k.At = append(k.Order, int32(len(k.Pending))), append(k.At, k.At[position])
	k.Pending = append(k.Pending, k.Pending[at].Single())
	k.Pending[at] = k.Pending[at].Skip(1)
	if k.given != nil {
		k.given = append(k.given, k.given[at].Single())
		k.given[at] = k.given[at].Skip(1)
	}
	return first, true
}

// classOf returns the class of the task in its group, and adds one if there is none. A task for one node, or with a
// promise, has a class of its own.
func (k *Classifier) classOf(p *cluster.Pending) *Class {
	if k.mayShare(p) {
		return k.sharedClassOf(p)
	}
	tasks, _, _ := fleet.TasksOf(p.Task, p.Definition)
	g := k.Groups[tasks]
	for g != nil && !sameVersion(p, g.classes[0].Task) {
		g = g.Next
	}
	if g == nil {
		g = &Group{Next: k.Groups[tasks]}
		k.Groups[tasks] = g
	}
	if p.OnlyNode == "" && p.Promised == "" {
		for _, c := range g.classes {
			if alike(p, c.Task) {
				return c
			}
		}
	}
	c := k.newClass(p)
	c.Group = g
	g.classes = append(g.classes, c)
	g.hasDemand = g.hasDemand || c.Affinity == cluster.AntiAffinityDemand
	g.IsCounted = g.IsCounted || k.counts(p)
	k.List = append(k.List, c)
	return c
}

// counts reports whether the places of a task depend on those of other tasks of its group.
func (k *Classifier) counts(p *cluster.Pending) bool {
	return k.affinity(p) != cluster.AntiAffinityNone || len(p.Placement.Distinct)+len(p.Placement.Spread) > 0
}

// affinity returns the anti-affinity of a task: what it requests, or that of its strategy.
func (k *Classifier) affinity(p *cluster.Pending) cluster.AntiAffinity {
	switch {
	case p.Placement.AntiAffinity != "":
		return p.Placement.AntiAffinity
	case k.opts.Strategy(p) == cluster.StrategySpread:
		return cluster.AntiAffinityPrefer
	}
	return cluster.AntiAffinityNone
}

// sharedKey is what tasks of a shared class have in common, apart from what alike compares.
type sharedKey struct {
	cluster, pool, image string
	queue                cluster.QueuePolicy
	priority             int
	demand               cluster.Demand
	limit                cluster.Duration
}

// mayShare reports whether a task may be in a class with tasks of other jobs. Members of gangs and tasks behind the
// first of a queue without backfilling have reasons of their own.
func (k *Classifier) mayShare(p *cluster.Pending) bool {
	return p.Owner.Kind == cluster.KindJob && p.OnlyNode == "" && p.Promised == "" && p.Gang == "" &&
		p.Queue != cluster.QueueFIFO && !k.counts(p) &&
		(len(k.counted) == 0 || !k.counted[fleet.WithoutIndex(p.Task)])
}

// sharedClassOf returns the class of a task that may share it, and adds one if there is none.
func (k *Classifier) sharedClassOf(p *cluster.Pending) *Class {
	key := sharedKey{
		cluster: p.Owner.Cluster, pool: p.Placement.Pool, queue: p.Queue, priority: p.Priority, demand: p.Demand,
		limit: p.TimeLimit,
	}
	if len(p.Images) > 0 {
		key.image = p.Images[0]
	}
	for _, c := range k.shared[key] {
		if alike(p, c.Task) {
			return c
		}
	}
	if k.shared == nil {
		k.shared = map[sharedKey][]*Class{}
	}
	c := k.newClass(p)
	c.Group = &Group{classes: []*Class{c}}
	k.shared[key] = append(k.shared[key], c)
	k.List = append(k.List, c)
	return c
}

func (k *Classifier) newClass(p *cluster.Pending) *Class {
	c := &Class{Task: p, Now: k.opts.Now, Demand: index.Clamp(p.Demand), Affinity: k.affinity(p)}
	c.Strategy = k.opts.Strategy(p)
	c.Devices.UsesValueModel = k.nodes.Fleet.DeviceValueModel() != nil &&
		(p.Placement.Strategy == "" || c.Strategy == cluster.StrategyWhole)
	c.Need = needOf(c.Demand)
	for i := range p.Ports {
		c.Ports.add(p.Ports[i].Port)
	}
	if len(p.Devices) > 0 {
		c.Devices.Requests = devices.Requests(p.Devices)
	}
	c.Excluded, c.Penalized = k.nodes.Slots(p.ExcludedNodes), k.nodes.Slots(p.PenalizedNodes)
	return c
}

// alike reports whether two tasks of one group have equal requests.
func alike(a, b *cluster.Pending) bool {
	return a.Demand == b.Demand &&
		a.NeedsImage == b.NeedsImage && a.Plain == b.Plain && a.Network == b.Network &&
		a.Owner.Kind == b.Owner.Kind && a.Queue == b.Queue &&
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
	return slices.EqualFunc(a.Devices, b.Devices, devices.SameRequest) &&
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
