package rendition

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// Tables are the source of views; store.Tables is one.
type Tables interface {
	// Snapshot returns the present state, without waiting.
	Snapshot() *store.Snapshot
	// WaitFor returns once the tables and all followers have reached the revision.
	WaitFor(ctx context.Context, revision uint64) (*store.Snapshot, error)
	// Follow returns a follower of the topics, of all topics without arguments.
	Follow(topics ...store.Topic) *store.Follower
}

// Config is what NewPool needs.
type Config struct {
	Tables Tables
	Marker Marker
	// Seen is called with the sum of a view at a revision. Computed is called for each computation of a list, whole or
	// of parts. Both may be nil, and are called by several goroutines.
	Seen     func(view string, sum, revision uint64)
	Computed func(list string, whole bool)
}

// Pool holds the views that clients wait for. It is safe for concurrent use.
type Pool struct {
	cfg Config
	// Changes is the pace of computing changes, and Whole the pace of computing whole lists. They may be set before the
	// first Join.
	Changes, Whole Pace

	mu       sync.Mutex
	views    map[string]pooledView
	follower *store.Follower // of all views with topics; nil without views
	stop     chan struct{}   // ends the goroutine that reads the follower
	closed   chan struct{}
	shut     bool
	ended    sync.WaitGroup
}

// pooledView is a view of any type.
type pooledView interface {
	wake(c *store.Changes, topics store.Topic)
}

// NewPool returns a pool without views.
func NewPool(cfg Config) *Pool {
	return &Pool{
		cfg: cfg, views: map[string]pooledView{}, closed: make(chan struct{}),
		Changes: Pace{Share: changeShare, Least: minPause, Most: maxPause},
		Whole:   Pace{Share: wholeShare, Least: minWholePause, Most: maxWholePause},
	}
}

// Views returns how many views the pool holds.
func (p *Pool) Views() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.views)
}

// Close ends the views without waiting clients immediately, without their pause, and waits for them. Other views end
// when their last client leaves.
func (p *Pool) Close() {
	p.mu.Lock()
	if !p.shut {
		p.shut = true
		close(p.closed)
	}
	p.mu.Unlock()
	p.ended.Wait()
}

// View is a list that clients wait for. It is safe for concurrent use.
type View[T any] struct {
	pool    *Pool
	name    string
	source  Source[T]
	specs   *store.Follower // of a view without topics, else nil
	woken   chan struct{}
	demand  chan struct{}
	idle    chan struct{}
	waiters int              // guarded by pool.mu
	untaken []*store.Changes // guarded by pool.mu; shared with other views

	mu       sync.Mutex
	current  *Rendition[T]
	revision uint64 // up to which current is valid
	err      error  // of the last computation
	begun    uint64 // number of computations that have begun
	done     uint64
	come     chan struct{} // closed after each computation

	// The fields below belong to the goroutine of run.
	before *store.Snapshot
	parts  map[string][]string // the keys of each part
	carry  *store.Changes      // changes that may be newer than the snapshot
}

// Join returns the view of a name for one more waiting client. All callers with one name share one view, so the name
// must contain all that the list depends on, above all the caller's scope. The source is used only for a new view. The
// caller calls Leave once.
func Join[T any](p *Pool, name string, source Source[T]) *View[T] {
	p.mu.Lock()
	defer p.mu.Unlock()
	if v, ok := p.views[name].(*View[T]); ok {
		v.waiters++
		return v
	}
	v := &View[T]{
		pool: p, name: name, source: source, waiters: 1,
		woken: make(chan struct{}, 1), demand: make(chan struct{}, 1), idle: make(chan struct{}, 1),
		come: make(chan struct{}),
	}
	if source.Topics == 0 {
		v.specs = p.cfg.Tables.Follow()
	}
	p.follow()
	p.views[name] = v
	p.ended.Go(v.run)
	return v
}

