package store

import (
	"iter"
	"strconv"

	"github.com/berthd/berth/internal/cluster"
)

// eventTables hold the event log.
type eventTables struct {
	events     *table[cluster.EventBatch] // by revision of creation and id
	eventOrder *tree[string, string]      // their keys, by id
}

// EventBatches returns the batches of the event log, oldest first: by the revision of their creation,
// then by id (P8.1).
func (l *eventTables) EventBatches() iter.Seq[Entry[cluster.EventBatch]] {
	return scan(l.events, "")
}

// LastEvents returns the newest batch of the event log.
func (l *eventTables) LastEvents() (Entry[cluster.EventBatch], bool) {
	_, e, ok := l.events.Max()
	return e, ok
}

// EventBatch returns the batch with the given id, if the log still holds it.
func (l *eventTables) EventBatch(id string) (Entry[cluster.EventBatch], bool) {
	order, ok := l.eventOrder.Get(id)
	if !ok {
		return Entry[cluster.EventBatch]{}, false
	}
	return l.events.Get(order)
}

// EventBatchesAfter returns the batches that come after one of the log, oldest first.
func (l *eventTables) EventBatchesAfter(e Entry[cluster.EventBatch]) iter.Seq[Entry[cluster.EventBatch]] {
	return func(yield func(Entry[cluster.EventBatch]) bool) {
		from := eventOrder(e.Created, e.Value.ID) + "\x00"
		l.events.Ascend(from, func(_ string, next Entry[cluster.EventBatch]) bool { return yield(next) })
	}
}

// EventCount returns how many batches the event log holds.
func (l *eventTables) EventCount() int { return l.events.Len() }

// deriveEvents derives the tables of the event log.
func deriveEvents(to, from *Snapshot, how derivation) {
	to.events, to.eventOrder = derivedSmall(from.events, how), derivedSmall(from.eventOrder, how)
}

func eventOrder(created uint64, id string) string {
	n := strconv.FormatUint(created, 10)
	return "00000000000000000000"[len(n):] + n + "/" + id
}
