package optimizer

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// Gains are counted in units: a share of a node has shareBits behind the point, its square twice as many. Integers, so
// that every server finds the same.
const (
	shareBits = 15
	one       = 1 << shareBits
	unit      = one * one // what Points are worth
)

// resources are CPU, memory and disk.
const resources = 3

type amounts [resources]int64

func amountsOf(d cluster.Demand) amounts {
	return amounts{max(0, int64(d.CPU)), max(0, int64(d.Memory)), max(0, int64(d.Disk))}
}

// board is the fleet in columns, as the moves so far leave it.
type board struct {
	opts  Options
	trial *scheduler.Fleet
	tasks []Task   // ordered by id
	kinds []*class // by task; nil for those on nodes that are not known
	spare map[cluster.OwnerRef]int
	stays map[string]int

	nodes   []node // ordered by name
	shapes  []amounts
	classes []*class // in the order of their first tasks
	groups  []*group
	seats   map[seatKey]*seat
	values  map[string]*valuesOf // by attribute

	// There are tasks of that strategy that may be moved.
	packs, spread, whole bool

	open     int // nodes that take tasks
	left     int // looks at nodes
	bounded  bool
	sweeps   int
	moves    []Move
	siblings []int32 // by node, of the class that is looked at; zero in between
}

// node is a column of the board.
type node struct {
	scheduler.Node
	shape    int32
	open     bool // it takes tasks
	capacity amounts
	used     amounts
	share    amounts // used, of capacity
	stranded int64   // see stranded
	busy     int     // tasks but those of daemons
	tasks    []int32 // all that are known, unordered
	strange  bool    // something is reserved here that is none of the tasks
}

// class is tasks that ask for the same.
type class struct {
	*cluster.Pending // one of them
	strategy         cluster.Strategy
	affinity         cluster.AntiAffinity
	group            *group
	demand           amounts
	shares           []amounts // of each shape
	liked            []int64   // by node, what it is worth to be there; nil without such wishes
	// it has wishes about other workloads, which no gain tells of: it is moved because of violations alone
	tied     bool
	closed   []uint64 // nodes that refused it in this sweep; nil for none
	closedIn int      // the sweep
}

// group is the tasks of one version of an owner, which keep away from each other.
type group struct {
	class   *class // the first
	count   int
	at      map[int32]int32 // by node
	spreads []spreadOf
}

// seat is the tasks of a class that may be moved off one node.
type seat struct {
	class *class
	node  int32
	tasks []int32 // ordered
}

type seatKey struct {
	class *class
	node  int32
}

func newBoard(in Input, opts Options) *board {
	b := &board{
		opts: opts, trial: in.Fleet.Clone(), spare: in.Spare, stays: map[string]int{}, tasks: slices.Clone(in.Tasks),
		seats: map[seatKey]*seat{}, values: map[string]*valuesOf{}, left: opts.Work,
	}
	slices.SortFunc(b.tasks, func(x, y Task) int {
		return cmp.Or(cmp.Compare(x.Task, y.Task), cmp.Compare(x.UUID, y.UUID))
	})
	b.setNodes()
	b.siblings = make([]int32, len(b.nodes))
	b.setTasks()
	return b
}

// setNodes makes the columns of the fleet's nodes.
func (b *board) setNodes() {
	shapes := map[amounts]int32{}
	for _, name := range b.trial.Nodes() {
		n, used, _ := b.trial.Node(name)
		o := node{
			Node: n, used: amountsOf(used), capacity: amountsOf(n.Capacity),
			open: n.State == cluster.NodeReady && !n.Cordon,
		}
		shape, known := shapes[o.capacity]
		if !known {
			shape = int32(len(b.shapes))
			shapes[o.capacity] = shape
			b.shapes = append(b.shapes, o.capacity)
		}
		o.shape = shape
		o.measure()
		if o.open {
			b.open++
		}
		b.nodes = append(b.nodes, o)
	}
}

// find returns the number of a node.
func (b *board) find(name string) (int32, bool) {
	n, found := slices.BinarySearchFunc(b.nodes, name, func(n node, name string) int {
		return strings.Compare(n.Name, name)
	})
	return int32(n), found
}