// follow starts to collect changes unless it has started. The caller holds p.mu.
func (p *Pool) follow() {
	if p.follower != nil {
		return
	}
	f, stop := p.cfg.Tables.Follow(), make(chan struct{})
	f.Take() // the first result reports everything as changed
	p.follower, p.stop = f, stop
	p.ended.Go(func() {
		defer f.Close()
		for {
			select {
			case <-stop:
				return
			case <-f.Wake():
				p.collect()
			}
		}
	})
}

// collect gives the views the changes since its last call.
func (p *Pool) collect() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.follower == nil {
		return
	}
	c := p.follower.Take()
	topics := topicsOf(&c)
	if topics == 0 && !c.Resync {
		return
	}
	for _, v := range p.views { // order-free: each on its own
		v.wake(&c, topics)
	}
}

// wake records changes and wakes the view if they may touch its list. The caller holds pool.mu.
func (v *View[T]) wake(c *store.Changes, topics store.Topic) {
	touches := topics&v.source.Topics != 0 && (v.source.Touches == nil || v.source.Touches(c))
	if v.specs == nil && (c.Resync || touches) {
		v.untaken = append(v.untaken, c)
		signal(v.woken)
	}
}

// take returns the changes since its last call.
func (v *View[T]) take() store.Changes {
	if v.specs != nil {
		return v.specs.Take()
	}
	v.pool.collect()
	v.pool.mu.Lock()
	taken := v.untaken
	v.untaken = nil
	v.pool.mu.Unlock()
	if len(taken) == 1 {
		return *taken[0]
	}
	c := store.Changes{
		Owners: map[cluster.OwnerRef]bool{}, Nodes: map[string]bool{}, Attempts: map[store.AttemptKey]bool{},
		Definitions: map[cluster.Ref]bool{},
	}
	for _, before := range taken {
		mergeChanges(&c, before)
	}
	return c
}

// Leave ends the wait of a caller of Join.
func (v *View[T]) Leave() {
	v.pool.mu.Lock()
	defer v.pool.mu.Unlock()
	v.waiters--
	if v.waiters == 0 {
		signal(v.idle)
	}
}

// Current returns the newest rendition, and the revision up to which it is valid.
func (v *View[T]) Current() (*Rendition[T], uint64, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.current, v.revision, v.err
}

// At returns a rendition that is not older than a revision of the tables. It computes one immediately if necessary.
func (v *View[T]) At(ctx context.Context, revision uint64) (*Rendition[T], uint64, error) {
	v.mu.Lock()
	begun := v.begun
	for {
		// A computation that began after the call has seen the revision, or the store went back behind it.
		if v.current != nil && v.revision >= revision || v.done > begun {
			defer v.mu.Unlock()
			return v.current, v.revision, v.err
		}
		come := v.come
		v.mu.Unlock()
		signal(v.demand)
		select {
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		case <-come:
		}
		v.mu.Lock()
	}
}

// run keeps the view up to date while clients wait for it.
func (v *View[T]) run() {
	changes, whole := v.pool.Changes.Open(), v.pool.Whole.Open()
	defer changes.Close()
	defer whole.Close()
	woken := (<-chan struct{})(v.woken)
	if v.specs != nil {
		defer v.specs.Close()
		woken = v.specs.Specs()
	}
	wholeTimer := time.NewTimer(0)
	defer wholeTimer.Stop()
	last := time.Now()
	for all, wasWoken := true, false; ; {
		began := time.Now()
		computed, again := v.update(all)
		switch cost := time.Since(began); {
		case all:
			whole.Spend(cost)
			last = time.Now()
			wholeTimer.Reset(v.pool.Whole.Pause())
		case computed:
			changes.Spend(cost + v.sending())
		default:
			changes.Spend(cost)
		}
		// Changes that turn out to be irrelevant cost time, too.
		rest := computed || wasWoken
		all, wasWoken = false, false
		switch {
		case rest && v.pause():
			continue
		case v.drop():
			return
		case again:
			continue
		}
		select {
		case <-v.idle:
			if v.drop() {
				return
			}
		case <-woken:
			wasWoken = true
		case <-v.demand:
		case <-wholeTimer.C:
			// New views slow the pace of all views.
			if early := v.pool.Whole.Pause() - time.Since(last); early > 0 {
				wholeTimer.Reset(early)
				continue
			}
			all = true
		}
	}
}

