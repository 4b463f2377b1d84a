package publishing

import (
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// Limits of the event log.
const (
	// KeptBatches is the number of newest batches that are never trimmed.
	KeptBatches = 20_000
	// MaxBatches and MaxBytes are the size of the log from which older batches are trimmed even if a publisher has not
	// sent them. MaxBytes counts stored values.
	MaxBatches = 100_000
	MaxBytes   = 64 * cluster.MiB
)

const (
	// maxTrimmedBatches is the number of batches that one write deletes. An engine may take fewer.
	maxTrimmedBatches = 500
	// trimmedBytes is how far below MaxBytes a log that reached it is trimmed.
	trimmedBytes = cluster.MiB
)

// limits are the limits of a log. Tests use small ones.
type limits struct {
	kept, batches, trimmed int
	bytes, trimmedBytes    cluster.Bytes
}

// logLimits returns the limits of the event log.
func logLimits() limits {
	return limits{
		kept: KeptBatches, batches: MaxBatches, bytes: MaxBytes, trimmed: maxTrimmedBatches, trimmedBytes: trimmedBytes,
	}
}

// TrimUnit returns a write of the leader that deletes the oldest batches of the event log and counts them in the record
// trim/event. It has at most maxOperations compares and operations. TrimUnit returns false while too few batches can be
// deleted for a write.
func TrimUnit(snap *store.Snapshot, prefix store.Prefix, maxOperations int) (u store.Unit, ok bool, err error) {
	return logLimits().trim(snap, prefix, maxOperations)
}

// trim is TrimUnit for a log with the limits.
func (l limits) trim(snap *store.Snapshot, prefix store.Prefix, maxOperations int) (u store.Unit, ok bool, err error) {
	count, size := snap.EventCount(), snap.EventBytes()
	if count-l.kept < l.trimmed {
		return u, false, nil
	}
	most := min(l.trimmed, maxOperations-2) // beside the compare and the write of trim/event
	isFull := count > l.batches || size > l.bytes
	isPublished := publishedByAll(snap)
	record, exists := snap.EventTrim()
	var next cluster.EventTrim
	if exists {
		next = *record.Value
	}
	u.Compare(prefix.EventTrim(), record.Modified)
	deleted := 0
	for e := range snap.EventBatches() {
		isOver := isFull && (count > l.batches-l.trimmed || size > l.bytes-l.trimmedBytes)
		if deleted == most || !isOver && !isPublished(e) {
			break
		}
		u.Delete(e.Key)
		deleted, count, size = deleted+1, count-1, size-snap.EventSize(e.Value.ID)
		next.Batches++
		next.Last, next.LastAt = e.Value.ID, e.Value.At
	}
	if deleted == 0 || deleted < most && !isFull { // fewer batches are not worth a write
		return store.Unit{}, false, nil
	}
	return u, true, u.Put(prefix.EventTrim(), &next)
}

// publishedByAll returns a function that reports whether every publisher has sent a batch of the log.
func publishedByAll(snap *store.Snapshot) func(store.Entry[cluster.EventBatch]) bool {
	var slowest store.Entry[cluster.EventBatch]
	for p := range snap.Publishers() {
		at, ok := snap.EventBatch(p.Value.Cursor)
		if !ok { // it has sent no batch that is left
			return func(store.Entry[cluster.EventBatch]) bool { return false }
		}
		if slowest.Value == nil || compareBatches(at, slowest) < 0 {
			slowest = at
		}
	}
	return func(e store.Entry[cluster.EventBatch]) bool {
		return slowest.Value == nil || compareBatches(e, slowest) <= 0
	}
}
