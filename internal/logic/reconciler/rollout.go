package reconciler

import (
	"cmp"
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// rollout computes the next step of a service from older versions to its newest version.
//
// A task is of the newest version if its id says so. It also is if it began since the last restart and runs the
// requested definition: a rollback keeps the tasks that are left of the earlier version. All other tasks are old.
//
// The best old tasks stay until healthy new tasks replace them. Without room for another task, old tasks stop first, as
// far as the budget allows. A task of either side that fails permanently meanwhile begins again in its own version. A
// paused or failed rollout thus never leaves a service with fewer tasks than wanted.
type rollout struct {
	*plan
	in     *ServiceInput
	spec   *cluster.Service
	limits cluster.Limits
	n      int // how many tasks are wanted
	all    []*slot
	// nodes are the ordered nodes that count for a daemon; tasksByNode holds the tasks on them.
	nodes       []string
	tasksByNode map[string][]*slot
	// restored are tasks of the last healthy version that begin on nodes of a daemon.
	restored []*slot
	// fresh are the n tasks of the newest version, existing or to come. begun counts those that were placed, healthy
	// the healthy ones of these.
	fresh          []*slot
	begun, healthy int
	// old are the tasks of other versions that may stay, best first. live counts all live tasks except stopping ones on
	// unreachable nodes.
	old  []*slot
	live int
	// staying counts the healthy tasks of all versions that are to stay, stopping the healthy tasks that have a stop.
	staying, stopping int
	// oldLive counts the old live tasks on reachable nodes, including stopping ones. oldAway counts those of a daemon
	// on its unreachable nodes.
	oldLive, oldAway int
	// rec is the new record.
	rec cluster.Rollout
	// unknownBefore says that the service had no rollout record before.
	unknownBefore bool
}

// newRollout classifies the tasks of a service that wants some.
func (p *plan) newRollout(in *ServiceInput, all []*slot) *rollout {
	r := &rollout{plan: p, in: in, spec: in.Spec, n: in.Spec.Desired(), all: all}
	r.limits = p.limits(in.Spec, r.n)
	chosen := r.chooseNewest(all)
	for _, s := range all {
		if s.live() && (!s.endsForGood() || !s.newest().unreachable()) {
			r.live++
			if s.endsForGood() && s.newest().Observed.Healthy() {
				r.stopping++
			}
		}
		if p.countsAsHealthy(s) || p.unconfirmed(s) {
			r.staying++
		}
		if in.newest(s) {
			if chosen[s] {
				r.begun += s.begun()
				if s.healthy() {
					r.healthy++
				}
			}
			continue
		}
		if s.live() && !s.newest().unreachable() {
			r.oldLive++
		}
		if s.mayStay(p.definitions) {
			r.old = append(r.old, s)
		}
	}
	slices.SortStableFunc(r.old, better)
	if r.startsBesideOld() {
		slices.SortStableFunc(r.old, func(a, b *slot) int { return cmp.Compare(r.replaced(a), r.replaced(b)) })
	}
	return r
}

// newest reports whether a task is of the version that the service requests.
func (in *ServiceInput) newest(s *slot) bool {
	g := s.parts.Generation
	return g == in.Spec.Generation || g >= in.Spec.Restarted && len(s.attempts) > 0 &&
		s.definition() == in.Spec.Definition
}

// chooseNewest picks for each index the best task of the newest version, or a new one.
func (r *rollout) chooseNewest(all []*slot) map[*slot]bool {
	r.fresh = make([]*slot, r.n)
	for _, s := range all {
		if i := s.parts.Index; s.parts.Step == "" && i < r.n && r.in.newest(s) && r.usable(s) &&
			(r.fresh[i] == nil || fresher(s, r.fresh[i]) < 0) {
			r.fresh[i] = s
		}
	}
	chosen := make(map[*slot]bool, r.n)
	for i, s := range r.fresh {
		if s == nil {
			r.fresh[i] = newSlot(cluster.ServiceTask(r.spec.Cluster, r.spec.Name, r.spec.Generation, i))
			continue
		}
		chosen[s] = true
	}
	return chosen
}

// usable reports whether a task of an earlier generation can serve its index; a retired or stopping one cannot.
func (r *rollout) usable(s *slot) bool {
	return s.parts.Generation == r.spec.Generation || !s.retired() && !s.endsForGood()
}

// fresher orders tasks of one index of the newest version, the best first.
func fresher(a, b *slot) int {
	return cmp.Or(cmp.Compare(b.rank(), a.rank()), -cmp.Compare(a.parts.Generation, b.parts.Generation))
}

// starting returns how many tasks of the newest version were begun and are not healthy.
func (r *rollout) starting() int { return r.begun - r.healthy }

// wasHealthyBefore reports whether the version was healthy before. Canaries and gates have nothing to try out then,
// least of all in a rollback.
func (r *rollout) wasHealthyBefore() bool {
	return r.spec.Rollout.Reverted != 0 || r.rec.Healthy != nil && r.rec.Healthy.Definition == r.spec.Definition
}

// canaries returns how many tasks begin beside all old tasks until a user promotes them; 0 without canaries.
func (r *rollout) canaries() int {
	hasOld := len(r.old)+r.oldAway > 0 || r.versionToRestore() != nil
	if r.rec.Promoted || !hasOld || r.wasHealthyBefore() || r.rec.State.Ended() {
		return 0
	}
	return r.limits.Canaries
}

// nothingToPreserve reports whether no old task, existing or to come, is of any use. Going slowly then gains nothing,
// as in a first deployment.
func (r *rollout) nothingToPreserve() bool { return r.allOldFailing() && r.versionToRestore() == nil }

func (r *rollout) allOldFailing() bool {
	return !slices.ContainsFunc(r.old, func(s *slot) bool { return !s.failing() })
}

// versionToRestore returns the version that was healthy before, if its tasks are to be begun again; else nil. No useful
// task of it is left, because the service was stopped or scaled to 0 meanwhile. The newest version is not proven: it
// failed, or its canaries were not promoted.
func (r *rollout) versionToRestore() *cluster.Version {
	failed := r.rec.State == cluster.RolloutFailed
	canaries := r.limits.Canaries > 0 && !r.rec.Promoted && !r.rec.State.Ended()
	if r.in.daemon() || !failed && (!canaries || len(r.old) > 0) || !r.allOldFailing() {
		return nil
	}
	return r.lastHealthy()
}

// taskChoice chooses the wanted tasks of a service that is no daemon, of the newest and of older versions.
type taskChoice struct{ *rollout }

// chooseTasks returns the tasks that are wanted now.
func (r taskChoice) chooseTasks() []*slot {
	ordered := slices.Clone(r.fresh)
	slices.SortStableFunc(ordered, func(a, b *slot) int { return cmp.Compare(b.begun(), a.begun()) })
	fresh := ordered[:r.begun]
	left := r.n - r.healthy // indexes without a healthy task of the newest version
	c := r.canaries()
	switch {
	case r.rec.State == cluster.RolloutComplete || len(r.old) == 0 && r.versionToRestore() == nil:
		return gather(ordered[:r.begun+max(0, min(r.n-r.begun, r.startable(fresh, nil)))], nil)
	case r.rec.State == cluster.RolloutRolledBack: // this decision requests another version
		return gather(fresh, r.old)
	case r.rec.State.Ended() && r.limits.Canaries > 0 && !r.rec.Promoted && !r.wasHealthyBefore():
		return r.fillUp(nil, r.keepOld(r.n, r.n))
	case r.rec.State.Ended():
		// Healthy tasks of either version stay. The old version takes back the indexes of all others.
		fresh = slices.DeleteFunc(slices.Clone(fresh), func(s *slot) bool {
			return !s.healthy() && (!s.live() || s.failing())
		})
		return r.fillUp(fresh, r.keepOld(left, r.n-len(fresh)))
	case r.spec.Rollout.Paused && c > 0:
		return gather(fresh, r.keepOld(r.n, r.n))
	case r.spec.Rollout.Paused && r.wasHealthyBefore(): // if it grows, it does by the proven version
		return r.fillUp(fresh, r.keepOld(left, r.n-r.begun))
	case r.spec.Rollout.Paused:
		return gather(fresh, r.keepOld(max(left, r.keptForGates()), r.n-r.begun))
	case c > 0:
		return gather(ordered[:max(r.begun, c)], r.keepOld(r.n, r.n))
	}
	allowed := r.allowedStarting()
	// Old tasks must cover this many indexes. Beyond that they stay only while their end gains nothing.
	covered := left - allowed
	old := r.keepOld(max(left-max(0, allowed-r.limits.Surge), r.keptForGates()), 0)
	for k := len(old); k > max(0, covered) && allowed > 0 && old[k-1].failing(); k-- {
		old = old[:k-1]
	}
	if !r.nothingToPreserve() {
		old = r.keepOld(len(old), covered)
	}
	more := min(allowed-r.starting(), r.n-r.begun, r.startable(fresh, old))
	return gather(ordered[:r.begun+max(0, more)], old)
}

// startable returns how many tasks may begin as far as their number is limited. A stopping task takes room until it has
// ended. But while too few tasks are healthy it gets no permit to end. Then the missing healthy tasks come first, and
// stopping tasks take no room.
func (r taskChoice) startable(fresh, old []*slot) int {
	taken := r.countWith(fresh, old)
	room := r.n + r.limits.Surge - taken
	if r.staying < r.limits.MinHealthy {
		room = max(room, r.n-(taken-r.stopping))
	}
	return room
}

// allowedStarting returns how many tasks of the newest version may be starting together. An index that is free, because
// an old task made room or has ended, is filled without waiting for the next batch.
func (r taskChoice) allowedStarting() int {
	left, now := r.n-r.healthy, r.starting()
	open := max(0, r.n-min(len(r.old), left)-r.begun)
	switch {
	case r.nothingToPreserve():
		return left
	case r.wasHealthyBefore(): // a proven version fills all free indexes together
		now = max(now, min(now+open, left))
	}
	if r.batchMayBegin() || r.batchMayGrow() {
		return max(now, min(r.limits.Parallelism, left))
	}
	return max(now, min(r.limits.Parallelism, r.starting()+open))
}

// countWith returns how many tasks there will be with the given ones.
func (r taskChoice) countWith(fresh, old []*slot) int {
	n := r.live
	for _, s := range slices.Concat(fresh, old) {
		if !s.live() {
			n++
		}
	}
	return n
}

// keepOld returns the best old tasks, at most most of them. It adds tasks of their version until there are at least
// least, for a service that grows while its rollout is held. A service that goes back to a proven version adds none. An
// index that was given up begins again with the following attempt while its outcome exists.
func (r taskChoice) keepOld(most, least int) []*slot {
	old := slices.Clone(r.old[:max(0, min(most, len(r.old)))])
	proven := r.wasHealthyBefore() && (!r.rec.State.Ended() || r.spec.Rollout.Reverted != 0)
	if len(old) >= least || r.nothingToPreserve() || proven {
		return old
	}
	var generation uint64
	var runs cluster.Ref
	if h := r.versionToRestore(); h != nil {
		generation, runs = h.Generation, h.Definition
	} else {
		model := r.old[slices.IndexFunc(r.old, func(s *slot) bool { return !s.failing() })]
		generation, runs = model.parts.Generation, model.definition()
	}
	used := make(map[int]*slot)
	for _, s := range r.all {
		if s.parts.Generation == generation {
			used[s.parts.Index] = s
		}
	}
	for i := 0; len(old) < least; i++ {
		s := used[i]
		switch {
		case s == nil:
			s = newSlot(cluster.ServiceTask(r.spec.Cluster, r.spec.Name, generation, i))
			s.version = runs
		case i >= r.n || s.live() || !s.retired() || s.definition() != runs:
			continue
		}
		old = append(old, s)
	}
	return old
}

// fillUp returns the wanted tasks of a failed rollout. Where the old version cannot replace what is missing, the newest
// version keeps trying, so that the service never has fewer tasks than wanted.
func (r taskChoice) fillUp(fresh, old []*slot) []*slot {
	for _, s := range r.fresh {
		if len(fresh)+len(old) >= r.n {
			break
		}
		if !slices.Contains(fresh, s) {
			fresh = append(fresh, s)
		}
	}
	return gather(fresh, old)
}

func gather(fresh, old []*slot) []*slot {
	wanted := slices.Concat(fresh, old)
	slices.SortFunc(wanted, compareSlots)
	return wanted
}

// startsBesideOld reports whether a new task begins on the node of the old one because its volume is there. The old
// task ends once the new one is healthy. This holds even if two tasks of the definition should not share a node.
func (r *rollout) startsBesideOld() bool {
	d := r.definitions(r.spec.Definition)
	return d != nil && len(d.Volumes) > 0 && !r.limits.StopFirst
}

// replaced is 1 for an old task whose successor is healthy, else 0.
func (r *rollout) replaced(s *slot) int {
	if i := s.parts.Index; i < len(r.fresh) && r.fresh[i].healthy() {
		return 1
	}
	return 0
}

// nodeOfOld returns the node of the old task beside which the task begins, or nothing.
func (r *rollout) nodeOfOld(s *slot) string {
	if !r.startsBesideOld() || !r.in.newest(s) {
		return ""
	}
	for _, o := range r.old {
		if o.parts.Index == s.parts.Index && o.live() {
			return o.newest().node()
		}
	}
	return ""
}
