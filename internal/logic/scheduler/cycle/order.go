package cycle

import (
	"cmp"
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

// Order returns the indices of the pending tasks in the order of placement: higher ranks first, then those that wait
// longest (Pending.Since), then by task id. The members of a gang follow its first one. Tasks that may not be placed at
// all are held: those of priority 0, and those with a hold. With the zero time no task has waited.
//
// A service comes before all jobs of a lower priority, however long these wait. So does a task for which others end
// (Pending.Promised): else they would take the room, and the next tasks would have to end.
func Order(pending []cluster.Pending, now time.Time) (order, held []int32) {
	ranks := ranksOf(pending, now)
	order = make([]int32, 0, len(pending))
	for i := range pending {
		if pending[i].Priority > 0 && pending[i].Hold == (cluster.Hold{}) {
			order = append(order, int32(i))
		} else {
			held = append(held, int32(i))
		}
	}
	urgency := func(i, j int32) int {
		a, b := &pending[i], &pending[j]
		if ranks[i] != ranks[j] {
			return cmp.Compare(ranks[j], ranks[i])
		}
		if c := a.Since.Compare(b.Since); c != 0 {
			return c
		}
		return cmp.Compare(a.Task, b.Task)
	}
	slices.SortFunc(order, urgency)
	slices.SortFunc(held, urgency)
	return groupGangs(pending, order), held
}

// ranksOf returns numbers that order the pending tasks by rank, and above each task of a job the services of a higher
// priority, as well as the tasks of a higher priority for which others end.
func ranksOf(pending []cluster.Pending, now time.Time) []int {
	const step = cluster.MaxPriority + 1 // leaves room for priorities between two ranks
	ranks := make([]int, len(pending))
	var highest [cluster.MaxPriority + 1]int // rank of jobs, by priority
	for i := range pending {
		p := &pending[i]
		ranks[i] = Rank(p, now) * step
		if p.Owner.Kind == cluster.KindJob {
			at := min(max(p.Priority, 0), cluster.MaxPriority)
			highest[at] = max(highest[at], ranks[i])
		}
	}
	for i := 1; i < len(highest); i++ {
		highest[i] = max(highest[i], highest[i-1])
	}
	for i := range pending {
		p := &pending[i]
		if (p.Promised != "" || p.Owner.Kind != cluster.KindJob) && p.Priority > 0 {
			priority := min(p.Priority, cluster.MaxPriority)
			ranks[i] = max(ranks[i], highest[priority-1]+priority)
		}
	}
	return ranks
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
