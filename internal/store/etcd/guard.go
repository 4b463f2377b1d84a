package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/berthd/berth/internal/store"
)

// leaderGrace is how long a call in flight may go on after a change of the engine's leader. etcd drops such calls
// without an answer, and would let them wait for 6 s.
const leaderGrace = 150 * time.Millisecond

// handOverLimit bounds the hand-over of the leadership when the engine closes.
const handOverLimit = 3 * time.Second

// waitUntilServing waits until the server serves, and checks that the configuration allows that.
func (e *Engine) waitUntilServing(ctx context.Context) error {
	server := e.server.Server
	alone := e.forced || len(server.Cluster().Members()) < 2 && len(e.config.Join) == 0
	if !alone && e.config.PeerURL == "" {
		return fmt.Errorf("the store has %d members: it needs a peer address: %w", len(server.Cluster().Members()),
			store.ErrInvalid)
	}
	limit := time.NewTimer(quorumLimit)
	defer limit.Stop()
	expired := limit.C
	if alone {
		expired = nil
	}
	select {
	case <-server.ReadyNotify():
	case <-server.StopNotify():
		return e.ended()
	case <-ctx.Done():
		return ctx.Err()
	case <-expired:
		e.config.Log.Warn("the store has no quorum yet: it waits for other members")
		return nil
	}
	if alone {
		return e.registerAddress(ctx)
	}
	return nil
}

// Messages of etcd when it ends by itself: messageEnd has a cause, which contains messageRemoved after a removal.
const (
	messageEnd     = "server error"
	messageRemoved = "permanently removed"
)

// ended returns why the server ended by itself: store.ErrRemoved if the other members removed it, else etcd's own text.
func (e *Engine) ended() error {
	why, removed := e.contacts.ended()
	server := e.server.Server
	if known := server.Cluster(); removed || len(known.Members()) > 0 && known.Member(server.MemberID()) == nil {
		return store.ErrRemoved
	}
	return fmt.Errorf("the store's server ended by itself: %s", cmp.Or(why, "it did not say why"))
}

// watchForEnd ends the engine when its server ended by itself, as after the removal of its member.
func (e *Engine) watchForEnd() {
	select {
	case <-e.lifetime.Done():
		return
	case <-e.server.Server.StopNotify():
	}
	cause := e.ended()
	if errors.Is(cause, store.ErrRemoved) {
		e.config.Log.Error("this server was removed from the members of the store: it stops, and its data "+
			"directory is of no more use",
			"directory", e.config.Dir, "member", e.MemberID())
	} else {
		e.config.Log.Error("the server stops; its data directory is as it was: start it again", "directory",
			e.config.Dir, "error", cause)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cancelLifetime(fmt.Errorf("%w: %w", store.ErrClosed, cause))
}

// publishAddress sends this member's address to the others until they know it.
func (e *Engine) publishAddress() {
	for {
		err := e.registerAddress(e.lifetime)
		if err == nil || e.lifetime.Err() != nil {
			return
		}
		e.config.Log.Warn("the other members of the store do not know this one's address yet", "address",
			e.config.PeerURL, "error", err)
		select {
		case <-e.lifetime.Done():
			return
		case <-time.After(changeLimit):
		}
	}
}

// followLeader ends the calls in flight leaderGrace after each change of the engine's leader.
func (e *Engine) followLeader() {
	for {
		leaderTerm, end := context.WithCancel(e.lifetime)
		e.mu.Lock()
		e.leaderTerm = leaderTerm //nolint:fatcontext // the contexts are not nested
		e.mu.Unlock()
		select {
		case <-e.lifetime.Done():
			end()
			return
		case <-e.server.Server.LeaderChangedNotify():
			time.AfterFunc(leaderGrace, end)
		}
	}
}

// withLeaderTerm returns ctx, which also ends leaderGrace after the engine's present leader lost its leadership.
func (e *Engine) withLeaderTerm(ctx context.Context) (context.Context, func()) {
	e.mu.Lock()
	leaderTerm := e.leaderTerm
	e.mu.Unlock()
	if leaderTerm == nil {
		return ctx, func() {}
	}
	call, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(leaderTerm, cancel)
	return call, func() { stop(); cancel() }
}

// EngineLeader is part of store.LeaderReporter.
func (e *Engine) EngineLeader() (leader, self string, term uint64) {
	if e.server == nil {
		return "", "", 0
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if id := e.server.Server.Leader(); id != 0 {
		leader = id.String()
		if leader != e.leader {
			e.leader = leader
			e.terms++
		}
	}
	return leader, e.MemberID(), e.terms
}

// Votes is part of store.Voter. It is true if etcd runs elsewhere.
func (e *Engine) Votes() bool { return e.server == nil || !e.server.Server.IsLearner() }

// MoveLeader is part of store.LeaderMover. A learner cannot lead.
func (e *Engine) MoveLeader(ctx context.Context) error {
	if err := e.checkOpen(ctx); err != nil {
		return err
	}
	if e.server == nil {
		return errElsewhere
	}
	server := e.server.Server
	if server.Leader() == 0 {
		return store.ErrUnavailable
	}
	if err := server.MoveLeader(ctx, uint64(server.Leader()), uint64(server.MemberID())); err != nil {
		return fmt.Errorf("move the engine's leadership: %w", errors.Join(store.ErrUnavailable, err))
	}
	return nil
}

// leads reports whether this member leads the engine, and there are other members.
func (e *Engine) leads() bool {
	server := e.server.Server
	return server.Leader() == server.MemberID() && len(server.Cluster().Members()) > 1
}

// handOver moves the engine's leadership to another member before the end, if there is one.
func (e *Engine) handOver() {
	if e.server == nil || e.lifetime.Err() != nil || !e.leads() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), handOverLimit)
	defer cancel()
	if err := e.moveLeaderAway(ctx); err != nil {
		e.config.Log.Warn("the engine's leadership was not handed over", "error", err)
	}
}

// moveLeaderAway moves the engine's leadership to another member that is up.
func (e *Engine) moveLeaderAway(ctx context.Context) error {
	members, err := e.Members(ctx)
	if err != nil {
		return err
	}
	server := e.server.Server
	for _, m := range members {
		if !m.Healthy || m.Learner || m.Self {
			continue
		}
		id, err := strconv.ParseUint(m.ID, 16, 64)
		if err != nil {
			return fmt.Errorf("member %s: %w", m.ID, err)
		}
		if err := server.MoveLeader(ctx, uint64(server.Leader()), id); err != nil {
			return fmt.Errorf("give the engine's leadership away: %w", err)
		}
		return nil
	}
	return fmt.Errorf("give the engine's leadership away: no other member is up: %w", store.ErrLosesQuorum)
}
