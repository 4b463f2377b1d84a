package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berthd/berth/internal/store"
)

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

// ended returns why the server ended by itself: store.ErrRemoved if the other members removed it, else etcd's own text.
func (e *Engine) ended() error {
	why, removed := e.contacts.Ended()
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
			"directory cannot be used again; join again from an empty directory",
			"directory", e.config.Dir, "member", e.MemberID())
	} else {
		e.config.Log.Error("the server stops; its data directory is as it was: start it again", "directory",
			e.config.Dir, "error", cause)
	}
	e.end(fmt.Errorf("%w: %w", store.ErrClosed, cause))
}
