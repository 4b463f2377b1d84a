package reconciler

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// A daemon has one task on each node that it belongs on. The nodes of the newest attempts determine which index is on
// which node; a new node takes the lowest free index. The tasks do not move. A silent node needs no replacement, and an
// old task must end before the new one can begin on its node.

// daemon reports whether the service has one task on each of its nodes.
func (in *ServiceInput) daemon() bool { return in.Spec != nil && in.Spec.Mode == cluster.ModeDaemon }

// wantsTasks reports whether the service should have tasks at all.
func (in *ServiceInput) wantsTasks() bool {
	return in.Spec != nil && !in.Spec.Deleted && !in.Spec.Stopped && (in.daemon() || in.Spec.Count > 0)
}

// countedNodes returns the ordered nodes that count for a daemon: those that it belongs on and that report. The minimum
// is computed from their number, and only tasks on them count towards it (P5.4). So the task on a drained node, or on
// one that no longer meets the constraints, ends whatever the state of the others. A suspect node counts while a task
// is there, although that task does not. A silent node does not count, nor does one without a task that has not
// reported.
func (in *ServiceInput) countedNodes(all []*slot) []string {
	away := map[string]bool{}
	for _, s := range all {
		if t := s.newest(); t != nil && s.live() && t.unreachable() {
			away[t.node()] = true
		}
	}
	var cells []string
	for _, n := range in.Nodes {
		if !in.Alone[n] && !away[n] {
			cells = append(cells, n)
		}
	}
	slices.Sort(cells)
	return slices.Compact(cells)
}

// node returns the node of the slot's newest attempt.
func (s *slot) node() string {
	if t := s.newest(); t != nil {
		return t.node()
	}
	return s.assignedNode
}

// newDaemon classifies the tasks of a daemon by node.
func (p *plan) newDaemon(in *ServiceInput, all []*slot) *rollout {
	r := &rollout{plan: p, in: in, spec: in.Spec, all: all, nodes: in.countedNodes(all)}
	r.n = len(r.nodes)
	r.limits = p.limits(in.Spec, r.n)
	r.limits.Surge, r.limits.StopFirst, r.limits.MinHealthy = 0, true, min(r.limits.MinHealthy, max(0, r.n-1))
	r.tasksByNode = map[string][]*slot{}
	for _, s := range all {
		if r.belongs(s) {
			r.tasksByNode[s.node()] = append(r.tasksByNode[s.node()], s)
		}
	}
	r.chooseNewestByNode()
	for _, s := range all {
		if in.newest(s) {
			continue
		}
		if !r.belongs(s) {
			if s.live() && s.newest().unreachable() && slices.Contains(in.Nodes, s.node()) {
				r.oldAway++
			}
			continue
		}
		if s.live() {
			r.oldLive++
		}
		if s.mayStay(p.definitions) {
			r.old = append(r.old, s)
		}
	}
	slices.SortStableFunc(r.old, func(a, b *slot) int { return cmp.Or(better(a, b), cmp.Compare(a.node(), b.node())) })
	return r
}

// belongs reports whether the task is on a counted node.
func (r *rollout) belongs(s *slot) bool {
	_, ok := slices.BinarySearch(r.nodes, s.node())
	return ok
}

// blockedOnNode reports whether the task has ended and another live task on its node has to end before anything begins
// there.
func (r *rollout) blockedOnNode(s *slot) bool {
	return !s.live() && slices.ContainsFunc(r.tasksByNode[s.node()], (*slot).live)
}

// chooseNewestByNode picks for each node the best task of the newest version, or a new one.
func (r *rollout) chooseNewestByNode() {
	r.fresh = make([]*slot, r.n)
	used := map[int]bool{}
	for _, s := range r.all {
		if s.parts.Generation == r.spec.Generation {
			used[s.parts.Index] = true
		}
		i, ok := slices.BinarySearch(r.nodes, s.node())
		if ok && r.in.newest(s) && r.usable(s) && !r.blockedOnNode(s) &&
			(r.fresh[i] == nil || fresher(s, r.fresh[i]) < 0) {
			r.fresh[i] = s
		}
	}
	index := 0
	for i, s := range r.fresh {
		if s != nil {
			r.begun += s.begun()
			if s.healthy() {
				r.healthy++
			}
			continue
		}
		for used[index] {
			index++
		}
		s = newSlot(cluster.ServiceTask(r.spec.Cluster, r.spec.Name, r.spec.Generation, index))
		s.assignedNode, used[index] = r.nodes[i], true
		r.fresh[i] = s
	}
}

// daemonChoice chooses the wanted tasks of a daemon, node by node.
type daemonChoice struct{ *rollout }

