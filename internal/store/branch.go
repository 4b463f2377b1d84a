package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/berthd/berth/internal/cluster"
)

// errBranch is the error of methods of Engine that a branch lacks.
var errBranch = errors.New("a branch of a store has no lists, watches and copies")

// Branch is a store in memory that begins as a snapshot of another store and then changes independently: an Engine and
// its Tables in one. It serves simulations of changes, and nothing that is written to a branch reaches the original
// store. A commit is in the tables, and known to their followers, when Commit returns. Nothing runs in the background,
// and Run of its tables is not called.
//
// A branch shares the data of the snapshot, so a branch of a large store costs little more than its own writes. It is
// an Engine without lists, watches and snapshots. Safe for concurrent use.
type Branch struct {
	tables *Tables

	mu    sync.Mutex
	state *state
	// outsideTables holds the revisions of records that the tables do not keep, such as marks.
	outsideTables map[string]uint64
}

// NewBranch returns a branch that begins as a snapshot of tables whose keys begin with the prefix. The snapshot stays
// valid for other readers.
func NewBranch(from *Snapshot, prefix Prefix, log *slog.Logger) *Branch {
	s := newState(nil)
	s.Snapshot = from.fork()
	return newBranch(s, prefix, log)
}

// LoadBranch returns a branch that begins with the records of a store at a revision. Records without the prefix are
// ignored. A record of a newer build is a NewerError.
func LoadBranch(records []Record, revision uint64, prefix Prefix, log *slog.Logger) (*Branch, error) {
	s := newState(nil)
	b := newBranch(s, prefix, log)
	var newer error
	s.faults = func(key string, err error) {
		if errors.As(err, new(*NewerError)) {
			newer = fmt.Errorf("%s: %w", strings.TrimPrefix(key, string(prefix)), err)
		}
	}
	batch := Batch{Revision: revision}
	for _, r := range records {
		if strings.HasPrefix(r.Key, string(prefix)) {
			batch.Changes = append(batch.Changes, Change{Record: r})
		}
	}
	s.apply(batch, string(prefix))
	if newer != nil {
		return nil, newer
	}
	b.logUnreadable(log)
	clear(s.known)
	b.tables.publish(s)
	return b, nil
}

func newBranch(s *state, prefix Prefix, log *slog.Logger) *Branch {
	b := &Branch{state: s, outsideTables: map[string]uint64{}}
	b.tables = NewTables(TablesConfig{Engine: b, Prefix: prefix, Logger: log})
	close(b.tables.synced)
	b.logUnreadable(log)
	b.tables.publish(s)
	return b
}

// logUnreadable has the state log records that cannot be decoded.
func (b *Branch) logUnreadable(log *slog.Logger) {
	b.state.faults = func(key string, err error) {
		log.Error("a record cannot be read and is left alone", "key", key, "error", err)
	}
}

// Tables returns the tables of the branch.
func (b *Branch) Tables() *Tables { return b.tables }

// Limits is part of Engine. The limits are those of the embedded engine.
func (b *Branch) Limits() Limits { return Limits{Operations: 16384, Bytes: 4 << 20} }

// Close is part of Engine. It does nothing.
func (b *Branch) Close() error { return nil }

