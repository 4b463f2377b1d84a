package draft

import (
	"fmt"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// noteNeeds notes what the services and jobs of a set need, so that these may need each other in any order.
func (d *Draft) noteNeeds(set []AppliedObject) {
	for _, m := range set {
		switch v := m.Object.(type) {
		case *cluster.Service:
			d.needs[v.Owner()] = v.Needs
		case *cluster.Job:
			d.needs[v.Owner()] = v.Needs
		}
	}
}

// needsOf returns what a service or job of the draft or the store needs, and whether it exists.
func (d *Draft) needsOf(o cluster.OwnerRef) ([]string, bool) {
	if needs, ok := d.needs[o]; ok {
		return needs, true
	}
	if o.Kind == cluster.KindJob {
		if e, ok := d.Snap.Job(o.Cluster, o.Name); ok && !e.Value.Deleted {
			return e.Value.Needs, true
		}
		return nil, false
	}
	if e, ok := d.Snap.Service(o.Cluster, o.Name); ok && !e.Value.Deleted {
		return e.Value.Needs, true
	}
	return nil, false
}

// checkNeeds returns the faults of an owner's needs at a path: services and jobs that do not exist, and owners that
// need each other in a circle. Needs that the owner had before are not checked again, because a job may have expired
// since.
func (d *Draft) checkNeeds(o cluster.OwnerRef, needs, had []string, path string) (faults cluster.Faults) {
	d.needs[o] = needs
	for i, need := range needs {
		if slices.Contains(had, need) {
			continue
		}
		at := fmt.Sprintf("%s[%d]", path, i)
		needed, _ := cluster.NeededOwner(o.Cluster, need) // it was validated
		if _, ok := d.needsOf(needed); !ok {
			faults = append(faults, cluster.Fault{Path: at, Message: fmt.Sprintf(
				"there is no %s: create it first, or in the same manifest", need)})
			continue
		}
		d.findCircles(o, nil)
		if circle := d.circles[o]; len(circle) > 0 && circle[1] == needed {
			faults = append(faults, cluster.Fault{Path: at, Message: fmt.Sprintf(
				"the objects need each other in a circle, so that none would begin: %s", circleText(circle))})
		}
	}
	return faults
}

// CheckRunNeeds returns the faults of the needs of a job that is to run again.
func (d *Draft) CheckRunNeeds(job *cluster.Job) cluster.Faults {
	return d.checkNeeds(job.Owner(), job.Needs, nil, "needs")
}

// findCircles finds circles among the owners that an owner needs. The way leads to the owner. Each owner is visited
// once for all objects of the draft: without the needs that the draft adds there is no circle, so that each circle has
// an object for which it is reported.
func (d *Draft) findCircles(o cluster.OwnerRef, way []cluster.OwnerRef) {
	if at := slices.Index(way, o); at >= 0 {
		circle := way[at:]
		for i, member := range circle {
			if d.circles[member] == nil {
				d.circles[member] = slices.Concat(circle[i:], circle[:i+1])
			}
		}
		return
	}
	if _, visited := d.circles[o]; visited {
		return
	}
	d.circles[o] = nil
	needs, _ := d.needsOf(o)
	for _, next := range cluster.NeededOwners(o.Cluster, needs) {
		d.findCircles(next, append(way, o))
	}
}

func circleText(circle []cluster.OwnerRef) string {
	texts := make([]string, len(circle))
	for i, o := range circle {
		texts[i] = o.Need()
	}
	return strings.Join(texts, " → ")
}
