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

// To return space to the disk, a member rewrites (defragments) its database, and serves no calls until it is done. One
// member does so at a time, and the leader last, after it gave its leadership away. The member whose turn it is holds
// defragTurnKey, which ends with a lease. Members that wait have a key under defragQueuePrefix.
const (
	defragTurnKey     = "berth-engine/defragment/turn"
	defragQueuePrefix = "berth-engine/defragment/wish/"

	// defragInterval is the pause between two checks of the database, with a jitter of half of it.
	defragInterval = 5 * time.Minute
	// defragTurnTTL is how long a member that died keeps the turn.
	defragTurnTTL = time.Minute
	// defragCallTimeout bounds the calls that take and end the turn.
	defragCallTimeout = 10 * time.Second
)

// defragmenter returns the space of deleted records to the disk.
type defragmenter struct {
	*calls
	records    *records
	members    *memberSet
	leadership *leadership

	turnWaitSince time.Time // when Run began to wait for its turn, as the leader
}

// Run keeps the database in order: it returns the space of deleted records to the disk, one member at a time. It blocks
// until ctx ends or the engine does: store.ErrRemoved after this member was removed, store.ErrClosed after Close. For
// an etcd that runs elsewhere it only waits.
func (d *defragmenter) Run(ctx context.Context) error {
	timer := time.NewTimer(jitter(defragInterval))
	defer timer.Stop()
	alarm := time.NewTicker(shrinkInterval)
	defer alarm.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-d.lifetime.Done():
			return context.Cause(d.lifetime)
		case <-alarm.C:
			d.relieveQuota(ctx)
			continue
		case <-timer.C:
		}
		if err := d.defragment(ctx); err != nil && d.checkOpen(ctx) == nil {
			d.config.Log.Warn("the store's database was not defragmented", "error", err)
		}
		timer.Reset(jitter(defragInterval))
	}
}

func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d)
}

// defragment defragments this member's database, if that is due and this member has the turn.
func (d *defragmenter) defragment(ctx context.Context) error {
	if d.server == nil {
		return nil
	}
	if d.relieveQuota(ctx) {
		return nil // no write is possible, and so no turn
	}
	file := d.server.Server.Backend()
	size, empty := file.Size(), file.Size()-file.SizeInUse()
	if empty < d.config.Slack || empty < size/2 {
		return nil
	}
	turn, err := d.takeTurn(ctx)
	if err != nil || turn == nil {
		return err
	}
	began := time.Now()
	err = d.rewriteDatabase(ctx)
	if ended := d.endTurn(ctx, turn); err != nil || ended != nil {
		return errors.Join(err, ended)
	}
	d.config.Log.Info("the store's database was defragmented", "before_bytes", size, "after_bytes", file.Size(), "took",
		time.Since(began))
	return nil
}

// relieveQuota makes room in this member's database, without a turn, if this member's alarm has the store at its quota.
// The alarm of one member stops the writes of all, and only that member can end it.
func (d *defragmenter) relieveQuota(ctx context.Context) bool {
	if d.server == nil {
		return false
	}
	server := d.server.Server
	known := map[uint64]bool{}
	for _, m := range server.Cluster().Members() {
		known[uint64(m.ID)] = true
	}
	mine := slices.ContainsFunc(server.Alarms(), func(a *etcdserverpb.AlarmMember) bool {
		return a.Alarm == etcdserverpb.AlarmType_NOSPACE &&
			(!known[a.MemberID] || a.MemberID == uint64(server.MemberID()))
	})
	if !mine && !d.space.full.Load() {
		return false
	}
	d.space.noteQuotaReached()
	_ = d.space.check(ctx) // the result about the disk is not needed
	return true
}

// takeTurn requests the turn, and returns nil while another member has it.
func (d *defragmenter) takeTurn(ctx context.Context) (*recordLease, error) {
	bounded, cancel := context.WithTimeout(ctx, defragCallTimeout)
	defer cancel()
	queueKey := defragQueuePrefix + d.members.MemberID()
	enqueue := store.Op{Key: queueKey, Value: []byte("true")}
	if _, err := d.records.Commit(bounded, []store.Group{{Ops: []store.Op{enqueue}}}); err != nil {
		return nil, fmt.Errorf("request the turn: %w", err)
	}
	if d.leadership.leads() {
		others, err := d.mustLetOthersGo(bounded)
		if err != nil || others {
			return nil, err
		}
	}
	turn, err := d.grantLease(bounded, defragTurnTTL)
	if err != nil {
		return nil, fmt.Errorf("request the turn: %w", err)
	}
	taken, err := turn.create(bounded, defragTurnKey, []byte(d.members.MemberID()))
	if taken {
		return turn, nil
	}
	return nil, errors.Join(err, turn.end(bounded))
}

// mustLetOthersGo reports whether the leader has to let other members go first. The leader waits two intervals for
// members to queue, and then for those in the queue. After six intervals it no longer waits for a member that is down.
func (d *defragmenter) mustLetOthersGo(ctx context.Context) (bool, error) {
	if d.turnWaitSince.IsZero() {
		d.turnWaitSince = time.Now()
	}
	waited := time.Since(d.turnWaitSince)
	if waited < 2*defragInterval || waited > 6*defragInterval {
		return waited < 2*defragInterval, nil
	}
	listing, err := d.records.List(ctx, defragQueuePrefix)
	if err != nil {
		return false, fmt.Errorf("see who waits for the turn: %w", err)
	}
	others := map[string]bool{}
	for _, m := range d.members.localMembers() {
		others[m.ID] = !m.Self
	}
	return slices.ContainsFunc(listing.Records, func(r store.Record) bool {
		return others[strings.TrimPrefix(r.Key, defragQueuePrefix)]
	}), nil
}

// rewriteDatabase defragments the database. A leader gives its leadership away first.
func (d *defragmenter) rewriteDatabase(ctx context.Context) error {
	if d.leadership.leads() {
		bounded, cancel := context.WithTimeout(ctx, defragCallTimeout)
		defer cancel()
		if err := d.leadership.moveLeaderAway(bounded); err != nil {
			return err
		}
	}
	if err := d.server.Server.Backend().Defrag(); err != nil {
		return fmt.Errorf("defragment: %w", err)
	}
	return nil
}

// endTurn releases the turn.
func (d *defragmenter) endTurn(ctx context.Context, turn *recordLease) error {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), defragCallTimeout)
	defer cancel()
	d.turnWaitSince = time.Time{}
	dequeue := store.Op{Key: defragQueuePrefix + d.members.MemberID(), Delete: true}
	_, err := d.records.Commit(bounded, []store.Group{{Ops: []store.Op{dequeue}}})
	return errors.Join(err, turn.end(bounded))
}
