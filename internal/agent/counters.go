package agent

import (
	"time"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/agent/state"
	"github.com/berthd/berth/internal/cluster"
)

// maxCounters limits the tasks whose counters outlive their attempts. Those that were counted longest ago are dropped.
const maxCounters = 4096

// Counts are the restarts of a task on the node, and its kills for lack of memory. They count all of its attempts
// there, those of earlier generations too. The replacement of a failed attempt counts as a restart.
type Counts struct{ Restarts, OOMs int }

// counters keeps the counters of tasks whose attempts have left the node. It has no lock: it belongs to attempts.
type counters struct {
	store  *state.Store
	byTask map[string]*state.Counters
}

// begin prepares for a run of the agent that continues from the saved counters.
func (c *counters) begin(store *state.Store, saved []*state.Counters) {
	c.store, c.byTask = store, make(map[string]*state.Counters, len(saved))
	for _, s := range saved {
		c.byTask[s.Task] = s
	}
}

// begun notes a new attempt. The generations and attempts of a task only grow. An owner that was deleted and made again
// begins anew, and so do its counters.
func (c *counters) begun(id attempt.ID) {
	key := state.CounterKey(id.Task)
	known := c.byTask[key]
	if known == nil || known.UUID == id.UUID { // a server whose tables lag may send the last one again
		return
	}
	parts, _ := id.Task.Parts()
	if parts.Generation < known.Generation ||
		parts.Generation == known.Generation && id.Attempt <= known.Attempt {
		delete(c.byTask, key)
		c.store.ForgetCounters(key)
	}
}

// add adds an attempt that leaves the node. After a crash an attempt may leave twice, and counts once.
func (c *counters) add(s *attempt.Status, now time.Time) {
	key := state.CounterKey(s.Task)
	n := countsOf(s, true)
	known := c.byTask[key]
	if key == "" || known == nil && n == (Counts{}) || known != nil && known.UUID == s.UUID {
		return
	}
	parts, _ := s.Task.Parts()
	sum := &state.Counters{
		Task: key, Generation: parts.Generation, Attempt: s.Attempt, UUID: s.UUID, Restarts: n.Restarts, OOMs: n.OOMs,
		At: now,
	}
	if known != nil {
		sum.Restarts, sum.OOMs = sum.Restarts+known.Restarts, sum.OOMs+known.OOMs
	}
	c.byTask[key] = sum
	c.store.QueueCounters(sum)
	c.limit()
}

// limit drops the oldest counters beyond the limit.
func (c *counters) limit() {
	for len(c.byTask) > maxCounters {
		var oldest *state.Counters
		for _, s := range c.byTask { // order-free: the oldest, and of equal ones the first by name
			if oldest == nil || s.At.Before(oldest.At) || s.At.Equal(oldest.At) && s.Task < oldest.Task {
				oldest = s
			}
		}
		delete(c.byTask, oldest.Task)
		c.store.ForgetCounters(oldest.Task)
	}
}

// all returns the counts of every task that has an attempt in the list, or had one before, by state.CounterKey.
func (c *counters) all(present []attempt.Status) map[string]Counts {
	sums := make(map[string]Counts, len(c.byTask)+len(present))
	for key, s := range c.byTask { // order-free: a map
		sums[key] = Counts{s.Restarts, s.OOMs}
	}
	for i := range present {
		s := &present[i]
		key := state.CounterKey(s.Task)
		if known := c.byTask[key]; known != nil && known.UUID == s.UUID {
			continue // it leaves the node for the second time
		}
		sum, n := sums[key], countsOf(s, false)
		sums[key] = Counts{sum.Restarts + n.Restarts, sum.OOMs + n.OOMs}
	}
	return sums
}

// countsOf returns the counts of one attempt. Left says that the attempt leaves the node.
func countsOf(s *attempt.Status, left bool) (n Counts) {
	if s.View == nil {
		return n
	}
	o := s.View.Record.Observed(s.Definition)
	n.Restarts = o.Restarts
	for i := range o.Containers {
		n.OOMs += o.Containers[i].OOMs
	}
	if left && o.State == cluster.StateFailed {
		n.Restarts++ // another attempt replaces it
	}
	return n
}
