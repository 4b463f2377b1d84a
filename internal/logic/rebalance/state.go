package rebalance

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// Gains are counted in units. Shares of a node have shareBits fractional bits, and their squares twice as many. All are
// integers, so that every server finds the same moves.
const (
	shareBits = 15
	shareOne  = 1 << shareBits
	unit      = shareOne * shareOne // the units of a gain of Points
)

// resources are CPU, memory and disk.
const resources = 3

type amounts [resources]int64

func amountsOf(d cluster.Demand) amounts {
	return amounts{max(0, int64(d.CPU)), max(0, int64(d.Memory)), max(0, int64(d.Disk))}
}

// state is the fleet after the moves so far, arranged by node and by class. All searches for moves are methods of it,
// because each one reads and updates the same sums.
type state struct {
	opts    Options
	fleet   *scheduler.Fleet
	tasks   []Task   // ordered by id
	classOf []*class // by task; nil for tasks on unknown nodes
	spare   map[cluster.OwnerRef]int
	stays   map[string]int

	nodes    []node // ordered by name
	shapes   []amounts
	classes  []*class // in the order of their first tasks
	groups   []*group
	movables map[movableKey]*movable
	values   map[string]*attributeValues // by attribute

	// There are movable tasks of the strategy.
	hasBinpack, hasSpread, hasWhole bool

	openNodes int // number of open nodes
	workLeft  int // remaining node evaluations
	bounded   bool
	sweeps    int
	moves     []Move
	siblings  []int32 // by node, for the present class; 0 between uses
}

// node is a node with what is derived from its tasks.
type node struct {
	scheduler.Node
	shape          int32
	isOpen         bool // it accepts tasks
	capacity       amounts
	used           amounts
	share          amounts // used shares of the capacity
	stranded       int64   // see the function stranded
	nonDaemonTasks int     // number of tasks, daemons aside
	tasks          []int32 // known tasks, unordered
	hasUnknown     bool    // something unknown is reserved here
}

// class is tasks with equal requests.
type class struct {
	*cluster.Pending // one of the tasks
	strategy         cluster.Strategy
	affinity         cluster.AntiAffinity
	group            *group
	demand           amounts
	shares           []amounts // demand by shape
	preferenceValues []int64   // by node, see the method preferenceValues; may be nil
	// hasRelations says that the class has relations. No gain covers these, so its tasks move only because of
	// violations.
	hasRelations bool
	refused      []uint64 // bits of nodes that refused it in the sweep refusedIn; may be nil
	refusedIn    int
}

// group is the tasks of one version of an owner: they prefer to be apart.
type group struct {
	class   *class // the first class
	count   int
	at      map[int32]int32 // by node
	spreads []spreadState
}

// movable is the movable tasks of a class on one node.
type movable struct {
	class *class
	node  int32
	tasks []int32 // ordered
}

type movableKey struct {
	class *class
	node  int32
}

func newState(in Input, opts Options) *state {
	b := &state{
		opts: opts, fleet: in.Fleet.Clone(), spare: in.Spare, stays: map[string]int{}, tasks: slices.Clone(in.Tasks),
		movables: map[movableKey]*movable{}, values: map[string]*attributeValues{}, workLeft: opts.Work,
	}
	slices.SortFunc(b.tasks, func(x, y Task) int {
		return cmp.Or(cmp.Compare(x.Task, y.Task), cmp.Compare(x.UUID, y.UUID))
	})
	b.setNodes()
	b.siblings = make([]int32, len(b.nodes))
	b.setTasks()
	return b
}

// setNodes adds the fleet's nodes.
func (b *state) setNodes() {
	shapes := map[amounts]int32{}
	for _, name := range b.fleet.Nodes() {
		n, used, _ := b.fleet.Node(name)
		o := node{
			Node: n, used: amountsOf(used), capacity: amountsOf(n.Capacity),
			isOpen: n.State == cluster.NodeReady && !n.Cordon,
		}
		shape, known := shapes[o.capacity]
		if !known {
			shape = int32(len(b.shapes))
			shapes[o.capacity] = shape
			b.shapes = append(b.shapes, o.capacity)
		}
		o.shape = shape
		o.updateShares()
		if o.isOpen {
			b.openNodes++
		}
		b.nodes = append(b.nodes, o)
	}
}

