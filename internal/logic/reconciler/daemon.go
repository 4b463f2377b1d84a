package reconciler

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// A daemon has one task on each node that it belongs on. Which index is whose follows from the nodes of the newest
// attempts; a node that is new takes the lowest free index. Its tasks do not move: on a node that falls silent there is
// nothing to replace, and on one where the old version runs that has to end before the new one can begin.

// daemon reports whether the service has one task on each of its nodes.
func (in *ServiceInput) daemon() bool { return in.Spec != nil && in.Spec.Mode == cluster.ModeDaemon }

// disconnect is what happens to the service's tasks on nodes that are silent: a daemon's are not replaced.
func (in *ServiceInput) disconnect() cluster.OnDisconnect {
	if in.daemon() {
		return cluster.DisconnectWait
	}
	return in.Spec.OnDisconnect
}

// wants reports whether the service should have tasks at all.
func (in *ServiceInput) wants() bool {
	return in.Spec != nil && !in.Spec.Deleted && !in.Spec.Stopped && (in.daemon() || in.Spec.Count > 0)
}

// cells returns the nodes that a daemon's tasks are counted by, ordered: those where one belongs and that are heard.
// Its minimum is that of so many, and only what stands there counts towards it (P5.4). So on a node that is emptied, or
// does not meet the constraints any more, its task ends however the others are. A node that is suspect counts while a
// task stands there, though that task does not; one that is silent, or that has none yet and was not heard, does not
// count.
func (in *ServiceInput) cells(all []*slot) []string {
	away := map[string]bool{}
	for _, s := range all {
		if t := s.newest(); t != nil && s.live() && t.away() {
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

// node returns where the newest attempt of the slot stands or stood.
func (s *slot) node() string {
	if t := s.newest(); t != nil {
		return t.node()
	}
	return s.at
}

// newDaemon sorts the tasks of a daemon by node.
func (p *plan) newDaemon(in *ServiceInput, all []*slot) *rollout {
	r := &rollout{plan: p, in: in, spec: in.Spec, all: all, nodes: in.cells(all)}
	r.n = len(r.nodes)
	r.limits = p.limits(in.Spec, r.n)
	r.limits.Surge, r.limits.StopFirst, r.limits.Least = 0, true, min(r.limits.Least, max(0, r.n-1))
	r.on = map[string][]*slot{}
	for _, s := range all {
		if r.belongs(s) {
			r.on[s.node()] = append(r.on[s.node()], s)
		}
	}
	r.onNodes()
	for _, s := range all {
		if !r.belongs(s) || in.newest(s) {
			continue
		}
		if s.live() {
			r.oldLive++
		}
		if s.candidate(p.definitions) {
			r.old = append(r.old, s)
		}
	}
	slices.SortStableFunc(r.old, func(a, b *slot) int { return cmp.Or(better(a, b), cmp.Compare(a.node(), b.node())) })
	return r
}

// belongs reports whether the task stands on a node that the daemon's tasks are counted by.
func (r *rollout) belongs(s *slot) bool {
	_, ok := slices.BinarySearch(r.nodes, s.node())
	return ok
}

// behind reports whether the task has ended and another one lives on its node, which has to end before anything begins
// there.
func (r *rollout) behind(s *slot) bool {
	return !s.live() && slices.ContainsFunc(r.on[s.node()], (*slot).live)
}

// onNodes finds for each node the best task of the newest version, or one to come.
func (r *rollout) onNodes() {
	r.fresh = make([]*slot, r.n)
	used := map[int]bool{}
	for _, s := range r.all {
		if s.parts.Generation == r.spec.Generation {
			used[s.parts.Index] = true
		}
		i, ok := slices.BinarySearch(r.nodes, s.node())
		if ok && r.in.newest(s) && r.usable(s) && !r.behind(s) && (r.fresh[i] == nil || fresher(s, r.fresh[i]) < 0) {
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
		s.at, used[index] = r.nodes[i], true
		r.fresh[i] = s
	}
}

// spread picks the tasks of a daemon that are wanted now, node by node.
func (r *rollout) spread() []*slot {
	var wanted, rolls []*slot
	flight := r.waiting()
	for i, s := range r.fresh {
		if t := s.newest(); t != nil && !s.live() && t.Drain != nil && r.passed(t.Drain) {
			continue // the node was emptied
		}
		if s.begun() == 1 {
			wanted = append(wanted, s)
			continue
		}
		old, leaving := r.oldOn(r.nodes[i], s)
		switch {
		case leaving:
			flight++
		case old == nil && r.held() && r.proven() != nil: // a node that is new gets what is known to work
			wanted = append(wanted, r.again(r.nodes[i]))
		case old == nil || !old.live() && !r.held():
			wanted = append(wanted, s)
		case !old.live():
			wanted = append(wanted, old)
		default:
			rolls = append(rolls, old)
		}
	}
	slices.SortStableFunc(rolls, func(a, b *slot) int { return cmp.Compare(a.worth(), b.worth()) })
	wanted = append(wanted, rolls[min(len(rolls), r.turn(flight)):]...)
	for _, s := range r.all { // what cannot be asked is left alone; its node is not counted
		if s.live() && s.newest().away() && !s.told() {
			wanted = append(wanted, s)
		}
	}
	slices.SortFunc(wanted, compareSlots)
	return wanted
}

// oldOn returns the best task of an older version on a node, and whether another one than the given is on its way out
// there.
func (r *rollout) oldOn(node string, fresh *slot) (best *slot, leaving bool) {
	for _, s := range r.on[node] {
		if s != fresh && s.told() {
			leaving = true
		}
		if !r.in.newest(s) && s.candidate(r.definitions) && !r.behind(s) && (best == nil || better(s, best) < 0) {
			best = s
		}
	}
	return best, leaving
}

// held reports whether the rollout begins nothing now.
func (r *rollout) held() bool {
	return r.spec.Rollout.Paused || r.rec.State == cluster.RolloutFailed || r.rec.State == cluster.RolloutRolledBack
}

// proven returns the last version that was healthy, if it is another one than is asked for and is still known.
func (r *rollout) proven() *cluster.Version {
	h := r.rec.Healthy
	if h == nil || r.known() || r.definitions(h.Definition) == nil {
		return nil
	}
	return h
}

// again is a task to come, on a node of a daemon, of the last version that was healthy: it takes the lowest index that
// is free.
func (r *rollout) again(node string) *slot {
	h := r.proven()
	used := map[int]bool{}
	for _, s := range r.all {
		if s.parts.Generation == h.Generation {
			used[s.parts.Index] = true
		}
	}
	for _, s := range r.made {
		used[s.parts.Index] = true
	}
	index := 0
	for used[index] {
		index++
	}
	s := newSlot(cluster.ServiceTask(r.spec.Cluster, r.spec.Name, h.Generation, index))
	s.at, s.runs = node, h.Definition
	r.made = append(r.made, s)
	return s
}

// turn is on how many nodes more the old task may end now.
func (r *rollout) turn(flight int) int {
	most := r.limits.Parallelism
	switch c := r.canaries(); {
	case r.held():
		return 0
	case r.lost():
		return r.n
	case c > 0:
		return max(0, c-r.begun-(flight-r.waiting()))
	case !r.goesOn() && r.rec.State != cluster.RolloutComplete:
		return 0
	}
	return max(0, most-flight)
}

// aim says for which node a task is.
func (r *rollout) aim(s *slot, template *cluster.Pending) {
	if r.in.daemon() {
		template.Only, template.Daemon = s.node(), true
		template.Count = max(1, r.n)
		return
	}
	template.Only = r.only(s)
}

// expelled says why a daemon's task ends on its node, if it does not belong there any more.
func (in *ServiceInput) expelled(s *slot) (cluster.Stop, bool) {
	stop := cluster.Stop{Class: cluster.StopVoluntary, Reason: cluster.ReasonUnmatched}
	node := s.node()
	switch {
	case !in.daemon():
		return stop, false
	case in.Alone[node]:
		stop.Reason = cluster.ReasonDrain
		stop.Message = fmt.Sprintf("node %s is drained, and nothing else is left there", node)
	case !slices.Contains(in.Nodes, node):
		stop.Message = fmt.Sprintf("the service has no task on node %s any more", node)
	default:
		return stop, false
	}
	return stop, true
}
