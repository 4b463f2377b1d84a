package scheduler

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// attributeVolume is the attribute of the constraints that withVolumeConstraints adds. Value is the volume's key,
// Values the nodes that have it. Users cannot name it.
const attributeVolume = "volume"

// Weights of affinities for nodes with a copy of a task's own volume. They exceed all that an owner's wishes can weigh.
// maxCopies is how many copies count.
const (
	newestCopyWeight = 20 * cluster.MaxWeight
	olderCopyWeight  = newestCopyWeight / 2
	maxCopies        = 4
)

// withVolumeConstraints adds a constraint for each kept volume that nodes have, and an affinity for each node with a
// copy of a task's own volume. So all code that handles constraints and affinities handles volumes. A node of the fleet
// that is down still has its volumes. A volume that no node has yet adds nothing. Daemons get nothing: they run on all
// their nodes, with a volume on each.
func (f *Fleet) withVolumeConstraints(pending []cluster.Pending) []cluster.Pending {
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
		liked := f.copyAffinities(pending[i].Sticky)
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

// copyAffinities returns affinities for the nodes with copies of a task's own volumes, the newest of each first.
func (f *Fleet) copyAffinities(sticky []string) (all []cluster.Affinity) {
	for _, key := range sticky {
		nodes := f.sticky[key]
		slots := make([]int32, 0, len(nodes))
		for slot := range nodes { // order-free: sorted next
			slots = append(slots, slot)
		}
		slices.SortFunc(slots, func(a, b int32) int { return cmp.Compare(f.slots[a].node.Name, f.slots[b].node.Name) })
		cluster.NewestCopies(slots, func(slot *int32) *cluster.StickyCopy { return nodes[*slot] })
		for i, slot := range slots[:min(len(slots), maxCopies)] {
			weight := olderCopyWeight
			if i == 0 {
				weight = newestCopyWeight
			}
			all = append(all, cluster.Affinity{Constraint: cluster.Constraint{
				Attribute: nodeName, Op: cluster.OpEqual,
				Value: f.slots[slot].node.Name,
			}, Weight: weight})
		}
	}
	return all
}

// isCopy reports whether copyAffinities made the affinity: users' weights are smaller.
func isCopy(a *cluster.Affinity) bool { return a.Weight > cluster.MaxWeight }

// nodesByCopy are the nodes with a copy of a volume, by the volume's key. The copies must not be changed.
type nodesByCopy map[string]map[int32]*cluster.StickyCopy

func (c nodesByCopy) add(slot int32, f *cluster.FolderFacts) {
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

func (c nodesByCopy) remove(slot int32, f *cluster.FolderFacts) {
	if f == nil {
		return
	}
	for _, s := range f.Sticky {
		if delete(c[s.Key], slot); len(c[s.Key]) == 0 {
			delete(c, s.Key)
		}
	}
}

func (c nodesByCopy) clone() nodesByCopy {
	own := make(nodesByCopy, len(c))
	for key, nodes := range c { // order-free: a copy
		own[key] = maps.Clone(nodes)
	}
	return own
}

// foldersKey appends what a node lends of its folders. Sticky copies are not part of it: only node names tell them
// apart.
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

// constraintCode returns the reason code for a constraint that is not met.
func constraintCode(c *cluster.Constraint) cluster.ReasonCode {
	switch c.Attribute {
	case attributeVolume, cluster.AttributeHostVolume, cluster.AttributeHostPath, cluster.AttributeSticky:
		return cluster.ReasonVolume
	}
	return cluster.ReasonConstraint
}

// maxNamedHolders is how many nodes with a volume volumeText names.
const maxNamedHolders = 3

// volumeText returns which nodes have a volume, as text.
func volumeText(c cluster.Constraint) string {
	_, name, _ := strings.Cut(c.Value, "/")
	nodes, more := c.Values, ""
	if len(nodes) > maxNamedHolders {
		more = fmt.Sprintf(" and %d more", len(nodes)-maxNamedHolders)
		nodes = nodes[:maxNamedHolders]
	}
	return fmt.Sprintf("the data of its volume %s is on %s%s", name, strings.Join(nodes, ", "), more)
}

// folderText returns what a node lacks that does not meet a constraint on folders; ok is false for other constraints.
func folderText(c cluster.Constraint) (text string, ok bool) {
	switch c.Attribute {
	case cluster.AttributeHostPath, cluster.AttributeHostVolume:
		return cluster.LacksFolder(c, &cluster.FolderFacts{})
	case cluster.AttributeSticky:
		return cluster.LacksFolder(c, nil)
	}
	return "", false
}
