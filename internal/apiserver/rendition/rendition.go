// Package rendition keeps lists up to date for those who wait for their changes, and computes each of them once for
// all.
//
// A view is a list by what it shows and to whom: the same address, the same filter, the same scope of the caller. A
// rendition is a view as it is at a revision of the tables: its elements in the order of their keys, each encoded once.
// A view lives while somebody waits for it, and a pause longer, so that a client that comes back finds it. One follower
// of the tables wakes views by the topics that their lists read, and only by changes that may be theirs; a view
// computes only the parts of its list that changed, where its source can tell these. The pace of all views together is
// bounded (Pace): after a quiet time a change is computed and sent at once, and what follows is gathered.
//
// A rendition never changes: a slow reader holds the one that it has been sent, and blocks nobody.
package rendition

import (
	"encoding/json"
	"fmt"
	"hash/maphash"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/berthd/berth/internal/store"
)

// Item is an element of a list with its place in the order. Keys are unique in a list.
type Item[T any] struct {
	Key   string
	Value T
}

// Source says how a list is computed. Its functions are called by one goroutine at a time.
type Source[T any] struct {
	// List is what the list is called in metrics.
	List string
	// Topics are the changes of the tables that the list depends on. Without topics the list is computed again when
	// somebody's wish changed: that is for lists of records that have no topic.
	Topics store.Topic
	// Touches reports whether changes of these topics may be of the list: those of another cluster may not. Nil stands
	// for a function that always says so. It is called at each change, by several goroutines, and is quick.
	Touches func(*store.Changes) bool
	// All computes the whole list.
	All func(*store.Snapshot) []Item[T]
	// Some computes what changes of the tables, between two snapshots, did to the list: all elements of each part that
	// may be different, by the name of the part. A part without elements is gone. Whole says that the list is to be
	// computed anew. Nil stands for a function that always says so.
	Some func(before, now *store.Snapshot, c *store.Changes) (parts map[string][]Item[T], whole bool)
	// Part returns which part of the list an element is in; nil where Some is nil, or says nothing but whole.
	Part func(*Item[T]) string
	// Lasting returns an element without what changes all the time and wakes nobody; nil where all of it counts.
	Lasting func(T) T
}

// Element is an element of a rendition.
type Element[T any] struct {
	Item[T]

	mark uint64 // of the key and of what lasts
	body atomic.Pointer[[]byte]
}

// JSON returns the element encoded. It is encoded once, for all.
func (e *Element[T]) JSON() ([]byte, error) {
	if body := e.body.Load(); body != nil {
		return *body, nil
	}
	body, err := json.Marshal(e.Value)
	if err != nil {
		return nil, fmt.Errorf("encode list: %w", err)
	}
	e.body.Store(&body)
	return body, nil
}

// Marker computes marks: numbers that differ where contents do. Marks of one Marker can be compared.
type Marker struct{ seed maphash.Seed }

// NewMarker returns a marker with a seed of its own.
func NewMarker() Marker { return Marker{maphash.MakeSeed()} }

// Mark returns the mark of an element of a list: of its key and of what of it lasts, encoded.
func Mark[T any](m Marker, item *Item[T], lasting func(T) T) (uint64, error) {
	v := item.Value
	if lasting != nil {
		v = lasting(v)
	}
	body, err := json.Marshal(v)
	if err != nil {
		return 0, fmt.Errorf("encode list: %w", err)
	}
	var h maphash.Hash
	h.SetSeed(m.seed)
	_, _ = h.WriteString(item.Key) // never fails
	_ = h.WriteByte(0)             // nor does this
	_, _ = h.Write(body)
	return h.Sum64(), nil
}

// Text returns the mark of a text that stands beside elements, such as the cursor of a page. That of no text is 0.
func (m Marker) Text(text string) uint64 {
	if text == "" {
		return 0
	}
	return maphash.String(m.seed, text)
}

// Rendition is a view as it is at a revision. It is safe for concurrent use.
type Rendition[T any] struct {
	elements []*Element[T]
	// Sum is the sum of the marks of all elements: it differs where the lists do.
	Sum  uint64
	link *link[T]

	mu    sync.Mutex
	pages map[Window]page
}

// link is what led from one rendition to the next. Renditions that differ in nothing that lasts share one.
type link[T any] struct {
	number   uint64
	revision uint64
	put      []*Element[T]
	gone     []string
	next     chan struct{} // closed once there is a rendition that differs

	once  sync.Once
	frame []byte
	err   error
}

// Next is closed once the view differs from the rendition.
func (r *Rendition[T]) Next() <-chan struct{} { return r.link.next }

