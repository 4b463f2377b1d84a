package apiserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/telemetry"
	"github.com/prometheus/client_golang/prometheus"
)

// Bounds of a write.
const (
	commitTimeout = 15 * time.Second

	maxRedraws = 8 // of a draft that other writers overtook
	maxSettles = 3 // of a commit whose result was lost
)

// writer commits drafts. Safe for concurrent use.
type writer struct {
	writerConfig

	reads *snapshotReader
}

// writerConfig is what a writer is made of.
type writerConfig struct {
	Engine store.Engine
	Prefix store.Prefix
	Domain string // whose leader's incarnation events carry
	// Permissions are those of clusters that are made without naming any.
	Permissions []cluster.Permission
	Tracer      *telemetry.Tracer
	Conflicts   prometheus.Counter // of drafts that another writer overtook
	Now         func() time.Time
}

// newWriter returns a writer that draws from the snapshots of the reader.
func newWriter(cfg writerConfig, reads *snapshotReader) *writer { return &writer{cfg, reads} }

// draft returns an empty draft over a snapshot.
func (s *writer) draft(snap *store.Snapshot) *draft {
	return &draft{
		snap: snap, prefix: s.Prefix, now: s.Now().UTC().Truncate(time.Millisecond),
		compares:    map[string]uint64{},
		writes:      map[string]any{},
		clusters:    map[string]*cluster.Cluster{},
		definitions: map[cluster.Ref]*cluster.TaskDefinition{},
		newest:      map[string]int{},
		owners:      map[string]cluster.Kind{},
		instead:     map[string]cluster.Event{},
		gangs:       s.gangRoom(),
		permissions: s.Permissions,
	}
}

func (s *writer) gangRoom() int {
	if s.Engine == nil {
		return 0
	}
	return store.GangRoom(s.Engine.Limits())
}

// write draws what a request asks for and commits it, drawing anew when another writer was faster. It
// returns a snapshot that shows what was written. The drawing checks If-Match, so a draft that is drawn anew
// over a changed object ends there.
//
// The tables may be behind what other servers wrote. What is written compares that, so a stale draft is refused by
// the engine; but that a request cannot be done, or is done already, is only said of what the engine holds now. So the
// answers of all servers together tell one history.
func (s *writer) write(ctx context.Context, draw func(*draft) error) (_ *store.Snapshot, err error) {
	x := exchangeOf(ctx)
	span := s.Tracer.Span("api.write", x.trace, telemetry.About{What: x.name()})
	defer func() { span.End(err) }()
	snap := s.reads.tables.Snapshot()
	for settled, n := false, 0; n < maxRedraws; n++ {
		d := s.draft(snap)
		d.caller, d.trace = callerOf(ctx), span.Parent(x.trace)
		d.by = d.caller.by()
		if err := draw(d); err != nil || len(d.writes) == 0 {
			if settled {
				return snap, err
			}
			now, failed := s.reads.settled(ctx)
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
			d.revision = revision
			return next, nil
		}
		s.Conflicts.Inc()
		snap = next
	}
	return nil, problemf(http.StatusConflict,
		"other writers changed the object %d times meanwhile; nothing was written. Ask again", maxRedraws)
}

// reach waits until the tables show a revision that the engine has.
func (s *writer) reach(ctx context.Context, revision uint64) (*store.Snapshot, error) {
	wait, cancel := context.WithTimeout(ctx, catchUp)
	defer cancel()
	snap, err := s.reads.tables.WaitFor(wait, revision)
	if err != nil && ctx.Err() == nil {
		return nil, problemf(http.StatusServiceUnavailable,
			"this server's tables are behind the store by more than %s; what was asked to be written is in "+
				"the store. Look again", catchUp)
	}
	return snap, err
}

// commit sends a draft to the engine. A result that was lost is settled by sending the same transaction again:
// it can be applied only once, for it compares what it changes. If it is refused then, the record tells whether
// the first one was applied.
func (s *writer) commit(ctx context.Context, d *draft) (applied bool, revision uint64, err error) {
	span := s.Tracer.Span("api.commit", d.trace, telemetry.About{Count: len(d.writes)})
	defer func() { span.End(err) }()
	g, err := d.group()
	if err == nil {
		err = d.putEvents(&g, s.Domain)
	}
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

// atQuota settles a write that reached the store's quota, which was applied or refused, and waits no more: its last
// operation tells. It writes the draft's events, where there are some, and those nobody writes anew.
func (s *writer) atQuota(ctx context.Context, g store.Group, unknown error) (applied bool, revision uint64, err error) {
	at, mine, err := s.wrote(ctx, g.Ops[len(g.Ops)-1])
	switch {
	case err != nil:
		return false, 0, fmt.Errorf("settle a write: %w", unknown)
	case !mine:
		return false, 0, fmt.Errorf("commit: %w", store.ErrNoSpace)
	}
	return true, max(at, 1), nil
}

// wrote reports whether a record stands as an operation would have left it, and since which revision.
func (s *writer) wrote(ctx context.Context, op store.Op) (at uint64, mine bool, err error) {
	rec, err := s.Engine.Read(ctx, op.Key)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return 0, op.Delete, nil
	case err != nil:
		return 0, false, err
	}
	return rec.Modified, !op.Delete && bytes.Equal(rec.Value, op.Value), nil
}
