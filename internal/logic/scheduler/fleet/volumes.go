package fleet

import (
	"cmp"
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// VolumeIndex has the nodes with volumes that bind or attract tasks. A node that is down still has its volumes.
type VolumeIndex struct {
	kept   nodesByName // nodes that have a volume which binds its tasks
	sticky nodesByCopy // nodes that have a copy of a sticky volume
}

func newVolumeIndex() VolumeIndex { return VolumeIndex{kept: nodesByName{}, sticky: nodesByCopy{}} }

func (x *VolumeIndex) add(slot int32, n *Node) {
	x.kept.add(slot, n.Volumes)
	x.sticky.add(slot, n.Folders)
}

func (x *VolumeIndex) remove(slot int32, n *Node) {
	x.kept.remove(slot, n.Volumes)
	x.sticky.remove(slot, n.Folders)
}

func (x *VolumeIndex) clone() VolumeIndex {
	return VolumeIndex{kept: x.kept.clone(), sticky: x.sticky.clone()}
}

// AttributeVolume is the attribute of the constraints that constrain adds. Value is the volume's key,
// Values the nodes that have it. Users cannot name it.
const AttributeVolume = "volume"

// Weights of affinities for nodes with a copy of a task's own volume. They exceed all that an owner's preferences can
// weigh. maxCopies is how many copies count.
const (
	newestCopyWeight = 20 * cluster.MaxWeight
	olderCopyWeight  = newestCopyWeight / 2
	maxCopies        = 4
)

// Constrain adds a constraint for each kept volume that nodes have, and an affinity for each node with a
// copy of a task's own volume. So all code that handles constraints and affinities handles volumes. A node of the fleet
// that is down still has its volumes. A volume that no node has yet adds nothing. Daemons get nothing: they run on all
// their nodes, with a volume on each.
func (x *VolumeIndex) Constrain(pending []cluster.Pending, name func(slot int32) string) []cluster.Pending {
	own := false
	for i := range pending {
		if pending[i].Daemon || len(pending[i].Volumes)+len(pending[i].Sticky) == 0 {
			continue
		}
		var add []cluster.Constraint
		for _, key := range pending[i].Volumes {
			if nodes := x.kept[key]; len(nodes) > 0 {
				add = append(add, cluster.Constraint{
					Attribute: AttributeVolume, Op: cluster.OpExists, Value: key,
					Values: namesOf(nodes, name),
				})
			}
		}
		liked := x.copyAffinities(pending[i].Sticky, name)
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
func (x *VolumeIndex) copyAffinities(sticky []string, name func(slot int32) string) (all []cluster.Affinity) {
	for _, key := range sticky {
		nodes := x.sticky[key]
		slots := make([]int32, 0, len(nodes))
		for slot := range nodes { // order-free: sorted next
			slots = append(slots, slot)
		}
		slices.SortFunc(slots, func(a, b int32) int { return cmp.Compare(name(a), name(b)) })
		cluster.NewestCopies(slots, func(slot *int32) *cluster.StickyCopy { return nodes[*slot] })
		for i, slot := range slots[:min(len(slots), maxCopies)] {
			weight := olderCopyWeight
			if i == 0 {
				weight = newestCopyWeight
			}
			all = append(all, cluster.Affinity{Constraint: cluster.Constraint{
				Attribute: NodeName, Op: cluster.OpEqual,
				Value: name(slot),
			}, Weight: weight})
		}
	}
	return all
}

// IsCopy reports whether copyAffinities made the affinity: users' weights are smaller.
func IsCopy(a *cluster.Affinity) bool { return a.Weight > cluster.MaxWeight }

// namesOf returns the names of nodes in order.
func namesOf(slots map[int32]struct{}, name func(slot int32) string) []string {
	names := make([]string, 0, len(slots))
	for slot := range slots { // order-free: sorted next
		names = append(names, name(slot))
	}
	slices.Sort(names)
	return names
}
