// Package lists answers requests for lists: immediately, after the next change, or as a stream of server-sent events.
// Requests that wait for the same list share its computation (package rendition).
package lists

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/apiserver/rendition"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/apiserver/snapshot"
)

// Bounds of lists.
const (
	MaxWait  = 5 * time.Minute
	MaxLimit = 100_000
)

// Item is an element of a list with its key, Source computes a list, and Window is a part of one.
type (
	Item[T any]   = rendition.Item[T]
	Source[T any] = rendition.Source[T]
	Window        = rendition.Window
)

// WindowOf reads the requested part of a list from the query.
func WindowOf(r *http.Request) (w rendition.Window, err error) {
	limit, err := route.Number(r, "limit", 0)
	if err != nil {
		return w, err
	}
	w.Limit = int(min(limit, MaxLimit))
	after, err := base64.RawURLEncoding.DecodeString(r.URL.Query().Get("cursor"))
	if err != nil {
		return w, route.BadQuery("cursor", "is not a cursor of this server: begin without one")
	}
	w.After = string(after)
	return w, nil
}

// cursor returns the cursor of the page after the element with the key.
func cursor(key string) string { return base64.RawURLEncoding.EncodeToString([]byte(key)) }

// pageOf returns the window of a whole list, and the mark of the window's content.
func pageOf[T any](m rendition.Marker, all []Item[T], w rendition.Window, lasting func(T) T,
) (p api.Page[T], mark uint64, err error) {
	from, to, more := w.Cut(len(all), func(i int) string { return all[i].Key })
	p.Items = make([]T, 0, to-from)
	for i := from; i < to; i++ {
		each, err := rendition.Mark(m, &all[i], lasting)
		if err != nil {
			return p, 0, err
		}
		mark += each
		p.Items = append(p.Items, all[i].Value)
	}
	if more {
		p.Next = cursor(all[to-1].Key)
	}
	return p, mark + m.Text(p.Next), nil
}

// Serve answers a request for a list: immediately, after a change (?index=&wait=), or as a stream.
func Serve[T any](s *Lists, w http.ResponseWriter, r *http.Request, src Source[T]) error {
	win, err := WindowOf(r)
	if err != nil {
		return err
	}
	index, err := route.Number(r, "index", 0)
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
	if route.WantsStream(r) {
		return streamList(s, w, r, src)
	}
	if index > 0 && wait > 0 {
		return awaitList(s, w, r, src, listWait{win, index, min(wait, MaxWait)})
	}
	var items []Item[T]
	if src.Page != nil && win.Limit > 0 {
		items = src.Page(snap, win)
	} else {
		items = src.All(snap)
	}
	p, mark, err := pageOf(s.marker, items, win, src.Lasting)
	if err != nil {
		return err
	}
	p.Index = snap.Revision()
	s.history.record(answerName(r), mark, p.Index)
	return respond.JSON(w, http.StatusOK, p)
}

// listWait is the wait of a client that has seen a list at an index.
type listWait struct {
	window rendition.Window
	index  uint64
	wait   time.Duration
}

// awaitList answers with a list once it differs from its content at an index, or after the time limit. All requests for
// one view share its renditions.
func awaitList[T any](s *Lists, w http.ResponseWriter, r *http.Request, src Source[T], a listWait) error {
	leave, err := s.Waiters.Enter(w, r, KindWait)
	if err != nil {
		return err
	}
	defer leave()
	over := time.NewTimer(a.wait)
	defer over.Stop()
	if err := s.reads.Reached(r.Context(), a.index, a.wait); err != nil {
		return err
	}
	least := a.index
	if route.Flag(r, "consistent") { // the snapshot is the engine's present content
		least = s.reads.Tables.Snapshot().Revision()
	}
	v := rendition.Join(s.Views, viewName(r), src)
	defer v.Leave()
	name := answerName(r)
	seen := s.history.of(name) // first, because a view records its content as soon as it can be read
	now, at, err := v.At(r.Context(), least)
	if err != nil {
		return err
	}
	body, mark, next, err := now.Page(s.marker, a.window, cursor)
	if err != nil {
		return err
	}
	for first, waits := mark, seen.same(mark, a.index, at); waits && mark == first; {
		select {
		case <-r.Context().Done():
			return r.Context().Err()
		case <-over.C:
			waits = false
		case <-now.Next():
		}
		if now, at, err = v.Current(); err != nil {
			return err
		}
		if body, mark, next, err = now.Page(s.marker, a.window, cursor); err != nil {
			return err
		}
	}
	s.history.record(name, mark, at)
	return answerPage(w, body, rendition.End(at, next))
}

// answerPage writes an encoded page.
func answerPage(w http.ResponseWriter, body, end []byte) error {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(body)+len(end)))
	// Some writers have no deadlines.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(respond.WriteTimeout))
	w.WriteHeader(http.StatusOK)
	if _, err := w.Write(body); err != nil { //nolint:gosec // JSON, with its content type
		return err
	}
	_, err := w.Write(end) //nolint:gosec // as above
	return err
}

// answerName names the answers to a list by all that their content depends on.
func answerName(r *http.Request) string { return listName(r, "index", "wait", "consistent") }

// viewName names a whole list by all that its content depends on. Requests for lists of one name share the computation.
func viewName(r *http.Request) string {
	return listName(r, "index", "wait", "consistent", "limit", "cursor")
}

// listName names a list by its address without some parameters, and by the caller's scope.
func listName(r *http.Request, without ...string) string {
	q := r.URL.Query()
	for _, name := range without {
		q.Del(name)
	}
	return fmt.Sprintf("%s?%s#%s", r.URL.Path, q.Encode(), access.CallerOf(r.Context()).Scope())
}

// Lists answers requests for lists: immediately, after changes, or as streams. Safe for concurrent use.
type Lists struct {
	reads   *snapshot.Reader
	marker  rendition.Marker
	history contentHistory
	// Views are the lists that requests wait for. Waiters bounds the number of these requests.
	Views   *rendition.Pool
	Waiters *Waiters
}

// NewLists returns lists over the reader's snapshots. Computed counts the computations by list and part. The caller
// closes Views once no requests are left.
func NewLists(reads *snapshot.Reader, waiters *Waiters, computed *prometheus.CounterVec) *Lists {
	l := &Lists{reads: reads, Waiters: waiters, marker: rendition.NewMarker()}
	l.Views = rendition.NewPool(rendition.Config{
		Tables: reads.Tables, Marker: l.marker, Seen: l.history.recordComputed,
		Computed: func(list string, whole bool) {
			part := "changes"
			if whole {
				part = "whole"
			}
			computed.WithLabelValues(list, part).Inc()
		},
	})
	return l
}
