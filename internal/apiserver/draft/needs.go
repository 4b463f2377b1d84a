package draft

import (
	"fmt"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// noteNeeds notes what the services and jobs of a set need, so that these may need each other in any order.
func (d *Draft) noteNeeds(set []AppliedObject) {
	d.needs = map[cluster.OwnerRef][]string{}
	for _, m := range set {
		switch {
		case m.Service != nil:
			d.needs[m.Service.Owner()] = m.Service.Needs
		case m.Job != nil:
			d.needs[m.Job.Owner()] = m.Job.Needs
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
// need each other in a circle. What the owner needed before is not checked again: a job may have expired since.
func (d *Draft) checkNeeds(o cluster.OwnerRef, needs, had []string, path string) (faults cluster.Faults) {
	for i, need := range needs {
		if slices.Contains(had, need) {
			continue
		}
		at := fmt.Sprintf("%s[%d]", path, i)
		for _, needed := range cluster.NeededOwners(o.Cluster, []string{need}) {
			if _, ok := d.needsOf(needed); !ok {
				faults = append(faults, cluster.Fault{Path: at, Message: fmt.Sprintf(
					"there is no %s: create it first, or in the same manifest", need)})
				continue
			}
			if circle := d.circle(needed, o, map[cluster.OwnerRef]bool{}); circle != nil {
				faults = append(faults, cluster.Fault{Path: at, Message: fmt.Sprintf(
					"the objects need each other in a circle, so that none would begin: %s → %s", needText(o),
					strings.Join(circle, " → "))})
			}
		}
	}
	return faults
}

// circle returns the way by which one owner needs another, as texts, or nil.
func (d *Draft) circle(from, to cluster.OwnerRef, seen map[cluster.OwnerRef]bool) []string {
	if from == to {
		return []string{needText(to)}
	}
	if seen[from] {
		return nil
	}
	seen[from] = true
	needs, _ := d.needsOf(from)
	for _, next := range cluster.NeededOwners(from.Cluster, needs) {
		if rest := d.circle(next, to, seen); rest != nil {
			return append([]string{needText(from)}, rest...)
		}
	}
	return nil
}

// needText returns the text by which others need an owner.
func needText(o cluster.OwnerRef) string { return strings.ToLower(string(o.Kind)) + "/" + o.Name }
