package reconciler

import (
	"cmp"
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// rollout is what a decision makes of the way of a service from older versions to its newest one.
//
// A task is of the newest version if its id says so, or if it was begun since the last restart and runs what is asked
// for now: so to go back to an earlier version is to keep what is left of that. All other tasks are old.
//
// Of the old ones so many of the best stay as the new ones have not replaced by healthy ones; where there is no room
// for a task more they make room first, as far as the budget allows. What fails for good meanwhile, on either side, is
// begun again in the version that it had: a rollout that is held never leaves a service with less than is wanted of it.
type rollout struct {
	*plan
	in     *ServiceInput
	spec   *cluster.Service
	limits cluster.Limits
	n      int
	all    []*slot
	// nodes are those that a daemon's tasks are counted by, ordered, and on the tasks that stand there.
	nodes []string
	on    map[string][]*slot
	// made are tasks to come of the last version that was healthy, on nodes of a daemon.
	made []*slot
	// fresh are the n tasks of the newest version, existing or to come; begun of them were placed, and healthy of those
	// are.
	fresh          []*slot
	begun, healthy int
	// old are the tasks of other versions that may stay, best first, and live counts all that live and are not lost
	// from sight.
	old  []*slot
	live int
	// well counts the healthy tasks of all versions that are to stay, and going those that are well and were told to
	// stop.
	well, going int
	// oldLive counts the old ones that live on nodes that are heard, also those on their way out.
	oldLive int
	// rec is the record as it will be.
	rec cluster.Rollout
	// first says that nothing was known of the rollout before.
	first bool
}

// newRollout sorts the tasks of a service that wants some.
func (p *plan) newRollout(in *ServiceInput, all []*slot) *rollout {
	r := &rollout{plan: p, in: in, spec: in.Spec, n: in.Spec.Desired(), all: all}
	r.limits = p.limits(in.Spec, r.n)
	chosen := r.sort(all)
	for _, s := range all {
		if s.live() && (!s.leaving() || !s.newest().away()) {
			r.live++
			if s.leaving() && s.newest().Observed.Healthy() {
				r.going++
			}
		}
		if p.counts(s) || p.doubtful(s) {
			r.well++
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
		if s.live() && !s.newest().away() {
			r.oldLive++
		}
		if s.candidate(p.definitions) {
			r.old = append(r.old, s)
		}
	}
	slices.SortStableFunc(r.old, better)
	if r.beside() {
		slices.SortStableFunc(r.old, func(a, b *slot) int { return cmp.Compare(r.replaced(a), r.replaced(b)) })
	}
	return r
}

// newest reports whether a task is of the version that the service asks for now.
func (in *ServiceInput) newest(s *slot) bool {
	g := s.parts.Generation
	return g == in.Spec.Generation || g >= in.Spec.Restarted && len(s.attempts) > 0 &&
		s.definition() == in.Spec.Definition
}

// sort picks for each index the best task of the newest version, or one to come.
func (r *rollout) sort(all []*slot) map[*slot]bool {
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

// usable reports whether a task of an earlier generation can stand for its index; one that was given up cannot.
func (r *rollout) usable(s *slot) bool {
	return s.parts.Generation == r.spec.Generation || !s.retired() && !s.leaving()
}

// fresher orders tasks of one index of the newest version, the best first.
func fresher(a, b *slot) int {
	return cmp.Or(cmp.Compare(b.worth(), a.worth()), -cmp.Compare(a.parts.Generation, b.parts.Generation))
}

// waiting is how many tasks of the newest version were begun and are not healthy.
func (r *rollout) waiting() int { return r.begun - r.healthy }

// known reports whether the version was healthy before: then there is nothing to try out with canaries and gates, least
// of all on the way back from one that failed.
func (r *rollout) known() bool {
	return r.spec.Rollout.Reverted != 0 || r.rec.Healthy != nil && r.rec.Healthy.Definition == r.spec.Definition
}

// canaries is how many tasks are begun beside all the old ones until somebody promotes them; 0 where none are.
func (r *rollout) canaries() int {
	if r.rec.Promoted || len(r.old) == 0 && r.former() == nil || r.known() || r.rec.State.Ended() {
		return 0
	}
	return r.limits.Canaries
}

// lost reports whether no old task is of any use, nor any to come, so that nothing is gained by going slowly: as at a
// first deployment.
func (r *rollout) lost() bool { return r.useless() && r.former() == nil }

func (r *rollout) useless() bool {
	return !slices.ContainsFunc(r.old, func(s *slot) bool { return !s.hopeless() })
}

// former returns the version that was healthy before, where tasks of it are to be begun because none is left that is of
// use, and the newest one is not proven: it failed, or its canaries were not promoted, and meanwhile the service was
// stopped or scaled to nothing. Else nil.
func (r *rollout) former() *cluster.Version {
	failed := r.rec.State == cluster.RolloutFailed
	canaries := r.limits.Canaries > 0 && !r.rec.Promoted && !r.rec.State.Ended()
	if r.in.daemon() || !failed && (!canaries || len(r.old) > 0) || !r.useless() {
		return nil
	}
	return r.proven()
}

// choose picks the tasks that are wanted now.
func (r *rollout) choose() []*slot {
	ordered := slices.Clone(r.fresh)
	slices.SortStableFunc(ordered, func(a, b *slot) int { return cmp.Compare(b.begun(), a.begun()) })
	fresh := ordered[:r.begun]
	left := r.n - r.healthy // places that no healthy task of the newest version has
	c := r.canaries()
	switch {
	case r.rec.State == cluster.RolloutComplete || len(r.old) == 0 && r.former() == nil:
		return gather(ordered[:r.begun+max(0, min(r.n-r.begun, r.room(fresh, nil)))], nil)
	case r.rec.State == cluster.RolloutRolledBack: // another version is asked for with this decision
		return gather(fresh, r.old)
	case r.rec.State.Ended() && r.limits.Canaries > 0 && !r.rec.Promoted && !r.known():
		return r.fill(nil, r.keep(r.n, r.n))
	case r.rec.State.Ended():
		// What is well stays, of either version, and the old one takes back the place of what is not.
		fresh = slices.DeleteFunc(slices.Clone(fresh), func(s *slot) bool {
			return !s.healthy() && (!s.live() || s.hopeless())
		})
		return r.fill(fresh, r.keep(left, r.n-len(fresh)))
	case r.spec.Rollout.Paused && c > 0:
		return gather(fresh, r.keep(r.n, r.n))
	case r.spec.Rollout.Paused:
		return gather(fresh, r.keep(max(left, r.witnesses()), r.n-r.begun))
	case c > 0:
		return gather(ordered[:max(r.begun, c)], r.keep(r.n, r.n))
	}
	flight := r.flight()
	// places that the old ones must stand for; beyond that they stay while nothing is gained by their end
	covered := left - flight
	old := r.keep(max(left-max(0, flight-r.limits.Surge), r.witnesses()), 0)
	for k := len(old); k > max(0, covered) && flight > 0 && old[k-1].hopeless(); k-- {
		old = old[:k-1]
	}
	if !r.lost() {
		old = r.keep(len(old), covered)
	}
	more := min(flight-r.waiting(), r.n-r.begun, r.room(fresh, old))
	return gather(ordered[:r.begun+max(0, more)], old)
}

// room is how many tasks may be begun as far as their number goes. What was told to stop takes room until it has ended;
// but while less is healthy than is to be it may not end, and then that is what has to be made good first.
func (r *rollout) room(fresh, old []*slot) int {
	taken := r.taken(fresh, old)
	room := r.n + r.limits.Surge - taken
	if r.well < r.limits.Least {
		room = max(room, r.n-(taken-r.going))
	}
	return room
}

// flight returns how many tasks of the newest version may be on their way to be healthy. A place that is open, because
// an old task made room or is no more, is filled without waiting for the next batch.
func (r *rollout) flight() int {
	left, now := r.n-r.healthy, r.waiting()
	switch {
	case r.lost():
		return left
	case r.goesOn() || r.filling():
		return max(now, min(r.limits.Parallelism, left))
	}
	open := r.n - min(len(r.old), left) - r.begun
	return max(now, min(r.limits.Parallelism, now+max(0, open)))
}

// taken is how many tasks there will be with those.
func (r *rollout) taken(fresh, old []*slot) int {
	n := r.live
	for _, s := range slices.Concat(fresh, old) {
		if !s.live() {
			n++
		}
	}
	return n
}

// keep returns the best old tasks, so many at most, and further ones of their version until there are at least so many:
// for a service that grows while its rollout stands still. An index that was given up is begun again with the attempt
// that follows, so long as its outcome stands.
func (r *rollout) keep(most, least int) []*slot {
	old := slices.Clone(r.old[:max(0, min(most, len(r.old)))])
	if len(old) >= least || r.lost() {
		return old
	}
	var generation uint64
	var runs cluster.Ref
	if h := r.former(); h != nil {
		generation, runs = h.Generation, h.Definition
	} else {
		model := r.old[slices.IndexFunc(r.old, func(s *slot) bool { return !s.hopeless() })]
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
			s.runs = runs
		case i >= r.n || s.live() || !s.retired() || s.definition() != runs:
			continue
		}
		old = append(old, s)
	}
	return old
}

// fill gathers what is wanted of a rollout that failed: where the old version cannot stand in for what is missing the
// newest one goes on trying, so that there are never fewer tasks than the service is to have.
func (r *rollout) fill(fresh, old []*slot) []*slot {
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

// beside reports whether a new task of a definition of which two should not share a node is begun beside the old one
// all the same, on its node, for that is where its volume is: the old one ends once the new one is well.
func (r *rollout) beside() bool {
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

// only returns the node that a task is for, or nothing: that of the old task that it is begun beside.
func (r *rollout) only(s *slot) string {
	if !r.beside() || !r.in.newest(s) {
		return ""
	}
	for _, o := range r.old {
		if o.parts.Index == s.parts.Index && o.live() {
			return o.newest().node()
		}
	}
	return ""
}
