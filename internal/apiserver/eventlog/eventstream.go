package eventlog

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/apiserver/lists"
	"github.com/berthd/berth/internal/apiserver/rendition"
	"github.com/berthd/berth/internal/apiserver/snapshot"
	"github.com/berthd/berth/internal/store"
)

// liveEvent is a new event, encoded once for all readers that see all of it.
type liveEvent struct {
	view api.EventView
	once sync.Once
	text []byte
	err  error
}

// encoded returns the event in the form of the stream, as the caller may see it.
func (e *liveEvent) encoded(caller *access.Caller) ([]byte, error) {
	shown := e.view
	if caller.ShowEvent(&shown); shown.Message != e.view.Message {
		return encode(&shown)
	}
	e.once.Do(func() { e.text, e.err = encode(&e.view) })
	return e.text, e.err
}

func encode(v *api.EventView) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode event: %w", err)
	}
	return lists.AppendEvent(nil, "event", v.ID, body), nil
}

// eventQueue holds the events that wait for one reader of the event stream. Adding never blocks: events that do not fit
// are counted and reported as a gap.
type eventQueue struct {
	most  int
	query eventQuery
	// ready delivers a value when there are events. Ended is closed when the store went back behind the read position,
	// because earlier cursors are then invalid.
	ready chan struct{}
	ended chan struct{}

	mu    sync.Mutex
	items []*liveEvent
	gap   api.EventGap
}

func newEventQueue(most int, query eventQuery) *eventQueue {
	return &eventQueue{most: most, query: query, ready: make(chan struct{}, 1), ended: make(chan struct{})}
}

// add queues an event if the reader's query selects it.
func (q *eventQueue) add(e *liveEvent) {
	if !q.query.matches(&e.view.Event, e.view.At) {
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

// take returns the waiting events and the gap after them.
func (q *eventQueue) take() (items []*liveEvent, gap api.EventGap) {
	q.mu.Lock()
	defer q.mu.Unlock()
	items, gap = q.items, q.gap
	q.items, q.gap = nil, api.EventGap{}
	return items, gap
}

// eventTail reads new events once for all readers, and only when the log changes. It runs while there are readers. Safe
// for concurrent use.
type eventTail struct {
	tables  snapshot.Tables
	views   *rendition.Pool
	running *sync.WaitGroup // counts the goroutine that reads

	mu       sync.Mutex
	readers  map[*eventQueue]bool
	stop     chan struct{} // ends the goroutine; nil while there is none
	at       logPosition   // the position up to which it has read
	revision uint64        // of the last read
}

// join starts to fill a queue with the events after a position, which was read at a revision.
func (t *eventTail) join(queue *eventQueue, from logPosition, revision uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stop == nil {
		follower := t.tables.Follow(store.TopicEvents)
		follower.Take() // the first result reports everything as changed
		snap := t.tables.Snapshot()
		t.at, t.revision = endOfLog(snap), snap.Revision()
		t.stop = make(chan struct{})
		t.running.Add(1) // the present request keeps the counter above 0
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

// leave ends a join.
func (t *eventTail) leave(queue *eventQueue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.readers, queue)
	if len(t.readers) == 0 && t.stop != nil {
		close(t.stop)
		t.stop = nil
	}
}

// run reads the log after each change, at the shared pace of all streams.
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

// advance gives new events to all readers, and returns the snapshot that it read. If the store went back, advance ends
// and removes the readers. Back says that the store went back even if its revision is higher than before. The caller
// holds t.mu.
func (t *eventTail) advance(back bool) *store.Snapshot {
	snap := t.tables.Snapshot()
	if back || snap.Revision() < t.revision {
		for queue := range t.readers { // order-free: each on its own
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
		for queue := range t.readers { // order-free: each on its own
			queue.add(e)
		}
	}
	return snap
}

// streamEvents sends the events after a position, and then new events.
func (s *API) streamEvents(w http.ResponseWriter, r *http.Request, from logPosition, q eventQuery) error {
	leave, err := s.lists.Waiters.Enter(w, r, lists.KindEvents)
	if err != nil {
		return err
	}
	defer leave()
	out, err := lists.OpenSSE(w)
	if err != nil {
		return err
	}
	// Present events are sent at the reader's pace, from one snapshot.
	snap := s.reads.Tables.Snapshot()
	for at, v := range eventsAfter(snap, from, &eventQuery{}) {
		from = at
		if !q.matches(&v.Event, v.At) {
			continue
		}
		q.caller.ShowEvent(&v)
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

// followEvents sends the events of a queue until the context ends or the store goes back.
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
		text, err := e.encoded(queue.query.caller)
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
