package memory

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/berthd/berth/internal/store"
)

// format names the layout of a snapshot: a header as a line of JSON, then one line for each record in the order of the
// keys.
const format = "berth-memory-snapshot-1"

type header struct {
	Format   string `json:"format"`
	Revision uint64 `json:"revision"`
	Records  int    `json:"records"`
}

type line struct {
	Key      []byte `json:"key"` // bytes, since a key need not be UTF-8
	Value    []byte `json:"value"`
	Created  uint64 `json:"created"`
	Modified uint64 `json:"modified"`
}

// Snapshot is part of store.Engine. Restore reads the snapshot.
func (e *Engine) Snapshot(ctx context.Context, to io.Writer) error {
	if _, err := e.lockWhenUp(ctx); err != nil {
		return err
	}
	head := header{Format: format, Revision: e.d.revision, Records: len(e.d.records)}
	lines := make([]line, 0, len(e.d.records))
	for _, r := range e.d.list("") {
		lines = append(lines, line{Key: []byte(r.Key), Value: r.Value, Created: r.Created, Modified: r.Modified})
	}
	e.d.mu.Unlock()

	buffered := bufio.NewWriter(to)
	encoder := json.NewEncoder(buffered)
	if err := encoder.Encode(head); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	for _, l := range lines {
		if err := encoder.Encode(l); err != nil {
			return fmt.Errorf("write snapshot: %w", err)
		}
	}
	if err := buffered.Flush(); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	return nil
}

// Restore replaces all data by those of a snapshot, revisions included: they go back. Open watches get a resync. A
// snapshot that is damaged or cut short changes nothing.
func (e *Engine) Restore(from io.Reader) error {
	head, lines, err := decode(from)
	if err != nil {
		return fmt.Errorf("read snapshot: %w", err)
	}
	d := e.d
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.records)
	clear(d.tombstones)
	d.keys, d.events = nil, nil
	d.revision, d.compacted = head.Revision, head.Revision
	for _, l := range lines {
		key := string(l.Key)
		d.records[key] = store.Record{Key: key, Value: l.Value, Created: l.Created, Modified: l.Modified}
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

// decode reads a snapshot and checks that it is complete and consistent.
func decode(from io.Reader) (header, []line, error) {
	decoder := json.NewDecoder(from)
	decoder.DisallowUnknownFields()
	var head header
	if err := decoder.Decode(&head); err != nil {
		return header{}, nil, fmt.Errorf("header: %w", err)
	}
	if head.Format != format {
		return header{}, nil, fmt.Errorf("format %q, want %q", head.Format, format)
	}
	var lines []line
	last := ""
	for {
		var l line
		err := decoder.Decode(&l)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return header{}, nil, fmt.Errorf("record %d: %w", len(lines)+1, err)
		}
		if string(l.Key) <= last {
			return header{}, nil, fmt.Errorf("record %d: key %q is not after %q", len(lines)+1, l.Key, last)
		}
		if l.Created == 0 || l.Created > l.Modified || l.Modified > head.Revision {
			return header{}, nil, fmt.Errorf("key %q: revisions %d and %d do not fit %d", l.Key, l.Created, l.Modified,
				head.Revision)
		}
		last = string(l.Key)
		lines = append(lines, l)
	}
	if len(lines) != head.Records {
		return header{}, nil, fmt.Errorf("%d records, want %d", len(lines), head.Records)
	}
	return head, lines, nil
}
