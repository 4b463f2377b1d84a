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
func Order(pending []cluster.Pending, now time.Time) (order, held []int32) {
	ranks := make([]int, len(pending))
	for i := range pending {
		ranks[i] = Rank(&pending[i], now)
	}
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
