package apiserver

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// Bounds of event lists and streams.
const (
	eventsPage   = 1000
	eventsBuffer = 4096
)

// logPlace is a place in the event log: after so many events of a batch. The zero value is the log's beginning.
type logPlace struct {
	batch store.Entry[cluster.EventBatch]
	seen  int
}

// eventQuery is what events are asked for.
type eventQuery struct {
	after string
	eventFilter
	// caller, unless nil, sees some clusters only.
	caller *caller
}

// takes reports whether an event of a batch of that time is asked for and the caller's to see.
func (q *eventQuery) takes(e *cluster.Event, at time.Time) bool {
	if q.caller != nil && !q.caller.sees(clusterOf(e)) {
		return false
	}
	return q.eventFilter.takes(e, at)
}

func (s *Server) listEvents(w http.ResponseWriter, r *http.Request) error {
	q := eventQuery{after: r.URL.Query().Get("after"), caller: callerOf(r.Context())}
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		q.after = last
	}
	var err error
	if q.eventFilter, err = filterOf(r, s.cfg.Now()); err != nil {
		return err
	}
	limit, err := number(r, "limit", eventsPage)
	if err != nil {
		return err
	}
	wait, err := span(r, "wait")
	if err != nil {
		return err
	}
	snap, err := s.snapshot(r)
	if err != nil {
		return err
	}
	from, err := find(snap, q.after)
	if gone(err) {
		// Another server may have told of the event before this one's tables held it.
		if snap, err = s.settled(r.Context()); err == nil {
			from, err = find(snap, q.after)
		}
	}
	if err != nil {
		return err
	}
	if wantsStream(r) {
		return s.streamEvents(w, r, from, q)
	}
	page := eventPage(snap, from, q, int(min(max(limit, 1), maxLimit)))
	if len(page.Items) == 0 && wait > 0 {
		if page, err = s.awaitEvents(r.Context(), min(wait, maxWait), func(snap *store.Snapshot) api.Page[api.EventView] {
			return eventPage(snap, from, q, int(min(max(limit, 1), maxLimit)))
		}); err != nil {
			return err
		}
	}
	return answer(w, http.StatusOK, page)
}

func (s *Server) awaitEvents(ctx context.Context, wait time.Duration, look func(*store.Snapshot) api.Page[api.EventView]) (api.Page[api.EventView], error) {
	over := time.NewTimer(wait)
	defer over.Stop()
	for {
		snap := s.cfg.Tables.Snapshot()
		page := look(snap)
		if len(page.Items) > 0 {
			return page, nil
		}
		select {
		case <-ctx.Done():
			return page, ctx.Err()
		case <-over.C:
			return page, nil
		case <-s.cfg.Tables.Changed(snap.Revision()):
		}
	}
}

// find returns the place after the event of that id. An id that is not in the log, because what came with it was
// trimmed or is of a life of the store that a restore took back, is 410 with the oldest id that is kept (P8.1).
func find(snap *store.Snapshot, id string) (logPlace, error) {
	if id == "" {
		return logPlace{}, nil
	}
	if id == "now" {
		return endOfLog(snap), nil
	}
	dot := strings.LastIndexByte(id, '.')
	position, err := strconv.Atoi(id[dot+1:])
	if dot < 1 || err != nil || position < 0 {
		return logPlace{}, badQuery("after", "is %q, which is not the id of an event", clip(id))
	}
	if e, ok := snap.EventBatch(id[:dot]); ok {
		return logPlace{e, min(position, len(e.Value.Events)-1) + 1}, nil
	}
	p := problemf(http.StatusGone, "the event %s is not in the log any more: what came between it and the oldest kept is lost to you. Begin anew without a cursor", clip(id))
	for e := range snap.EventBatches() {
		p.Oldest = eventID(e.Value.ID, 0)
		break
	}
	return logPlace{}, p
}

// gone reports whether an error says that a cursor is not in the log.
func gone(err error) bool {
	p, ok := errors.AsType[*problem](err)
	return ok && p.Status == http.StatusGone
}

func endOfLog(snap *store.Snapshot) (end logPlace) {
	for e := range snap.EventBatches() {
		end = logPlace{e, len(e.Value.Events)}
	}
	return end
}

func eventID(batch string, position int) string { return batch + "." + strconv.Itoa(position) }

// eventsAfter yields the events after a place that the query takes, with the place after each.
func eventsAfter(snap *store.Snapshot, from logPlace, q *eventQuery) iter.Seq2[logPlace, api.EventView] {
	return func(yield func(logPlace, api.EventView) bool) {
		batches := snap.EventBatches()
		if from.batch.Value != nil {
			if !yieldBatch(from.batch, from.seen, q, yield) {
				return
			}
			batches = snap.EventBatchesAfter(from.batch)
		}
		for e := range batches {
			if !yieldBatch(e, 0, q, yield) {
				return
			}
		}
	}
}

