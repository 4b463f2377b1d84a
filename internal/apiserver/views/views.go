// Package views builds the views of services, jobs, crons, tasks and nodes, and explains why they are as they are.
//
// A Builder builds the views of one snapshot. It takes the inputs of the leader's decisions from package observe and
// runs the same decisions as the leader, so that a view cannot disagree with the decision that it shows.
package views

import (
	"context"
	"time"

	"github.com/berthd/berth/internal/apiserver/snapshot"
	"github.com/berthd/berth/internal/apiserver/starts"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// Source is what views are built from besides a snapshot. It is safe for concurrent use.
type Source struct {
	// Tables give the last sign of life of each node.
	Tables snapshot.Tables
	// Now is the wall clock; Clock is the boot-time clock.
	Now   func() time.Time
	Clock func() time.Duration
	// Holder returns the server that a node's agent is connected to, "" if that is not known. It may be nil.
	Holder func(node string) string
	// DialProblem returns why this server does not reach a passive node, "" if it does. It may be nil.
	DialProblem func(node string) string
	Leader      Leader

	starts starts.Forecaster
}

// Leader gives the leader's decisions, as far as this server knows them. Each field may be nil for no knowledge. Each
// function is safe for concurrent use and, unless it says otherwise, returns immediately.
type Leader struct {
	Reasons Reasons
	// Gates returns the leader's results for the gates of a service's rollout, in the order of its spec. It returns nil
	// if this server does not lead the domain.
	Gates func(domain string, service cluster.OwnerRef) []cluster.GateResult
	// Since returns the time from which the leader of a domain counts deadlines, and the time at which its wall clock
	// was set (reconciler.ServiceInput). Both are zero if this server does not lead it. Views then use the start of the
	// leader's term.
	Since func(domain string) (since, clockSet time.Time)
	// DecisionTrace returns the trace that the leader of a domain kept of the placement of an attempt; ok is false if
	// there is none. It may ask another server.
	DecisionTrace func(ctx context.Context, domain string, task cluster.TaskID, attempt int) (
		trace cluster.DecisionTrace, ok bool)
	// DeviceValueModel returns the value model of devices of a domain's leader, nil if this server does not lead it.
	DeviceValueModel func(domain string) *scheduler.ValueModel
}

// Reasons returns the reasons of the last decision of a domain's leader. Safe for concurrent use.
type Reasons interface {
	// Waiting returns why a task waits.
	Waiting(domain string, task cluster.TaskID) (cluster.Waiting, bool)
	// Victims returns the attempts that are to end for others, ordered by UUID. Callers must not change the result.
	Victims(domain string) []cluster.Victim
}
