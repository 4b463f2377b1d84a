package sim

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/store"
)

// endFaults ends all faults.
func (w *World) endFaults() {
	w.net.endFaults()
	w.disk.endFaults()
	w.engine.Fill(false)
	w.engine.Restart()
	for _, h := range w.hosts {
		h.mu.Lock()
		h.down = 0
		if h.live != nil {
			h.live.paused.Store(false)
		}
		h.mu.Unlock()
		h.start()
	}
	for _, n := range w.nodes {
		n.fails.Store(0)
		n.mu.Lock()
		n.trouble, n.lateStarts, n.down = 0, 0, 0
		n.mu.Unlock()
		if n.lies.hasLied() { // nobody knows what a lying node runs
			n.kill()
			w.witness.excuseNode(n.name)
			n.reboot()
			n.lies.stop()
		}
		n.start()
	}
	for i := range w.story.Events {
		if e := &w.story.Events[i]; e.Fault == User && w.byName[e.Target] != nil {
			w.orderUser(Event{Target: e.Target, Arg: "uncordon"})
		}
	}
	for _, name := range []string{"web", "shop"} {
		if w.story.hits(name, User) {
			w.orderUser(Event{Target: name, Arg: "finish"})
		}
	}
	for i := range w.story.Events {
		if e := &w.story.Events[i]; e.Arg == "tick" {
			w.orderUser(Event{Target: e.Target, Arg: "suspend"})
		}
	}
	w.external.set("25")
	w.generations = w.witness.generations()
	w.witness.endFaults()
}

// generations returns the generations of all services, as they are written.
func (v *witness) generations() map[string]uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	all := map[string]uint64{}
	for key, r := range v.records { // order-free: each by itself
		if s, err := store.Decode[cluster.Service](r.Value); err == nil && strings.HasPrefix(key, "service/") {
			all[s.Name] = s.Generation
		}
	}
	return all
}

// retryFailedRollouts lets the user restart rollouts that failed because of faults. By design a rollout that ended
// while nodes or servers were away is left to people. A version that was requested after the faults has to succeed by
// itself. It reports false if a write was not acknowledged.
func (w *World) retryFailedRollouts(s *store.Snapshot) bool {
	for e := range s.Services("") {
		name := e.Value.Name
		r, ok := s.Rollout(inCluster, name)
		if !ok || r.Value.State != cluster.RolloutFailed || r.Value.Generation != w.generations[name] ||
			e.Value.Generation != w.generations[name] {
			continue
		}
		delete(w.generations, name)
		w.orderUser(Event{Target: name, Arg: "finish"})
	}
	return w.awaitUserWrites()
}

// awaitUserWrites waits until the user's orders are written, and reports false if that takes too long.
func (w *World) awaitUserWrites() bool {
	for ; w.orders > 0; w.orders-- {
		limit := time.NewTimer(5 * time.Minute)
		select {
		case <-w.user.idle:
			limit.Stop()
		case <-limit.C:
			w.witness.reportBreach("converges", "a user's write was not acknowledged within 5m without faults")
			return false
		}
	}
	return true
}

func (v *witness) endFaults() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.leaderFaults, v.quietSince = 0, time.Now()
	v.addToChronicle("CALM")
}

func (l *lies) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.now)
}

// settle waits until the state is as users want it.
func (w *World) settle() {
	if w.options.StopAtOnce && w.witness.broken() {
		return
	}
	if w.story.Has(Noise, EngineLate) { // messages still under way arrive
		time.Sleep(35 * time.Second) // in-bubble: every world is in one
	}
	if !w.awaitUserWrites() {
		return
	}
	began := time.Now()
	wrong := w.firstMismatch()
	for pause := time.Second; wrong != "" && time.Since(began) < settleLimit; pause = min(2*pause, 10*time.Second) {
		time.Sleep(pause) // in-bubble: every world is in one
		w.witness.checkDeadNodes()
		if w.options.StopAtOnce && w.witness.broken() {
			return
		}
		wrong = w.firstMismatch()
	}
	if wrong != "" {
		invariant := "converges"
		for _, name := range []string{"reason", "leaked"} {
			if strings.HasPrefix(wrong, name+": ") {
				invariant = name
			}
		}
		w.witness.reportBreach(invariant, "not as users asked %v after the last fault: %s", settleLimit, wrong)
	}
	w.witness.checkSpecs()
}

