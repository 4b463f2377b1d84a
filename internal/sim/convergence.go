package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/observe"
	"github.com/berthd/berth/internal/store"
)

// convergenceCheck compares a fleet without faults with what its users want.
type convergenceCheck struct{ *fleet }

// firstMismatch describes the first difference from what users want, or nothing.
func (c convergenceCheck) firstMismatch() string {
	leader := c.leader()
	if leader == nil {
		return "no server leads"
	}
	ctx, cancel := context.WithTimeout(c.ctx, time.Minute)
	defer cancel()
	s, err := leader.tables.Settled(ctx)
	if err != nil {
		return fmt.Sprintf("the tables of the leader: %v", err)
	}
	if !c.retryFailedRollouts(s) {
		return "a write is not acknowledged"
	}
	for _, check := range []func(*server, *store.Snapshot) string{
		c.checkNodes, c.checkServices, c.checkJobs,
		c.checkWaiting, c.checkPrograms, c.checkMoves,
	} {
		if wrong := check(leader, s); wrong != "" {
			return wrong
		}
	}
	if left := c.leftovers(s); len(left) > 0 {
		return fmt.Sprintf("left over: %v", left)
	}
	return ""
}

// retryFailedRollouts lets the user restart rollouts that failed because of faults. By design a rollout that ended
// while nodes or servers were away is left to people. A version that was requested after the faults has to succeed by
// itself. It reports false if a write was not acknowledged.
func (c convergenceCheck) retryFailedRollouts(s *store.Snapshot) bool {
	for e := range s.Services("") {
		name := e.Value.Name
		r, ok := s.Rollout(inCluster, name)
		if !ok || r.Value.State != cluster.RolloutFailed || r.Value.Generation != c.generations[name] ||
			e.Value.Generation != c.generations[name] {
			continue
		}
		delete(c.generations, name)
		c.orderUser(Event{Target: name, Arg: "finish"})
	}
	return c.awaitUserWrites()
}

func (c convergenceCheck) checkNodes(_ *server, s *store.Snapshot) string {
	for _, n := range c.nodes {
		e, ok := s.Node(n.name)
		if !ok || e.Value.State != cluster.NodeReady || e.Value.Domain != cluster.DefaultDomain {
			return fmt.Sprintf("node %s is not ready: %+v", n.name, e.Value)
		}
	}
	return ""
}

func (c convergenceCheck) checkServices(leader *server, s *store.Snapshot) string {
	for e := range s.Services("") {
		want := e.Value
		if want.Deleted {
			return want.Name + " is not removed"
		}
		if want.Name == "big" {
			continue
		}
		n := 0
		for row := range s.Attempts(want.Owner()) {
			if row.Outcome == nil && row.Observed.Healthy() && row.Desired != nil &&
				row.Desired.Definition == want.Definition && row.Desired.Stop == nil {
				n++
			}
		}
		desired := want.Desired()
		switch at, _ := s.Wanted(want.Cluster, want.Name); {
		case want.Mode == cluster.ModeDaemon && !want.Stopped:
			desired = len(c.nodes)
		case want.Scaling != nil:
			desired = at.Value.Desired()
		}
		if n != desired {
			return fmt.Sprintf("%s has %d healthy tasks, want %d%s", want.Name, n, desired,
				waitReason(leader, want, desired))
		}
	}
	return ""
}

// waitReason returns, as the end of a sentence, why the first of a service's wanted tasks that waits has no place.
func waitReason(leader *server, s *cluster.Service, wanted int) string {
	for i := range wanted {
		id := cluster.ServiceTask(inCluster, s.Name, s.Generation, i)
		if r, ok := leader.plane.Waiting(id); ok {
			return fmt.Sprintf("; %s: %s", id, r.Sentence)
		}
	}
	return ""
}

func (c convergenceCheck) checkJobs(_ *server, s *store.Snapshot) string {
	for e := range s.Jobs("") {
		var tasks []reconciler.Task
		for row := range s.Attempts(e.Value.Owner()) {
			tasks = append(tasks, reconciler.Task{Attempt: row.Attempt})
		}
		st := reconciler.StatusOfJob(reconciler.JobInput{Owner: e.Value.Owner(), Spec: e.Value, Tasks: tasks})
		if e.Value.AwaitsNeeds() && st.Pending == st.Total && runsNothing(s, "web") {
			continue
		}
		if !st.State.Ended() || st.Running > 0 {
			return fmt.Sprintf("%s is %s: %+v", e.Value.Name, st.State, st)
		}
	}
	return ""
}

// runsNothing reports whether no task of a service is wanted.
func runsNothing(s *store.Snapshot, name string) bool {
	e, ok := s.Service(inCluster, name)
	if !ok {
		return true
	}
	at, _ := s.Wanted(inCluster, name)
	return e.Value.Desired() == 0 || at.Value.Desired() == 0
}

func (c convergenceCheck) checkWaiting(leader *server, s *store.Snapshot) string {
	e, ok := s.Service(inCluster, "big")
	if !ok {
		return ""
	}
	// After a failed rollout, the task of the version before waits if that had an attempt: a foreign write can leave
	// one.
	for generation := e.Value.Generation; generation > 0; generation-- {
		r, ok := leader.plane.Waiting(cluster.ServiceTask(inCluster, "big", generation, 0))
		if ok && r.Sentence != "" {
			return ""
		}
	}
	return "reason: a task waits without a reason"
}

// checkPrograms compares the running programs with the wanted ones.
func (c convergenceCheck) checkPrograms(_ *server, s *store.Snapshot) string {
	if c.checker.restored || c.checker.overwritten {
		return "" // attempts that the store forgot continue (P1.7)
	}
	for _, n := range c.nodes {
		for _, r := range n.machine.History() {
			if !r.Ended.IsZero() {
				continue
			}
			uuid := r.Labels["berth.uuid"]
			wanted := false
			for row := range s.NodeAttempts(n.name) {
				if d := row.Desired; d != nil && d.UUID == uuid && d.Stop == nil && row.Outcome == nil {
					wanted = true
				}
			}
			if !wanted {
				return fmt.Sprintf("leaked: %s of %s runs on %s", uuid, r.Labels["berth.task"], n.name)
			}
		}
	}
	return ""
}

// checkMoves describes a rebalancing that has not ended.
func (c convergenceCheck) checkMoves(_ *server, s *store.Snapshot) string {
	for e := range s.Rebalancings() {
		if e.Value.Running() {
			return fmt.Sprintf("rebalancing %d has not ended: %+v", e.Value.ID, e.Value.Moves)
		}
	}
	return ""
}

// leftovers lists records that should be gone once all faults have ended.
func (c convergenceCheck) leftovers(s *store.Snapshot) (left []string) {
	for _, domain := range s.Domains() {
		number, _ := s.DomainNumber(domain)
		for e := range s.Plans(number) {
			settled := e.Created == e.Modified && len(e.Value.Owners) == 0
			if len(e.Value.Owners) > 0 || e.Value.Seq != s.LastPlan(number) && !settled {
				left = append(left, e.Key)
			}
		}
	}
	for row := range s.AllAttempts() {
		if !row.Standing() {
			continue
		}
		if o, _ := row.Ref(); observe.IsCommand(s, row) && o.Kind == cluster.KindJob {
			continue // it waits for what its job needs
		}
		parts, _ := row.Task.Parts()
		if _, ok := s.Service(parts.Cluster, parts.Owner); parts.Step != "" || !ok {
			left = append(left, fmt.Sprintf("%s/%d on %s", row.Task, row.Number, row.Node))
		}
	}
	return left
}