// Sending returns about the cost of sending a change to that many readers.
func (p *Pool) Sending(readers int) time.Duration { return time.Duration(readers) * sendCost }

// sending returns about the cost of sending a change to all waiting clients.
func (v *View[T]) sending() time.Duration {
	v.pool.mu.Lock()
	defer v.pool.mu.Unlock()
	return v.pool.Sending(v.waiters)
}

// pause waits until the next computation is due. It reports whether a client demanded one earlier.
func (v *View[T]) pause() (demanded bool) {
	rest := time.NewTimer(v.pool.Changes.Pause())
	defer rest.Stop()
	select {
	case <-rest.C:
		return false
	case <-v.pool.closed:
		return false
	case <-v.demand:
		return true
	}
}

// drop removes the view from the pool if no client waits for it.
func (v *View[T]) drop() bool {
	v.pool.mu.Lock()
	defer v.pool.mu.Unlock()
	if v.waiters > 0 {
		return false
	}
	delete(v.pool.views, v.name)
	if len(v.pool.views) == 0 {
		close(v.pool.stop)
		v.pool.follower, v.pool.stop = nil, nil
	}
	return true
}

// update brings the view to the present snapshot. Computed says that there were changes, and again that more may have
// arrived meanwhile.
func (v *View[T]) update(all bool) (computed, again bool) {
	v.mu.Lock()
	v.begun++
	begun, current := v.begun, v.current
	v.mu.Unlock()
	now := v.settled()
	c := v.take()
	if v.carry != nil {
		newer := c
		c = *v.carry // its maps belong to the view
		mergeChanges(&c, &newer)
		v.carry = nil
	}
	// The changes may be of a later snapshot: the next update needs them again.
	if again = v.pool.cfg.Tables.Snapshot() != now; again {
		v.carry = cloneChanges(&c)
	}
	next, computed, err := v.compute(current, now, &c, all || current == nil)
	if err != nil { // the next update needs the changes again
		v.carry = cloneChanges(&c)
		v.carry.Resync = true
	}
	v.mu.Lock()
	if err == nil {
		v.current, v.revision, v.before = next, now.Revision(), now
	}
	v.err, v.done = err, begun
	close(v.come)
	v.come = make(chan struct{})
	v.mu.Unlock()
	if err == nil && v.pool.cfg.Seen != nil {
		v.pool.cfg.Seen(v.name, next.Sum, now.Revision())
	}
	if err == nil && current != nil && next.link != current.link {
		close(current.link.next)
	}
	return computed, again
}

// settledLimit is how long followers may take to reach a snapshot, unless the store went back.
const settledLimit = time.Second

// settled returns a snapshot that the follower has reached.
func (v *View[T]) settled() *store.Snapshot {
	for {
		now := v.pool.cfg.Tables.Snapshot()
		ctx, cancel := context.WithTimeout(context.Background(), settledLimit)
		_, err := v.pool.cfg.Tables.WaitFor(ctx, now.Revision())
		cancel()
		if err == nil {
			return now
		}
	}
}

// compute returns the next rendition.
func (v *View[T]) compute(current *Rendition[T], now *store.Snapshot, c *store.Changes, all bool) (next *Rendition[T],
	computed bool, err error,
) {
	var parts map[string][]Item[T]
	switch {
	case all || c.Resync || v.specs != nil:
		all = true
	case topicsOf(c) == 0:
		return current, false, nil
	case v.source.Some == nil:
		all = true
	default:
		parts, all = v.source.Some(v.before, now, c)
	}
	for part, items := range parts { // order-free: each on its own
		if len(items)+len(v.parts[part]) == 0 {
			delete(parts, part)
		}
	}
	if !all && len(parts) == 0 {
		return current, false, nil
	}
	if v.pool.cfg.Computed != nil {
		v.pool.cfg.Computed(v.source.List, all)
	}
	if all {
		next, err = v.whole(current, now)
	} else {
		next, err = v.partly(current, parts)
	}
	if err != nil {
		return nil, true, err
	}
	return v.linked(current, next, now.Revision()), true, nil
}

