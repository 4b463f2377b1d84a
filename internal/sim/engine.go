package sim

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// line is a server's way to the engine: a handle whose calls pass the network and a disk that is slow, full or
// forgetful.
type line struct {
	w      *World
	server *server
	store.Engine
}

// gate waits while nothing passes to the engine or the server is paused, and returns the context to go on with. A
// paused process does not notice that its context ended: what it was about to send it may send when it goes on.
func (l *line) gate(ctx context.Context, from, to string) (context.Context, error) {
	if l.server.paused.Load() {
		if err := l.w.net.pass(l.server.ctx, from, to, 0); err != nil {
			return ctx, err
		}
		d := l.w.chance.roll(l.server.id + ":woke")
		if d.of(2) == 0 {
			return l.server.ctx, nil
		}
	}
	return ctx, l.w.net.pass(ctx, from, to, 0)
}

// Commit is part of store.Engine.
func (l *line) Commit(ctx context.Context, groups []store.Group) (store.Result, error) {
	me := l.server.id
	ctx, err := l.gate(ctx, me, "db")
	if err != nil {
		return store.Result{}, err
	}
	groups = l.named(groups)
	d := l.w.chance.roll(me+">db", keysOf(groups))
	if !sleep(ctx, time.Millisecond+d.span(2*time.Millisecond)) {
		return store.Result{}, ctx.Err()
	}
	disk := l.w.disk.fate(me, groups, &d)
	if disk.delay > 0 && !sleep(ctx, disk.delay) {
		return store.Result{}, fmt.Errorf("the disk is slow: %w", store.ErrUnknown)
	}
	switch {
	case disk.lost:
		return store.Result{}, fmt.Errorf("lost on its way: %w", store.ErrUnknown)
	case disk.late > 0:
		l.w.late.Go(func() {
			time.Sleep(disk.late) // in-bubble: every world is in one
			result, err := l.Engine.Commit(l.w.ctx, groups)
			l.w.witness.wrote(me, groups, result, err)
		})
		return store.Result{}, fmt.Errorf("late: %w", store.ErrUnknown)
	}
	if ctx, err = l.gate(ctx, me, "db"); err != nil { // paused in between
		return store.Result{}, err
	}
	if l.strike(strikeBefore, groups) {
		return store.Result{}, fmt.Errorf("killed: %w", store.ErrUnknown)
	}
	result, err := l.Engine.Commit(ctx, groups)
	l.w.witness.wrote(me, groups, result, err)
	if err != nil {
		return result, err
	}
	if l.strike(strikeAfter, groups) {
		return store.Result{}, fmt.Errorf("killed: %w", store.ErrUnknown)
	}
	if _, err := l.gate(ctx, "db", me); err != nil {
		return store.Result{}, fmt.Errorf("the answer is lost: %w", store.ErrUnknown)
	}
	if disk.deaf {
		return store.Result{}, fmt.Errorf("the acknowledgement is lost: %w", store.ErrUnknown)
	}
	return result, nil
}

// keysOf names a commit by what it writes and compares.
func keysOf(groups []store.Group) string {
	var b strings.Builder
	for i := range groups {
		for j := range groups[i].Ops {
			if key := groups[i].Ops[j].Key; !strings.HasPrefix(key, prefix.Event("")) {
				b.WriteString(key)
				b.WriteByte(' ')
			}
		}
	}
	return b.String()
}

// named gives the events of a commit ids that follow from what they tell and when: those that Berth gives are random.
func (l *line) named(groups []store.Group) []store.Group {
	groups = slices.Clone(groups)
	for i := range groups {
		for j := range groups[i].Ops {
			op := &groups[i].Ops[j]
			if op.Delete || !strings.HasPrefix(op.Key, prefix.Event("")) {
				continue
			}
			batch, err := store.Decode[cluster.EventBatch](op.Value)
			if err != nil {
				panic(err) // a fault of the simulator
			}
			batch.ID = ""
			told, err := store.Encode(batch)
			if err != nil {
				panic(err) // a fault of the simulator
			}
			batch.ID = identity(hashed(l.w.story.Seed+uint64(time.Since(l.w.began)),
				l.server.id+keysOf(groups[i:i+1])+string(told)))
			value, err := store.Encode(batch)
			if err != nil {
				panic(err) // a fault of the simulator
			}
			groups[i].Ops = slices.Clone(groups[i].Ops)
			groups[i].Ops[j].Key, groups[i].Ops[j].Value = prefix.Event(batch.ID), value
		}
	}
	return groups
}

