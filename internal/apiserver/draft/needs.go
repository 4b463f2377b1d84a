package draft

import (
	"fmt"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// needs are what the services and jobs of a draft and of the store need.
type needs struct {
	snap *store.Snapshot
	// drafted are the needs of the services and jobs of the draft.
	drafted map[cluster.OwnerRef][]string
	// circles are the owners whose needs were followed, each with a circle of needs that it is in, or nil.
	circles map[cluster.OwnerRef][]cluster.OwnerRef
}

func newNeeds(snap *store.Snapshot) needs {
	return needs{
		snap: snap, drafted: map[cluster.OwnerRef][]string{}, circles: map[cluster.OwnerRef][]cluster.OwnerRef{},
	}
}

// note notes what the services and jobs of a set need, so that these may need each other in any order.
func (n *needs) note(set []AppliedObject) {
	for _, m := range set {
		switch v := m.Object.(type) {
		case *cluster.Service:
			n.drafted[v.Owner()] = v.Needs
		case *cluster.Job:
			n.drafted[v.Owner()] = v.Needs
		}
	}
}

// find returns what a service or job of the draft or the store needs, and whether it exists.
func (n *needs) find(o cluster.OwnerRef) ([]string, bool) {
	if drafted, ok := n.drafted[o]; ok {
		return drafted, true
	}
	if o.Kind == cluster.KindJob {
		if e, ok := n.snap.Job(o.Cluster, o.Name); ok && !e.Value.Deleted {
			return e.Value.Needs, true
		}
		return nil, false
	}
	if e, ok := n.snap.Service(o.Cluster, o.Name); ok && !e.Value.Deleted {
		return e.Value.Needs, true
	}
	return nil, false
}

// check returns the faults of an owner's needs at a path: services and jobs that do not exist, and owners that
// need each other in a circle. Needs that the owner had before are not checked again, because a job may have expired
// since.
func (n *needs) check(o cluster.OwnerRef, wanted, had []string, path string) (faults cluster.Faults) {
	n.drafted[o] = wanted
	for i, need := range wanted {
		if slices.Contains(had, need) {
			continue
		}
		at := fmt.Sprintf("%s[%d]", path, i)
		needed, _ := cluster.NeededOwner(o.Cluster, need) // it was validated
		if _, ok := n.find(needed); !ok {
			faults = append(faults, cluster.Fault{Path: at, Message: fmt.Sprintf(
				"there is no %s: create it first, or in the same manifest", need)})
			continue
		}
		n.findCircles(o, nil)
		if circle := n.circles[o]; len(circle) > 0 && circle[1] == needed {
			faults = append(faults, cluster.Fault{Path: at, Message: fmt.Sprintf(
				"the objects need each other in a circle, so that none would begin: %s", circleText(circle))})
		}
	}
	return faults
}

// CheckRunNeeds returns the faults of the needs of a job that is to run again.
func (d *Draft) CheckRunNeeds(job *cluster.Job) cluster.Faults {
	return d.needs.check(job.Owner(), job.Needs, nil, "needs")
}

// findCircles finds circles among the owners that an owner needs. The way leads to the owner. Each owner is visited
// once for all objects of the draft: without the needs that the draft adds there is no circle, so that each circle has
// an object for which it is reported.
func (n *needs) findCircles(o cluster.OwnerRef, way []cluster.OwnerRef) {
	if at := slices.Index(way, o); at >= 0 {
		circle := way[at:]
		for i, member := range circle {
			if n.circles[member] == nil {
				n.circles[member] = slices.Concat(circle[i:], circle[:i+1])
			}
		}
		return
	}
	if _, visited := n.circles[o]; visited {
		return
	}
	n.circles[o] = nil
	wanted, _ := n.find(o)
	for _, next := range cluster.NeededOwners(o.Cluster, wanted) {
		n.findCircles(next, append(way, o))
	}
}

func circleText(circle []cluster.OwnerRef) string {
	texts := make([]string, len(circle))
	for i, o := range circle {
		texts[i] = o.Need()
	}
	return strings.Join(texts, " → ")
}
