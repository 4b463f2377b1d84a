package scheduler

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// attributeVolume is the attribute of the constraints that bound adds: Value is the volume's key, Values the nodes that
// have it. No user can name it.
const attributeVolume = "volume"

// What it is worth to a task that the newest copy of a volume of its own is on a node, and what an older one is worth:
// more than its owner's wishes can weigh. The most copies that are looked at.
const (
	newestCopy = 20 * cluster.MaxWeight
	olderCopy  = newestCopy / 2
	mostCopies = 4
)

// bound returns the pending tasks with a constraint for each volume that keeps them with it and that nodes have, and
// with an affinity for each node that has a copy of a volume of the task's own: whoever finds out about constraints and
// affinities then knows of volumes. A node of the fleet that is down has its volumes all the same. What nobody has yet
// binds nobody, and a daemon is on all its nodes, with a volume on each.
func (f *Fleet) bound(pending []cluster.Pending) []cluster.Pending {
	own := false
	for i := range pending {
		if pending[i].Daemon || len(pending[i].Volumes)+len(pending[i].Sticky) == 0 {
			continue
		}
		var add []cluster.Constraint
		for _, key := range pending[i].Volumes {
			if nodes := f.volumes[key]; len(nodes) > 0 {
				add = append(add, cluster.Constraint{
					Attribute: attributeVolume, Op: cluster.OpExists, Value: key,
					Values: f.namesOf(nodes),
				})
			}
		}
		liked := f.liked(pending[i].Sticky)
		if len(add)+len(liked) == 0 {
			continue
		}
		if !own {
			pending, own = slices.Clone(pending), true
		}
		p := &pending[i].Placement
		p.Constraints, p.Affinities = slices.Concat(p.Constraints, add), slices.Concat(p.Affinities, liked)
	}
	return pending
}

// liked returns what the copies of volumes are worth to the task whose they are, the newest of each first.
func (f *Fleet) liked(sticky []string) (all []cluster.Affinity) {
	for _, key := range sticky {
		nodes := f.sticky[key]
		slots := make([]int32, 0, len(nodes))
		for slot := range nodes { // order-free: sorted next
			slots = append(slots, slot)
		}
		slices.SortFunc(slots, func(a, b int32) int { return cmp.Compare(f.slots[a].node.Name, f.slots[b].node.Name) })
		cluster.NewestCopies(slots, func(slot *int32) *cluster.StickyCopy { return nodes[*slot] })
		for i, slot := range slots[:min(len(slots), mostCopies)] {
			weight := olderCopy
			if i == 0 {
				weight = newestCopy
			}
			all = append(all, cluster.Affinity{Constraint: cluster.Constraint{
				Attribute: nodeName, Op: cluster.OpEqual,
				Value: f.slots[slot].node.Name,
			}, Weight: weight})
		}
	}
	return all
}

// isCopy reports whether an affinity is for the data of a task, which no user's weighs as much as.
func isCopy(a *cluster.Affinity) bool { return a.Weight > cluster.MaxWeight }

// copies are the nodes that have a copy of a volume, by its key. Nobody changes what they tell of it.
type copies map[string]map[int32]*cluster.StickyCopy

func (c copies) add(slot int32, f *cluster.FolderFacts) {
	if f == nil {
		return
	}
	for i := range f.Sticky {
		s := &f.Sticky[i]
		if c[s.Key] == nil {
			c[s.Key] = map[int32]*cluster.StickyCopy{}
		}
		c[s.Key][slot] = s
	}
}

func (c copies) remove(slot int32, f *cluster.FolderFacts) {
	if f == nil {
		return
	}
	for _, s := range f.Sticky {
		if delete(c[s.Key], slot); len(c[s.Key]) == 0 {
			delete(c, s.Key)
		}
	}
}

func (c copies) clone() copies {
	own := make(copies, len(c))
	for key, nodes := range c { // order-free: a copy
		own[key] = maps.Clone(nodes)
	}
	return own
}

// foldersKey appends what a node lends of its folders. Copies of volumes tell nodes apart by name alone.
func foldersKey(b []byte, f *cluster.FolderFacts) []byte {
	if f == nil {
		return append(b, 0)
	}
	b = appendNumber(append(b, 1), uint64(len(f.HostVolumes)))
	for _, v := range f.HostVolumes {
		kind := byte(0)
		if v.ReadOnly {
			kind = 1
		}
		b = append(textKey(b, v.Name), kind)
	}
	b = appendNumber(b, uint64(len(f.Paths)))
	for _, path := range f.Paths {
		b = textKey(b, path)
	}
	return b
}

// namesOf returns the names of nodes in order.
func (f *Fleet) namesOf(slots map[int32]struct{}) []string {
	names := make([]string, 0, len(slots))
	for slot := range slots { // order-free: sorted next
		names = append(names, f.slots[slot].node.Name)
	}
	slices.Sort(names)
	return names
}

// constraintCode returns the reason of a node that does not meet a constraint.
func constraintCode(c *cluster.Constraint) cluster.ReasonCode {
	switch c.Attribute {
	case attributeVolume, cluster.AttributeHostVolume, cluster.AttributeHostPath, cluster.AttributeSticky:
		return cluster.ReasonVolume
	}
	return cluster.ReasonConstraint
}

// mostHolders bounds how many nodes with a volume are named.
const mostHolders = 3

// volumeText says where a volume is.
func volumeText(c cluster.Constraint) string {
	_, name, _ := strings.Cut(c.Value, "/")
	nodes, more := c.Values, ""
	if len(nodes) > mostHolders {
		more = fmt.Sprintf(" and %d more", len(nodes)-mostHolders)
		nodes = nodes[:mostHolders]
	}
	return fmt.Sprintf("the data of its volume %s is on %s%s", name, strings.Join(nodes, ", "), more)
}

// folderText says what a node lacks that does not meet a constraint on folders; ok is false for any other constraint.
func folderText(c cluster.Constraint) (text string, ok bool) {
	switch c.Attribute {
	case cluster.AttributeHostPath, cluster.AttributeHostVolume:
		return cluster.LacksFolder(c, &cluster.FolderFacts{})
	case cluster.AttributeSticky:
		return cluster.LacksFolder(c, nil)
	}
	return "", false
}