// Read is part of store.Engine.
func (l *line) Read(ctx context.Context, key string) (store.Record, error) {
	if err := l.both(ctx); err != nil {
		return store.Record{}, err
	}
	return l.Engine.Read(ctx, key)
}

// List is part of store.Engine.
func (l *line) List(ctx context.Context, prefix string) (store.Listing, error) {
	if err := l.both(ctx); err != nil {
		return store.Listing{}, err
	}
	return l.Engine.List(ctx, prefix)
}

// OpenSession is part of store.Engine.
func (l *line) OpenSession(ctx context.Context, ttl time.Duration) (store.Session, error) {
	if err := l.both(ctx); err != nil {
		return nil, err
	}
	return l.Engine.OpenSession(ctx, ttl)
}

// Snapshot is part of store.Engine.
func (l *line) Snapshot(ctx context.Context, to io.Writer) error {
	if err := l.both(ctx); err != nil {
		return err
	}
	return l.Engine.Snapshot(ctx, to)
}

func (l *line) both(ctx context.Context) error {
	ctx, err := l.gate(ctx, l.server.id, "db")
	if err != nil {
		return err
	}
	_, err = l.gate(ctx, "db", l.server.id)
	return err
}

// Watch is part of store.Engine.
func (l *line) Watch(ctx context.Context, prefix string, after uint64) store.Watch {
	return &stream{line: l, Watch: l.Engine.Watch(ctx, prefix, after)}
}

// stream is a watch whose batches pass the network, and may come late.
type stream struct {
	store.Watch
	line *line
	last []store.Op // what the last batch brought, while anything is to happen once the tables show it
}

// Next is part of store.Watch.
func (s *stream) Next(ctx context.Context) (store.Batch, error) {
	l := s.line
	if s.sees() {
		return store.Batch{}, ctx.Err()
	}
	b, err := s.Watch.Next(ctx)
	if err != nil {
		return b, err
	}
	d := l.w.chance.roll("db>" + l.server.id)
	if !sleep(ctx, d.span(2*time.Millisecond)+l.w.disk.lag(l.server.id)) {
		return store.Batch{}, ctx.Err()
	}
	if _, err := l.gate(ctx, "db", l.server.id); err != nil {
		return store.Batch{}, err
	}
	s.keep(&b)
	return b, nil
}

// disk is what goes wrong with commits, by server ("s1") or for all ("db").
type disk struct {
	began time.Time

	mu      sync.Mutex
	slow    map[string]time.Duration
	lags    map[string]time.Duration
	stall   int
	lates   map[string]int
	deafs   map[string]int
	rules   []rule
	strikes []*strike
}

// rule makes the next commits of a server that write a key of a noun late: they are said to be unknown and written
// afterwards.
type rule struct {
	server, noun string
	late         time.Duration
	left         int
}

func newDisk(began time.Time) *disk {
	return &disk{
		began: began, slow: map[string]time.Duration{}, lags: map[string]time.Duration{},
		lates: map[string]int{}, deafs: map[string]int{},
	}
}

func (k *disk) calm() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stall = 0
	clear(k.slow)
	clear(k.lags)
	clear(k.lates)
	clear(k.deafs)
	k.rules, k.strikes = nil, nil
}

// set changes one of the maps, or the stall.
func (k *disk) set(change func(k *disk)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change(k)
}

func (k *disk) lag(server string) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lags[server]
}

// writes reports whether any of the groups writes under a prefix.
func writes(groups []store.Group, prefix string) bool {
	for i := range groups {
		for j := range groups[i].Ops {
			if strings.HasPrefix(groups[i].Ops[j].Key, prefix) {
				return true
			}
		}
	}
	return false
}

// written is what becomes of one commit.
type written struct {
	delay      time.Duration
	lost, deaf bool
	late       time.Duration
}

func (k *disk) fate(server string, groups []store.Group, d *dice) written {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range k.rules {
		if r := &k.rules[i]; r.left > 0 && r.server == server && writes(groups, string(prefix)+r.noun+"/") {
			r.left--
			return written{late: r.late}
		}
	}
	w := written{delay: d.span(max(k.slow[server], k.slow["db"]))}
	if k.stall > 0 {
		if phase := time.Since(k.began) % (3 * time.Second); phase > time.Second {
			w.delay += 3*time.Second - phase
		}
	}
	if k.lates[server] > 0 || k.lates["db"] > 0 {
		switch d.of(12) {
		case 0:
			w.lost = true
		case 1, 2:
			w.late = time.Millisecond + d.span(8*time.Second)
		}
	}
	if k.deafs[server] > 0 || k.deafs["db"] > 0 {
		w.deaf = d.of(6) == 0
	}
	return w
}
