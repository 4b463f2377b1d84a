package taskclass

import (
	"maps"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
)

type relationTerm struct {
	cluster.Relation
	*View
	own bool // it selects the task's own kind
}

// PointsFor returns the preference points where that many selected tasks are near.
func (t *relationTerm) PointsFor(tasks int32) int64 {
	switch {
	case t.Required, tasks == 0:
		return 0
	case t.Away:
		return -int64(t.Weight) * Point
	}
	return int64(t.Weight) * Point
}

// Met reports whether a required relation is met where that many selected tasks are near. If no selected task exists
// anywhere, the first of the tasks that want to be together may go anywhere.
func (t *relationTerm) Met(tasks int32) bool {
	switch {
	case !t.Required:
		return true
	case t.Away:
		return tasks == 0
	}
	return tasks > 0 || t.own && t.total == 0
}

// RelationText returns a relation as text for refusals: "near app=db", "away from app=db in the same label.zone".
func RelationText(r *cluster.Relation) string {
	text := "near "
	if r.Away {
		text = "away from "
	}
	return text + labelsText(r.Labels) + inSame(r.Attribute)
}

// ExclusionPrefix starts the text of exclusionText.
const ExclusionPrefix = "tasks there keep away from "

// exclusionText returns the refusal of a node whose tasks exclude others.
func exclusionText(r *cluster.Relation) string {
	return ExclusionPrefix + labelsText(r.Labels) + inSame(r.Attribute)
}

func labelsText(labels cluster.Labels) string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		all = append(all, key+"="+labels[key])
	}
	return strings.Join(all, " ")
}

func inSame(attribute string) string {
	if attribute == fleet.NodeName {
		return ""
	}
	return " in the same " + attribute
}
