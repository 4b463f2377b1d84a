// Package rendition keeps lists up to date for clients that wait for changes, and computes each list once for all of
// them.
//
// A view is a list with its address, its filter and the scope of the caller. A rendition is the content of a view at a
// revision of the tables: its elements in the order of their keys, each encoded once. A view lives while clients wait
// for it, and one pause longer for clients that reconnect.
//
// One follower of the tables wakes views by the topics that their lists read, and only for changes that may touch them.
// A view computes only the changed parts of its list if its source can name them. The pace of all views together is
// bounded (Pace): after a quiet time a change is sent immediately, and further changes are collected.
//
// A rendition never changes. A slow reader holds the rendition that it was sent, and blocks no other reader.
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

// Item is an element of a list. Its key gives the order, and is unique in the list.
type Item[T any] struct {
	Key   string
	Value T
}

// Source computes a list. One goroutine at a time calls its functions.
type Source[T any] struct {
	// List is the name of the list in metrics.
	List string
	// Topics are the changes of the tables that the list depends on. A list without topics, of records without a topic,
	// is computed again when a follower of all topics wakes.
	Topics store.Topic
	// Touches reports whether changes of these topics may be in the list; changes of another cluster may not. Nil means
	// a function that returns true. Several goroutines call it for each change, so it must be quick.
	Touches func(*store.Changes) bool
	// All computes the whole list.
	All func(*store.Snapshot) []Item[T]
	// Page computes the elements of a window, and at least one more if others follow. Nil means All.
	Page func(*store.Snapshot, Window) []Item[T]
	// Some computes the effect of changes between two snapshots: all elements of each part that may differ, by the name
	// of the part. A part without elements is removed. Whole requests the computation of the whole list. Nil means a
	// function that returns whole.
	Some func(before, now *store.Snapshot, c *store.Changes) (parts map[string][]Item[T], whole bool)
	// Part returns the part of the list that holds an element; nil if Some never returns parts.
	Part func(*Item[T]) string
	// Lasting returns an element without the fields that change all the time and wake no client; nil if all fields
	// count.
	Lasting func(T) T
}

// Element is an element of a rendition.
type Element[T any] struct {
	Item[T]

	mark uint64 // of the key and the lasting fields
	body atomic.Pointer[[]byte]
}

// JSON returns the encoded element. It is encoded once.
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

// Marker computes marks: hashes of contents. Only marks of one Marker can be compared.
type Marker struct{ seed maphash.Seed }

// NewMarker returns a marker with a random seed.
func NewMarker() Marker { return Marker{maphash.MakeSeed()} }

// Mark returns the mark of an element: of its key and its encoded lasting fields.
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

// Text returns the mark of a text beside the elements, such as the cursor of a page; 0 for an empty text.
func (m Marker) Text(text string) uint64 {
	if text == "" {
		return 0
	}
	return maphash.String(m.seed, text)
}

// Rendition is the content of a view at a revision. It is safe for concurrent use.
type Rendition[T any] struct {
	elements []*Element[T]
	// Sum is the sum of the marks of all elements. Lists with different sums differ.
	Sum  uint64
	link *link[T]

	mu    sync.Mutex
	pages map[Window]page
}

// link is the step from one rendition to the next. Renditions with equal lasting fields share a link.
type link[T any] struct {
	number   uint64
	revision uint64
	put      []*Element[T]
	gone     []string
	next     chan struct{} // closed once a rendition differs

	once  sync.Once
	frame []byte
	err   error
}

// Next returns a channel that is closed once the view differs from the rendition.
func (r *Rendition[T]) Next() <-chan struct{} { return r.link.next }

// Elements returns all elements in the order of their keys. Callers must not change the list.
func (r *Rendition[T]) Elements() []*Element[T] { return r.elements }

// Events writes events of a stream. It appends each to a buffer.
type Events struct {
	Put    func(to, body []byte) []byte
	Remove func(to []byte, key string) []byte
	Synced func(to []byte, revision uint64) []byte
}

// Update returns the events that lead from an earlier rendition of the view to this one. Readers that hold the previous
// rendition share the bytes, which callers must not change. For other readers the events are computed.
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

// compare returns the new or changed elements of the later of two lists, and the keys of removed ones.
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

// Window selects part of a list.
type Window struct {
	Limit int    // 0 for all
	After string // the key of the last element of the previous page
}

// Cut returns the bounds of the window in a list of the given length with ascending keys. More says that other elements
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

// page is an encoded window of a rendition.
type page struct {
	body []byte // {"items":[…]
	mark uint64
	next string
}

// maxPages bounds how many windows a rendition keeps encoded.
const maxPages = 8

// Page returns a window of the rendition as a JSON object without its end, `{"items":[…]`, the mark of its content, and
// the cursor of the next page, empty on the last page. The bytes are shared: callers must not change them.
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

// End returns the end of the JSON object of a page: the revision of the read, and the cursor of the next page.
func End(revision uint64, next string) []byte {
	end := strconv.AppendUint([]byte(`,"index":`), revision, 10)
	if next != "" {
		end = append(end, `,"next":`...)
		end = strconv.AppendQuote(end, next) // a cursor is base64
	}
	return append(end, "}\n"...)
}

// find returns the position of a key in a list, or the position where it belongs.
func find[T any](all []*Element[T], key string) (at int, found bool) {
	return sort.Find(len(all), func(i int) int { return strings.Compare(key, all[i].Key) })
}
