package store

import (
	"iter"
	"strconv"

	"github.com/berthd/berth/internal/cluster"
)

// eventTables hold the event log, and how far it was published and trimmed.
type eventTables struct {
	events      table[cluster.EventBatch] // by revision of creation and id
	eventPlaces tree[string, eventPlace]  // by id
	eventBytes  cluster.Bytes             // the sum of the sizes of all batches
	publishers  table[cluster.Publisher]
	trims       table[cluster.EventTrim] // by the noun of the trimmed records
}

// eventPlace is the place of a batch in the log.
type eventPlace struct {
	order string        // its key in the table
	size  cluster.Bytes // of its stored value
}

// EventBatches returns the batches of the event log, oldest first: by the revision of their creation,
// then by id (P8.1).
func (l *eventTables) EventBatches() iter.Seq[Entry[cluster.EventBatch]] {
	return scan(l.events, "")
}

// LastEvents returns the newest batch of the event log.
func (l *eventTables) LastEvents() (Entry[cluster.EventBatch], bool) {
	_, e, ok := l.events.MaxBelow("\xff") // places are ASCII
	return e, ok
}

// EventBatch returns the batch with the given id, if the log still holds it.
func (l *eventTables) EventBatch(id string) (Entry[cluster.EventBatch], bool) {
	place, ok := l.eventPlaces.Get(id)
	if !ok {
		return Entry[cluster.EventBatch]{}, false
	}
	return l.events.Get(place.order)
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

// EventBytes returns the size of the event log: the bytes of the stored values of all its batches.
func (l *eventTables) EventBytes() cluster.Bytes { return l.eventBytes }

// EventSize returns the bytes of the stored value of the batch with the given id, 0 if the log does not hold the batch.
func (l *eventTables) EventSize(id string) cluster.Bytes {
	place, _ := l.eventPlaces.Get(id)
	return place.size
}

// EventTrim returns how far the event log was trimmed. Nothing was trimmed if there is no record.
func (l *eventTables) EventTrim() (Entry[cluster.EventTrim], bool) { return l.trims.Get(nounEvent) }

// Publisher returns how far the event log was sent to a system outside of Berth.
func (l *eventTables) Publisher(name string) (Entry[cluster.Publisher], bool) {
	return l.publishers.Get(name)
}

// Publishers returns how far the event log was sent to each system outside of Berth.
func (l *eventTables) Publishers() iter.Seq[Entry[cluster.Publisher]] { return scan(l.publishers, "") }

// deriveEvents derives the tables of the event log.
func deriveEvents(to, from *Snapshot, how derivation) {
	to.events, to.eventPlaces = derivedSmall(from.events, how), derivedSmall(from.eventPlaces, how)
	if how != asNew {
		to.eventBytes = from.eventBytes
	}
}

// setEvents puts a batch with a stored value of the given size into the log.
func (l *eventTables) setEvents(e Entry[cluster.EventBatch], size int) {
	l.deleteEvents(e.Value.ID) // the watch may show a batch that was deleted and written again as one change
	place := eventPlace{eventOrder(e.Created, e.Value.ID), cluster.Bytes(size)}
	l.eventPlaces.Set(e.Value.ID, place)
	l.events.Set(place.order, e)
	l.eventBytes += place.size
}

// deleteEvents removes the batch with the given id from the log, if the log holds it.
func (l *eventTables) deleteEvents(id string) {
	if _, ok := l.eventPlaces.Get(id); !ok {
		return
	}
	place, _ := l.eventPlaces.Delete(id)
	l.events.Delete(place.order)
	l.eventBytes -= place.size
}

func eventOrder(created uint64, id string) string {
	n := strconv.FormatUint(created, 10)
	return "00000000000000000000"[len(n):] + n + "/" + id
}
