package views

import (
	"cmp"
	"fmt"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/lifecycle"
	"github.com/berthd/berth/internal/observe"
	"github.com/berthd/berth/internal/store"
)

// drainView shows the progress of a node's drain: the tasks that are left, and what each of them waits for.
func drainView(snap *store.Snapshot, node string, drain *cluster.Drain) *api.DrainView {
	v := &api.DrainView{Drain: *drain, Left: []api.DrainTask{}}
	for row := range snap.NodeAttempts(node) {
		if !observe.HoldsRoom(row) {
			continue
		}
		state := lifecycle.Shown(row.Attempt).State
		if isMoving(row) && row.Observed != nil {
			state = row.Observed.State
		}
		v.Left = append(v.Left, api.DrainTask{ID: row.Task, Attempt: row.Number, State: state, Why: WhyLeft(snap, row)})
	}
	return v
}

// isMoving reports whether an attempt has its outcome and runs on until its replacement is healthy.
func isMoving(row *store.AttemptRow) bool {
	if row.Outcome == nil || row.Outcome.State != cluster.StateCancelled || row.Desired == nil ||
		row.Desired.Stop != nil {
		return false
	}
	switch row.Outcome.Reason {
	case cluster.ReasonDrain, cluster.ReasonPressure, cluster.ReasonTaint, cluster.ReasonConstraint,
		cluster.ReasonReserved, cluster.ReasonRebalance, cluster.ReasonReplaced:
		return true
	}
	return false
}

// WhyLeft returns what an attempt waits for that is to leave its node.
func WhyLeft(snap *store.Snapshot, row *store.AttemptRow) string {
	switch d := row.Desired; {
	case d == nil:
		return "unreadable records: it stays until the node reports"
	case isMoving(row):
		return "runs until " + cmp.Or(replacementText(snap, row), "its replacement is healthy")
	case d.Ended(), row.Outcome != nil:
		return "ended; its remains are being removed"
	case d.Stop != nil && d.Stop.Class == cluster.StopVoluntary && d.Stop.Permit == "":
		return "stops once its service can spare it" + respond.Suffix(d.Stop.Message)
	case d.Stop != nil:
		return "stopping" + respond.Suffix(d.Stop.Message)
	case d.Batch():
		return "runs to its end, or to the deadline"
	}
	return "leaves once another node takes its replacement"
}

// replacementText describes the attempt that replaces another one; "" if there is none yet.
func replacementText(snap *store.Snapshot, row *store.AttemptRow) (text string) {
	for next := range snap.TaskAttempts(row.Task) {
		if next.Number <= row.Number || !next.Live() {
			continue
		}
		shown := lifecycle.Shown(next.Attempt)
		state := string(shown.State)
		if shown.State == cluster.StateRunning && shown.Health != "" {
			state += " and " + string(shown.Health)
		}
		text = fmt.Sprintf("its replacement is healthy: attempt %d on %s is %s", next.Number, next.Node, state)
	}
	return text
}
