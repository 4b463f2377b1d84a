package apiserver

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"net/http"
	"sort"
	"sync"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/store"
)

// Bounds of lists.
const (
	maxWait  = 5 * time.Minute
	maxLimit = 100_000
	// minLook is the least time between two looks of a list that waits, and lookShare how many times
	// longer than a look takes it waits for the next.
	minLook   = 50 * time.Millisecond
	lookShare = 9
	// softLook is how often a list that waits looks at what changes without a revision: why tasks wait.
	softLook = 5 * time.Second
)

// keyed is an element of a list with its place in the order.
type keyed[T any] struct {
	key  string
	item T
}

// list computes all elements of a list from a snapshot, ordered by key.
type list[T any] func(*store.Snapshot) []keyed[T]

// window is what part of a list is asked for.
type window struct {
	limit int
	after string // the key of the last element of the page before
}

func windowOf(r *http.Request) (w window, err error) {
	limit, err := number(r, "limit", 0)
	if err != nil {
		return w, err
	}
	w.limit = int(min(limit, maxLimit))
	after, err := base64.RawURLEncoding.DecodeString(r.URL.Query().Get("cursor"))
	if err != nil {
		return w, badQuery("cursor", "is not a cursor of this server: begin without one")
	}
	w.after = string(after)
	return w, nil
}

// page cuts the window out of a whole list.
func page[T any](all []keyed[T], w window, index uint64) api.Page[T] {
	from := 0
	if w.after != "" {
		from = sort.Search(len(all), func(i int) bool { return all[i].key > w.after })
	}
	p := api.Page[T]{Items: []T{}, Index: index}
	for i := from; i < len(all); i++ {
		if w.limit > 0 && len(p.Items) == w.limit {
			p.Next = base64.RawURLEncoding.EncodeToString([]byte(all[i-1].key))
			break
		}
		p.Items = append(p.Items, all[i].item)
	}
	return p
}

// serveList answers a list: at once, once it has changed (?index=&wait=), or as a stream.
func serveList[T any](s *Server, w http.ResponseWriter, r *http.Request, compute list[T]) error {
	win, err := windowOf(r)
	if err != nil {
		return err
	}
	index, err := number(r, "index", 0)
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
	if wantsStream(r) {
		return streamList(s, w, r, compute)
	}
	wait = min(wait, maxWait)
	until := time.Now().Add(wait)
	if index > 0 && wait > 0 {
		if snap, err = s.reached(r.Context(), index, wait); err != nil {
			return err
		}
	}
	look := func(snap *store.Snapshot) (api.Page[T], uint64, error) {
		p := page(compute(snap), win, snap.Revision())
		body, err := json.Marshal(lasting(p.Items))
		return p, maphash.Bytes(s.sights.seed, append(body, p.Next...)), err
	}
	p, hash, err := look(snap)
	if err != nil {
		return fmt.Errorf("encode list: %w", err)
	}
	name := sightName(r)
	if index > 0 && wait > 0 && s.sights.same(name, hash, index, p.Index) {
		p, hash, err = awaitChange(r.Context(), s, time.Until(until), blocked[T]{p, hash, look})
		if err != nil {
			return err
		}
	}
	s.sights.note(name, hash, p.Index)
	return answer(w, http.StatusOK, p)
}

// blocked is a list that waits for a change.
type blocked[T any] struct {
	page api.Page[T]
	hash uint64
	look func(*store.Snapshot) (api.Page[T], uint64, error)
}

// awaitChange looks at a list until it differs or the time is over.
func awaitChange[T any](ctx context.Context, s *Server, wait time.Duration, b blocked[T]) (api.Page[T], uint64, error) {
	over := time.NewTimer(wait)
	defer over.Stop()
	for {
		select {
		case <-ctx.Done():
			return b.page, b.hash, ctx.Err()
		case <-over.C:
			return b.page, b.hash, nil
		case <-time.After(s.softWait):
		case <-s.cfg.Tables.Changed(b.page.Index):
		}
		began := time.Now()
		p, hash, err := b.look(s.cfg.Tables.Snapshot())
		if err != nil || hash != b.hash {
			return p, hash, err
		}
		b.page = p
		pause := max(minLook, lookShare*time.Since(began))
		select {
		case <-ctx.Done():
			return b.page, b.hash, ctx.Err()
		case <-over.C:
			return b.page, b.hash, nil
		case <-time.After(pause):
		}
	}
}

// sights remembers for lists that were answered between which revisions they did not change. So a list that waits
// since an index sleeps through what changed elsewhere, also between two requests. What is forgotten
// costs an answer that says nothing new.
type sights struct {
	seed maphash.Seed
	mu   sync.Mutex
	seen map[string]sight
}

// sight is a list's content, as a hash, with the revisions at which it was first and last seen.
type sight struct{ hash, from, to uint64 }

// maxSights bounds the memory.
const maxSights = 4096

// same reports whether the content at revision now is known to be what it was at revision then.
func (s *sights) same(name string, hash, then, now uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen, ok := s.seen[name]
	if ok && seen.from <= then && then <= seen.to {
		return seen.hash == hash // also at one revision: why tasks wait changes without
	}
	return then >= now
}

func (s *sights) note(name string, hash, revision uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen, ok := s.seen[name]
	switch {
	case ok && seen.hash == hash:
		seen.from, seen.to = min(seen.from, revision), max(seen.to, revision)
	case ok && revision < seen.to:
		return
	default:
		seen = sight{hash, revision, revision}
	}
	if s.seen == nil || len(s.seen) >= maxSights && !ok {
		s.seen = map[string]sight{}
	}
	s.seen[name] = seen
}

// sightName names a list by all that its content depends on.
func sightName(r *http.Request) string {
	q := r.URL.Query()
	for _, name := range []string{"index", "wait", "consistent"} {
		q.Del(name)
	}
	return r.URL.Path + "?" + q.Encode() + "#" + callerOf(r.Context()).scope()
}