// Commit is part of Engine.
func (b *Branch) Commit(ctx context.Context, groups []Group) (Result, error) {
	if err := CheckGroups(groups, b.Limits()); err != nil {
		return Result{}, err
	}
	if err := ctx.Err(); err != nil {
		return Result{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	applied := make([]bool, len(groups))
	batch := Batch{Revision: b.state.revision + 1}
	for i := range groups {
		applied[i] = !slices.ContainsFunc(groups[i].Compares, func(c Compare) bool { return !b.holds(c) })
	}
	for i := range groups {
		if !applied[i] {
			continue
		}
		for _, op := range groups[i].Ops {
			if c, changes := b.change(op, batch.Revision); changes {
				batch.Changes = append(batch.Changes, c)
			}
		}
	}
	if len(batch.Changes) > 0 {
		slices.SortFunc(batch.Changes, func(x, y Change) int { return strings.Compare(x.Key, y.Key) })
		b.state.apply(batch, string(b.tables.prefix))
		clear(b.state.known) // only a resync needs them, and a branch has none
		b.tables.publish(b.state)
	}
	return Result{Applied: applied, Revision: b.state.revision}, nil
}

// change turns an operation into a change, and prepares the state for it. It returns false for the deletion of an
// absent record.
func (b *Branch) change(op Op, at uint64) (Change, bool) {
	r, _, exists := b.find(op.Key)
	rest := strings.TrimPrefix(op.Key, string(b.tables.prefix))
	b.restoreAttemptNumber(rest)
	if op.Delete {
		delete(b.outsideTables, op.Key)
		return Change{Record: Record{Key: op.Key, Modified: at}, Deleted: true}, exists
	}
	created := at
	if exists {
		created = r.Created
	}
	if !b.state.isInTables(rest) {
		b.outsideTables[op.Key] = at
	}
	return Change{Record: Record{Key: op.Key, Value: op.Value, Created: created, Modified: at}}, true
}

// restoreAttemptNumber gives the state the attempt number of the record under a key that is about to be written. The
// state knows the numbers of the records that it applied itself, but not those of the snapshot that the branch began
// with.
func (b *Branch) restoreAttemptNumber(key string) {
	noun, rest, _ := strings.Cut(key, "/")
	node, task, isTask := strings.Cut(rest, "/")
	of := b.state.desiredAt
	switch {
	case !isTask:
		return
	case noun == nounStatus:
		of = b.state.observedAt
	case noun != nounState:
		return
	}
	if _, known := of[rest]; known {
		return
	}
	for row := range b.state.TaskAttempts(cluster.TaskID(task)) {
		if row.Node == node &&
			(noun == nounState && row.DesiredRev != 0 || noun == nounStatus && row.ObservedRev != 0) {
			of[rest] = row.Number
		}
	}
}

// holds reports whether a compare holds now.
func (b *Branch) holds(c Compare) bool {
	r, _, exists := b.find(c.Key)
	if c.Modified == AnyModified {
		return exists
	}
	return r.Modified == c.Modified
}

// find returns the revisions of a record, and its value where the tables keep it.
func (b *Branch) find(key string) (r Record, value any, exists bool) {
	if at, ok := b.outsideTables[key]; ok {
		return Record{Key: key, Created: at, Modified: at}, nil, true
	}
	rest, under := strings.CutPrefix(key, string(b.tables.prefix))
	if !under {
		return Record{}, nil, false
	}
	return b.state.find(rest)
}

// Read is part of Engine. A record that the tables could not decode has no value.
func (b *Branch) Read(ctx context.Context, key string) (Record, error) {
	if err := ctx.Err(); err != nil {
		return Record{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	r, value, ok := b.find(key)
	if !ok {
		return Record{}, fmt.Errorf("key %q: %w", key, ErrNotFound)
	}
	r.Key = key
	if value != nil {
		var err error
		if r.Value, err = Encode(value); err != nil {
			return Record{}, err
		}
	}
	return r, nil
}

// Revision is part of Engine.
func (b *Branch) Revision(ctx context.Context, _ string) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state.revision, nil
}

// List is part of Engine. It always returns an error: readers of a branch use its tables.
func (b *Branch) List(context.Context, string) (Listing, error) { return Listing{}, errBranch }

// Watch is part of Engine. The watch returns an error: readers of a branch use its tables.
func (b *Branch) Watch(context.Context, string, uint64) Watch { return noWatch{} }

type noWatch struct{}

func (noWatch) Next(context.Context) (Batch, error) { return Batch{}, errBranch }

func (noWatch) Close() {}

// Snapshot is part of Engine. It always returns an error.
func (b *Branch) Snapshot(context.Context, string, io.Writer) error { return errBranch }
