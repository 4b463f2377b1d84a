// Package eventlog serves the event log: as pages, as long polls, and as a stream.
package eventlog

import (
	"errors"
	"iter"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/apiserver/lists"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/apiserver/snapshot"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// Bounds of event lists and streams.
const (
	eventsPage   = 1000
	eventsBuffer = 4096
)

// logPosition is a position in the event log: after a number of events of a batch. The zero value is the log's start.
type logPosition struct {
	batch store.Entry[cluster.EventBatch]
	seen  int
}

// API serves the event log.
type API struct {
	reads *snapshot.Reader
	lists *lists.Lists
	tail  *eventTail
	lost  prometheus.Counter // counts events that streams left out
	now   func() time.Time
	// Buffer is how many events may wait for one slow reader of the event stream.
	Buffer int
}

// NewAPI returns the operations of the event log. Running counts the goroutine that reads the log.
func NewAPI(reads *snapshot.Reader, lists *lists.Lists, lost prometheus.Counter, now func() time.Time,
	running *sync.WaitGroup,
) *API {
	return &API{
		reads: reads, lists: lists, lost: lost, now: now, Buffer: eventsBuffer,
		tail: &eventTail{tables: reads.Tables, views: lists.Views, running: running},
	}
}

// eventQuery selects events for a caller.
type eventQuery struct {
	after string
	eventFilter
	// caller, unless nil, limits the events to the clusters that it sees.
	caller *access.Caller
}

// matches reports whether the query selects an event of a batch at the time, and the caller sees it.
func (q *eventQuery) matches(e *cluster.Event, at time.Time) bool {
	if q.caller != nil && !q.caller.Sees(clusterOf(e)) {
		return false
	}
	return q.eventFilter.matches(e, at)
}

func (s *API) list(w http.ResponseWriter, r *http.Request) error {
	q := eventQuery{after: r.URL.Query().Get("after"), caller: access.CallerOf(r.Context())}
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		q.after = last
	}
	var err error
	if q.eventFilter, err = filterOf(r, s.now()); err != nil {
		return err
	}
	limit, err := route.Number(r, "limit", eventsPage)
	if err != nil {
		return err
	}
	wait, err := route.Duration(r, "wait")
	if err != nil {
		return err
	}
	snap, err := s.reads.ForRequest(r)
	if err != nil {
		return err
	}
	from, err := find(snap, q.after)
	if isGone(err) {
		// Another server may have sent the event before this server's tables held it.
		if snap, err = s.reads.Settled(r.Context()); err == nil {
			from, err = find(snap, q.after)
		}
	}
	if err != nil {
		return err
	}
	if route.WantsStream(r) {
		return s.streamEvents(w, r, from, q)
	}
	most := int(min(max(limit, 1), lists.MaxLimit))
	page := eventPage(snap, from, q, most)
	if len(page.Items) == 0 && wait > 0 {
		if page,
			err = s.awaitEvents(w, r, eventWait{q, from, snap.Revision(), most, min(wait, lists.MaxWait)}); err != nil {
			return err
		}
	}
	return respond.JSON(w, http.StatusOK, page)
}

// awaitEvents answers with the first events after a position, or with none after the time limit.
func (s *API) awaitEvents(w http.ResponseWriter, r *http.Request, e eventWait) (api.Page[api.EventView], error) {
	leave, err := s.lists.Waiters.Enter(w, r, lists.KindWait)
	if err != nil {
		return api.Page[api.EventView]{}, err
	}
	defer leave()
	over := time.NewTimer(e.wait)
	defer over.Stop()
	queue := newEventQueue(1, e.query)
	s.tail.join(queue, e.from, e.revision)
	defer s.tail.leave(queue)
	select {
	case <-r.Context().Done():
		return api.Page[api.EventView]{}, r.Context().Err()
	case <-over.C:
	case <-queue.ended:
	case <-queue.ready:
	}
	return eventPage(s.reads.Tables.Snapshot(), e.from, e.query, e.limit), nil
}

// eventWait is a wait for events after a position, which the client read at a revision.
type eventWait struct {
	query    eventQuery
	from     logPosition
	revision uint64
	limit    int
	wait     time.Duration
}

// find returns the position after the event with the id. An id that is not in the log gets 410 with the oldest kept id
// (P8.1): its batch was trimmed, or a restore of the store removed it.
func find(snap *store.Snapshot, id string) (logPosition, error) {
	if id == "" {
		return logPosition{}, nil
	}
	if id == "now" {
		return endOfLog(snap), nil
	}
	dot := strings.LastIndexByte(id, '.')
	position, err := strconv.Atoi(id[dot+1:])
	if dot < 1 || err != nil || position < 0 {
		return logPosition{}, route.BadQuery("after", "is %q, which is not the id of an event", respond.Clip(id))
	}
	if e, ok := snap.EventBatch(id[:dot]); ok {
		return logPosition{e, min(position, len(e.Value.Events)-1) + 1}, nil
	}
	p := respond.Problemf(http.StatusGone,
		"the event %s is not in the log any more: the events between it and the oldest are no longer kept. "+
			"Start again without a cursor", respond.Clip(id))
	for e := range snap.EventBatches() {
		p.Oldest = eventID(e.Value.ID, 0)
		break
	}
	return logPosition{}, p
}

// isGone reports whether an error says that a cursor is not in the log.
func isGone(err error) bool {
	p, ok := errors.AsType[*respond.Problem](err)
	return ok && p.Status == http.StatusGone
}

func endOfLog(snap *store.Snapshot) (end logPosition) {
	for e := range snap.EventBatches() {
		end = logPosition{e, len(e.Value.Events)}
	}
	return end
}

func eventID(batch string, position int) string { return batch + "." + strconv.Itoa(position) }

// eventsAfter yields the events after a position that the query selects, with the position after each.
func eventsAfter(snap *store.Snapshot, from logPosition, q *eventQuery) iter.Seq2[logPosition, api.EventView] {
	return func(yield func(logPosition, api.EventView) bool) {
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

func yieldBatch(e store.Entry[cluster.EventBatch], seen int, q *eventQuery,
	yield func(logPosition, api.EventView) bool,
) bool {
	for i := seen; i < len(e.Value.Events); i++ {
		event := &e.Value.Events[i]
		if !q.matches(event, e.Value.At) {
			continue
		}
		v := api.EventView{ID: eventID(e.Value.ID, i), At: e.Value.At, RoutingKey: event.RoutingKey(), Event: *event}
		q.caller.ShowEvent(&v)
		if !yield(logPosition{e, i + 1}, v) {
			return false
		}
	}
	return true
}

func eventPage(snap *store.Snapshot, from logPosition, q eventQuery, limit int) api.Page[api.EventView] {
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

// Routes returns the operations of the event log.
func (s *API) Routes() []route.Route {
	return []route.Route{{
		Method: "GET", Path: "/v1/events", Name: "listEvents", Role: cluster.RoleViewer, Shared: true,
		Summary: "The event log, oldest first. A cursor before the kept events gets 410 with the oldest id.",
		Query: append(eventParameters(), []route.Parameter{
			route.QueryParam("after", "string", "the id of the last event seen; \"now\" leaves out what has happened; "+
				"default the oldest that is kept"),
			route.QueryParam("limit", "integer", "the maximum number of events; default 1000"),
			route.QueryParam("wait", "duration", "how long to wait for the first event, at most 5m"),
			route.Consistent(),
		}...),
		Reply: reflect.TypeFor[api.Page[api.EventView]](), Stream: route.MediaEventStream, Long: true, Serve: s.list,
	}}
}
