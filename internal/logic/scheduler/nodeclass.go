package scheduler

import (
	"maps"
	"math/bits"
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// nodeClass is a set of nodes that are equal in all that a task may ask about, and nearly equal in capacity. Names and
// fine labels may differ. What is found out about one node holds for all. The order in which the nodes fill is the same
// for every task.
type nodeClass struct {
	key   string
	like  Node // one of the nodes, without its name
	shape int32
	count int
}

// The orders of the nodes of a node class, each kept in a tree.
const (
	byFill    = iota // emptiest first
	byBalance        // the most memory used in relation to CPU first
	orders
)

// catalog indexes the nodes of a fleet by node class and device class.
type catalog struct {
	classes       []nodeClass        // by number; a count of 0 means unused
	trees         [orders][]nodeTree // by order and class
	deviceClasses deviceClasses
	vacant        []int32
	byKey         map[string]int32
	shapes        []cluster.Demand // the rounded capacities, see shapeOf
	byShape       map[cluster.Demand]int32
	labels        map[string]*label
	fines         []string // keys of the fine labels, in order
	buffer        []byte
}

func newCatalog() catalog {
	return catalog{
		byKey: map[string]int32{}, byShape: map[cluster.Demand]int32{}, labels: map[string]*label{},
		deviceClasses: newDeviceClasses(),
	}
}

// enter returns the node class of the node, and counts the node.
func (g *catalog) enter(n *Node) int32 {
	shape := shapeOf(clamp(n.Capacity))
	labels := g.coarseLabels(n.Labels)
	g.buffer = classKey(g.buffer[:0], n, labels, shape)
	c, found := g.byKey[string(g.buffer)]
	if !found {
		if last := len(g.vacant) - 1; last >= 0 {
			c, g.vacant = g.vacant[last], g.vacant[:last]
		} else {
			c = int32(len(g.classes))
			g.classes = append(g.classes, nodeClass{})
			for order := range g.trees {
				g.trees[order] = append(g.trees[order], nodeTree{})
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

// leave uncounts a node. Its entries must have left the trees.
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
		labels: g.cloneLabels(), fines: slices.Clone(g.fines), deviceClasses: g.deviceClasses.clone(),
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
	q := indexEditor{owner: &pageOwner{}}.own(p)
	q.owner = nil
	for i := range q.children {
		q.children[i].page = q.children[i].page.clone()
	}
	return q
}

// classKey appends all that the node class of a node depends on.
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

// devicesKey appends devices without their IDs.
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

// shapeBits is the number of significant binary digits of a shape's amounts.
const shapeBits = 6

// shapeOf rounds a capacity down, by 3 % at most. Machines of one model differ slightly in the memory that their
// kernels leave; rounding makes their nodes equal.
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
	parts           = 1_000_000 // all of a resource
	maxParts        = 8 * parts // upper limit, for resources that are overcommitted
	fillBits        = 26        // for six amounts in parts: three resources, each used and demanded
	taskBits        = 20
	maxCountedTasks = 1<<taskBits - 1
)

// share returns an amount in millionths of a capacity, at most maxParts; 0 of a capacity of 0.
func share(amount, capacity int64) uint64 {
	if capacity <= 0 || amount <= 0 {
		return 0
	}
	if amount < 1<<43 {
		return min(uint64(amount)*parts/uint64(capacity), maxParts)
	}
	hi, lo := bits.Mul64(uint64(amount), parts)
	if hi >= uint64(capacity) {
		return maxParts
	}
	q, _ := bits.Div64(hi, lo, uint64(capacity))
	return min(q, maxParts)
}

// shares is an amount of each resource in millionths of a shape.
type shares struct{ cpu, memory, disk uint64 }

func sharesOf(d, shape cluster.Demand) shares {
	return shares{
		share(int64(d.CPU), int64(shape.CPU)),
		share(int64(d.Memory), int64(shape.Memory)),
		share(int64(d.Disk), int64(shape.Disk)),
	}
}

func (s shares) fill() uint64 { return s.cpu + s.memory + s.disk }

// Balance is counted in coarse steps: of nodes with about the same balance, the fullest is taken.
const (
	balanceSteps = 32 // a whole resource
	balanceZero  = balanceSteps * maxParts / parts
)

// balance returns by how many steps CPU is used more than memory, rounded down.
func (s shares) balance() int {
	return (int(s.cpu)-int(s.memory)+maxParts)*balanceSteps/parts - balanceZero
}

// rekey computes a node's keys in the trees of its node class.
func (g *catalog) rekey(l *load) {
	s := sharesOf(l.used, g.shapes[g.classes[l.class].shape])
	l.key[byFill] = s.fill()<<taskBits | uint64(min(l.tasks, maxCountedTasks))
	l.key[byBalance] = uint64(s.balance()+balanceZero)<<(fillBits+taskBits) | l.key[byFill]
}
