package draft

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/snapshot"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/telemetry"
)

// Bounds of a write.
const (
	commitTimeout = 15 * time.Second

	maxRedraws = 8 // of a draft with a changed precondition
	maxSettles = 3 // of a commit with a lost result
)

// Writer commits drafts. Safe for concurrent use.
type Writer struct {
	WriterConfig

	reads *snapshot.Reader
}

// WriterConfig is what NewWriter needs.
type WriterConfig struct {
	Engine store.Engine
	Prefix store.Prefix
	// Permissions of new clusters that name none.
	Permissions []cluster.Permission
	Tracer      *telemetry.Tracer
	Conflicts   prometheus.Counter // counts drafts with a changed precondition
	Now         func() time.Time
}

// NewWriter returns a writer that drafts from the reader's snapshots.
func NewWriter(cfg WriterConfig, reads *snapshot.Reader) *Writer { return &Writer{cfg, reads} }

// Empty returns an empty draft over a snapshot.
func (s *Writer) Empty(snap *store.Snapshot) *Draft {
	t := &transaction{
		Snap: snap, Prefix: s.Prefix, Now: s.Now().UTC().Truncate(time.Millisecond),
		compares: map[string]uint64{}, writes: map[string]any{}, Instead: map[string]cluster.Event{},
	}
	d := &Draft{
		transaction: t, domains: domains{t}, needs: newNeeds(snap), gangs: s.gangRoom(),
		owners: map[string]cluster.Kind{},
		definitions: definitions{
			transaction: t, written: map[cluster.Ref]*cluster.TaskDefinition{}, newest: map[string]int{},
		},
	}
	d.clusters = clusters{t, &d.definitions, map[string]*cluster.Cluster{}, s.Permissions}
	return d
}

func (s *Writer) gangRoom() int {
	if s.Engine == nil {
		return 0
	}
	return store.GangRoom(s.Engine.Limits())
}

// Write drafts the writes of a request and commits them. If a precondition has changed, it drafts again. It returns a
// snapshot that contains the writes. fill checks If-Match, so a changed object ends the retries.
//
// The tables may be older than the store. The engine refuses the writes of a stale draft. An answer that something is
// impossible or already done is given only from the engine's present content. So the answers of all servers form one
// history.
func (s *Writer) Write(ctx context.Context, fill func(*Draft) error) (_ *store.Snapshot, err error) {
	x := access.ExchangeOf(ctx)
	span := s.Tracer.Span("api.write", x.Trace, telemetry.About{What: x.Operation()})
	defer func() { span.End(err) }()
	snap := s.reads.Tables.Snapshot()
	for settled, n := false, 0; n < maxRedraws; n++ {
		d := s.Empty(snap)
		d.Caller, d.Trace = access.CallerOf(ctx), span.Parent(x.Trace)
		d.By = d.Caller.Signature()
		if err := fill(d); err != nil || len(d.writes) == 0 {
			if settled {
				return snap, err
			}
			now, failed := s.reads.Settled(ctx)
			if failed != nil {
				return nil, failed
			}
			if now.Revision() == snap.Revision() {
				return snap, err
			}
			snap, settled = now, true
			continue
		}
		settled = false
		applied, revision, err := s.commit(ctx, d)
		if err != nil {
			return nil, err
		}
		next, err := s.reach(ctx, revision)
		if err != nil {
			return nil, err
		}
		if applied {
			d.Revision = revision
			return next, nil
		}
		s.Conflicts.Inc()
		snap = next
	}
	return nil, respond.Problemf(http.StatusConflict,
		"other writers changed the object %d times; nothing was written: retry", maxRedraws)
}

// WriteUnless is Write, or in a dry run only fills a draft from the present tables and writes nothing.
func (s *Writer) WriteUnless(ctx context.Context, dryRun bool, fill func(*Draft) error) error {
	if !dryRun {
		_, err := s.Write(ctx, fill)
		return err
	}
	d := s.Empty(s.reads.Tables.Snapshot())
	d.Caller = access.CallerOf(ctx)
	return fill(d)
}

// ServeDelete answers a request that deletes an object. remove drafts the deletion under the request's precondition.
func (s *Writer) ServeDelete(w http.ResponseWriter, r *http.Request, remove func(*Draft, Precondition) error) error {
	pre, err := PreconditionOf(r)
	if err != nil {
		return err
	}
	if _, err := s.Write(r.Context(), func(d *Draft) error { return remove(d, pre) }); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// reach waits until the tables show a revision of the engine.
func (s *Writer) reach(ctx context.Context, revision uint64) (*store.Snapshot, error) {
	wait, cancel := context.WithTimeout(ctx, snapshot.CatchUpTimeout)
	defer cancel()
	snap, err := s.reads.Tables.WaitFor(wait, revision)
	if err != nil && ctx.Err() == nil {
		return nil, respond.Problemf(http.StatusServiceUnavailable,
			"the write is in the store; this server's tables lag behind it by more than %s: read again",
			snapshot.CatchUpTimeout)
	}
	return snap, err
}

// commit sends a draft to the engine. If the result is lost, it sends the same transaction again. The compares let the
// transaction apply only once. If the engine refuses the second one, the record shows whether the first one was
// applied.
func (s *Writer) commit(ctx context.Context, d *Draft) (applied bool, revision uint64, err error) {
	span := s.Tracer.Span("api.commit", d.Trace, telemetry.About{Count: len(d.writes)})
	defer func() { span.End(err) }()
	g, err := d.groupWithEvents()
	if err != nil {
		return false, 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	var unknown error
	for range maxSettles {
		result, err := s.Engine.Commit(ctx, []store.Group{g})
		switch {
		case errors.Is(err, store.ErrUnknown) && errors.Is(err, store.ErrNoSpace) && unknown == nil:
			return s.atQuota(ctx, g, err)
		case errors.Is(err, store.ErrUnknown):
			unknown = err
			continue
		case err != nil && unknown != nil:
			return false, 0, fmt.Errorf("settle a write: %w", unknown)
		case err != nil:
			return false, 0, fmt.Errorf("commit: %w", err)
		case result.Applied[0] || unknown == nil:
			return result.Applied[0], result.Revision, nil
		}
		at, mine, err := s.wrote(ctx, g.Ops[0])
		if err != nil || !mine {
			return false, 0, fmt.Errorf("settle a write: %w", unknown)
		}
		return true, max(at, 1), nil
	}
	return false, 0, fmt.Errorf("settle a write: %w", unknown)
}

// atQuota finds out whether a write that reached the store's quota was applied. It reads the record of the last
// operation, which is the event batch if there is one; no other writer writes that key.
func (s *Writer) atQuota(ctx context.Context, g store.Group, unknown error) (applied bool, revision uint64, err error) {
	at, mine, err := s.wrote(ctx, g.Ops[len(g.Ops)-1])
	switch {
	case err != nil:
		return false, 0, fmt.Errorf("settle a write: %w", unknown)
	case !mine:
		return false, 0, fmt.Errorf("commit: %w", store.ErrNoSpace)
	}
	return true, max(at, 1), nil
}

// wrote reports whether a record is as an operation would have left it, and since which revision.
func (s *Writer) wrote(ctx context.Context, op store.Op) (at uint64, mine bool, err error) {
	rec, err := s.Engine.Read(ctx, op.Key)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return 0, op.Delete, nil
	case err != nil:
		return 0, false, err
	}
	return rec.Modified, !op.Delete && bytes.Equal(rec.Value, op.Value), nil
}
