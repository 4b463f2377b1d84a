package sim

import (
	"slices"
	"syscall"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor/fake"
)

// programChecker checks the starts and ends of programs.
type programChecker struct {
	*observation
	starts, ends int
}

// checkProgram processes the start or the end of a program. It runs under the machine's lock.
func (v *programChecker) checkProgram(n *node, r fake.Run) {
	uuid := r.Labels["berth.uuid"]
	v.mu.Lock()
	defer v.mu.Unlock()
	v.addToHistory("%v program %s on %s %+v", time.Since(v.began), r.ID, n.name, r.Exit)
	a := v.attempts[uuid]
	if a == nil {
		if !v.restored {
			v.breach("start-unasked", "%s started %s, which the store never knew", n.name, r.ID)
		}
		return
	}
	if v.nodeView(n.name).executorFaults > 0 {
		a.excused = true
	}
	if r.Ended.IsZero() {
		v.checkStart(n, a)
		return
	}
	v.ends++
	a.running--
	v.addToChronicle("program of %s/%d on %s ended: %+v", a.task, a.number, n.name, r.Exit)
	s := v.nodeView(n.name)
	s.running -= v.cpu[a.def]
	killed := r.Exit.Signal == int(syscall.SIGTERM) || r.Exit.Signal == int(syscall.SIGKILL)
	if killed && !a.stopped && !a.ended && !a.excused && !v.restored && !v.story.hits(n.name, Lie) {
		v.breach("stop-unasked", "%s/%d on %s was stopped, though no stop of it was ever written", a.task, a.number,
			n.name)
	}
}

// checkStart processes the start of a program.
func (v *programChecker) checkStart(n *node, a *attemptHistory) {
	v.starts++
	v.addToChronicle("program of %s/%d (%s) on %s starts", a.task, a.number, a.uuid, n.name)
	a.starts++
	s := v.nodeView(n.name)
	defer func() {
		a.running++
		s.running += v.cpu[a.def]
		if s.running > nodeCPU && !v.restored && !v.overwritten && !v.isUntrusted(n.name) {
			v.breach("machine-packed", "programs on %s need %d of %d mCPU", n.name, s.running, nodeCPU)
		}
	}()
	if v.restored {
		return
	}
	if a.batch && a.starts > 1 {
		v.breach("started-twice", "%s/%d was started %d times in one attempt, on %s", a.task, a.number, a.starts,
			n.name)
	}
	if o := a.outcome; o != nil && (a.batch || !mayRunBesideNext(a)) && !v.isUntrusted(n.name) {
		v.breach("start-after", "%s/%d was started on %s after its outcome, %s, was written", a.task, a.number, n.name,
			o.State)
	}
	for other := range v.tasks[a.task] { // order-free: any of them
		if other == a || other.running == 0 || v.story.hits(other.node, Lie) || v.story.hits(n.name, Lie) ||
			other.excused || a.excused ||
			v.overwritten && (!a.waitsOnDisconnect || !other.reported || v.story.erases()) {
			continue // an attempt overwritten before its first report may be placed again
		}
		if a.waitsOnDisconnect || !mayRunBesideNext(a) && !mayRunBesideNext(other) {
			v.breach("two-live", "%s/%d starts on %s while attempt %d runs on %s", a.task, a.number, n.name,
				other.number, other.node)
		}
	}
}

// mayRunBesideNext reports whether the attempt may continue in parallel to the next one of its task. Its node was
// silent, it moves off its node, or it has a stop and is wanted again.
func mayRunBesideNext(a *attemptHistory) bool {
	o := a.outcome
	if o == nil {
		return a.ended // its outcome was trimmed
	}
	return o.State == cluster.StateLost || o.State == cluster.StateCancelled &&
		slices.Contains([]cluster.ReasonCode{
			cluster.ReasonDrain, cluster.ReasonPressure, cluster.ReasonTaint, cluster.ReasonConstraint,
			cluster.ReasonReserved, cluster.ReasonRebalance, cluster.ReasonReplaced,
		}, o.Reason)
}