// whole computes the whole list. It keeps equal elements with their encoding.
func (v *View[T]) whole(current *Rendition[T], now *store.Snapshot) (*Rendition[T], error) {
	items := v.source.All(now)
	byKey := func(a, b Item[T]) int { return strings.Compare(a.Key, b.Key) }
	if !slices.IsSortedFunc(items, byKey) {
		slices.SortStableFunc(items, byKey)
	}
	items = slices.CompactFunc(items, func(a, b Item[T]) bool { return a.Key == b.Key })
	next := &Rendition[T]{elements: make([]*Element[T], 0, len(items))}
	if v.source.Part != nil {
		v.parts = make(map[string][]string, len(items))
	}
	for i := range items {
		e, err := v.element(current, &items[i])
		if err != nil {
			return nil, err
		}
		next.elements = append(next.elements, e)
		next.Sum += e.mark
		if v.source.Part != nil {
			part := v.source.Part(&items[i])
			v.parts[part] = append(v.parts[part], e.Key)
		}
	}
	return next, nil
}

// partly computes the list with some parts replaced.
func (v *View[T]) partly(current *Rendition[T], parts map[string][]Item[T]) (*Rendition[T], error) {
	edits := map[string]*Element[T]{} // nil for removed elements
	for part := range parts {         // order-free: a map is filled
		for _, key := range v.parts[part] {
			edits[key] = nil
		}
	}
	for part, items := range parts { // order-free: keys are unique
		delete(v.parts, part)
		for i := range items {
			e, err := v.element(current, &items[i])
			if err != nil {
				return nil, err
			}
			edits[e.Key] = e
			v.parts[part] = append(v.parts[part], e.Key)
		}
	}
	keys := make([]string, 0, len(edits))
	for key := range edits { // order-free: sorted below
		keys = append(keys, key)
	}
	slices.Sort(keys)
	next := &Rendition[T]{elements: make([]*Element[T], 0, len(current.elements)+len(keys)), Sum: current.Sum}
	rest := current.elements
	for _, key := range keys {
		at, found := find(rest, key)
		next.elements = append(next.elements, rest[:at]...)
		if found {
			next.Sum -= rest[at].mark
			at++
		}
		rest = rest[at:]
		if e := edits[key]; e != nil {
			next.elements = append(next.elements, e)
			next.Sum += e.mark
		}
	}
	next.elements = append(next.elements, rest...)
	return next, nil
}

// element returns the element of an item: the current one if nothing of it changed.
func (v *View[T]) element(current *Rendition[T], item *Item[T]) (*Element[T], error) {
	mark, err := Mark(v.pool.cfg.Marker, item, v.source.Lasting)
	if err != nil {
		return nil, err
	}
	if current != nil && v.source.Lasting == nil {
		if at, found := find(current.elements, item.Key); found && current.elements[at].mark == mark {
			return current.elements[at], nil
		}
	}
	return &Element[T]{Item: *item, mark: mark}, nil
}

// linked sets the link of a rendition: the current one if no lasting field differs.
func (v *View[T]) linked(current, next *Rendition[T], revision uint64) *Rendition[T] {
	l := &link[T]{revision: revision, next: make(chan struct{})}
	if current != nil {
		l.number = current.link.number + 1
		l.put, l.gone = compare(current.elements, next.elements)
		if len(l.put)+len(l.gone) == 0 {
			l = current.link
		}
	}
	next.link = l
	return next
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