// firstMismatch describes the first difference from what users want, or nothing.
func (w *World) firstMismatch() string {
	leader := w.leader()
	if leader == nil {
		return "nobody leads"
	}
	ctx, cancel := context.WithTimeout(w.ctx, time.Minute)
	defer cancel()
	s, err := leader.tables.Settled(ctx)
	if err != nil {
		return fmt.Sprintf("the tables of the leader: %v", err)
	}
	if !w.retryFailedRollouts(s) {
		return "a write is not acknowledged"
	}
	for _, check := range []func(*server, *store.Snapshot) string{
		w.checkNodes, w.checkServices, w.checkJobs,
		w.checkWaiting, w.checkPrograms, w.checkMoves,
	} {
		if wrong := check(leader, s); wrong != "" {
			return wrong
		}
	}
	if left := w.leftovers(s); len(left) > 0 {
		return fmt.Sprintf("left over: %v", left)
	}
	return ""
}

func (w *World) checkNodes(_ *server, s *store.Snapshot) string {
	for _, n := range w.nodes {
		e, ok := s.Node(n.name)
		if !ok || e.Value.State != cluster.NodeReady || e.Value.Domain != cluster.DefaultDomain {
			return fmt.Sprintf("node %s is not ready: %+v", n.name, e.Value)
		}
	}
	return ""
}

func (w *World) checkServices(_ *server, s *store.Snapshot) string {
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
			desired = len(w.nodes)
		case want.Scaling != nil:
			desired = at.Value.Desired()
		}
		if n != desired {
			return fmt.Sprintf("%s has %d healthy tasks, want %d", want.Name, n, desired)
		}
	}
	return ""
}

func (w *World) checkJobs(_ *server, s *store.Snapshot) string {
	for e := range s.Jobs("") {
		var tasks []reconciler.Task
		for row := range s.Attempts(e.Value.Owner()) {
			tasks = append(tasks, reconciler.Task{Attempt: row.Attempt})
		}
		st := reconciler.StatusOfJob(reconciler.JobInput{Owner: e.Value.Owner(), Spec: e.Value, Tasks: tasks})
		if !st.Done() || st.Running > 0 {
			return fmt.Sprintf("%s is %s: %+v", e.Value.Name, st.State, st)
		}
	}
	return ""
}

func (w *World) checkWaiting(leader *server, s *store.Snapshot) string {
	e, ok := s.Service(inCluster, "big")
	if !ok {
		return ""
	}
	if r, ok := leader.plane.Waiting(cluster.ServiceTask(inCluster, "big", e.Value.Generation, 0)); !ok ||
		r.Sentence == "" {
		return "reason: a task waits without a reason"
	}
	return ""
}

// checkPrograms compares the running programs with the wanted ones.
func (w *World) checkPrograms(_ *server, s *store.Snapshot) string {
	if w.witness.restored || w.witness.overwritten {
		return "" // attempts that the store forgot go on (P1.7)
	}
	for _, n := range w.nodes {
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

// leftovers lists records that should be gone once all faults have ended.
func (w *World) leftovers(s *store.Snapshot) (left []string) {
	for e := range s.Plans() {
		settled := e.Created == e.Modified && len(e.Value.Owners) == 0
		if len(e.Value.Owners) > 0 || e.Value.Seq != s.LastPlan() && !settled {
			left = append(left, e.Key)
		}
	}
	for row := range s.AllAttempts() {
		if !row.Standing() {
			continue
		}
		parts, _ := row.Task.Parts()
		if _, ok := s.Service(parts.Cluster, parts.Owner); parts.Step != "" || !ok {
			left = append(left, fmt.Sprintf("%s/%d on %s", row.Task, row.Number, row.Node))
		}
	}
	return left
}
