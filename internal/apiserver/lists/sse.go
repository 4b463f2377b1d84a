package lists

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/rendition"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/apiserver/snapshot"
)

const (
	// PingEvery is how often a stream that has nothing to say shows that it lives.
	PingEvery = 15 * time.Second
	// pieceBytes is how much of a stream is written within one writeTimeout, about.
	pieceBytes = 64 << 10
)

// SSE writes server-sent events. A reader that takes nothing for writeTimeout is cut off.
type SSE struct {
	w   http.ResponseWriter
	ctl *http.ResponseController
}

// OpenSSE begins a stream of server-sent events as the answer of a request.
func OpenSSE(w http.ResponseWriter) (*SSE, error) {
	h := w.Header()
	h.Set("Content-Type", route.MediaEventStream)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	e := &SSE{w, http.NewResponseController(w)}
	return e, e.Flush()
}

// AppendEvent appends an event to a buffer; without an id it has none.
func AppendEvent(to []byte, event, id string, data []byte) []byte {
	to = append(append(to, "event: "...), event...)
	if id != "" {
		to = append(append(to, "\nid: "...), id...)
	}
	to = append(append(to, "\ndata: "...), data...)
	return append(to, "\n\n"...)
}

// Write writes events that are encoded already, in pieces that a slow reader has time for; flush sends what was
// written.
func (e *SSE) Write(events []byte) error {
	for len(events) > 0 {
		piece := events[:min(len(events), pieceBytes)]
		_ = e.ctl.SetWriteDeadline(time.Now().Add(respond.WriteTimeout)) // not every writer has deadlines
		if _,
			err := e.w.Write(piece); err != nil { //nolint:gosec // JSON in events, and said to be
			return err
		}
		events = events[len(piece):]
	}
	return nil
}

// Send writes one event.
func (e *SSE) Send(event, id string, data any) error {
	body, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("encode event: %w", err)
	}
	return e.Write(AppendEvent(nil, event, id, body))
}

// Ping sends a comment, which shows the client and the proxies between that the stream lives.
func (e *SSE) Ping() error {
	if err := e.Write([]byte(": ping\n\n")); err != nil {
		return err
	}
	return e.Flush()
}

// Flush sends what was written.
func (e *SSE) Flush() error { return e.ctl.Flush() }

// Kinds of events in a list that is streamed.
const (
	eventReset  = "reset"  // forget what you have: the whole list follows; api.ListMark
	eventPut    = "put"    // an element that is new or has changed
	eventRemove = "remove" // an element that is gone; api.ListRemoval
	eventSynced = "synced" // all up to this index, which is the event's id, has been sent; api.ListMark
)

// listEvents are the events of a list that is streamed.
var listEvents = rendition.Events{
	Put:    func(to, body []byte) []byte { return AppendEvent(to, eventPut, "", body) },
	Remove: appendRemove,
	Synced: appendSynced,
}

func appendRemove(to []byte, key string) []byte {
	body, _ := json.Marshal(api.ListRemoval{Name: key}) // a text
	return AppendEvent(to, eventRemove, "", body)
}

func appendSynced(to []byte, revision uint64) []byte {
	return AppendEvent(to, eventSynced, strconv.FormatUint(revision, 10), listMark(revision))
}

func listMark(revision uint64) []byte {
	body, _ := json.Marshal(api.ListMark{Index: revision}) // a number
	return body
}

// streamList sends a list, and then what changes in it. A reader that comes back with the id of the last mark it saw
// goes on from there if the list is known not to have changed since, else it gets a reset and the whole list: what was
// removed meanwhile nobody remembers. What changes is computed and encoded once for all who read the same list; a
// reader that is slow gets several changes in one.
func streamList[T any](s *Lists, w http.ResponseWriter, r *http.Request, src Source[T]) error {
	since, err := route.Number(r, "index", 0)
	if err != nil {
		return err
	}
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		if _, err := fmt.Sscanf(last, "%d", &since); err != nil {
			return respond.Problemf(http.StatusBadRequest,
				"Last-Event-ID is %q; want the id of an event of this stream",
				respond.Clip(last))
		}
	}
	leave, err := s.Waiters.Enter(w, r, kindList)
	if err != nil {
		return err
	}
	defer leave()
	if err := s.reads.Reached(r.Context(), since, snapshot.CatchUpTimeout); err != nil {
		return err
	}
	v := rendition.Join(s.Views, viewName(r), src)
	defer v.Leave()
	seen := s.history.of(viewName(r)) // before the list is read, as in awaitList
	now, at, err := v.At(r.Context(), s.reads.Tables.Snapshot().Revision())
	if err != nil {
		return err
	}
	known := since > 0 && since <= at && seen.same(now.Sum, since, at)
	out, err := OpenSSE(w)
	if err != nil {
		return err
	}
	if err := beginList(out, now, at, known); err != nil {
		return err
	}
	ping := time.NewTicker(PingEvery)
	defer ping.Stop()
	for {
		select {
		case <-r.Context().Done():
			return nil
		case <-ping.C:
			err = out.Ping()
		case <-now.Next():
			before := now
			if now, _, err = v.Current(); err == nil {
				err = updateList(out, before, now)
			}
		}
		if err != nil {
			return err
		}
	}
}

// beginList sends a whole list, or only where it stands to a reader who has it.
func beginList[T any](out *SSE, now *rendition.Rendition[T], at uint64, known bool) error {
	var buffer []byte
	if !known {
		buffer = AppendEvent(buffer, eventReset, "", listMark(at))
		for _, e := range now.Elements() {
			body, err := e.JSON()
			if err != nil {
				return err
			}
			buffer = AppendEvent(buffer, eventPut, "", body)
			if len(buffer) < pieceBytes {
				continue
			}
			if err := out.Write(buffer); err != nil {
				return err
			}
			buffer = buffer[:0]
		}
	}
	if err := out.Write(appendSynced(buffer, at)); err != nil {
		return err
	}
	return out.Flush()
}

// updateList sends what differs between two renditions.
func updateList[T any](out *SSE, before, now *rendition.Rendition[T]) error {
	events, err := now.Update(before, listEvents)
	if err != nil {
		return err
	}
	if err := out.Write(events); err != nil {
		return err
	}
	return out.Flush()
}
