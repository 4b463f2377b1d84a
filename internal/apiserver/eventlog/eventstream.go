package eventlog

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/lists"
	"github.com/berthd/berth/internal/apiserver/rendition"
	"github.com/berthd/berth/internal/apiserver/snapshot"
	"github.com/berthd/berth/internal/store"
)

// liveEvent is a new event, encoded once for all readers.
type liveEvent struct {
	view api.EventView
	once sync.Once
	text []byte
	err  error
}

// encoded returns the event as it stands in a stream.
func (e *liveEvent) encoded() ([]byte, error) {
	e.once.Do(func() {
		body, err := json.Marshal(e.view)
		if err != nil {
			e.err = fmt.Errorf("encode event: %w", err)
			return
		}
		e.text = lists.AppendEvent(nil, "event", e.view.ID, body)
	})
	return e.text, e.err
}

// eventQueue is what waits for one reader of the event stream. It is filled as events come and never makes anybody
// wait: events that do not fit are counted and reported as a gap.
type eventQueue struct {
	most  int
	query eventQuery
	// ready delivers a value when there is something to take. Ended is closed when the store went back behind what was
	// read: then the cursors of before mean nothing.
	ready chan struct{}
	ended chan struct{}

	mu    sync.Mutex
	items []*liveEvent
	gap   api.EventGap
}

func newEventQueue(most int, query eventQuery) *eventQueue {
	return &eventQueue{most: most, query: query, ready: make(chan struct{}, 1), ended: make(chan struct{})}
}

// add queues an event that the reader asked for.
func (q *eventQueue) add(e *liveEvent) {
	if !q.query.takes(&e.view.Event, e.view.At) {
		return
	}
	q.mu.Lock()
	if q.gap.Lost > 0 || len(q.items) >= q.most {
		if q.gap.Lost == 0 {
			q.gap.First = e.view.ID
		}
		q.gap.Last = e.view.ID
		q.gap.Lost++
	} else {
		q.items = append(q.items, e)
	}
	q.mu.Unlock()
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// take returns what waits, and the gap that follows it.
func (q *eventQueue) take() (items []*liveEvent, gap api.EventGap) {
	q.mu.Lock()
	defer q.mu.Unlock()
	items, gap = q.items, q.gap
	q.items, q.gap = nil, api.EventGap{}
	return items, gap
}

// eventTail reads what comes to the event log, once for all who wait for it, and only when the log changed. It runs
// while somebody waits. Safe for concurrent use.
type eventTail struct {
	tables  snapshot.Tables
	views   *rendition.Pool
	running *sync.WaitGroup // takes the goroutine that reads

	mu       sync.Mutex
	readers  map[*eventQueue]bool
	stop     chan struct{} // ends what runs; nil while nothing does
	at       logPlace      // what was read
	revision uint64        // at which it was read
}

// join fills a queue from now on with the events after a place, which was read at a revision.
func (t *eventTail) join(queue *eventQueue, from logPlace, revision uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stop == nil {
		follower := t.tables.Follow(store.TopicEvents)
		follower.Take() // the first says that anything may have changed
		snap := t.tables.Snapshot()
		t.at, t.revision = endOfLog(snap), snap.Revision()
		t.stop = make(chan struct{})
		t.running.Add(1) // the request in flight holds it above 0
		go t.run(follower, t.stop)
	}
	snap := t.advance(false)
	if snap.Revision() < revision {
		close(queue.ended)
		return
	}
	for _, v := range eventsAfter(snap, from, &eventQuery{}) {
		queue.add(&liveEvent{view: v})
	}
	if t.readers == nil {
		t.readers = map[*eventQueue]bool{}
	}
	t.readers[queue] = true
}

// leave ends what join began.
func (t *eventTail) leave(queue *eventQueue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.readers, queue)
	if len(t.readers) == 0 && t.stop != nil {
		close(t.stop)
		t.stop = nil
	}
}

// run reads the log when it changed, at the pace that all streams share.
func (t *eventTail) run(follower *store.Follower, stop chan struct{}) {
	defer t.running.Done()
	defer follower.Close()
	account := t.views.Changes.Open()
	defer account.Close()
	for {
		select {
		case <-stop:
			return
		case <-follower.Wake():
		}
		began := time.Now()
		back := follower.Take().Resync
		t.mu.Lock()
		if t.stop == stop {
			t.advance(back)
		}
		readers := len(t.readers)
		t.mu.Unlock()
		account.Spend(time.Since(began) + t.views.Sending(readers))
		pause := time.NewTimer(t.views.Changes.Pause())
		select {
		case <-stop:
		case <-pause.C:
		}
		pause.Stop()
	}
}

// advance hands what has come to all readers, and returns the snapshot that it looked at. If the store went back, the
// readers are told and let go; back says that it did, though the revision may be above that of before. t.mu is held.
func (t *eventTail) advance(back bool) *store.Snapshot {
	snap := t.tables.Snapshot()
	if back || snap.Revision() < t.revision {
		for queue := range t.readers { // order-free: each by itself
			close(queue.ended)
		}
		clear(t.readers)
		t.at, t.revision = endOfLog(snap), snap.Revision()
		return snap
	}
	t.revision = snap.Revision()
	for at, v := range eventsAfter(snap, t.at, &eventQuery{}) {
		t.at = at
		e := &liveEvent{view: v}
		for queue := range t.readers { // order-free: each by itself
			queue.add(e)
		}
	}
	return snap
}

// streamEvents sends the events after a place, and then those that come.
func (s *API) streamEvents(w http.ResponseWriter, r *http.Request, from logPlace, q eventQuery) error {
	leave, err := s.lists.Waiters.Enter(w, r, lists.KindEvents)
	if err != nil {
		return err
	}
	defer leave()
	out, err := lists.OpenSSE(w)
	if err != nil {
		return err
	}
	// What stands in the log already is sent at the reader's pace, from one snapshot that keeps it.
	snap := s.reads.Tables.Snapshot()
	for at, v := range eventsAfter(snap, from, &eventQuery{}) {
		from = at
		if !q.takes(&v.Event, v.At) {
			continue
		}
		if err := out.Send("event", v.ID, v); err != nil {
			return err
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	queue := newEventQueue(s.Buffer, q)
	s.tail.join(queue, from, snap.Revision())
	defer s.tail.leave(queue)
	return s.followEvents(r.Context(), out, queue)
}

// followEvents sends what comes to a queue, until the context ends or the store went back.
func (s *API) followEvents(ctx context.Context, out *lists.SSE, queue *eventQueue) (err error) {
	ping := time.NewTicker(lists.PingEvery)
	defer ping.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-queue.ended:
			return out.Send("reset", "", api.EventGap{})
		case <-ping.C:
			err = out.Ping()
		case <-queue.ready:
			err = s.sendEvents(out, queue)
		}
		if err != nil {
			return err
		}
	}
}

func (s *API) sendEvents(out *lists.SSE, queue *eventQueue) error {
	items, gap := queue.take()
	var buffer []byte
	for _, e := range items {
		text, err := e.encoded()
		if err != nil {
			return err
		}
		buffer = append(buffer, text...)
	}
	if err := out.Write(buffer); err != nil {
		return err
	}
	if gap.Lost > 0 {
		s.lost.Add(float64(gap.Lost))
		if err := out.Send("gap", gap.Last, gap); err != nil {
			return err
		}
	}
	return out.Flush()
}
