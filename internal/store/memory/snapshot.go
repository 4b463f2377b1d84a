package memory

import (
	"context"
	"fmt"
	"io"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/snapshotfile"
)

// Snapshot is part of store.Engine. Its revision is that of the data as a whole.
func (e *Engine) Snapshot(ctx context.Context, prefix string, to io.Writer) error {
	if err := store.CheckPrefix(prefix); err != nil {
		return err
	}
	if _, err := e.lockWhenUp(ctx); err != nil {
		return err
	}
	revision, records := e.d.revision, e.d.list(prefix)
	e.d.mu.Unlock()
	return snapshotfile.Write(to, snapshotfile.NewHeader(prefix, revision), records)
}

// Restore replaces all data by those of a snapshot, revisions included: they go back. Open watches get a resync. A
// snapshot that is damaged or cut short changes nothing.
func (e *Engine) Restore(from io.Reader) error {
	records, info, err := snapshotfile.ReadAll(from)
	if err != nil {
		return fmt.Errorf("read snapshot: %w", err)
	}
	d := e.d
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.records)
	clear(d.tombstones)
	d.keys, d.events = nil, nil
	d.revision, d.compacted = info.Revision, info.Revision
	for _, r := range records {
		d.records[r.Key] = r
	}
	d.restores++
	if d.observe != nil {
		changes := make([]store.Change, 0, len(d.records))
		for _, record := range d.list("") {
			changes = append(changes, store.Change{Record: record})
		}
		d.observe(changes, d.revision, true)
	}
	d.wakeWaiters()
	return nil
}
