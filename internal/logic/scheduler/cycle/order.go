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
	if p.Owner.Kind != cluster.KindJob {
		return p.Priority
	}
	w := waitOf(p)
	return w.rank(now)
}

// levelWidth is the number of priorities of a level, and levelOffset moves levels so that each has one of the seven
// named priorities in its middle: 50, 200, 350, 500, 650, 800 and 950.
const levelWidth, levelOffset = 150, 25

// Level returns the level of a priority. Within a level, shares decide between the tasks in a fair queue.
func Level(priority int) int { return (priority + levelOffset) / levelWidth }

// LevelOf returns the level of a request in a fair queue. If the jobs of its user hold nothing, it is that of its rank.
func LevelOf(p *cluster.Pending, now time.Time, holdsNothing bool) int {
	w := waitOf(p)
	return w.Level(now, holdsNothing)
}

// HighestVictim returns the highest priority of tasks that may end for a waiting task, if priorities differ by gap at
// least. In a fair queue these are of a lower level: a task of the same level could take the room that comes free, as
// its user then holds less, and would be the next victim.
func HighestVictim(p *cluster.Pending, gap int) int {
	highest := p.Priority - gap
	if p.Queue == cluster.QueueFair && p.Owner.Kind == cluster.KindJob {
		highest = min(highest, Level(p.Priority)*levelWidth-levelOffset-1)
	}
	return highest
}

// Wait is what the place of a waiting task of a job depends on. Since is when it began to wait.
type Wait struct {
	Queue     cluster.QueuePolicy
	Priority  int
	Since     time.Time
	TimeLimit cluster.Duration // 0 for none
}

// Level is LevelOf for a task of a job.
func (w *Wait) Level(now time.Time, holdsNothing bool) int {
	if holdsNothing {
		return Level(w.rank(now))
	}
	return Level(w.Priority)
}

func waitOf(p *cluster.Pending) Wait { return Wait{p.Queue, p.Priority, p.Since, p.TimeLimit} }

func (w *Wait) rank(now time.Time) int {
	if w.Since.IsZero() || now.Before(w.Since) {
		return w.Priority
	}
	return max(w.Priority, min(w.Priority+int(now.Sub(w.Since)/AgeStep), cluster.MaxPriority))
}

// A task in a queue with the policy sjbf that has waited for OverdueFactor times its limit, and for MinOverdue at
// least, is overdue: it comes before all other tasks of jobs. ADR 0044 has the reasons for the values.
const (
	MinOverdue    = 24 * time.Hour
	OverdueFactor = 8
)

// overdueAt returns when a task in a queue with the policy sjbf is overdue.
func (w *Wait) overdueAt() time.Time {
	limit := min(time.Duration(w.TimeLimit), math.MaxInt64/OverdueFactor)
	return w.Since.Add(max(MinOverdue, OverdueFactor*limit))
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
		return cmp.Or(places[i].Compare(&places[j]), cmp.Compare(pending[i].Task, pending[j].Task))
	}
	slices.SortFunc(order, urgency)
	slices.SortFunc(held, urgency)
	return groupGangs(pending, order), held
}

// Place is the place of a waiting task in the order: the highest rank first, then the earliest time, then the least
// length.
type Place struct {
	rank   int
	since  time.Time
	length cluster.Duration
}

// Compare is negative if a comes before b.
func (a *Place) Compare(b *Place) int {
	if a.rank != b.rank {
		return cmp.Compare(b.rank, a.rank)
	}
	if c := a.since.Compare(b.since); c != 0 {
		return c
	}
	return cmp.Compare(a.length, b.length)
}

// ratioSteps is the number of ranks of response ratios for each priority.
const ratioSteps = 1 << 16

// Place returns the place of a task among tasks of jobs.
func (w *Wait) Place(now time.Time) Place {
	if w.Queue != cluster.QueueSJBF {
		return Place{rank: w.rank(now) * ratioSteps, since: w.Since}
	}
	at := Place{rank: w.Priority * ratioSteps, since: w.Since, length: w.TimeLimit}
	if w.TimeLimit <= 0 {
		at.length = math.MaxInt64
	}
	waited := now.Sub(w.Since)
	if w.Since.IsZero() || waited <= 0 {
		return at
	}
	if due := w.overdueAt(); !due.After(now) {
		return Place{rank: (cluster.MaxPriority+1)*ratioSteps - 1, since: due}
	}
	// The rank grows with ratio / (ratio + 1), which is below 1. The last step is for overdue tasks.
	ratio := float64(waited) / float64(at.length)
	at.rank += min(int(ratio/(ratio+1)*ratioSteps), ratioSteps-2)
	return at
}

// placesOf returns the places of the pending tasks. Above each task of a job are the services of a higher priority, and
// the tasks of a higher priority for which others end.
func placesOf(pending []cluster.Pending, now time.Time) []Place {
	const step = cluster.MaxPriority + 1 // leaves room for priorities between two ranks
	places := make([]Place, len(pending))
	var highest [cluster.MaxPriority + 1]int // rank of jobs, by priority
	for i := range pending {
		p := &pending[i]
		if p.Owner.Kind != cluster.KindJob {
			places[i] = Place{rank: p.Priority * ratioSteps * step, since: p.Since}
		} else {
			w := waitOf(p)
			places[i] = w.Place(now)
			places[i].rank *= step
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