// setTasks sorts the tasks into classes, groups and seats.
func (b *board) setTasks() {
	needed := b.needed()
	classes := map[string][]*class{}
	groups := map[string]*group{}
	known := make([]amounts, len(b.nodes))
	b.kinds = make([]*class, len(b.tasks))
	for i := range b.tasks {
		t := &b.tasks[i]
		n, found := b.find(t.Node)
		if _, reserved := b.trial.Reserved(t.UUID); !found || !reserved {
			t.Stay = cmp.Or(t.Stay, "on a node that is not known")
			b.stays[t.Stay]++
			t.Node = ""
			continue
		}
		c := b.class(t, classes, groups)
		b.kinds[i] = c
		c.group.count++
		c.group.at[n]++
		o := &b.nodes[n]
		o.tasks = append(o.tasks, int32(i))
		known[n] = known[n].add(c.demand)
		if !t.Daemon {
			o.busy++
		}
		if t.Stay == "" && b.spare[t.Owner] < 0 {
			t.Stay = "of services that have less than they are to have"
		}
		if t.Stay == "" && t.StopFirst && b.spare[t.Owner] < 1 {
			t.Stay = "to be stopped before they begin elsewhere, which their services cannot spare"
		}
		if t.Stay == "" && needed(t) {
			t.Stay = "needed nearby by others"
		}
		if t.Stay != "" {
			b.stays[t.Stay]++
			continue
		}
		b.packs = b.packs || c.strategy == cluster.StrategyBinpack
		b.whole = b.whole || c.strategy == cluster.StrategyWhole
		b.spread = b.spread || c.strategy == cluster.StrategySpread
		b.sit(int32(i), c, n)
	}
	for n := range b.nodes {
		b.nodes[n].strange = known[n] != b.nodes[n].used
	}
	for _, g := range b.groups {
		for s := range g.spreads {
			g.spreads[s].aim(g.count, g.at)
		}
	}
}

// needed returns what says of a task whether others ask to be near it: it stays, or they would stand alone.
func (b *board) needed() func(*Task) bool {
	type wish struct {
		*cluster.Relation
		own string
	}
	var wishes []wish
	seen := map[cluster.OwnerRef]bool{}
	for i := range b.tasks {
		t := &b.tasks[i]
		if len(t.Placement.Relations) == 0 || seen[t.Owner] {
			continue
		}
		seen[t.Owner] = true
		for r := range t.Placement.Relations {
			if w := (wish{&t.Placement.Relations[r], t.Owner.Cluster}); w.Required && !w.Away {
				wishes = append(wishes, w)
			}
		}
	}
	return func(t *Task) bool {
		return slices.ContainsFunc(wishes, func(w wish) bool {
			if w.Clusters == nil && w.own != t.Owner.Cluster || w.Clusters != nil &&
				!slices.Contains(w.Clusters, t.Owner.Cluster) {
				return false
			}
			for k, v := range w.Labels { // order-free: all have to be met
				if t.Labels[k] != v {
					return false
				}
			}
			return true
		})
	}
}

// class returns the class of the task, a new one if there is none.
func (b *board) class(t *Task, classes map[string][]*class, groups map[string]*group) *class {
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
	c.liked, c.tied = b.likes(&t.Placement), len(t.Placement.Relations) > 0
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

// sit adds a task to the seat on a node.
func (b *board) sit(i int32, c *class, n int32) {
	k := seatKey{c, n}
	s := b.seats[k]
	if s == nil {
		s = &seat{class: c, node: n}
		b.seats[k] = s
	}
	at, _ := slices.BinarySearch(s.tasks, i)
	s.tasks = slices.Insert(s.tasks, at, i)
}

// room is how many more moves there may be.
func (b *board) room() int {
	if b.opts.MaxMoves <= 0 {
		return 1 << 30
	}
	return b.opts.MaxMoves - len(b.moves)
}

// spent takes so many looks from what is left, and reports whether it is used up.
func (b *board) spent(looks int) bool {
	b.left -= looks
	b.bounded = b.bounded || b.left < 0
	return b.left < 0
}

// over reports whether moves or work are used up.
func (b *board) over() bool { return b.left < 0 || b.room() <= 0 }

// inUse reports whether there is anything on a node but tasks of daemons.
func (n *node) inUse() bool { return n.busy > 0 || n.strange }

// opens reports whether a single move may go to the node. One that is empty stays so while there are tasks of strategy
// binpack.
func (b *board) opens(n *node) bool { return n.open && (!b.packs || n.inUse()) }

// fits reports whether a node has room for the class, as far as the columns tell.
func (n *node) fits(demand *amounts) bool {
	for r, d := range demand {
		if d > 0 && n.used[r]+d > n.capacity[r] {
			return false
		}
	}
	return true
}

// points tells a gain in units to people.
func points(units int64) int { return int(units / (unit / Points)) }

func (a amounts) add(o amounts) amounts { return amounts{a[0] + o[0], a[1] + o[1], a[2] + o[2]} }

func (a amounts) sub(o amounts) amounts { return amounts{a[0] - o[0], a[1] - o[1], a[2] - o[2]} }

// sharesOf returns which share of each capacity is used. Of nothing, nothing is used.
func sharesOf(used, capacity amounts) amounts {
	var s amounts
	for r := range s {
		if capacity[r] <= 0 || used[r] <= 0 {
			continue
		}
		hi, lo := bits.Mul64(uint64(used[r]), one)
		if hi >= uint64(capacity[r]) { // beyond all bounds
			s[r] = 4 * one
			continue
		}
		q, _ := bits.Div64(hi, lo, uint64(capacity[r]))
		s[r] = int64(min(q, 4*one))
	}
	return s
}
