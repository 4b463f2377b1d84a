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
	// PingEvery is the interval of comments in a stream without events.
	PingEvery = 15 * time.Second
	// pieceBytes is about how much of a stream is written within one respond.WriteTimeout.
	pieceBytes = 64 << 10
)

// SSE writes server-sent events. It disconnects a reader that reads nothing for respond.WriteTimeout.
type SSE struct {
	w   http.ResponseWriter
	ctl *http.ResponseController
}

// OpenSSE starts a stream of server-sent events as the answer to a request.
func OpenSSE(w http.ResponseWriter) (*SSE, error) {
	h := w.Header()
	h.Set("Content-Type", route.MediaEventStream)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	e := &SSE{w, http.NewResponseController(w)}
	return e, e.Flush()
}

// AppendEvent appends an event to a buffer. An empty id adds none.
func AppendEvent(to []byte, event, id string, data []byte) []byte {
	to = append(append(to, "event: "...), event...)
	if id != "" {
		to = append(append(to, "\nid: "...), id...)
	}
	to = append(append(to, "\ndata: "...), data...)
	return append(to, "\n\n"...)
}

// Write writes encoded events, in pieces that a slow reader has time for. The caller flushes.
func (e *SSE) Write(events []byte) error {
	for len(events) > 0 {
		piece := events[:min(len(events), pieceBytes)]
		_ = e.ctl.SetWriteDeadline(time.Now().Add(respond.WriteTimeout)) // some writers have no deadlines
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

// Ping sends a comment, so that the client and proxies see that the stream is alive.
func (e *SSE) Ping() error {
	if err := e.Write([]byte(": ping\n\n")); err != nil {
		return err
	}
	return e.Flush()
}

// Flush sends what was written.
func (e *SSE) Flush() error { return e.ctl.Flush() }

// Types of events in a stream of a list.
const (
	eventReset  = "reset"  // the client drops its list, and the whole list follows; api.ListMark
	eventPut    = "put"    // a new or changed element
	eventRemove = "remove" // a removed element; api.ListRemoval
	eventSynced = "synced" // all changes up to the index, the event's id, have been sent; api.ListMark
)

// listEvents writes the events of a stream of a list.
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

// streamList sends a list, and then its changes. A client that reconnects with the id of its last mark continues from
// there if the list has not changed since. Otherwise it gets a reset and the whole list, because removals are not
// remembered. Changes are computed and encoded once for all readers of the list. A slow reader gets several changes in
// one.
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
	seen := s.history.of(viewName(r)) // first, as in awaitList
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

// beginList sends the whole list, or only a mark to a reader that has the list.
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

// updateList sends the differences between two renditions.
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
