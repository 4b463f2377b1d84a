package apiserver

import (
	"encoding/json"
	"fmt"
	"hash/maphash"
	"net/http"
	"time"

	"github.com/berthd/berth/api"
)

// pingEvery is how often a stream that has nothing to say shows that it lives.
const pingEvery = 15 * time.Second

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

// send writes one event; flush sends what was written.
func (e *sse) send(event, id string, data any) error {
	body, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("encode event: %w", err)
	}
	_ = e.ctl.SetWriteDeadline(time.Now().Add(writeTimeout)) // not every writer has deadlines
	if id != "" {
		_, err = fmt.Fprintf(e.w, "event: %s\nid: %s\ndata: %s\n\n", event, id, body)
	} else {
		_, err = fmt.Fprintf(e.w, "event: %s\ndata: %s\n\n", event, body)
	}
	return err
}

func (e *sse) ping() error {
	_ = e.ctl.SetWriteDeadline(time.Now().Add(writeTimeout)) // as above
	if _, err := fmt.Fprint(e.w, ": ping\n\n"); err != nil {
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

// streamList sends a list, and then what changes in it. A reader that comes back with the id of the last mark it saw
// goes on from there if the list is known not to have changed since, else it gets a reset and the whole list: what
// was removed meanwhile nobody remembers.
func streamList[T any](s *Server, w http.ResponseWriter, r *http.Request, compute list[T]) error {
	since, err := number(r, "index", 0)
	if err != nil {
		return err
	}
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		if _, err := fmt.Sscanf(last, "%d", &since); err != nil {
			return problemf(http.StatusBadRequest, "Last-Event-ID is %q; want the id of an event of this stream", clip(last))
		}
	}
	if _, err := s.reached(r.Context(), since, catchUp); err != nil {
		return err
	}
	out, err := openSSE(w)
	if err != nil {
		return err
	}
	gauge := s.metrics.streams.WithLabelValues("list")
	gauge.Inc()
	defer gauge.Dec()
	st := listStream[T]{s: s, out: out, name: sightName(r), compute: compute, sent: map[string]uint64{}}
	if err := st.begin(since); err != nil {
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
		case <-time.After(s.softWait):
			err = st.look()
		case <-s.cfg.Tables.Changed(st.index):
			began := time.Now()
			err = st.look()
			pause := time.NewTimer(max(minLook, lookShare*time.Since(began)))
			select {
			case <-r.Context().Done():
			case <-pause.C:
			}
			pause.Stop()
		}
		if err != nil {
			return err
		}
	}
}

// listStream is what one reader of a list has been sent.
type listStream[T any] struct {
	s       *Server
	out     *sse
	name    string
	compute list[T]
	index   uint64
	sent    map[string]uint64 // hash of each element, by key
}

// begin sends what the reader lacks that has seen the list at an index, 0 for never.
func (st *listStream[T]) begin(since uint64) error {
	snap := st.s.cfg.Tables.Snapshot()
	all := st.compute(snap)
	hashes, whole, err := st.hash(all)
	if err != nil {
		return err
	}
	index := snap.Revision()
	known := since > 0 && since <= index && st.s.sights.same(st.name, whole, since, index)
	if !known {
		if err := st.out.send(eventReset, "", api.ListMark{Index: index}); err != nil {
			return err
		}
	}
	return st.advance(all, hashes, mark{whole, index, known})
}

// look sends what has changed since the last look.
func (st *listStream[T]) look() error {
	snap := st.s.cfg.Tables.Snapshot()
	all := st.compute(snap)
	hashes, whole, err := st.hash(all)
	if err != nil {
		return err
	}
	return st.advance(all, hashes, mark{whole, snap.Revision(), false})
}

// mark is the state of a list that a look found. Known says that the reader has it.
type mark struct {
	hash, index uint64
	known       bool
}

func (st *listStream[T]) advance(all []keyed[T], hashes map[string]uint64, m mark) error {
	changed := false
	for _, k := range all {
		if old, ok := st.sent[k.key]; m.known || ok && old == hashes[k.key] {
			continue
		}
		changed = true
		if err := st.out.send(eventPut, "", k.item); err != nil {
			return err
		}
	}
	for key := range st.sent {
		if _, ok := hashes[key]; !ok {
			changed = true
			if err := st.out.send(eventRemove, "", api.ListRemoval{Name: key}); err != nil {
				return err
			}
		}
	}
	first := st.index == 0
	st.sent, st.index = hashes, m.index
	st.s.sights.note(st.name, m.hash, m.index)
	if !changed && !first {
		return nil
	}
	if err := st.out.send(eventSynced, fmt.Sprint(m.index), api.ListMark{Index: m.index}); err != nil {
		return err
	}
	return st.out.flush()
}

func (st *listStream[T]) hash(all []keyed[T]) (each map[string]uint64, whole uint64, err error) {
	each = make(map[string]uint64, len(all))
	var h maphash.Hash
	h.SetSeed(st.s.sights.seed)
	for _, k := range all {
		body, err := json.Marshal(lasting([]T{k.item}))
		if err != nil {
			return nil, 0, fmt.Errorf("encode list: %w", err)
		}
		each[k.key] = maphash.Bytes(st.s.sights.seed, body)
		maphash.WriteComparable(&h, each[k.key])
	}
	return each, h.Sum64(), nil
}
