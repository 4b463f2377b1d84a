package draft

import (
	"fmt"

	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/cluster"
)

// serviceEffect returns the effect of a write as a sentence; old is nil for a new service. The definition is nil if it
// is not known.
func serviceEffect(old, svc *cluster.Service, def *cluster.TaskDefinition) string {
	switch {
	case old == nil && svc.Stopped:
		return "starts nothing: the service is stopped"
	case old == nil:
		return "starts " + tasksOf(svc) + " of " + svc.Definition.String()
	case svc.Stopped && !old.Stopped:
		return "stops " + tasksOf(old)
	case !svc.Stopped && old.Stopped:
		return "starts " + tasksOf(svc) + " of " + svc.Definition.String()
	case svc.Stopped:
		return ""
	}
	text := ""
	switch {
	case svc.Definition != old.Definition:
		text = fmt.Sprintf("rolls out %s over %s, %s", svc.Definition, old.Definition, pace(svc, def))
	case svc.Generation != old.Generation:
		text = fmt.Sprintf("replaces %s, %s", tasksOf(old), pace(svc, def))
	}
	scale := ""
	switch {
	case svc.Mode == cluster.ModeDaemon:
	case svc.Count > old.Count:
		scale = fmt.Sprintf("starts %d more", svc.Count-old.Count)
	case svc.Count < old.Count:
		scale = fmt.Sprintf("stops %s", respond.Plural(old.Count-svc.Count, "task"))
	}
	if text != "" && scale != "" {
		return text + ", and " + scale
	}
	return text + scale
}

// tasksOf describes the tasks of a service by their number or their nodes.
func tasksOf(svc *cluster.Service) string {
	if svc.Mode == cluster.ModeDaemon {
		return "a task on each node"
	}
	return respond.Plural(svc.Count, "task")
}

// pace describes the steps of a rollout.
func pace(svc *cluster.Service, def *cluster.TaskDefinition) string {
	limits := svc.Update.Limits(svc.Count, def != nil && def.Pinned())
	text := "one task at a time"
	if limits.Parallelism > 1 {
		text = fmt.Sprintf("%d tasks at a time", limits.Parallelism)
	}
	switch {
	case limits.Canaries == 1:
		text += " after 1 canary"
	case limits.Canaries > 1:
		text += fmt.Sprintf(" after %d canaries", limits.Canaries)
	}
	if svc.Rollout.Paused {
		text += ", once it is resumed"
	}
	return text
}
