package fleet

import (
	"maps"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// Run is the run of a job's attempt, which frees its room by itself.
type Run struct {
	UUID    string
	Task    cluster.TaskID
	Slot    int32
	Demand  cluster.Demand
	IsPlain bool          // it holds no ports and no devices
	Started time.Time     // zero if it has not started
	Limit   time.Duration // 0 for no limit
	Ended   bool          // see Reservation.Ended
}

// LongestLeft returns how long the run may still take by its limit: 0 if that has passed or the run has ended, and all
// of the limit if the run has not started. ok is false for a run without a limit that has not ended.
func (r *Run) LongestLeft(now time.Time) (left time.Duration, ok bool) {
	switch {
	case r.Ended:
		return 0, true
	case r.Limit <= 0:
		return 0, false
	case r.Started.IsZero():
		return r.Limit, true
	}
	return max(r.Limit-now.Sub(r.Started), 0), true
}

// runs is the runs on the nodes of a fleet, in no order.
type runs struct {
	list []Run
	at   map[string]int32 // by UUID
}

func newRuns() runs { return runs{at: map[string]int32{}} }

func (l *runs) clone() runs { return runs{slices.Clone(l.list), maps.Clone(l.at)} }

// add adds the run of a reservation on a slot.
func (l *runs) add(r *Reservation, slot int32) {
	l.at[r.UUID] = int32(len(l.list))
	l.list = append(l.list, Run{
		UUID: r.UUID, Task: r.Task, Slot: slot, Demand: r.Demand, IsPlain: len(r.Ports)+len(r.Devices) == 0,
		Started: r.Started, Limit: r.Limit, Ended: r.Ended,
	})
}

// remove removes the run with a UUID, if there is one.
func (l *runs) remove(uuid string) {
	i, found := l.at[uuid]
	if !found {
		return
	}
	last := int32(len(l.list) - 1)
	l.list[i] = l.list[last]
	l.at[l.list[i].UUID] = i
	delete(l.at, uuid)
	l.list[last] = Run{}
	l.list = l.list[:last]
}

// Begin notes when the attempt with a UUID started. An unknown UUID is no error.
func (f *Fleet) Begin(uuid string, at time.Time) {
	i, found := f.runs.at[uuid]
	if !found || f.runs.list[i].Started.Equal(at) {
		return
	}
	held := f.held[uuid]
	f.runs.list[i].Started, held.Started = at, at
	f.held[uuid] = held
}

// End notes that the attempt with a UUID has ended. It holds its room until Release. An unknown UUID is no error.
func (f *Fleet) End(uuid string) {
	i, found := f.runs.at[uuid]
	if !found || f.runs.list[i].Ended {
		return
	}
	held := f.held[uuid]
	f.runs.list[i].Ended, held.Ended = true, true
	f.held[uuid] = held
}

// Runs returns the runs of the attempts of jobs, in no order. The caller must not change them.
func (f *Fleet) Runs() []Run { return f.runs.list }

// Emptied returns what will be free on each node once all runs have ended, by slot.
func (f *Fleet) Emptied() []cluster.Demand {
	free := make([]cluster.Demand, len(f.loads))
	for slot := range f.loads {
		free[slot] = f.loads[slot].Free()
	}
	for i := range f.runs.list {
		r := &f.runs.list[i]
		free[r.Slot] = free[r.Slot].Add(r.Demand)
	}
	return free
}
