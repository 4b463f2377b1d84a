package apiserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/rendition"
)

const (
	// pingEvery is how often a stream that has nothing to say shows that it lives.
	pingEvery = 15 * time.Second
	// pieceBytes is how much of a stream is written within one writeTimeout, about.
	pieceBytes = 64 << 10
)

// sse writes server-sent events. A reader that takes nothing for writeTimeout is cut off.
type sse struct {
	w   http.ResponseWriter
	ctl *http.ResponseController
}

func openSSE(w http.ResponseWriter) (*sse, error) {
	h := w.Header()
	h.Set("Content-Type", eventStream)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	e := &sse{w, http.NewResponseController(w)}
	return e, e.flush()
}

// appendEvent appends an event to a buffer; without an id it has none.
func appendEvent(to []byte, event, id string, data []byte) []byte {
	to = append(append(to, "event: "...), event...)
	if id != "" {
		to = append(append(to, "\nid: "...), id...)
	}
	to = append(append(to, "\ndata: "...), data...)
	return append(to, "\n\n"...)
}

// write writes events that are encoded already, in pieces that a slow reader has time for; flush sends what was
// written.
func (e *sse) write(events []byte) error {
	for len(events) > 0 {
		piece := events[:min(len(events), pieceBytes)]
		_ = e.ctl.SetWriteDeadline(time.Now().Add(writeTimeout)) // not every writer has deadlines
		if _, err := e.w.Write(piece); err != nil {              //nolint:gosec // JSON in events, and said to be
			return err
		}
		events = events[len(piece):]
	}
	return nil
}

// send writes one event.
func (e *sse) send(event, id string, data any) error {
	body, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("encode event: %w", err)
	}
	return e.write(appendEvent(nil, event, id, body))
}

func (e *sse) ping() error {
	if err := e.write([]byte(": ping\n\n")); err != nil {
		return err
	}
	return e.flush()
}

func (e *sse) flush() error { return e.ctl.Flush() }

// Kinds of events in a list that is streamed.
const (
	eventReset  = "reset"  // forget what you have: the whole list follows; api.ListMark
	eventPut    = "put"    // an element that is new or has changed
	eventRemove = "remove" // an element that is gone; api.ListRemoval
	eventSynced = "synced" // all up to this index, which is the event's id, has been sent; api.ListMark
)

// listEvents are the events of a list that is streamed.
var listEvents = rendition.Events{
	Put:    func(to, body []byte) []byte { return appendEvent(to, eventPut, "", body) },
	Remove: appendRemove,
	Synced: appendSynced,
}

func appendRemove(to []byte, key string) []byte {
	body, _ := json.Marshal(api.ListRemoval{Name: key}) // a text
	return appendEvent(to, eventRemove, "", body)
}

func appendSynced(to []byte, revision uint64) []byte {
	return appendEvent(to, eventSynced, strconv.FormatUint(revision, 10), listMark(revision))
}

func listMark(revision uint64) []byte {
	body, _ := json.Marshal(api.ListMark{Index: revision}) // a number
	return body
}

// streamList sends a list, and then what changes in it. A reader that comes back with the id of the last mark it saw
// goes on from there if the list is known not to have changed since, else it gets a reset and the whole list: what was
// removed meanwhile nobody remembers. What changes is computed and encoded once for all who read the same list; a
// reader that is slow gets several changes in one.
func streamList[T any](s *lists, w http.ResponseWriter, r *http.Request, src source[T]) error {
	since, err := number(r, "index", 0)
	if err != nil {
		return err
	}
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		if _, err := fmt.Sscanf(last, "%d", &since); err != nil {
			return problemf(http.StatusBadRequest, "Last-Event-ID is %q; want the id of an event of this stream",
				clip(last))
		}
	}
	leave, err := s.waiters.enter(w, r, kindList)
	if err != nil {
		return err
	}
	defer leave()
	if err := s.reads.reached(r.Context(), since, catchUp); err != nil {
		return err
	}
	v := rendition.Join(s.views, viewName(r), src)
	defer v.Leave()
	seen := s.sights.recall(viewName(r)) // before the list is read, as in awaitList
	now, at, err := v.At(r.Context(), s.reads.tables.Snapshot().Revision())
	if err != nil {
		return err
	}
	known := since > 0 && since <= at && seen.same(now.Sum, since, at)
	out, err := openSSE(w)
	if err != nil {
		return err
	}
	if err := beginList(out, now, at, known); err != nil {
		return err
	}
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	for {
		select {
		case <-r.Context().Done():
			return nil
		case <-ping.C:
			err = out.ping()
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
func beginList[T any](out *sse, now *rendition.Rendition[T], at uint64, known bool) error {
	var buffer []byte
	if !known {
		buffer = appendEvent(buffer, eventReset, "", listMark(at))
		for _, e := range now.Elements() {
			body, err := e.JSON()
			if err != nil {
				return err
			}
			buffer = appendEvent(buffer, eventPut, "", body)
			if len(buffer) < pieceBytes {
				continue
			}
			if err := out.write(buffer); err != nil {
				return err
			}
			buffer = buffer[:0]
		}
	}
	if err := out.write(appendSynced(buffer, at)); err != nil {
		return err
	}
	return out.flush()
}

// updateList sends what differs between two renditions.
func updateList[T any](out *sse, before, now *rendition.Rendition[T]) error {
	events, err := now.Update(before, listEvents)
	if err != nil {
		return err
	}
	if err := out.write(events); err != nil {
		return err
	}
	return out.flush()
}
