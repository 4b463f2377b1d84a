package restore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/store"
)

const (
	// commitAttempts limits how often a commit is sent, and retryPause is the pause between two of them.
	commitAttempts = 5
	retryPause     = time.Second
)

// writer collects operations and commits them in groups that compare the marker.
type writer struct {
	engine  store.Engine
	prefix  store.Prefix
	content Marker
	marker  store.Compare // the revision that the marker has
	ops     []store.Op
	size    store.Limits // of the group with ops
}

// add adds an operation. It commits the operations before it if they fill a group.
func (w *writer) add(ctx context.Context, op store.Op) error {
	more := store.SizeOf([]store.Group{{Ops: []store.Op{op}}})
	own := store.SizeOf([]store.Group{{Compares: []store.Compare{w.marker}}})
	next := store.Limits{
		Operations: own.Operations + w.size.Operations + more.Operations, Bytes: own.Bytes + w.size.Bytes + more.Bytes,
	}
	if !w.engine.Limits().Hold(next) {
		if err := w.flush(ctx); err != nil {
			return err
		}
	}
	w.ops = append(w.ops, op)
	w.size.Operations += more.Operations
	w.size.Bytes += more.Bytes
	return nil
}

// flush commits the operations.
func (w *writer) flush(ctx context.Context) error {
	ops := w.ops
	w.ops, w.size = nil, store.Limits{}
	if len(ops) == 0 {
		return nil
	}
	for n := 1; ; n++ {
		result, err := w.engine.Commit(ctx, []store.Group{{Compares: []store.Compare{w.marker}, Ops: ops}})
		switch {
		case err == nil && result.Applied[0]:
			return nil
		case err == nil:
			return errOvertaken()
		case n == commitAttempts || !isRetryable(err):
			return fmt.Errorf("write to the store: %w", err)
		}
		if err := pause.For(ctx, retryPause); err != nil {
			return err
		}
		// A deletion with an unknown result could be applied after the record was written. Another revision of the
		// marker prevents that.
		if errors.Is(err, store.ErrUnknown) {
			if err := w.writeMarker(ctx); err != nil {
				return err
			}
		}
	}
}

// writeMarker writes the marker in place of the present one, and notes its revision. No earlier commit with an unknown
// result can be applied afterwards.
func (w *writer) writeMarker(ctx context.Context) error {
	for n := 1; ; n++ {
		w.content.Fence++
		value, err := json.Marshal(w.content)
		if err != nil {
			return err
		}
		result, err := w.engine.Commit(ctx, []store.Group{{
			Compares: []store.Compare{w.marker}, Ops: []store.Op{{Key: w.marker.Key, Value: value}},
		}})
		switch {
		case err == nil && result.Applied[0]:
			w.marker.Modified = result.Revision
			return nil
		case err != nil && (n == commitAttempts || !isRetryable(err)):
			return fmt.Errorf("write the marker of the restore: %w", err)
		case err == nil && n == 1:
			return errOvertaken()
		}
		if err := pause.For(ctx, retryPause); err != nil {
			return err
		}
		// An earlier attempt may have been applied.
		present, record, err := readMarker(ctx, w.engine, w.prefix)
		if err != nil {
			return err
		}
		if record.Modified != w.marker.Modified && !w.owns(present) {
			return errOvertaken()
		}
		w.marker.Modified = record.Modified
	}
}

// deleteMarker ends the restore.
func (w *writer) deleteMarker(ctx context.Context) error {
	for n := 1; ; n++ {
		result, err := w.engine.Commit(ctx, []store.Group{{
			Compares: []store.Compare{w.marker}, Ops: []store.Op{{Key: w.marker.Key, Delete: true}},
		}})
		switch {
		case err == nil && result.Applied[0]:
			return nil
		case err == nil && n == 1:
			return errOvertaken()
		case err != nil && (n == commitAttempts || !isRetryable(err)):
			return fmt.Errorf("delete the marker of the restore: %w", err)
		}
		if err := pause.For(ctx, retryPause); err != nil {
			return err
		}
		present, record, err := readMarker(ctx, w.engine, w.prefix)
		switch {
		case err != nil:
			return err
		case record.Modified == 0:
			return nil // an earlier attempt was applied
		case !w.owns(present):
			return errOvertaken()
		}
	}
}

// owns reports whether this restore wrote the marker.
func (w *writer) owns(m Marker) bool { return m.ID == w.content.ID }

// isRetryable reports whether a commit may be sent again.
func isRetryable(err error) bool {
	return errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrUnknown)
}

func errOvertaken() error {
	return fmt.Errorf("%w: another restore began meanwhile", ErrIncomplete)
}
