package apiserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/telemetry"
)

// Bounds of a write.
const (
	commitTimeout = 15 * time.Second
	catchUp       = 10 * time.Second // for the tables to show what was written
	maxRedraws    = 8                // of a draft that other writers overtook
	maxSettles    = 3                // of a commit whose result was lost
)

// draft is the set of writes that a request asks for, computed from one snapshot, and the
// revisions that it rests on. What is put into a draft is seen by what is drawn after it.
type draft struct {
	snap   *store.Snapshot
	prefix store.Prefix
	now    time.Time

	compares map[string]uint64
	writes   map[string]any           // by key; nil deletes
	events   []cluster.Event          // besides what the written objects themselves tell
	instead  map[string]cluster.Event // by key: in place of what the written object tells
	by       string                   // who asks, for the events
	caller   *caller                  // the same, for what may be told of what stands; nil sees all
	trace    string                   // the traceparent of what is written
	revision uint64                   // at which it was written; 0 until then
	// permissions are those of clusters that are made without naming any.
	permissions []cluster.Permission
	gangs       int // the most tasks of a gang that the engine can place together, 0 where that is not known
	// What the draft itself brings, for the objects that refer to it.
	clusters    map[string]*cluster.Cluster
	definitions map[cluster.Ref]*cluster.TaskDefinition
	newest      map[string]int
	owners      map[string]cluster.Kind // services and jobs, by "<cluster>/<name>"
}

func (s *Server) draft(snap *store.Snapshot) *draft {
	return &draft{
		snap: snap, prefix: s.cfg.Prefix, now: s.cfg.Now().UTC().Truncate(time.Millisecond),
		compares:    map[string]uint64{},
		writes:      map[string]any{},
		clusters:    map[string]*cluster.Cluster{},
		definitions: map[cluster.Ref]*cluster.TaskDefinition{},
		newest:      map[string]int{},
		owners:      map[string]cluster.Kind{},
		instead:     map[string]cluster.Event{},
		gangs:       s.gangRoom(),
		permissions: s.cfg.Permissions,
	}
}

func (s *Server) gangRoom() int {
	if s.cfg.Engine == nil {
		return 0
	}
	return store.GangRoom(s.cfg.Engine.Limits())
}

// require makes the draft rest on a record's revision; store.AnyModified only on its existence.
func (d *draft) require(key string, modified uint64) {
	if old, ok := d.compares[key]; ok && old != store.AnyModified {
		return
	}
	d.compares[key] = modified
}

// put writes a record that has the given revision now, 0 for none.
func (d *draft) put(key string, record any, modified uint64) {
	d.require(key, modified)
	d.writes[key] = record
}

// remove deletes a record that has the given revision now, and tells of it.
func (d *draft) remove(key string, modified uint64, told cluster.Event) {
	d.put(key, nil, modified)
	d.events = append(d.events, told)
}

// at returns the revision of what the draft wrote, where it wrote something: the tables may show what another
// writer made of it since, and an If-Match with that revision would pass over what nobody saw.
func (d *draft) at(shown uint64) uint64 {
	if d.revision != 0 {
		return d.revision
	}
	return shown
}

// group returns the draft as one transaction, in an order that depends on nothing but the draft.
func (d *draft) group() (store.Group, error) {
	var g store.Group
	for _, key := range slices.Sorted(maps.Keys(d.compares)) {
		g.Compares = append(g.Compares, store.Compare{Key: key, Modified: d.compares[key]})
	}
	for _, key := range slices.Sorted(maps.Keys(d.writes)) {
		op := store.Op{Key: key, Delete: true}
		if record := d.writes[key]; record != nil {
			value, err := store.Encode(record)
			if err != nil {
				return g, err
			}
			op.Value, op.Delete = value, false
		}
		g.Ops = append(g.Ops, op)
	}
	return g, nil
}

