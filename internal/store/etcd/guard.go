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

// leaderGrace is how long a call that was on its way when the engine's leader changed may go on. etcd drops such calls
// without a word, and would let them wait for 6 s.
const leaderGrace = 150 * time.Millisecond

// handOverLimit bounds the search for another leader at the end.
const handOverLimit = 3 * time.Second

// await waits until the server serves, and checks that it can with this configuration.
func (e *Engine) await(ctx context.Context) error {
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
		return e.register(ctx)
	}
	return nil
}

// What etcd says when it ends by itself: saysEnd, with a cause, which holds saysRemoved after a removal.
const (
	saysEnd     = "server error"
	saysRemoved = "permanently removed"
)

// ended returns why the server ended by itself: store.ErrRemoved, if that is what the other members said, or what etcd
// said.
func (e *Engine) ended() error {
	why, removed := e.contacts.ended()
	server := e.server.Server
	if known := server.Cluster(); removed || len(known.Members()) > 0 && known.Member(server.MemberID()) == nil {
		return store.ErrRemoved
	}
	return fmt.Errorf("the store's server ended by itself: %s", cmp.Or(why, "it did not say why"))
}

// guard ends the engine when its server ended by itself, which happens to a member that was removed.
func (e *Engine) guard() {
	select {
	case <-e.life.Done():
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
	e.end(fmt.Errorf("%w: %w", store.ErrClosed, cause))
}

// keepAddress tells the others this member's address until they know it.
func (e *Engine) keepAddress() {
	for {
		err := e.register(e.life)
		if err == nil || e.life.Err() != nil {
			return
		}
		e.config.Log.Warn("the other members of the store do not know this one's address yet", "address",
			e.config.PeerURL, "error", err)
		select {
		case <-e.life.Done():
			return
		case <-time.After(changeLimit):
		}
	}
}

// followLeader ends, a while after each change of the engine's leader, the calls that were on their way then.
func (e *Engine) followLeader() {
	for {
		reign, end := context.WithCancel(e.life)
		e.mu.Lock()
		e.reign = reign //nolint:fatcontext // none is derived from the one before
		e.mu.Unlock()
		select {
		case <-e.life.Done():
			end()
			return
		case <-e.server.Server.LeaderChangedNotify():
			time.AfterFunc(leaderGrace, end)
		}
	}
}

// reigning returns ctx, ended also leaderGrace after the engine's present leader lost its leadership.
func (e *Engine) reigning(ctx context.Context) (context.Context, func()) {
	e.mu.Lock()
	reign := e.reign
	e.mu.Unlock()
	if reign == nil {
		return ctx, func() {}
	}
	call, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(reign, cancel)
	return call, func() { stop(); cancel() }
}

// EngineLeader is part of store.LeaderTeller.
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

// Votes is part of store.Voter. Where etcd runs elsewhere, who asks it is no learner.
func (e *Engine) Votes() bool { return e.server == nil || !e.server.Server.IsLearner() }

// MoveLeader is part of store.LeaderMover. A learner cannot lead.
func (e *Engine) MoveLeader(ctx context.Context) error {
	if err := e.enter(ctx); err != nil {
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

// leads says that this member leads the engine, and there are others.
func (e *Engine) leads() bool {
	server := e.server.Server
	return server.Leader() == server.MemberID() && len(server.Cluster().Members()) > 1
}

// handOver gives the engine's leadership away before the end, if others are there to take it.
func (e *Engine) handOver() {
	if e.server == nil || e.life.Err() != nil || !e.leads() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), handOverLimit)
	defer cancel()
	if err := e.yield(ctx); err != nil {
		e.config.Log.Warn("the engine's leadership was not handed over", "error", err)
	}
}

// yield moves the engine's leadership to another member that is up.
func (e *Engine) yield(ctx context.Context) error {
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
