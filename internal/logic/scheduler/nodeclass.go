package scheduler

import (
	"maps"
	"math/bits"
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// nodeClass is nodes that are alike in all that a task may ask about but for their names and fine labels, and of nearly
// the same capacity. What is found out about one holds for all, and the order in which they are filled is the same for
// every task.
type nodeClass struct {
	key   string
	like  Node // one of them, without its name
	shape int32
	count int
}

// The orders in which the nodes of a class are kept.
const (
	byFill    = iota // emptiest first
	byBalance        // those with the most memory used, beside the CPU that is used, first
	orders
)

// catalog is the node classes of a fleet.
type catalog struct {
	classes []nodeClass   // by number; a count of 0 is a vacant one
	trees   [orders][]top // by order and class
	shelves shelves
	vacant  []int32
	byKey   map[string]int32
	shapes  []cluster.Demand // capacities as they are counted with, see shapeOf
	byShape map[cluster.Demand]int32
	labels  map[string]*label
	fines   []string // those of the labels that are fine, ordered
	buffer  []byte
}

func newCatalog() catalog {
	return catalog{
		byKey: map[string]int32{}, byShape: map[cluster.Demand]int32{}, labels: map[string]*label{},
		shelves: newShelves(),
	}
}

// enter returns the class of the node, and counts the node with it.
func (g *catalog) enter(n *Node) int32 {
	shape := shapeOf(clamp(n.Capacity))
	labels := g.coarse(n.Labels)
	g.buffer = classKey(g.buffer[:0], n, labels, shape)
	c, found := g.byKey[string(g.buffer)]
	if !found {
		if last := len(g.vacant) - 1; last >= 0 {
			c, g.vacant = g.vacant[last], g.vacant[:last]
		} else {
			c = int32(len(g.classes))
			g.classes = append(g.classes, nodeClass{})
			for order := range g.trees {
				g.trees[order] = append(g.trees[order], top{})
			}
		}
		number, known := g.byShape[shape]
		if !known {
			number = int32(len(g.shapes))
			g.shapes = append(g.shapes, shape)
			g.byShape[shape] = number
		}
		key := string(g.buffer)
		g.classes[c] = nodeClass{key: key, like: *n, shape: number}
		g.classes[c].like.Labels = labels
		g.classes[c].like.Name, g.classes[c].like.ReservedPorts, g.classes[c].like.Images = "", nil, nil
		g.byKey[key] = c
	}
	g.classes[c].count++
	return c
}

// leave counts a node out, whose entries are no longer in the trees.
func (g *catalog) leave(c int32) {
	g.classes[c].count--
	if g.classes[c].count > 0 {
		return
	}
	delete(g.byKey, g.classes[c].key)
	g.classes[c] = nodeClass{}
	g.vacant = append(g.vacant, c)
}

func (g *catalog) clone() catalog {
	c := catalog{
		classes: slices.Clone(g.classes), vacant: slices.Clone(g.vacant), byKey: maps.Clone(g.byKey),
		shapes: slices.Clone(g.shapes), byShape: maps.Clone(g.byShape),
		labels: g.cloneLabels(), fines: slices.Clone(g.fines), shelves: g.shelves.clone(),
	}
	for order := range g.trees {
		c.trees[order] = slices.Clone(g.trees[order])
		for i := range c.trees[order] {
			c.trees[order][i].page = c.trees[order][i].clone()
		}
	}
	return c
}

func (p *page) clone() *page {
	if p == nil {
		return nil
	}
	q := editor{owner: &owner{}}.own(p)
	q.owner = nil
	for i := range q.kids {
		q.kids[i].page = q.kids[i].page.clone()
	}
	return q
}

// classKey appends all that the class of a node depends on.
func classKey(b []byte, n *Node, labels cluster.Labels, shape cluster.Demand) []byte {
	text := func(s string) { b = textKey(b, s) }
	text(string(n.State))
	flags := byte(0)
	if n.Cordon {
		flags |= 1
	}
	if n.Drain {
		flags |= 2
	}
	b = append(b, flags)
	text(n.Pool)
	b = appendNumber(b, uint64(len(n.Taints)))
	for _, t := range n.Taints {
		text(t.Key)
		text(t.Value)
		text(string(t.Effect))
	}
	b = reservedKey(b, n.Reserved)
	text(n.Arch)
	text(n.OS)
	text(n.Kernel)
	b = appendNumber(b, uint64(len(n.Executors)))
	for _, e := range n.Executors {
		text(e)
	}
	b = labelsKey(b, labels)
	b = devicesKey(b, n.Devices)
	b = appendNumber(b, uint64(len(n.Volumes)))
	for _, v := range n.Volumes {
		text(v)
	}
	b = foldersKey(b, n.Folders)
	b = appendNumber(b, uint64(len(n.Networks)))
	for _, f := range n.Networks {
		text(string(f.Mode))
		text(f.Lacks)
	}
	for _, amount := range []int64{int64(shape.CPU), int64(shape.Memory), int64(shape.Disk)} {
		b = appendNumber(b, uint64(amount))
	}
	return b
}

// devicesKey appends devices without what tells equal ones apart.
func devicesKey(b []byte, devices []cluster.Device) []byte {
	b = appendNumber(b, uint64(len(devices)))
	if len(devices) == 0 {
		return b
	}
	keys := make([]string, 0, len(devices))
	for i := range devices {
		d := &devices[i]
		key := appendNumber(textKey(textKey(nil, d.Type), d.Model), uint64(d.Memory))
		keys = append(keys, string(appendNumber(key, uint64(d.Numa))))
	}
	slices.Sort(keys)
	for _, key := range keys {
		b = append(b, key...)
	}
	return b
}

// shapeBits is how many binary digits of a capacity count for how full a node is.
const shapeBits = 6

// shapeOf rounds a capacity down, by 3 % at most. No two machines of one model have quite the same memory left by their
// kernels; they are filled as if they had.
func shapeOf(capacity cluster.Demand) cluster.Demand {
	round := func(v int64) int64 {
		drop := max(bits.Len64(uint64(v))-shapeBits, 0)
		return v >> drop << drop
	}
	return cluster.Demand{
		CPU:    cluster.MilliCPU(round(int64(capacity.CPU))),
		Memory: cluster.Bytes(round(int64(capacity.Memory))),
		Disk:   cluster.Bytes(round(int64(capacity.Disk))),
	}
}

const (
	parts     = 1_000_000 // a resource that is all used
	mostParts = 8 * parts // what is counted at most, where a resource is used more than once over
	fillBits  = 26        // hold six amounts in parts, of three resources of what is used and what comes
	taskBits  = 20
	mostTasks = 1<<taskBits - 1
)

// share returns an amount in millionths of a capacity, mostParts at most; of nothing, nothing is used.
func share(amount, capacity int64) uint64 {
	if capacity <= 0 || amount <= 0 {
		return 0
	}
	if amount < 1<<43 {
		return min(uint64(amount)*parts/uint64(capacity), mostParts)
	}
	hi, lo := bits.Mul64(uint64(amount), parts)
	if hi >= uint64(capacity) {
		return mostParts
	}
	q, _ := bits.Div64(hi, lo, uint64(capacity))
	return min(q, mostParts)
}

// shares is an amount of each resource in parts of a shape.
type shares struct{ cpu, memory, disk uint64 }

func sharesOf(d, shape cluster.Demand) shares {
	return shares{
		share(int64(d.CPU), int64(shape.CPU)),
		share(int64(d.Memory), int64(shape.Memory)),
		share(int64(d.Disk), int64(shape.Disk)),
	}
}

func (s shares) fill() uint64 { return s.cpu + s.memory + s.disk }

// Balance is counted in steps, so that of nodes that differ little in it the fullest is taken.
const (
	balanceSteps = 32 // of a whole resource
	balanceZero  = balanceSteps * mostParts / parts
)

// balance returns how much more of the CPU is used than of the memory, in steps rounded down.
func (s shares) balance() int {
	return (int(s.cpu)-int(s.memory)+mostParts)*balanceSteps/parts - balanceZero
}

// rekey finds the place of a node in the orders of its class.
func (g *catalog) rekey(l *load) {
	s := sharesOf(l.used, g.shapes[g.classes[l.class].shape])
	l.key[byFill] = s.fill()<<taskBits | uint64(min(l.tasks, mostTasks))
	l.key[byBalance] = uint64(s.balance()+balanceZero)<<(fillBits+taskBits) | l.key[byFill]
}
