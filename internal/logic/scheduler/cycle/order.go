package cycle

import (
	"cmp"
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// Order returns the indices of the pending tasks in the order of placement: higher priorities first, then those that
// wait longest (Pending.Since), then by task id. The members of a gang follow its first one. Tasks that may not be
// placed at all are held: those of priority 0, and those with a hold.
func Order(pending []cluster.Pending) (order, held []int32) {
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
		if a.Priority != b.Priority {
			return cmp.Compare(b.Priority, a.Priority)
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