// chooseDaemonTasks returns the tasks of a daemon that are wanted now, node by node.
func (r daemonChoice) chooseDaemonTasks() []*slot {
	var wanted, rolls []*slot
	leaving := r.leaving()
	begun := r.begun + leaving // tasks of the newest version, begun or about to begin
	for i, s := range r.fresh {
		if t := s.newest(); t != nil && !s.live() && t.Drain != nil && r.drainEnds(t.Drain) {
			continue // the node was drained
		}
		if s.begun() == 1 {
			wanted = append(wanted, s)
			continue
		}
		old, leaves := r.oldOn(r.nodes[i], s)
		switch {
		case leaves:
		case old == nil && r.spreadsNoFurther(begun) && r.lastHealthy() != nil: // a new node gets a proven version
			wanted = append(wanted, r.restoreOn(r.nodes[i]))
		case old == nil || !old.live() && !r.spreadsNoFurther(begun):
			wanted = append(wanted, s)
			begun++
		case !old.live():
			wanted = append(wanted, old)
		default:
			rolls = append(rolls, old)
		}
	}
	slices.SortStableFunc(rolls, func(a, b *slot) int { return cmp.Compare(a.rank(), b.rank()) })
	wanted = append(wanted, rolls[min(len(rolls), r.nodesToReplace(leaving, begun)):]...)
	for _, s := range r.all { // tasks on uncounted nodes stay if these are unreachable, or for a while
		if s.live() && !s.hasStop() && (s.newest().unreachable() || r.staysOn(s.node())) {
			wanted = append(wanted, s)
		}
	}
	slices.SortFunc(wanted, compareSlots)
	return wanted
}

// staysOn reports whether the daemon's task may stay on a node without it for now. If so, it requests a decision at the
// end of that time.
func (r daemonChoice) staysOn(node string) bool {
	until, ok := r.in.Staying[node]
	if !ok || !until.After(r.now) {
		return false
	}
	r.decideAgainAt(until)
	return true
}

// leaving returns the number of nodes on which a task has to end before one of the newest version can begin.
func (r daemonChoice) leaving() (n int) {
	for i, s := range r.fresh {
		if _, leaves := r.oldOn(r.nodes[i], s); leaves && s.begun() == 0 {
			n++
		}
	}
	return n
}

// oldOn returns the best task of an older version on a node, and whether another task than fresh is stopping there.
func (r daemonChoice) oldOn(node string, fresh *slot) (best *slot, leaving bool) {
	for _, s := range r.tasksByNode[node] {
		if s != fresh && s.hasStop() {
			leaving = true
		}
		if !r.in.newest(s) && s.mayStay(r.definitions) && !r.blockedOnNode(s) && (best == nil || better(s, best) < 0) {
			best = s
		}
	}
	return best, leaving
}

// beginsNothing reports whether the rollout begins no task now.
func (r *rollout) beginsNothing() bool {
	return r.spec.Rollout.Paused || r.rec.State == cluster.RolloutFailed || r.rec.State == cluster.RolloutRolledBack
}

// spreadsNoFurther reports whether the newest version begins on no further node, although no task has to end there: it
// begins nothing, or as many canaries as there may be have begun.
func (r daemonChoice) spreadsNoFurther(begun int) bool {
	c := r.canaries()
	return r.beginsNothing() || c > 0 && begun >= c
}

// lastHealthy returns the last healthy version, if it differs from the requested one and its definition still exists.
func (r *rollout) lastHealthy() *cluster.Version {
	h := r.rec.Healthy
	if h == nil || r.wasHealthyBefore() || r.definitions(h.Definition) == nil {
		return nil
	}
	return h
}

// restoreOn returns a new task of the last healthy version for a node of a daemon. The task takes the lowest free
// index.
func (r daemonChoice) restoreOn(node string) *slot {
	h := r.lastHealthy()
	used := map[int]bool{}
	for _, s := range r.all {
		if s.parts.Generation == h.Generation {
			used[s.parts.Index] = true
		}
	}
	for _, s := range r.restored {
		used[s.parts.Index] = true
	}
	index := 0
	for used[index] {
		index++
	}
	s := newSlot(cluster.ServiceTask(r.spec.Cluster, r.spec.Name, h.Generation, index))
	s.assignedNode, s.version = node, h.Definition
	r.restored = append(r.restored, s)
	return s
}

// nodesToReplace returns on how many further nodes the old task may end now. A task is leaving on some nodes, and tasks
// of the newest version have begun, or are about to, on some.
func (r daemonChoice) nodesToReplace(leaving, begun int) int {
	most := r.limits.Parallelism
	switch c := r.canaries(); {
	case r.beginsNothing():
		return 0
	case c > 0:
		return max(0, c-begun)
	case r.nothingToPreserve():
		return r.n
	case !r.batchMayBegin() && r.rec.State != cluster.RolloutComplete:
		return 0
	}
	return max(0, most-r.starting()-leaving)
}

// setNode sets the node that a task is for.
func (r *rollout) setNode(s *slot, template *cluster.Pending) {
	if r.in.daemon() {
		template.OnlyNode, template.Daemon = s.node(), true
		template.Count = max(1, r.n)
		return
	}
	template.OnlyNode = r.nodeOfOld(s)
}

// stopOffNode returns the stop of a daemon's task whose node the daemon no longer belongs on.
func (in *ServiceInput) stopOffNode(s *slot) (cluster.Stop, bool) {
	stop := cluster.Stop{Class: cluster.StopVoluntary, Reason: cluster.ReasonUnmatched}
	node := s.node()
	switch {
	case !in.daemon():
		return stop, false
	case in.Alone[node]:
		stop.Reason = cluster.ReasonDrain
		stop.Message = fmt.Sprintf("node %s is drained, and only daemons are left there", node)
	case !slices.Contains(in.Nodes, node):
		stop.Message = fmt.Sprintf("the service no longer runs on node %s", node)
	default:
		return stop, false
	}
	return stop, true
}
