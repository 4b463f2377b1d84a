package scheduler

import (
	"maps"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

type relationTerm struct {
	cluster.Relation
	*view
	own bool // it selects the task's own kind
}

func (t *relationTerm) pointsFor(tasks int32) int64 {
	switch {
	case t.Required, tasks == 0:
		return 0
	case t.Away:
		return -int64(t.Weight) * point
	}
	return int64(t.Weight) * point
}

// met reports whether a required relation is met where so many selected tasks are near. If no selected task exists
// anywhere, the first of the tasks that want to be together may go anywhere.
func (t *relationTerm) met(tasks int32) bool {
	switch {
	case !t.Required:
		return true
	case t.Away:
		return tasks == 0
	}
	return tasks > 0 || t.own && t.total == 0
}

// relationText returns a relation as text for refusals: "near app=db", "away from app=db in the same label.zone".
func relationText(r *cluster.Relation) string {
	text := "near "
	if r.Away {
		text = "away from "
	}
	return text + labelsText(r.Labels) + inSame(r.Attribute)
}

// exclusionPrefix starts the text of exclusionText.
const exclusionPrefix = "tasks there keep away from "

// exclusionText returns the refusal of a node whose tasks exclude others.
func exclusionText(r *cluster.Relation) string {
	return exclusionPrefix + labelsText(r.Labels) + inSame(r.Attribute)
}

func labelsText(labels cluster.Labels) string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		all = append(all, key+"="+labels[key])
	}
	return strings.Join(all, " ")
}

func inSame(attribute string) string {
	if attribute == nodeName {
		return ""
	}
	return " in the same " + attribute
}
