package cycle

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// AgeStep is the time after which a waiting task of a job rises in the queue like a task whose priority is higher by 1.
// So a task waits for later ones of a higher priority for a bounded time: from the default priority to the highest in
// about three and a half days. Preemption counts the priority of the job alone.
const AgeStep = 10 * time.Minute

// Rank returns the priority by which a pending task is ordered: that of its owner and, for a job, what the task gained
// by waiting. It is at most cluster.MaxPriority.
func Rank(p *cluster.Pending, now time.Time) int {
	if p.Owner.Kind != cluster.KindJob || p.Since.IsZero() || now.Before(p.Since) {
		return p.Priority
	}
	return max(p.Priority, min(p.Priority+int(now.Sub(p.Since)/AgeStep), cluster.MaxPriority))
}

// A task in a queue with the policy sjbf that has waited for OverdueFactor times its limit, and for MinOverdue at
// least, is overdue: it comes before all other tasks of jobs. ADR 0044 has the reasons for the values.
const (
	MinOverdue    = 24 * time.Hour
	OverdueFactor = 8
)

// overdueAt returns when a task in a queue with the policy sjbf is overdue.
func overdueAt(p *cluster.Pending) time.Time {
	limit := min(time.Duration(p.TimeLimit), math.MaxInt64/OverdueFactor)
	return p.Since.Add(max(MinOverdue, OverdueFactor*limit))
}

// Order returns the indices of the pending tasks in the order of placement: higher ranks first, then those that wait
// longest (Pending.Since), then by task id. The members of a gang follow its first one. Tasks that may not be placed at
// all are held: those of priority 0, and those with a hold. With the zero time no task has waited.
//
// In a queue with the policy sjbf, tasks of one priority are ordered by the response ratio, the highest first (Brinch
// Hansen, 1971): the time waited divided by the time limit. Without a limit it is 0. Tasks that are overdue come before
// all tasks of jobs, in the order in which they became overdue. So nothing starves.
//
// A service comes before all jobs of a lower priority, however long these wait. So does a task for which others end
// (Pending.Promised): else they would take the room, and the next tasks would have to end.
func Order(pending []cluster.Pending, now time.Time) (order, held []int32) {
	places := placesOf(pending, now)
	order = make([]int32, 0, len(pending))
	for i := range pending {
		if pending[i].Priority > 0 && pending[i].Hold == (cluster.Hold{}) {
			order = append(order, int32(i))
		} else {
			held = append(held, int32(i))
		}
	}
	urgency := func(i, j int32) int {
		a, b := &places[i], &places[j]
		if a.rank != b.rank {
			return cmp.Compare(b.rank, a.rank)
		}
		if c := a.since.Compare(b.since); c != 0 {
			return c
		}
		return cmp.Or(cmp.Compare(a.length, b.length), cmp.Compare(pending[i].Task, pending[j].Task))
	}
	slices.SortFunc(order, urgency)
	slices.SortFunc(held, urgency)
	return groupGangs(pending, order), held
}

// place is the place of a pending task in the order: the highest rank first, then the earliest time, then the least
// length.
type place struct {
	rank   int
	since  time.Time
	length cluster.Duration
}

// ratioSteps is the number of ranks of response ratios for each priority.
const ratioSteps = 1 << 16

// placeOf returns the place of a task among tasks of jobs.
func placeOf(p *cluster.Pending, now time.Time) place {
	if p.Queue != cluster.QueueSJBF || p.Owner.Kind != cluster.KindJob {
		return place{rank: Rank(p, now) * ratioSteps, since: p.Since}
	}
	at := place{rank: p.Priority * ratioSteps, since: p.Since, length: p.TimeLimit}
	if p.TimeLimit <= 0 {
		at.length = math.MaxInt64
	}
	waited := now.Sub(p.Since)
	if p.Since.IsZero() || waited <= 0 {
		return at
	}
	if due := overdueAt(p); !due.After(now) {
		return place{rank: (cluster.MaxPriority+1)*ratioSteps - 1, since: due}
	}
	ratio := float64(waited) / float64(at.length) // the rank grows with ratio / (ratio + 1), which is below 1
	at.rank += min(int(ratio/(ratio+1)*ratioSteps), ratioSteps-1)
	return at
}

// placesOf returns the places of the pending tasks. Above each task of a job are the services of a higher priority, and
// the tasks of a higher priority for which others end.
func placesOf(pending []cluster.Pending, now time.Time) []place {
	const step = cluster.MaxPriority + 1 // leaves room for priorities between two ranks
	places := make([]place, len(pending))
	var highest [cluster.MaxPriority + 1]int // rank of jobs, by priority
	for i := range pending {
		p := &pending[i]
		places[i] = placeOf(p, now)
		places[i].rank *= step
		if p.Owner.Kind == cluster.KindJob {
			at := min(max(p.Priority, 0), cluster.MaxPriority)
			highest[at] = max(highest[at], places[i].rank)
		}
	}
	for i := 1; i < len(highest); i++ {
		highest[i] = max(highest[i], highest[i-1])
	}
	for i := range pending {
		p := &pending[i]
		if (p.Promised != "" || p.Owner.Kind != cluster.KindJob) && p.Priority > 0 {
			priority := min(p.Priority, cluster.MaxPriority)
			places[i].rank = max(places[i].rank, highest[priority-1]+priority)
		}
	}
	return places
}

// groupGangs moves the members of each gang behind its first member: they are placed together or not at all.
func groupGangs(pending []cluster.Pending, order []int32) []int32 {
	members := map[string][]int32{}
	for _, p := range order {
		if gang := pending[p].Gang; gang != "" {
			members[gang] = append(members[gang], p)
		}
	}
	if len(members) == 0 {
		return order
	}
	sorted := make([]int32, 0, len(order))
	for _, p := range order {
		if gang := pending[p].Gang; gang == "" {
			sorted = append(sorted, p)
		} else {
			sorted = append(sorted, members[gang]...)
			members[gang] = nil
		}
	}
	return sorted
}
