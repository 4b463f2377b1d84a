package etcd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/berthd/berth/internal/store"
)

// handOverLimit bounds the hand-over of the leadership when the engine closes.
const handOverLimit = 3 * time.Second

// leadership is the leadership that the members of the engine elect among themselves.
type leadership struct {
	*calls
	members *memberSet

	mu   sync.Mutex // guards the following fields
	last string     // the last of the engine's leaders that was seen
	term uint64     // the number of leaders seen
}

// EngineLeader is part of store.EngineMember.
func (l *leadership) EngineLeader() (leader, self string, term uint64) {
	if l.server == nil {
		return "", "", 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if id := l.server.Server.Leader(); id != 0 {
		leader = id.String()
		if leader != l.last {
			l.last = leader
			l.term++
		}
	}
	return leader, l.members.MemberID(), l.term
}

// Votes is part of store.EngineMember. It is true if etcd runs elsewhere.
func (l *leadership) Votes() bool { return l.server == nil || !l.server.Server.IsLearner() }

// MoveLeader is part of store.EngineMember. A learner cannot lead.
func (l *leadership) MoveLeader(ctx context.Context) error {
	if err := l.checkOpen(ctx); err != nil {
		return err
	}
	if l.server == nil {
		return errElsewhere
	}
	server := l.server.Server
	if server.Leader() == 0 {
		return store.ErrUnavailable
	}
	if err := server.MoveLeader(ctx, uint64(server.Leader()), uint64(server.MemberID())); err != nil {
		return fmt.Errorf("move the engine's leadership: %w", errors.Join(store.ErrUnavailable, err))
	}
	return nil
}

// leads reports whether this member leads the engine, and there are other members.
func (l *leadership) leads() bool {
	server := l.server.Server
	return server.Leader() == server.MemberID() && len(server.Cluster().Members()) > 1
}

// handOver moves the engine's leadership to another member before the end, if there is one.
func (l *leadership) handOver() {
	if l.server == nil || l.lifetime.Err() != nil || !l.leads() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), handOverLimit)
	defer cancel()
	if err := l.moveLeaderAway(ctx); err != nil {
		l.config.Log.Warn("the engine's leadership was not handed over", "error", err)
	}
}

// moveLeaderAway moves the engine's leadership to another member that is up.
func (l *leadership) moveLeaderAway(ctx context.Context) error {
	members, err := l.members.Members(ctx)
	if err != nil {
		return err
	}
	server := l.server.Server
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