func yieldBatch(e store.Entry[cluster.EventBatch], seen int, q *eventQuery, yield func(logPlace, api.EventView) bool) bool {
	for i := seen; i < len(e.Value.Events); i++ {
		event := &e.Value.Events[i]
		if !q.takes(event, e.Value.At) {
			continue
		}
		v := api.EventView{ID: eventID(e.Value.ID, i), At: e.Value.At, RoutingKey: event.RoutingKey(), Event: *event}
		if !yield(logPlace{e, i + 1}, v) {
			return false
		}
	}
	return true
}

func eventPage(snap *store.Snapshot, from logPlace, q eventQuery, limit int) api.Page[api.EventView] {
	page := api.Page[api.EventView]{Items: []api.EventView{}, Index: snap.Revision()}
	for _, v := range eventsAfter(snap, from, &q) {
		if len(page.Items) == limit {
			page.Next = page.Items[limit-1].ID
			break
		}
		page.Items = append(page.Items, v)
	}
	return page
}

// eventQueue is what waits for one reader of the event stream. It is filled as events come and never makes anybody
// wait: what a slow reader has no room for is counted, and told as a gap.
type eventQueue struct {
	most int

	mu    sync.Mutex
	items []api.EventView
	gap   api.EventGap
	ready chan struct{}
}

func (q *eventQueue) add(v api.EventView) {
	q.mu.Lock()
	if q.gap.Lost > 0 || len(q.items) >= q.most {
		if q.gap.Lost == 0 {
			q.gap.First = v.ID
		}
		q.gap.Last = v.ID
		q.gap.Lost++
	} else {
		q.items = append(q.items, v)
	}
	q.mu.Unlock()
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// take returns what waits, and the gap that follows it.
func (q *eventQueue) take() (items []api.EventView, gap api.EventGap) {
	q.mu.Lock()
	defer q.mu.Unlock()
	items, gap = q.items, q.gap
	q.items, q.gap = nil, api.EventGap{}
	return items, gap
}

// streamEvents sends the events after a place, and then those that come.
func (s *Server) streamEvents(w http.ResponseWriter, r *http.Request, from logPlace, q eventQuery) error {
	out, err := openSSE(w)
	if err != nil {
		return err
	}
	gauge := s.metrics.streams.WithLabelValues("events")
	gauge.Inc()
	defer gauge.Dec()
	// What stands in the log already is sent at the reader's pace, from one snapshot that keeps it.
	snap := s.cfg.Tables.Snapshot()
	for at, v := range eventsAfter(snap, from, &eventQuery{}) {
		from = at
		if !q.takes(&v.Event, v.At) {
			continue
		}
		if err := out.send("event", v.ID, v); err != nil {
			return err
		}
	}
	if err := out.flush(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	queue := &eventQueue{most: s.eventsBuffer, ready: make(chan struct{}, 1)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.followEvents(ctx, queue, snap.Revision(), from, q)
	}()
	defer func() { cancel(); <-ended }()
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ended:
			return out.send("reset", "", api.EventGap{})
		case <-ping.C:
			err = out.ping()
		case <-queue.ready:
			err = s.sendEvents(out, queue)
		}
		if err != nil {
			return err
		}
	}
}

func (s *Server) sendEvents(out *sse, queue *eventQueue) error {
	items, gap := queue.take()
	for _, v := range items {
		if err := out.send("event", v.ID, v); err != nil {
			return err
		}
	}
	if gap.Lost > 0 {
		s.metrics.lost.Add(float64(gap.Lost))
		if err := out.send("gap", gap.Last, gap); err != nil {
			return err
		}
	}
	return out.flush()
}

// followEvents fills a queue with the events after a place. It ends with ctx, or when the store went back behind
// what was read: then the cursors of before mean nothing.
func (s *Server) followEvents(ctx context.Context, queue *eventQueue, revision uint64, from logPlace, q eventQuery) {
	for {
		// A store that went back before this is asked will not be above the revision for long: so look, and then wait.
		changed := s.cfg.Tables.Changed(revision)
		if s.cfg.Tables.Snapshot().Revision() < revision {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		snap := s.cfg.Tables.Snapshot()
		if snap.Revision() < revision {
			return
		}
		revision = snap.Revision()
		for at, v := range eventsAfter(snap, from, &eventQuery{}) {
			from = at
			if q.takes(&v.Event, v.At) {
				queue.add(v)
			}
		}
	}
}
