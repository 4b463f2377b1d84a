package access

import (
	"slices"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// Nodes, task definitions and the status belong to no cluster, but they show tasks of clusters. Answers to a token with
// a limit leave out the tasks of other clusters.

// emptied replaces the reason of a draining node for a caller with a limit. The leader's reason names the first task
// that cannot be moved, perhaps one of another cluster.
const emptied = "its tasks are moving away or stopped"

// ShowNode removes the names of tasks of other clusters from a node's view. The number of tasks and their resources
// remain.
func (c *Caller) ShowNode(v *api.NodeView) {
	if !c.IsLimited() {
		return
	}
	v.Reason = c.Hide(v.Reason)
	v.Setup, v.Dial, v.DialProblem = nil, "", "" // how machines are reached is for those who see all clusters
	if v.State == cluster.NodeDraining {
		v.Reason = emptied
	}
	if v.Used != nil && v.Used.Sweep != nil { // a sweep names images, perhaps of other clusters
		shown := *v.Used // the tables' own value must not change
		shown.Sweep = nil
		v.Used = &shown
	}
	if v.Used != nil && v.Used.Pressure != nil {
		shown := *v.Used // the tables' own value must not change
		shown.Pressure = &cluster.Pressure{Since: v.Used.Pressure.Since, Message: c.Hide(v.Used.Pressure.Message)}
		if parts, ok := v.Used.Pressure.Task.Parts(); ok && c.Sees(parts.Cluster) {
			shown.Pressure = v.Used.Pressure
		}
		v.Used = &shown
	}
	for i := range v.LostDevices {
		if parts, _ := v.LostDevices[i].Task.Parts(); !c.Sees(parts.Cluster) {
			v.LostDevices[i].Task = ""
		}
	}
	for i := range v.KeptRoom {
		if !c.Sees(v.KeptRoom[i].Owner.Cluster) {
			v.KeptRoom[i].Owner = nil
		}
	}
	if v.Drain == nil {
		return
	}
	v.Drain.Left = slices.DeleteFunc(v.Drain.Left, func(t api.DrainTask) bool {
		parts, _ := t.ID.Parts()
		return !c.Sees(parts.Cluster)
	})
}

// ShowStatus removes the names of tasks of other clusters from the status. Its alarms may name a task.
func (c *Caller) ShowStatus(v *api.Status) {
	if !c.IsLimited() {
		return
	}
	if v.Recovery != nil {
		shown := *v.Recovery // the tables' own value must not change
		shown.Cause = c.Hide(shown.Cause)
		v.Recovery = &shown
	}
	for i := range v.Alarms {
		v.Alarms[i] = c.Hide(v.Alarms[i])
	}
}

// ShowExpected removes the nodes from the forecast of a start: they follow from tasks of other clusters.
func (c *Caller) ShowExpected(v *api.Expected) {
	if v != nil && c.IsLimited() {
		v.Nodes, v.Gang = nil, false
	}
}
