// Package lifecycle is the life of one attempt of a task, as pure functions.
//
// An attempt has three records with one writer each: desired (control plane), observed (agent) and
// outcome (control plane, written once). No record holds the state that people see: Shown computes it. The
// table behind Moves is the only place that says which state may follow which; docs and tests read it.
//
// Duties of agents towards this package: they report the states preparing, starting, running, stopping and all terminal
// ones but lost. A restart in place is reported as starting, never as preparing, and only after the first start.
// Observed.Started keeps its value from the first start on. An agent answers a stop for an attempt that it does not
// know, or never started, with cancelled.
package lifecycle

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// Move is one legal step of an attempt's state, with its cause in a few words.
type Move struct {
	From, To cluster.State
	Cause    string
}

// moves is the table of legal moves, in the order of a task's life.
var moves = [...]Move{
	{cluster.StatePending, cluster.StateAssigned, "a plan places it"},
	{cluster.StatePending, cluster.StateCancelled, "its owner is cancelled or deleted first"},

	{cluster.StateAssigned, cluster.StatePreparing, "the agent takes it"},
	{cluster.StateAssigned, cluster.StateRejected, "the agent cannot take it"},
	{cluster.StateAssigned, cluster.StateStopping, "its stop is requested"},
	{cluster.StateAssigned, cluster.StateLost, "its node fell silent or is gone"},

	{cluster.StatePreparing, cluster.StateStarting, "all is there; a batch task passed its barrier"},
	{cluster.StatePreparing, cluster.StateRejected, "the node lacks what it needs"},
	{cluster.StatePreparing, cluster.StateFailed, "image, volume or file could not be made, or there is no program"},
	{cluster.StatePreparing, cluster.StateStopping, "its stop is requested"},
	{cluster.StatePreparing, cluster.StateLost, "its node fell silent or is gone"},

	{cluster.StateStarting, cluster.StateRunning, "its containers run"},
	{cluster.StateStarting, cluster.StateFailed, "it could not be started, or its end was not observed"},
	{cluster.StateStarting, cluster.StateStopping, "its stop is requested"},
	{cluster.StateStarting, cluster.StateLost, "its node fell silent or is gone"},

	{cluster.StateRunning, cluster.StateStarting, "it ended and is restarted in place"},
	{cluster.StateRunning, cluster.StateSucceeded, "it ended well"},
	{cluster.StateRunning, cluster.StateFailed, "it ended badly, or too often"},
	{cluster.StateRunning, cluster.StateStopping, "its stop is requested"},
	{cluster.StateRunning, cluster.StateLost, "its node fell silent or is gone"},

	{cluster.StateStopping, cluster.StateCancelled, "it has stopped"},
	{cluster.StateStopping, cluster.StateSucceeded, "it ended well by itself"},
	{cluster.StateStopping, cluster.StateFailed, "it ended badly by itself"},
	{cluster.StateStopping, cluster.StateRejected, "the agent had refused it"},
	{cluster.StateStopping, cluster.StateLost, "its node fell silent or is gone"},
}

// Moves returns a copy of the table of legal moves, in the order of a task's life.
func Moves() []Move { return slices.Clone(moves[:]) }

// Follows reports whether one state may be reported after another: the same state, or one that legal moves lead to.
// Reports are coalesced, so a reader may miss the states between.
func Follows(from, to cluster.State) bool {
	if from == to {
		return true
	}
	seen := []cluster.State{from}
	for i := 0; i < len(seen); i++ {
		for j := range moves {
			if moves[j].From != seen[i] || slices.Contains(seen, moves[j].To) {
				continue
			}
			if moves[j].To == to {
				return true
			}
			seen = append(seen, moves[j].To)
		}
	}
	return false
}

// View is what people see of an attempt. Health is empty unless it runs.
type View struct {
	State   cluster.State
	Health  cluster.Health
	Reason  cluster.ReasonCode
	Message string
}

// Shown computes the state that people see. It is the outcome if there is one, else the agent's report in the light of
// the desired record. An attempt without records is pending.
func Shown(a cluster.Attempt) View {
	d, o := a.Desired, ownObservation(a)
	switch {
	case a.Outcome != nil:
		return View{State: a.Outcome.State, Reason: a.Outcome.Reason, Message: a.Outcome.Message}
	case o != nil && o.State.Terminal():
		return reportedEnd(d, o)
	case d != nil && d.Stop != nil && !awaitsPermit(d, o):
		return View{State: cluster.StateStopping, Reason: d.Stop.Reason, Message: d.Stop.Message}
	case o != nil:
		v := View{State: o.State, Reason: o.Reason, Message: o.Message}
		if o.State == cluster.StateRunning {
			v.Health = o.Health
			if v.Health == "" {
				v.Health = cluster.HealthUnknown
			}
		}
		return v
	case d != nil:
		return View{State: cluster.StateAssigned}
	}
	return View{State: cluster.StatePending}
}

// awaitsPermit reports whether the stop is voluntary and has no permit yet: the attempt continues (P5.2).
func awaitsPermit(d *cluster.Desired, o *cluster.Observed) bool {
	s := d.Stop
	return s.Class == cluster.StopVoluntary && s.Permit == "" && o != nil && o.State == cluster.StateRunning &&
		o.Ask != ""
}

// reportedEnd returns the end that the agent reported, with the cause of the stop if one was requested. A stop for a
// time limit makes the end a failure.
func reportedEnd(d *cluster.Desired, o *cluster.Observed) View {
	v := View{State: o.State, Reason: o.Reason, Message: o.Message}
	if v.State != cluster.StateCancelled || d == nil || d.Stop == nil || d.Stop.Reason == cluster.ReasonEnded {
		return v
	}
	v.Reason = d.Stop.Reason
	if d.Stop.Message != "" {
		v.Message = d.Stop.Message
	}
	if v.Reason == cluster.ReasonTimeLimit {
		v.State = cluster.StateFailed
	}
	return v
}

// ownObservation returns the observation of this attempt, or nil. An observation with another UUID than the desired
// record's belongs to another attempt (P3.6). One without a state says nothing yet.
func ownObservation(a cluster.Attempt) *cluster.Observed {
	o := a.Observed
	if o == nil || o.State == "" || a.Desired != nil && a.Desired.UUID != o.UUID {
		return nil
	}
	return o
}