// find returns the index of a node.
func (b *state) find(name string) (int32, bool) {
	n, found := slices.BinarySearchFunc(b.nodes, name, func(n node, name string) int {
		return strings.Compare(n.Name, name)
	})
	return int32(n), found
}

// setTasks sorts the tasks into classes, groups and movables.
func (b *state) setTasks() {
	needed := b.neededNearby()
	classes := map[string][]*class{}
	groups := map[string]*group{}
	known := make([]amounts, len(b.nodes))
	b.classOf = make([]*class, len(b.tasks))
	for i := range b.tasks {
		t := &b.tasks[i]
		n, found := b.find(t.Node)
		if _, reserved := b.fleet.Reserved(t.UUID); !found || !reserved {
			t.Unmovable = cmp.Or(t.Unmovable, "on an unknown node")
			b.stays[t.Unmovable]++
			t.Node = ""
			continue
		}
		c := b.class(t, classes, groups)
		b.classOf[i] = c
		c.group.count++
		c.group.at[n]++
		o := &b.nodes[n]
		o.tasks = append(o.tasks, int32(i))
		known[n] = known[n].add(c.demand)
		if !t.Daemon {
			o.nonDaemonTasks++
		}
		if t.Unmovable == "" && b.spare[t.Owner] < 0 {
			t.Unmovable = "of services with fewer tasks than their count"
		}
		if t.Unmovable == "" && t.StopFirst && b.spare[t.Owner] < 1 {
			t.Unmovable = "that stop before their replacement starts, which min_healthy forbids"
		}
		if t.Unmovable == "" && needed(t) {
			t.Unmovable = "that other tasks must be near"
		}
		if t.Unmovable != "" {
			b.stays[t.Unmovable]++
			continue
		}
		b.hasBinpack = b.hasBinpack || c.strategy == cluster.StrategyBinpack
		b.hasWhole = b.hasWhole || c.strategy == cluster.StrategyWhole
		b.hasSpread = b.hasSpread || c.strategy == cluster.StrategySpread
		b.addMovable(int32(i), c, n)
	}
	for n := range b.nodes {
		b.nodes[n].hasUnknown = known[n] != b.nodes[n].used
	}
	for _, g := range b.groups {
		for s := range g.spreads {
			g.spreads[s].setTargets(g.count, g.at)
		}
	}
}

// neededNearby returns a function that reports whether other tasks require a task nearby. Such a task stays, or it
// would leave them alone. The tasks of a step have equal relations, those of other steps of the job have others.
func (b *state) neededNearby() func(*Task) bool {
	type relation struct {
		cluster.Relation
		of cluster.TaskID
	}
	type step struct {
		owner cluster.OwnerRef
		name  string
	}
	var required []relation
	seen := map[step]bool{}
	for i := range b.tasks {
		t := &b.tasks[i]
		if len(t.Placement.Relations) == 0 {
			continue
		}
		parts, _ := t.Task.Parts()
		of := step{t.Owner, parts.Step}
		if seen[of] {
			continue
		}
		seen[of] = true
		for _, r := range t.Placement.Relations {
			if r.Required && !r.Away {
				required = append(required, relation{r, t.Task})
			}
		}
	}
	return func(t *Task) bool {
		return slices.ContainsFunc(required, func(r relation) bool {
			return scheduler.Concerns(r.Relation, r.of, t.Task, t.Labels)
		})
	}
}

