package fleet

import (
	"maps"
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/index"
)

// NodeClass is a set of nodes that are equal in all attributes that a task may require, and nearly equal in capacity.
// Names and fine labels may differ. A result for one node is valid for all. The order in which the nodes fill is the
// same for every task.
type NodeClass struct {
	key   string
	Like  Node // one of the nodes, without its name
	Shape int32
	Count int
}

// Catalog indexes the nodes of a fleet by node class and device class.
type Catalog struct {
	Classes       []NodeClass          // by number; a count of 0 means unused
	Trees         [orders][]index.Tree // by order and class
	DeviceClasses DeviceClasses
	vacant        []int32
	byKey         map[string]int32
	Shapes        []cluster.Demand // the rounded capacities, see index.ShapeOf
	byShape       map[cluster.Demand]int32
	Labels        Labels
	buffer        []byte
	treeEditor    index.Editor // of trees
	deviceEditor  index.Editor // of DeviceClasses
}

func newCatalog() Catalog {
	return Catalog{
		byKey: map[string]int32{}, byShape: map[cluster.Demand]int32{}, Labels: Labels{byKey: map[string]*Label{}},
		DeviceClasses: newDeviceClasses(),
	}
}

// enter returns the node class of the node, and counts the node.
func (g *Catalog) enter(n *Node) int32 {
	shape := index.ShapeOf(index.Clamp(n.Capacity))
	labels := g.Labels.coarse(n.Labels)
	g.buffer = classKey(g.buffer[:0], n, labels, shape)
	c, found := g.byKey[string(g.buffer)]
	if !found {
		if last := len(g.vacant) - 1; last >= 0 {
			c, g.vacant = g.vacant[last], g.vacant[:last]
		} else {
			c = int32(len(g.Classes))
			g.Classes = append(g.Classes, NodeClass{})
			for order := range g.Trees {
				g.Trees[order] = append(g.Trees[order], index.Tree{})
			}
		}
		number, known := g.byShape[shape]
		if !known {
			number = int32(len(g.Shapes))
			g.Shapes = append(g.Shapes, shape)
			g.byShape[shape] = number
		}
		key := string(g.buffer)
		g.Classes[c] = NodeClass{key: key, Like: *n, Shape: number}
		g.Classes[c].Like.Labels = labels
		g.Classes[c].Like.Name, g.Classes[c].Like.ReservedPorts, g.Classes[c].Like.Images = "", nil, nil
		g.byKey[key] = c
	}
	g.Classes[c].Count++
	return c
}

// InUse returns the number of node classes that have nodes.
func (g *Catalog) InUse() int { return len(g.Classes) - len(g.vacant) }

// editWith gives the catalog the names that order the nodes of its trees.
func (g *Catalog) editWith(o *index.Names) {
	g.treeEditor, g.deviceEditor = index.Editor{Names: o}, index.Editor{Names: o, WithSpans: true}
}

// leave uncounts a node. Its entries must have left the trees.
func (g *Catalog) leave(c int32) {
	g.Classes[c].Count--
	if g.Classes[c].Count > 0 {
		return
	}
	delete(g.byKey, g.Classes[c].key)
	g.Classes[c] = NodeClass{}
	g.vacant = append(g.vacant, c)
}

func (g *Catalog) clone() Catalog {
	c := Catalog{
		Classes: slices.Clone(g.Classes), vacant: slices.Clone(g.vacant), byKey: maps.Clone(g.byKey),
		Shapes: slices.Clone(g.Shapes), byShape: maps.Clone(g.byShape),
		Labels: g.Labels.clone(), DeviceClasses: g.DeviceClasses.clone(),
	}
	for order := range g.Trees {
		c.Trees[order] = slices.Clone(g.Trees[order])
		for i := range c.Trees[order] {
			c.Trees[order][i].Page = c.Trees[order][i].Clone()
		}
	}
	return c
}

// addToTree adds a node to one of the trees of its class.
func (g *Catalog) addToTree(order int, l *Load, i int32) {
	l.at[order] = l.Key[order]
	t := &g.Trees[order][l.Class]
	*t = index.TreeOf(g.treeEditor.Insert(t.Page, index.Entry{Key: l.Key[order], Slot: i, Free: l.Free()}))
}

// removeFromTree removes a node from one of the trees of its class.
func (g *Catalog) removeFromTree(order int, l *Load, i int32) {
	t := &g.Trees[order][l.Class]
	*t = index.TreeOf(g.treeEditor.Remove(t.Page, l.at[order], i))
}

// Rekey computes a node's keys in the trees of its node class.
func (g *Catalog) Rekey(l *Load) {
	s := index.SharesOf(l.Used, g.Shapes[g.Classes[l.Class].Shape])
	l.Key[ByFill] = s.Fill()<<index.TaskBits | uint64(min(l.Tasks, index.MaxCountedTasks))
	l.Key[ByBalance] = uint64(s.Balance()+index.BalanceZero)<<(index.FillBits+index.TaskBits) | l.Key[ByFill]
}
