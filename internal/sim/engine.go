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
	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/store"
)

// engineLink is a server's connection to the engine. Its calls pass the network and a disk that may be slow, full or
// lose writes.
type engineLink struct {
	fleet  *fleet
	server *server
	store.Engine
}

// waitPassable waits while the link to the engine is cut or the server is paused, and returns the context to continue
// with. A paused process does not notice the end of its context. It may send a pending message when it continues.
func (l *engineLink) waitPassable(ctx context.Context, from, to string) (context.Context, error) {
	if l.server.paused.Load() {
		if err := l.fleet.net.waitOpen(l.server.ctx, from, to, 0); err != nil {
			return ctx, err
		}
		d := l.fleet.random.roll(l.server.id + ":woke")
		if d.below(2) == 0 {
			return l.server.ctx, nil
		}
	}
	return ctx, l.fleet.net.waitOpen(ctx, from, to, 0)
}

// Commit is part of store.Engine.
func (l *engineLink) Commit(ctx context.Context, groups []store.Group) (store.Result, error) {
	me := l.server.id
	ctx, err := l.waitPassable(ctx, me, "db")
	if err != nil {
		return store.Result{}, err
	}
	groups = l.nameEvents(groups)
	d := l.fleet.random.roll(me+">db", keysOf(groups))
	if pause.For(ctx, time.Millisecond+d.span(2*time.Millisecond)) != nil {
		return store.Result{}, ctx.Err()
	}
	disk := l.fleet.disk.decideCommit(me, groups, &d)
	if disk.delay > 0 && pause.For(ctx, disk.delay) != nil {
		return store.Result{}, fmt.Errorf("the disk is slow: %w", store.ErrUnknown)
	}
	switch {
	case disk.lost:
		return store.Result{}, fmt.Errorf("lost on its way: %w", store.ErrUnknown)
	case disk.late > 0:
		l.fleet.background.Go(func() {
			time.Sleep(disk.late) // in-bubble: every fleet is in one
			result, err := l.Engine.Commit(l.fleet.ctx, groups)
			l.fleet.checker.leadership.checkCommit(me, groups, result, err)
		})
		return store.Result{}, fmt.Errorf("late: %w", store.ErrUnknown)
	}
	if ctx, err = l.waitPassable(ctx, me, "db"); err != nil { // paused in between
		return store.Result{}, err
	}
	if l.crashAtCommit(crashBefore, groups) {
		return store.Result{}, fmt.Errorf("killed: %w", store.ErrUnknown)
	}
	result, err := l.Engine.Commit(ctx, groups)
	l.fleet.checker.leadership.checkCommit(me, groups, result, err)
	if err != nil {
		return result, err
	}
	if l.crashAtCommit(crashAfter, groups) {
		return store.Result{}, fmt.Errorf("killed: %w", store.ErrUnknown)
	}
	if _, err := l.waitPassable(ctx, "db", me); err != nil {
		return store.Result{}, fmt.Errorf("the answer is lost: %w", store.ErrUnknown)
	}
	if disk.ackLost {
		return store.Result{}, fmt.Errorf("the acknowledgement is lost: %w", store.ErrUnknown)
	}
	return result, nil
}

// keysOf identifies a commit by the keys that it writes.
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

