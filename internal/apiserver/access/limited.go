package access

import (
	"regexp"
	"slices"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// Nodes, task definitions and the state of the whole are in no cluster, but tell of what is in clusters. From answers
// for a token that is limited to some clusters is left out here what the others do.

// emptied is the reason of a node that is drained, for a caller with a limit: the leader's own tells of the first task
// that cannot go, whoever's it is.
const emptied = "its tasks are moved away or stopped"

// ShowNode leaves out of a node's view what is not the caller's to see: tasks of other clusters by name. How many there
// are, and what they take of the node, everybody sees.
func (c *Caller) ShowNode(v *api.NodeView) {
	if c.Clusters == nil {
		return
	}
	v.Reason = c.Hide(v.Reason)
	if v.State == cluster.NodeDraining {
		v.Reason = emptied
	}
	if v.Used != nil && v.Used.Sweep != nil { // it names images, which may be of other clusters
		shown := *v.Used // the tables' own stays as it is
		shown.Sweep = nil
		v.Used = &shown
	}
	if v.Used != nil && v.Used.Pressure != nil {
		shown := *v.Used // the tables' own stays as it is
		shown.Pressure = &cluster.Pressure{Since: v.Used.Pressure.Since, Message: c.Hide(v.Used.Pressure.Message)}
		if parts, ok := v.Used.Pressure.Task.Parts(); ok && c.Sees(parts.Cluster) {
			shown.Pressure = v.Used.Pressure
		}
		v.Used = &shown
	}
	if v.Drain == nil {
		return
	}
	v.Drain.Left = slices.DeleteFunc(v.Drain.Left, func(t api.DrainTask) bool {
		parts, _ := t.ID.Parts()
		return !c.Sees(parts.Cluster)
	})
}

// ShowStatus does the same for the state of the whole, whose alarms may name a task.
func (c *Caller) ShowStatus(v *api.Status) {
	if c.Clusters == nil {
		return
	}
	if v.Recovery != nil {
		shown := *v.Recovery // the tables' own stays as it is
		shown.Cause = c.Hide(shown.Cause)
		v.Recovery = &shown
	}
	for i := range v.Alarms {
		v.Alarms[i] = c.Hide(v.Alarms[i])
	}
}

var taskName = regexp.MustCompile(`[\w-]+(\.[\w-]+){3,4}`)

// Hide takes the names of tasks that the caller does not see out of a sentence.
func (c *Caller) Hide(text string) string {
	return taskName.ReplaceAllStringFunc(text, func(word string) string {
		if parts, ok := cluster.TaskID(word).Parts(); ok && !c.Sees(parts.Cluster) {
			return "a task"
		}
		return word
	})
}
