package server

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/store"
)

// memberAdder adds joining servers to the store.
type memberAdder struct {
	members store.Membership
	log     *slog.Logger
}

// AddServer implements apiserver.Joiner.
func (m *memberAdder) AddServer(ctx context.Context, name, peerURL string) ([]api.ServerMember, error) {
	all, err := m.members.AddLearner(ctx, name, peerURL)
	if err != nil {
		return nil, err
	}
	members := make([]api.ServerMember, len(all))
	for i, v := range all {
		members[i] = api.ServerMember{ID: v.ID, Name: v.Name, PeerURL: v.PeerURL, Learner: v.Learner}
	}
	return members, nil
}

// promoteInterval is the interval at which the store's leader searches for learners that have caught up.
const promoteInterval = time.Second

// promoteLearners gives joined servers a vote once they have caught up. Only the store's leader knows the progress, so
// other servers wait. It runs until the context ends.
func (m *memberAdder) promoteLearners(ctx context.Context) error {
	tick := time.NewTicker(promoteInterval)
	defer tick.Stop()
	logged := map[string]string{} // the last fault of each member, so that each is logged once
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		if leader, self, _ := m.members.EngineLeader(); self == "" || leader != self {
			continue
		}
		members, err := m.members.Members(ctx)
		if err != nil {
			continue // the store is busy or closing
		}
		for _, v := range members {
			if !v.Learner || !v.Healthy {
				continue
			}
			err := m.members.Promote(ctx, v.ID)
			switch {
			case err == nil:
				m.log.Info("a server got its vote in the store", "server", v.Name, "member", v.ID)
			case errors.Is(err, store.ErrNotInSync), ctx.Err() != nil, logged[v.ID] == err.Error():
			default:
				logged[v.ID] = err.Error()
				m.log.Warn("a server cannot get its vote in the store", "server", v.Name, "member", v.ID, "error",
					err)
			}
		}
	}
}
