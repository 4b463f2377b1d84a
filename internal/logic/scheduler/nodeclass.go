package scheduler

import (
	"maps"
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

// catalog indexes the nodes of a fleet by node class and device class.
type catalog struct {
	classes       []nodeClass        // by number; a count of 0 means unused
	trees         [orders][]nodeTree // by order and class
	deviceClasses deviceClasses
	vacant        []int32
	byKey         map[string]int32
	shapes        []cluster.Demand // the rounded capacities, see shapeOf
	byShape       map[cluster.Demand]int32
	labels        labelIndex
	buffer        []byte
	treeEditor    indexEditor // of trees
	deviceEditor  indexEditor // of deviceClasses
}

func newCatalog() catalog {
	return catalog{
		byKey: map[string]int32{}, byShape: map[cluster.Demand]int32{}, labels: labelIndex{byKey: map[string]*label{}},
		deviceClasses: newDeviceClasses(),
	}
}

// enter returns the node class of the node, and counts the node.
func (g *catalog) enter(n *Node) int32 {
	shape := shapeOf(clamp(n.Capacity))
	labels := g.labels.coarse(n.Labels)
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

// inUse returns the number of node classes that have nodes.
func (g *catalog) inUse() int { return len(g.classes) - len(g.vacant) }

// editWith gives the catalog the names that order the nodes of its trees.
func (g *catalog) editWith(o *names) {
	g.treeEditor, g.deviceEditor = indexEditor{names: o}, indexEditor{names: o, withSpans: true}
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
		labels: g.labels.clone(), deviceClasses: g.deviceClasses.clone(),
	}
	for order := range g.trees {
		c.trees[order] = slices.Clone(g.trees[order])
		for i := range c.trees[order] {
			c.trees[order][i].page = c.trees[order][i].clone()
		}
	}
	return c
}

// addToTree adds a node to one of the trees of its class.
func (g *catalog) addToTree(order int, l *load, i int32) {
	l.at[order] = l.key[order]
	t := &g.trees[order][l.class]
	*t = nodeTreeOf(g.treeEditor.insert(t.page, entry{key: l.key[order], slot: i, free: l.free()}))
}

// removeFromTree removes a node from one of the trees of its class.
func (g *catalog) removeFromTree(order int, l *load, i int32) {
	t := &g.trees[order][l.class]
	*t = nodeTreeOf(g.treeEditor.remove(t.page, l.at[order], i))
}

// rekey computes a node's keys in the trees of its node class.
func (g *catalog) rekey(l *load) {
	s := sharesOf(l.used, g.shapes[g.classes[l.class].shape])
	l.key[byFill] = s.fill()<<taskBits | uint64(min(l.tasks, maxCountedTasks))
	l.key[byBalance] = uint64(s.balance()+balanceZero)<<(fillBits+taskBits) | l.key[byFill]
}
