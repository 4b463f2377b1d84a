package agent

import (
	"context"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/agent/node"
	"github.com/berthd/berth/internal/agent/reports"
	"github.com/berthd/berth/internal/agent/state"
	"github.com/berthd/berth/internal/agent/task"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

// assignments takes assignments of a server and begins attempts. A new attempt is reported only once its record is
// durable: a reported attempt that the next run of the agent does not know would count as lost. One goroutine at a time
// calls take.
type assignments struct {
	node     *node.Node
	parts    *task.Parts
	facts    func() cluster.Facts
	attempts *attempts
	orphans  *orphans
	reports  *reports.Reports
	marks    *state.Marks
}

// take passes an assignment to its attempt, or begins the attempt. The agent refuses assignments older than its
// current ones (P1.6, P6.6).
func (a *assignments) take(ctx context.Context, as *transport.Assignment) {
	if t := a.attempts.find(as.Task, as.UUID); as.UUID != "" && t != nil && t.Assigned(as) {
		a.marks.Raise(as.Token, 0)
		return
	}
	if why := a.refusalReason(as); why != "" {
		a.node.Logger.Warn("an assignment was refused", "task", as.Task, "attempt", as.Attempt, "reason", why)
		return
	}
	a.marks.Raise(as.Token, 0)
	a.begin(ctx, as)
}

// refusalReason returns the reason not to begin an unknown attempt, or "".
func (a *assignments) refusalReason(as *transport.Assignment) string {
	seen := a.marks.Current().Token
	switch {
	case !attempt.ValidUUID(as.UUID):
		return "its UUID is invalid"
	case as.Node != a.node.Name:
		return "it is for the node " + as.Node
	case as.Stop != nil:
		return ""
	case as.Token.Generation < seen.Generation:
		return "it comes from an earlier owner of the node"
	case as.Token.Generation == seen.Generation && as.Token.Incarnation != 0 &&
		as.Token.Incarnation < seen.Incarnation && !a.orphans.has(as.UUID):
		// the control plane counts the attempt as lost (P1.7)
		return "it was placed before the store went back, and may have ended here since"
	}
	if t := a.attempts.find(as.Task, ""); t != nil && t.ID.Attempt > as.Attempt {
		return "a later attempt of the task is here"
	}
	return ""
}

// begin creates an attempt from an assignment.
func (a *assignments) begin(ctx context.Context, as *transport.Assignment) {
	t := task.New(a.parts, attempt.New(as.Desired, as.Revision, a.facts().BootID))
	a.attempts.addNew(t)
	a.orphans.adopt(t)
	uuid := t.ID.UUID
	a.reports.Hold(uuid)
	durable := t.Commit()
	a.node.Go(func() {
		select {
		case err := <-durable:
			if err != nil { // an error is no reason to withhold the report
				a.node.Logger.Debug("an attempt is reported before its record is durable",
					"task", as.Task, "attempt", as.Attempt,
					"error", err)
			}
		case <-ctx.Done():
		}
		a.reports.Release(uuid)
	})
	a.node.Go(func() { t.Run(ctx) })
}