// nameEvents gives the events of a commit ids that follow from their content and time. The ids of Berth are random.
func (l *engineLink) nameEvents(groups []store.Group) []store.Group {
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
			encoded, err := store.Encode(batch)
			if err != nil {
				panic(err) // a fault of the simulator
			}
			batch.ID = identity(hashed(l.fleet.story.Seed+uint64(time.Since(l.fleet.began)),
				l.server.id+keysOf(groups[i:i+1])+string(encoded)))
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
func (l *engineLink) Read(ctx context.Context, key string) (store.Record, error) {
	if err := l.roundTrip(ctx); err != nil {
		return store.Record{}, err
	}
	return l.Engine.Read(ctx, key)
}

// List is part of store.Engine.
func (l *engineLink) List(ctx context.Context, prefix string) (store.Listing, error) {
	if err := l.roundTrip(ctx); err != nil {
		return store.Listing{}, err
	}
	return l.Engine.List(ctx, prefix)
}

// Revision is part of store.Engine.
func (l *engineLink) Revision(ctx context.Context, prefix string) (uint64, error) {
	if err := l.roundTrip(ctx); err != nil {
		return 0, err
	}
	return l.Engine.Revision(ctx, prefix)
}

// Snapshot is part of store.Engine.
func (l *engineLink) Snapshot(ctx context.Context, prefix string, to io.Writer) error {
	if err := l.roundTrip(ctx); err != nil {
		return err
	}
	return l.Engine.Snapshot(ctx, prefix, to)
}

func (l *engineLink) roundTrip(ctx context.Context) error {
	ctx, err := l.waitPassable(ctx, l.server.id, "db")
	if err != nil {
		return err
	}
	_, err = l.waitPassable(ctx, "db", l.server.id)
	return err
}

// Watch is part of store.Engine.
func (l *engineLink) Watch(ctx context.Context, prefix string, after uint64) store.Watch {
	return &stream{link: l, Watch: l.Engine.Watch(ctx, prefix, after)}
}

// stream is a watch whose batches pass the network and may arrive late.
type stream struct {
	store.Watch
	link *engineLink
	last []store.Op // changes of the last batch, while crash points are set
}

// Next is part of store.Watch.
func (s *stream) Next(ctx context.Context) (store.Batch, error) {
	l := s.link
	if s.crashOnceSeen() {
		return store.Batch{}, ctx.Err()
	}
	b, err := s.Watch.Next(ctx)
	if err != nil {
		return b, err
	}
	d := l.fleet.random.roll("db>" + l.server.id)
	if pause.For(ctx, d.span(2*time.Millisecond)+l.fleet.disk.lag(l.server.id)) != nil {
		return store.Batch{}, ctx.Err()
	}
	if _, err := l.waitPassable(ctx, "db", l.server.id); err != nil {
		return store.Batch{}, err
	}
	s.rememberBatch(&b)
	return b, nil
}

// disk holds the faults of commits, by server ("s1") or for all ("db").
type disk struct {
	began time.Time
	// latency is the longest time that a commit without a fault takes, beyond that of the network. It is fixed.
	latency time.Duration

	mu          sync.Mutex
	slow        map[string]time.Duration
	lags        map[string]time.Duration
	stall       int
	lates       map[string]int
	lostAcks    map[string]int
	rules       []rule
	crashPoints []*crashPoint
}

// rule delays the next commits of a server that write a key of a noun: their result is unknown, and they are written
// later.
type rule struct {
	server, noun string
	late         time.Duration
	left         int
}

func newDisk(began time.Time) *disk {
	return &disk{
		began: began, slow: map[string]time.Duration{}, lags: map[string]time.Duration{},
		lates: map[string]int{}, lostAcks: map[string]int{},
	}
}

func (k *disk) endFaults() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stall = 0
	clear(k.slow)
	clear(k.lags)
	clear(k.lates)
	clear(k.lostAcks)
	k.rules, k.crashPoints = nil, nil
}

// set changes one of the fields.
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

// commitFault is the fault of one commit.
type commitFault struct {
	delay         time.Duration
	lost, ackLost bool
	late          time.Duration
}

func (k *disk) decideCommit(server string, groups []store.Group, d *dice) commitFault {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range k.rules {
		if r := &k.rules[i]; r.left > 0 && r.server == server && writes(groups, string(prefix)+r.noun+"/") {
			r.left--
			return commitFault{late: r.late}
		}
	}
	w := commitFault{delay: d.span(max(k.slow[server], k.slow["db"])) + d.span(k.latency)}
	if k.stall > 0 {
		if phase := time.Since(k.began) % (3 * time.Second); phase > time.Second {
			w.delay += 3*time.Second - phase
		}
	}
	if k.lates[server] > 0 || k.lates["db"] > 0 {
		switch d.below(12) {
		case 0:
			w.lost = true
		case 1, 2:
			w.late = time.Millisecond + d.span(8*time.Second)
		}
	}
	if k.lostAcks[server] > 0 || k.lostAcks["db"] > 0 {
		w.ackLost = d.below(6) == 0
	}
	return w
}
