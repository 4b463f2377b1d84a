package sim

import (
	"fmt"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// eventChecker checks that event batches do not change, and that each end of an attempt has exactly one event.
type eventChecker struct {
	*observation
	endEvents map[string]int    // number of end events, by "<task>/<n>"
	moving    map[string]bool   // attempts with a moving event, by "<task>/<n>"
	batches   map[string]uint64 // hashes of batches of events, by id
}

func newEventChecker(o *observation) *eventChecker {
	v := &eventChecker{observation: o}
	v.reset()
	return v
}

// reset forgets the events of the store, as after a restore.
func (v *eventChecker) reset() {
	v.endEvents, v.moving, v.batches = map[string]int{}, map[string]bool{}, map[string]uint64{}
}

// applyEvents processes a batch of events. A batch is written once, and each end has one event.
func (v *eventChecker) applyEvents(id string, c *store.Change) {
	if c.Deleted {
		return // the log is bounded
	}
	now := hashed(0, string(c.Value))
	if was, ok := v.batches[id]; ok {
		if was != now {
			v.breach("events", "the events %s were changed", id)
		}
		return
	}
	v.batches[id] = now
	b, err := store.Decode[cluster.EventBatch](c.Value)
	if err != nil {
		v.breach("events", "the events %s cannot be read: %v", id, err)
		return
	}
	for i := range b.Events {
		e := &b.Events[i]
		if state, ok := strings.CutPrefix(e.Type, "task."); ok && cluster.State(state).Terminal() {
			v.endEvents[fmt.Sprint(e.Task, "/", e.Attempt)]++
		}
		if e.Type == "task.reconnected" { // the attempt goes on, and ends again
			delete(v.endEvents, fmt.Sprint(e.Task, "/", e.Attempt))
		}
		if e.Type == "task.moving" { // even if it stops first and its end is reported later
			v.moving[fmt.Sprint(e.Task, "/", e.Attempt)] = true
		}
	}
}

// checkEndReported checks, after a revision, that every outcome in it has its event. An agent that could not write its
// state may have forgotten that an attempt ended and left. After a crash it reports the end again, and the attempt may
// have another outcome if the first one was deleted.
func (v *eventChecker) checkEndReported(key string) {
	if v.endEvents[key] > 1 && v.story.hits(v.outcomes[key].node, DiskFails) {
		return
	}
	if n := v.endEvents[key]; n != 1 && (n != 0 || !v.moving[key]) && !v.restored &&
		!v.isUntrusted(v.outcomes[key].node) &&
		!v.hasUntrustedAttempt(v.outcomes[key].task) {
		v.breach("events", "%d events publish the end of %s", n, key)
	}
}