// Elements returns all elements in the order of their keys. Nobody may change the list.
func (r *Rendition[T]) Elements() []*Element[T] { return r.elements }

// Events writes events of a stream. It appends each to a buffer.
type Events struct {
	Put    func(to, body []byte) []byte
	Remove func(to []byte, key string) []byte
	Synced func(to []byte, revision uint64) []byte
}

// Update returns the events that lead from an earlier rendition of the view to this one. Whoever has the one just
// before shares the bytes, which nobody may change; for the others they are made.
func (r *Rendition[T]) Update(from *Rendition[T], e Events) ([]byte, error) {
	if r.link == from.link {
		return nil, nil
	}
	if r.link.number != from.link.number+1 {
		put, gone := compare(from.elements, r.elements)
		return frame(put, gone, r.link.revision, e)
	}
	l := r.link
	l.once.Do(func() { l.frame, l.err = frame(l.put, l.gone, l.revision, e) })
	return l.frame, l.err
}

func frame[T any](put []*Element[T], gone []string, revision uint64, e Events) (all []byte, err error) {
	for _, el := range put {
		body, err := el.JSON()
		if err != nil {
			return nil, err
		}
		all = e.Put(all, body)
	}
	for _, key := range gone {
		all = e.Remove(all, key)
	}
	return e.Synced(all, revision), nil
}

// compare returns which elements are new or different in the later of two lists, and the keys of those that are gone.
func compare[T any](before, now []*Element[T]) (put []*Element[T], gone []string) {
	i := 0
	for _, e := range now {
		for i < len(before) && before[i].Key < e.Key {
			gone = append(gone, before[i].Key)
			i++
		}
		if i < len(before) && before[i].Key == e.Key {
			if before[i].mark != e.mark {
				put = append(put, e)
			}
			i++
			continue
		}
		put = append(put, e)
	}
	for ; i < len(before); i++ {
		gone = append(gone, before[i].Key)
	}
	return put, gone
}

// Window is what part of a list is asked for.
type Window struct {
	Limit int    // 0 for all
	After string // the key of the last element of the page before
}

// Cut returns the part of a list of so many elements, whose keys ascend, that the window shows. More says that others
// follow.
func (w Window) Cut(many int, key func(int) string) (from, to int, more bool) {
	if w.After != "" {
		from = sort.Search(many, func(i int) bool { return key(i) > w.After })
	}
	to = many
	if w.Limit > 0 && many-from > w.Limit {
		to, more = from+w.Limit, true
	}
	return from, to, more
}

// page is a window of a rendition.
type page struct {
	body []byte // {"items":[…]
	mark uint64
	next string
}

// maxPages bounds how many windows a rendition keeps encoded.
const maxPages = 8

// Page returns the window of the rendition as a JSON object without its end, `{"items":[…]`, the mark of what it shows,
// and the key of its last element where others follow. The bytes are shared: nobody may change them.
func (r *Rendition[T]) Page(m Marker, w Window, cursor func(key string) string) (body []byte, mark uint64, next string,
	err error,
) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p, ok := r.pages[w]; ok {
		return p.body, p.mark, p.next, nil
	}
	p, err := r.page(m, w, cursor)
	if err != nil {
		return nil, 0, "", err
	}
	if r.pages == nil || len(r.pages) >= maxPages {
		r.pages = map[Window]page{}
	}
	r.pages[w] = p
	return p.body, p.mark, p.next, nil
}

func (r *Rendition[T]) page(m Marker, w Window, cursor func(key string) string) (p page, err error) {
	from, to, more := w.Cut(len(r.elements), func(i int) string { return r.elements[i].Key })
	p.body = append(p.body, `{"items":[`...)
	for i, e := range r.elements[from:to] {
		body, err := e.JSON()
		if err != nil {
			return p, err
		}
		if i > 0 {
			p.body = append(p.body, ',')
		}
		p.body = append(p.body, body...)
		p.mark += e.mark
	}
	p.body = append(p.body, ']')
	if more {
		p.next = cursor(r.elements[to-1].Key)
	}
	p.mark += m.Text(p.next)
	return p, nil
}

// End returns how the JSON object of a page ends: with the revision that it was read at, and the cursor of the next
// one.
func End(revision uint64, next string) []byte {
	end := strconv.AppendUint([]byte(`,"index":`), revision, 10)
	if next != "" {
		end = append(end, `,"next":`...)
		end = strconv.AppendQuote(end, next) // of the letters of base64
	}
	return append(end, "}\n"...)
}

// find returns where a key stands in a list, or belongs.
func find[T any](all []*Element[T], key string) (at int, stands bool) {
	return sort.Find(len(all), func(i int) int { return strings.Compare(key, all[i].Key) })
}
