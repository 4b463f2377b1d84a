package reports

import (
	"cmp"

	"github.com/berthd/berth/internal/cluster"
)

// entry is the report state of one attempt.
type entry struct {
	task          Attempt
	observed      cluster.Observed
	barrierAsk    int    // number of the start barrier request, 0 for none
	sentPermitAsk string // the newest permit request that was sent
	version       uint64
	acked         uint64 // the newest version that the server has
	queued        bool   // is in dirty, or waits for its next attempt
	failures      int    // how often this version was refused for now
}

// Item is one attempt's part of a report.
type Item struct {
	entry   *entry
	version uint64
	ask     int
}

// urgent reports whether a caller waits for the answer: barriers and final states are committed before they are
// acknowledged (P4.6), and a permit is valid for a short time only (P5.2).
func (e *entry) urgent() bool {
	return e.barrierAsk != 0 || e.observed.State.Terminal() || e.observed.Ask != e.sentPermitAsk
}

// order sorts the entries of a report: urgent ones first, then by task.
func (e *entry) order(other *entry) int {
	urgent := func(e *entry) int {
		if e.urgent() {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(urgent(e), urgent(other)), cmp.Compare(e.observed.Task, other.observed.Task),
		cmp.Compare(e.observed.Attempt, other.observed.Attempt))
}
