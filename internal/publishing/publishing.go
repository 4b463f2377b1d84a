// Package publishing sends the event log to systems outside of Berth, and bounds the log by what these systems lack
// (P8.2).
//
// A publisher sends the log to one system. Its record publisher/<name> holds the cursor: the last batch that the system
// acknowledged. The leader trims the log behind the slowest cursor. A log that reaches MaxBatches or MaxBytes is
// trimmed past slow publishers. The record trim/event counts each trimmed batch, so a publisher that resumes behind it
// knows exactly how many batches it lost. The publisher then reports this gap as an event.
//
// Each batch that is not in a gap is sent at least once, in the order of the log. A crash between the acknowledgement
// and the write of the cursor repeats batches and loses none. Only the part of the leader for the publisher writes the
// record, under the leader's fence.
//
// No publisher exists yet. In servers, the leader trims the log (TrimUnit), and the status shows publishers that fall
// behind (BacklogOf). Publisher is the frame for the systems that follow: message brokers and webhooks.
package publishing

import (
	"cmp"
	"fmt"
	"iter"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// Backlog is what a publisher has not sent.
type Backlog struct {
	// Lost is the number of batches that were trimmed before they were sent, beyond those in the publisher's record.
	Lost uint64
	// Waiting is the number of batches in the log that are to be sent.
	Waiting uint64
}

// BacklogOf returns what a publisher has not sent.
func BacklogOf(snap *store.Snapshot, p *cluster.Publisher) Backlog {
	trimmed, end := trimmedBatches(snap), endPosition(snap)
	return Backlog{
		Lost:    trimmed - min(trimmed, p.Position),
		Waiting: end - min(end, max(trimmed, p.Position)),
	}
}

// trimmedBatches returns the number of batches that were trimmed since the store began.
func trimmedBatches(snap *store.Snapshot) uint64 {
	if e, ok := snap.EventTrim(); ok {
		return e.Value.Batches
	}
	return 0
}

// endPosition returns the position of the newest batch of the log: see cluster.Publisher.
func endPosition(snap *store.Snapshot) uint64 {
	return trimmedBatches(snap) + uint64(snap.EventCount())
}

// beginAtEnd returns the record of a new publisher. The publisher sends the events after those in the snapshot.
func beginAtEnd(snap *store.Snapshot, name string, now time.Time) *cluster.Publisher {
	p := &cluster.Publisher{Name: name, Position: endPosition(snap), At: now}
	if newest, ok := snap.LastEvents(); ok {
		p.Cursor, p.CursorAt = newest.Value.ID, newest.Value.At
	}
	return p
}

// countGap returns the record of a publisher with its lost batches counted and its cursor behind them, and the event
// that reports the gap. It returns false if no batches were lost since the record was written.
func countGap(snap *store.Snapshot, p *cluster.Publisher, now time.Time) (*cluster.Publisher, cluster.Event, bool) {
	lost := BacklogOf(snap, p).Lost
	if lost == 0 {
		return nil, cluster.Event{}, false
	}
	trim, _ := snap.EventTrim() // it exists, as batches were lost
	next := *p
	next.Cursor, next.CursorAt, next.Position = trim.Value.Last, trim.Value.LastAt, trim.Value.Batches
	next.At, next.Lost, next.LostAt = now, p.Lost+lost, now
	since := "from the beginning"
	if !p.CursorAt.IsZero() {
		since = "after " + p.CursorAt.UTC().Format(time.RFC3339)
	}
	return &next, cluster.Event{
		Type: "publisher.gap", Count: int(lost),
		Message: fmt.Sprintf("publisher %s lost %d batches of events, %s up to %s: it fell too far behind, and the "+
			"event log was full. Its system must read the present state from the API", p.Name, lost, since,
			trim.Value.LastAt.UTC().Format(time.RFC3339)),
	}, true
}

// nextBatches returns the next batches that a publisher has to send, at most a given number, and its record once they
// are sent. If the log lacks the batch at the cursor for another reason than trimming, the whole log is sent again.
func nextBatches(snap *store.Snapshot, p *cluster.Publisher, most int, now time.Time) ([]*cluster.EventBatch,
	*cluster.Publisher,
) {
	next := *p
	next.At = now
	var log iter.Seq[store.Entry[cluster.EventBatch]]
	if at, ok := snap.EventBatch(p.Cursor); ok {
		log = snap.EventBatchesAfter(at)
	} else {
		log, next.Position = snap.EventBatches(), trimmedBatches(snap)
	}
	var batches []*cluster.EventBatch
	for e := range log {
		if len(batches) == most {
			break
		}
		batches = append(batches, e.Value)
		next.Cursor, next.CursorAt = e.Value.ID, e.Value.At
		next.Position++
	}
	return batches, &next
}

// compareBatches orders two batches as the log does.
func compareBatches(a, b store.Entry[cluster.EventBatch]) int {
	return cmp.Or(cmp.Compare(a.Created, b.Created), cmp.Compare(a.Value.ID, b.Value.ID))
}
