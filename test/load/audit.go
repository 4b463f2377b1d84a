package load

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// Kill is the kill of all processes of a node by the test.
type Kill struct {
	Node string
	At   time.Time
	// Known is the time at which Berth knew that the node or its processes were gone, zero before. Until then Berth
	// counts the processes by their last report.
	Known time.Time
}

// hits reports whether the kill ended a process that reported at a time.
func (k *Kill) hits(node string, at time.Time) bool { return k.Node == node && at.Before(k.At) }

// Least is the minimum of healthy tasks from a time on.
type Least struct {
	At time.Time
	N  int
}

// leastSlack is for how long after a change of the minimum a stop may still go by the minimum before.
const leastSlack = 2 * time.Second

// process is a healthy process of an attempt. An attempt may restart its container.
type process struct {
	uuid string
	pid  int
}

// BelowMinimum returns a sentence for each stop of a healthy task that left fewer healthy tasks than the minimum. A
// task is healthy if one of its processes was found healthy, lives and is not stopping. Only Berth stops tasks, while
// the test kills processes. Berth decides a stop, lets the task serve for lingers (the service's shutdown delay), and
// then sends TERM. The healthy tasks and the minimum are those at the time of the decision.
func BelowMinimum(records []Record, kills []Kill, leasts []Least, lingers time.Duration) []string {
	healthy := map[cluster.TaskID]map[process]Record{}
	count := func(at time.Time) (n int) {
		for _, processes := range healthy {
			for _, r := range processes {
				if known(r, kills, at) {
					n++
					break
				}
			}
		}
		return n
	}
	ordered := slices.Clone(records)
	for i := range ordered {
		if ordered[i].What == Term {
			ordered[i].At = ordered[i].At.Add(-lingers)
		}
	}
	slices.SortStableFunc(ordered, func(a, b Record) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.UUID, b.UUID))
	})
	var faults []string
	given := map[process]bool{}
	for _, r := range ordered {
		key := process{r.UUID, r.Pid}
		switch r.What {
		case Well:
			if given[key] {
				continue // it was healthy for less than its shutdown delay
			}
			if healthy[r.Task] == nil {
				healthy[r.Task] = map[process]Record{}
			}
			healthy[r.Task][key] = r
		case Term, End:
			given[key] = true
			before := count(r.At)
			delete(healthy[r.Task], key)
			after := count(r.At)
			if least := leastAt(leasts, r.At); r.What == Term && after < before && after < least {
				faults = append(faults, fmt.Sprintf(
					"%s: %s of version %s on %s was given up, which left %d healthy tasks; %d are the least",
					r.At.Format(time.StampMilli), r.Task, r.Version, r.Node, after, least))
			}
		}
	}
	return faults
}

// known reports whether Berth may take a process for a living one.
func known(r Record, kills []Kill, at time.Time) bool {
	for _, k := range kills {
		if k.hits(r.Node, r.At) && !at.Before(k.At) && !k.Known.IsZero() && !at.Before(k.Known) {
			return false
		}
	}
	return true
}

// leastAt returns the lowest minimum that applied at a time or shortly before.
func leastAt(leasts []Least, at time.Time) int {
	least, found := 0, false
	for _, l := range leasts {
		switch {
		case l.At.After(at):
		case !found || !l.At.After(at.Add(-leastSlack)):
			least, found = l.N, true
		default:
			least = min(least, l.N)
		}
	}
	return least
}

// Excused reports whether a request failed on a process that the test itself killed.
func Excused(f Failure, kills []Kill) bool {
	return slices.ContainsFunc(kills, func(k Kill) bool { return k.hits(f.Node, f.Started) && f.Ended.After(k.At) })
}
