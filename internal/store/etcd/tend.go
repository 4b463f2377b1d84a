package etcd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/berthd/berth/internal/store"
)

// To give room back to the disk, a member writes its database anew, and answers nobody meanwhile. So one member does it
// at a time, and the leader last, after it gave its leadership away. Those that have to do it say so in the store: who
// holds the turn by tendTurn, which is tied to a session, and who waits for it under tendWish.
const (
	tendTurn = "berth-engine/defragment/turn"
	tendWish = "berth-engine/defragment/wish/"

	// tendEvery is the pause between two looks at the database, half of it more or less.
	tendEvery = 5 * time.Minute
	// tendSession is how long a member that died holds the turn.
	tendSession = time.Minute
	// tendLimit bounds what the turn takes of the store.
	tendLimit = 10 * time.Second
)

// Run keeps the database in order: it gives room that deleted records left back to the disk, one member at a time. It
// blocks until ctx ends, or until this member can go on no more: store.ErrRemoved after it was removed, store.ErrClosed
// after Close. Of an etcd that runs elsewhere it only waits.
func (e *Engine) Run(ctx context.Context) error {
	timer := time.NewTimer(jitter(tendEvery))
	defer timer.Stop()
	alarm := time.NewTicker(relief)
	defer alarm.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-e.life.Done():
			return context.Cause(e.life)
		case <-alarm.C:
			e.relieve(ctx)
			continue
		case <-timer.C:
		}
		if err := e.tend(ctx); err != nil && e.enter(ctx) == nil {
			e.config.Log.Warn("the store's database was not defragmented", "error", err)
		}
		timer.Reset(jitter(tendEvery))
	}
}

func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d)
}

// tend defragments this member's database, if that is due and this member's turn.
func (e *Engine) tend(ctx context.Context) error {
	if e.server == nil {
		return nil
	}
	if e.relieve(ctx) {
		return nil // nothing can be written, a turn neither
	}
	file := e.server.Server.Backend()
	size, empty := file.Size(), file.Size()-file.SizeInUse()
	if empty < e.config.Slack || empty < size/2 {
		return nil
	}
	turn, err := e.takeTurn(ctx)
	if err != nil || turn == nil {
		return err
	}
	began := time.Now()
	err = e.giveBack(ctx)
	if ended := e.endTurn(ctx, turn); err != nil || ended != nil {
		return errors.Join(err, ended)
	}
	e.config.Log.Info("the store's database was defragmented", "before_bytes", size, "after_bytes", file.Size(), "took",
		time.Since(began))
	return nil
}

// relieve makes room in this member's database if the store is at its quota for its sake, without a turn. The alarm of
// one member stops the writes of all, and only that one can end it.
func (e *Engine) relieve(ctx context.Context) bool {
	if e.server == nil {
		return false
	}
	server := e.server.Server
	known := map[uint64]bool{}
	for _, m := range server.Cluster().Members() {
		known[uint64(m.ID)] = true
	}
	mine := slices.ContainsFunc(server.Alarms(), func(a *etcdserverpb.AlarmMember) bool {
		return a.Alarm == etcdserverpb.AlarmType_NOSPACE &&
			(!known[a.MemberID] || a.MemberID == uint64(server.MemberID()))
	})
	if !mine && !e.space.full.Load() {
		return false
	}
	e.space.filled()
	_ = e.space.check(ctx) // whether there is room on the disk is another matter
	return true
}

// takeTurn asks for the turn, and returns nil while it is another's.
func (e *Engine) takeTurn(ctx context.Context) (store.Session, error) {
	bounded, cancel := context.WithTimeout(ctx, tendLimit)
	defer cancel()
	wish := tendWish + e.MemberID()
	if _, err := e.Commit(bounded, []store.Group{{Ops: []store.Op{{Key: wish, Value: []byte("true")}}}}); err != nil {
		return nil, fmt.Errorf("ask for the turn: %w", err)
	}
	if e.leads() {
		others, err := e.othersWish(bounded)
		if err != nil || others {
			return nil, err
		}
	}
	session, err := e.OpenSession(bounded, tendSession)
	if err != nil {
		return nil, fmt.Errorf("ask for the turn: %w", err)
	}
	result, err := e.Commit(bounded, []store.Group{{
		Compares: []store.Compare{{Key: tendTurn}},
		Ops:      []store.Op{{Key: tendTurn, Value: []byte(e.MemberID()), Session: session.ID()}},
	}})
	if err == nil && result.Applied[0] {
		return session, nil
	}
	return nil, errors.Join(err, session.End(bounded))
}

// othersWish says that the leader has to let others go first: members whose wish stands, and those who may
// be about to wish, for which it waits two rounds. After six it waits no more for a member that is down.
func (e *Engine) othersWish(ctx context.Context) (bool, error) {
	if e.tendSince.IsZero() {
		e.tendSince = time.Now()
	}
	waited := time.Since(e.tendSince)
	if waited < 2*tendEvery || waited > 6*tendEvery {
		return waited < 2*tendEvery, nil
	}
	listing, err := e.List(ctx, tendWish)
	if err != nil {
		return false, fmt.Errorf("see who waits for the turn: %w", err)
	}
	others := map[string]bool{}
	for _, m := range e.listed() {
		others[m.ID] = !m.Self
	}
	return slices.ContainsFunc(listing.Records, func(r store.Record) bool {
		return others[strings.TrimPrefix(r.Key, tendWish)]
	}), nil
}

// giveBack writes the database anew. A leader gives its leadership away first.
func (e *Engine) giveBack(ctx context.Context) error {
	if e.leads() {
		bounded, cancel := context.WithTimeout(ctx, tendLimit)
		defer cancel()
		if err := e.yield(bounded); err != nil {
			return err
		}
	}
	if err := e.server.Server.Backend().Defrag(); err != nil {
		return fmt.Errorf("defragment: %w", err)
	}
	return nil
}

// endTurn lets the next one go.
func (e *Engine) endTurn(ctx context.Context, turn store.Session) error {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), tendLimit)
	defer cancel()
	e.tendSince = time.Time{}
	_, err := e.Commit(bounded, []store.Group{{Ops: []store.Op{{Key: tendWish + e.MemberID(), Delete: true}}}})
	return errors.Join(err, turn.End(bounded))
}
