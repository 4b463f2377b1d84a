package scheduling

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// maxRemovals is the number of removals that a feed remembers for readers that return.
	maxRemovals = 10_000
	// readersTimeout is how long a feed stays up to date after its last reader, so that a reader may return.
	readersTimeout = time.Minute
)

// Feed is the state of a domain for schedulers: lines under keys, each with the position of its last change. Readers
// get all lines, and then those that changed. A feed is of one leader's term. It is safe for concurrent use.
type Feed struct {
	epoch uint64
	clock func() time.Duration
	wake  func() // has the leader's loop bring the feed up to date

	mu       sync.Mutex
	position uint64 // of the last change; 0 before the first publication
	lines    map[string]line
	removed  map[string]line // removals by key
	floor    uint64          // the highest position of a forgotten removal
	changed  chan struct{}   // closed at the next change, and when the term ends
	ended    bool
	readers  int
	lastRead time.Duration
}

// line is the text of a line and the position at which it became so.
type line struct {
	text []byte
	at   uint64
}

// NewFeed returns the feed of the leader's term with the epoch. Clock reads the boot-time clock. Wake has the leader
// bring the feed up to date; it returns immediately.
func NewFeed(epoch uint64, clock func() time.Duration, wake func()) *Feed {
	return &Feed{
		epoch: epoch, clock: clock, wake: wake, lines: map[string]line{}, removed: map[string]line{},
		changed: make(chan struct{}),
	}
}

// Lines is what a reader gets from a feed at once.
type Lines struct {
	// Reset says that the lines are the whole state.
	Reset bool
	// Texts are lines of JSON without their line ends, ordered by key.
	Texts [][]byte
	// Revision is the revision of the state with the lines.
	Revision string
	// Changed is closed once there is more to read, or the term of the leader has ended.
	Changed <-chan struct{}
	// Ended says that the term of the leader has ended.
	Ended bool
}

// Read returns the lines that changed since a revision. If the feed does not know the revision, or has forgotten
// removals since, it returns all lines. Before the first publication there are no lines and no revision.
func (f *Feed) Read(since string) Lines {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lastRead = f.clock()
	out := Lines{Changed: f.changed, Ended: f.ended}
	if f.position == 0 {
		return out
	}
	from, known := f.positionOf(since)
	out.Reset = !known || from < f.floor
	out.Revision = f.revision()
	texts := map[string][]byte{}
	for key, l := range f.lines { // order-free: sorted below
		if out.Reset || l.at > from {
			texts[key] = l.text
		}
	}
	for key, l := range f.removed { // order-free: sorted below
		if !out.Reset && l.at > from {
			texts[key] = l.text
		}
	}
	for _, key := range slices.Sorted(maps.Keys(texts)) {
		out.Texts = append(out.Texts, texts[key])
	}
	return out
}

// Open counts a reader. The feed stays up to date until close is called, and for a while longer.
func (f *Feed) Open() (done func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.readers++
	f.wake()
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.readers--
		f.lastRead = f.clock()
	}
}

// IsRead reports whether the feed has readers, or had one a short while ago.
func (f *Feed) IsRead() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.readers > 0 || f.lastRead > 0 && f.clock()-f.lastRead < readersTimeout
}

// Next returns the position of the next publication that changes something.
func (f *Feed) Next() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.position + 1
}

// Publish sets lines and removes others, with the texts of their removals.
func (f *Feed) Publish(set, remove map[string][]byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at, changed := f.position+1, f.position == 0
	for key, text := range set { // order-free: each by itself
		if known, ok := f.lines[key]; ok && bytes.Equal(known.text, text) {
			continue
		}
		changed = true
		f.lines[key] = line{text, at}
		delete(f.removed, key)
	}
	for key, text := range remove { // order-free: each by itself
		if _, ok := f.lines[key]; !ok {
			continue
		}
		changed = true
		delete(f.lines, key)
		f.removed[key] = line{text, at}
	}
	if !changed {
		return
	}
	f.position = at
	f.forgetRemovals()
	close(f.changed)
	f.changed = make(chan struct{})
}

// forgetRemovals forgets the older half of the removals if there are too many.
func (f *Feed) forgetRemovals() {
	if len(f.removed) <= maxRemovals {
		return
	}
	byAge := slices.SortedFunc(maps.Keys(f.removed), func(a, b string) int {
		return cmp.Or(cmp.Compare(f.removed[a].at, f.removed[b].at), cmp.Compare(a, b))
	})
	for _, key := range byAge[:len(byAge)/2] {
		f.floor = max(f.floor, f.removed[key].at)
		delete(f.removed, key)
	}
}

// Clear forgets everything, as nobody reads the feed. Readers that return get the whole state.
func (f *Feed) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lines, f.removed = map[string]line{}, map[string]line{}
	f.floor = f.position + 1
	f.position++
}

// End ends the feed with the term of the leader.
func (f *Feed) End() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.ended {
		f.ended = true
		close(f.changed)
	}
}

func (f *Feed) revision() string { return fmt.Sprintf("%d-%d", f.epoch, f.position) }

// positionOf returns the position that a revision names; ok is false for one of another term or of the future.
func (f *Feed) positionOf(revision string) (position uint64, ok bool) {
	epoch, at, _ := strings.Cut(revision, "-")
	position, err := strconv.ParseUint(at, 10, 64)
	if err != nil || epoch != strconv.FormatUint(f.epoch, 10) || position > f.position {
		return 0, false
	}
	return position, true
}

// LookUp returns the position that a revision names; ok is false for one of another term or of the future.
func (f *Feed) LookUp(revision string) (position uint64, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.positionOf(revision)
}

// Keys returns the keys of all lines with a prefix, in order.
func (f *Feed) Keys(prefix string) (keys []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key := range f.lines { // order-free: sorted below
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}