// class returns the class of the task, and adds one if there is none.
func (b *state) class(t *Task, classes map[string][]*class, groups map[string]*group) *class {
	parts, _ := t.Task.Parts()
	key := fmt.Sprint(t.Owner.Kind, "/", t.Owner.Cluster, "/", t.Owner.Name, "/", parts.Step, "/", t.Definition, "/",
		parts.Generation >= t.Restarted)
	for _, c := range classes[key] {
		if c.Demand == t.Demand && c.NeedsImage == t.NeedsImage && c.Plain == t.Plain &&
			c.Placement.Strategy == t.Placement.Strategy &&
			c.Placement.AntiAffinity == t.Placement.AntiAffinity && c.OwnerRev == t.OwnerRev {
			return c
		}
	}
	c := &class{
		Pending: &t.Pending, strategy: b.opts.Scheduler.Strategy(&t.Pending),
		affinity: t.Placement.AntiAffinity, demand: amountsOf(t.Demand),
	}
	if c.affinity == "" {
		c.affinity = cluster.AntiAffinityPrefer
		if c.strategy == cluster.StrategyBinpack {
			c.affinity = cluster.AntiAffinityNone
		}
	}
	for _, s := range b.shapes {
		c.shares = append(c.shares, sharesOf(c.demand, s))
	}
	c.preferenceValues, c.hasRelations = b.preferenceValues(&t.Placement), len(t.Placement.Relations) > 0
	if c.group = groups[key]; c.group == nil {
		c.group = b.newGroup(&t.Placement)
		c.group.class = c
		groups[key] = c.group
		b.groups = append(b.groups, c.group)
	}
	classes[key] = append(classes[key], c)
	b.classes = append(b.classes, c)
	return c
}

// addMovable adds a task to the movables of a class on a node.
func (b *state) addMovable(i int32, c *class, n int32) {
	k := movableKey{c, n}
	s := b.movables[k]
	if s == nil {
		s = &movable{class: c, node: n}
		b.movables[k] = s
	}
	at, _ := slices.BinarySearch(s.tasks, i)
	s.tasks = slices.Insert(s.tasks, at, i)
}

// movesLeft returns how many more moves are allowed.
func (b *state) movesLeft() int {
	if b.opts.MaxMoves <= 0 {
		return 1 << 30
	}
	return b.opts.MaxMoves - len(b.moves)
}

// spendWork subtracts evaluations from the remaining work, and reports whether it is used up.
func (b *state) spendWork(evaluations int) bool {
	b.workLeft -= evaluations
	b.bounded = b.bounded || b.workLeft < 0
	return b.workLeft < 0
}

// isOver reports whether moves or work are used up.
func (b *state) isOver() bool { return b.workLeft < 0 || b.movesLeft() <= 0 }

// inUse reports whether a node has anything but daemon tasks.
func (n *node) inUse() bool { return n.nonDaemonTasks > 0 || n.hasUnknown }

// acceptsMoves reports whether a single move may go to the node. Empty nodes stay empty while there are tasks of
// strategy binpack.
func (b *state) acceptsMoves(n *node) bool { return n.isOpen && (!b.hasBinpack || n.inUse()) }

// fits reports whether a node has room for the demand. The scheduler decides about everything else.
func (n *node) fits(demand *amounts) bool {
	for r, d := range demand {
		if d > 0 && n.used[r]+d > n.capacity[r] {
			return false
		}
	}
	return true
}

// points converts units to points.
func points(units int64) int { return int(units / (unit / Points)) }

func (a amounts) add(o amounts) amounts { return amounts{a[0] + o[0], a[1] + o[1], a[2] + o[2]} }

func (a amounts) sub(o amounts) amounts { return amounts{a[0] - o[0], a[1] - o[1], a[2] - o[2]} }

// sharesOf returns the used shares of capacities; 0 of a capacity of 0.
func sharesOf(used, capacity amounts) amounts {
	var s amounts
	for r := range s {
		if capacity[r] <= 0 || used[r] <= 0 {
			continue
		}
		hi, lo := bits.Mul64(uint64(used[r]), shareOne)
		if hi >= uint64(capacity[r]) { // capped
			s[r] = 4 * shareOne
			continue
		}
		q, _ := bits.Div64(hi, lo, uint64(capacity[r]))
		s[r] = int64(min(q, 4*shareOne))
	}
	return s
}