// write draws what a request asks for and commits it, drawing anew when another writer was faster. It
// returns a snapshot that shows what was written. The drawing checks If-Match, so a draft that is drawn anew
// over a changed object ends there.
//
// The tables may be behind what other servers wrote. What is written compares that, so a stale draft is refused by
// the engine; but that a request cannot be done, or is done already, is only said of what the engine holds now. So the
// answers of all servers together tell one history.
func (s *Server) write(ctx context.Context, draw func(*draft) error) (_ *store.Snapshot, err error) {
	x := exchangeOf(ctx)
	span := s.cfg.Tracer.Span("api.write", x.trace, telemetry.About{What: x.name()})
	defer func() { span.End(err) }()
	snap := s.cfg.Tables.Snapshot()
	for settled, n := false, 0; n < maxRedraws; n++ {
		d := s.draft(snap)
		d.caller, d.trace = callerOf(ctx), span.Parent(x.trace)
		d.by = d.caller.by()
		if err := draw(d); err != nil || len(d.writes) == 0 {
			if settled {
				return snap, err
			}
			now, failed := s.settled(ctx)
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
		s.metrics.conflicts.Inc()
		snap = next
	}
	return nil, problemf(http.StatusConflict,
		"other writers changed the object %d times meanwhile; nothing was written. Ask again", maxRedraws)
}

// reach waits until the tables show a revision that the engine has.
func (s *Server) reach(ctx context.Context, revision uint64) (*store.Snapshot, error) {
	wait, cancel := context.WithTimeout(ctx, catchUp)
	defer cancel()
	snap, err := s.cfg.Tables.WaitFor(wait, revision)
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
func (s *Server) commit(ctx context.Context, d *draft) (applied bool, revision uint64, err error) {
	span := s.cfg.Tracer.Span("api.commit", d.trace, telemetry.About{Count: len(d.writes)})
	defer func() { span.End(err) }()
	g, err := d.group()
	if err == nil {
		err = d.putEvents(&g, s.cfg.Domain)
	}
	if err != nil {
		return false, 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	var unknown error
	for range maxSettles {
		result, err := s.cfg.Engine.Commit(ctx, []store.Group{g})
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
func (s *Server) atQuota(ctx context.Context, g store.Group, unknown error) (applied bool, revision uint64, err error) {
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
func (s *Server) wrote(ctx context.Context, op store.Op) (at uint64, mine bool, err error) {
	rec, err := s.cfg.Engine.Read(ctx, op.Key)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return 0, op.Delete, nil
	case err != nil:
		return 0, false, err
	}
	return rec.Modified, !op.Delete && bytes.Equal(rec.Value, op.Value), nil
}

// precondition is what a request demands of the object that it changes.
type precondition struct {
	match  []uint64 // If-Match; nil demands nothing
	exists bool     // If-Match: *
	absent bool     // If-None-Match: *
}

func preconditionOf(r *http.Request) (p precondition, err error) {
	switch v := strings.TrimSpace(r.Header.Get("If-None-Match")); v {
	case "":
	case "*":
		p.absent = true
	default:
		return p, problemf(http.StatusBadRequest, "If-None-Match takes only *: the object must not exist")
	}
	header := strings.TrimSpace(r.Header.Get("If-Match"))
	if header == "" {
		return p, nil
	}
	if header == "*" {
		p.exists = true
		return p, nil
	}
	for part := range strings.SplitSeq(header, ",") {
		text, err := strconv.Unquote(strings.TrimSpace(part))
		if err != nil {
			text = strings.TrimSpace(part)
		}
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return p, problemf(http.StatusBadRequest, "If-Match is %s; want an ETag of this server such as \"17\"",
				clip(part))
		}
		p.match = append(p.match, n)
	}
	return p, nil
}

// check holds the precondition against an object's revision, 0 for one that does not exist.
func (p precondition) check(modified uint64) error {
	switch {
	case p.absent && modified != 0:
		return problemf(http.StatusPreconditionFailed,
			"the object exists already, at revision %d: read it, and change it with If-Match", modified)
	case (p.exists || p.match != nil) && modified == 0:
		return problemf(http.StatusPreconditionFailed,
			"the object does not exist: write it without If-Match to make it")
	case p.match != nil && !slices.Contains(p.match, modified):
		return problemf(http.StatusPreconditionFailed,
			"the object was changed meanwhile: it is at revision %d; read it again and decide anew", modified)
	}
	return nil
}
