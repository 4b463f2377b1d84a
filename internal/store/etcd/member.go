package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	etcderrors "go.etcd.io/etcd/server/v3/etcdserver/errors"

	"github.com/berthd/berth/internal/store"
)

// Member is one etcd member.
type Member = store.Member

const (
	// quorumLimit bounds the time that Open waits for a quorum.
	quorumLimit = 5 * time.Second
	// changeLimit bounds a change of the members. etcd accepts one only after the members were connected for 5 s, and a
	// change waits for that.
	changeLimit = 15 * time.Second
	// reachLimit bounds the request whether a member is up, and listLimit the request for the members.
	reachLimit = time.Second
	listLimit  = time.Second
)

// errElsewhere reports a call about the members in this process where etcd runs elsewhere.
var errElsewhere = fmt.Errorf("the store runs elsewhere: its own tools change its members: %w", store.ErrInvalid)

// errNoClusterVersion says that the store has not agreed on its version yet; until then nobody can join.
var errNoClusterVersion = errors.New("the store has just begun")

// MemberID returns this process's member, or "" where etcd runs elsewhere.
func (e *Engine) MemberID() string {
	if e.server == nil {
		return ""
	}
	return e.server.Server.MemberID().String()
}

// Members returns all members, learners included, ordered by name and id. Without a quorum it returns the last list
// that this member knew. For an etcd that runs elsewhere no member is Self.
func (e *Engine) Members(ctx context.Context) ([]Member, error) {
	if err := e.checkOpen(ctx); err != nil {
		return nil, err
	}
	if e.server == nil {
		return e.remoteMembers(ctx)
	}
	brief, cancel := context.WithTimeout(ctx, listLimit)
	_, _ = e.client.MemberList(brief) // brings the local list up to date, if there is a quorum
	cancel()
	var probes sync.WaitGroup
	members := e.localMembers()
	for i := range members {
		m := &members[i]
		if m.Self {
			m.Healthy = m.Leader || e.server.Server.Leader() != 0
			continue
		}
		probes.Go(func() { m.Healthy = e.reachable(ctx, m.PeerURL) })
	}
	probes.Wait()
	return members, ctx.Err()
}

// localMembers returns the members that this one knows, without their health.
func (e *Engine) localMembers() []Member {
	server := e.server.Server
	var members []Member
	for _, m := range server.Cluster().Members() {
		member := Member{
			ID: m.ID.String(), Name: m.Name, Learner: m.IsLearner,
			Leader: m.ID == server.Leader(), Self: m.ID == server.MemberID(),
		}
		if urls := m.PeerURLs; len(urls) > 0 && urls[0] != peerURL {
			member.PeerURL = urls[0]
		}
		members = append(members, member)
	}
	slices.SortFunc(members, func(a, b Member) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return members
}

// AddLearner adds a member that follows without a vote. It returns all members, the new one included, for Config.Join
// of the new one. A second call with the same peer URL returns the same member while it has not started, so that a join
// may be repeated. name, the server's id, is checked against the other members; the new member sets its name itself
// when it starts.
func (e *Engine) AddLearner(ctx context.Context, name, peerURL string) ([]Member, error) {
	if err := e.checkOpen(ctx); err != nil {
		return nil, err
	}
	parsed, err := url.Parse(peerURL)
	switch {
	case e.server == nil:
		return nil, errElsewhere
	case e.config.PeerURL == "":
		return nil, fmt.Errorf("this server listens for no other members: it needs a peer address: %w",
			store.ErrInvalid)
	case err != nil || Config{PeerURL: peerURL, PeerTLS: &TLSFiles{}, Election: time.Second}.check() != nil:
		return nil, fmt.Errorf("peer address %q is not like https://10.0.0.1:7072: %w", peerURL, store.ErrInvalid)
	}
	var result []Member
	err = e.change(ctx, func(ctx context.Context) error {
		for _, m := range e.localMembers() {
			switch {
			case m.PeerURL == peerURL && m.Name == "":
				result = e.localMembers()
				return nil
			case m.PeerURL == peerURL:
				return fmt.Errorf("the address %s is that of member %s of server %s: remove that first: %w", peerURL,
					m.ID, m.Name, store.ErrInvalid)
			case m.Name == name && name != "":
				return fmt.Errorf("server %s is member %s already: remove that first: %w", name, m.ID, store.ErrInvalid)
			}
		}
		if e.server.Server.ClusterVersion() == nil {
			return errNoClusterVersion
		}
		now := time.Now()
		// The id is a hash of these values. The random part keeps it different from a member that was removed just now.
		_, err := e.server.Server.AddMember(ctx,
			*membership.NewMemberAsLearner("", []url.URL{*parsed}, uuid.NewString(), &now))
		result = e.localMembers()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("add a member: %w", err)
	}
	return result, nil
}

// Promote gives a learner its vote. It returns store.ErrNotInSync while the learner lags or is not up, and
// store.ErrMember for an unknown id. Promoting a member with a vote is no error.
func (e *Engine) Promote(ctx context.Context, id string) error {
	number, err := e.memberCall(ctx, id)
	if err != nil {
		return err
	}
	err = e.change(ctx, func(ctx context.Context) error {
		_, err := e.server.Server.PromoteMember(ctx, number)
		if errors.Is(err, membership.ErrMemberNotLearner) {
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("promote member %s: %w", id, err)
	}
	return nil
}

// Remove removes a member, which then stops by itself, now or when it comes back. It returns store.ErrLosesQuorum if
// the remaining members could not go on. An unknown id is no error.
func (e *Engine) Remove(ctx context.Context, id string) error {
	number, err := e.memberCall(ctx, id)
	if err != nil {
		return err
	}
	err = e.change(ctx, func(ctx context.Context) error {
		_, err := e.server.Server.RemoveMember(ctx, number)
		if errors.Is(err, membership.ErrIDNotFound) || errors.Is(err, membership.ErrIDRemoved) {
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("remove member %s: %w", id, err)
	}
	return nil
}

// memberCall checks that a call about one member can begin, and parses its id.
func (e *Engine) memberCall(ctx context.Context, id string) (uint64, error) {
	if err := e.checkOpen(ctx); err != nil {
		return 0, err
	}
	if e.server == nil {
		return 0, errElsewhere
	}
	number, err := strconv.ParseUint(id, 16, 64)
	if err != nil {
		return 0, fmt.Errorf("member %q: %w", id, store.ErrMember)
	}
	return number, nil
}

// change makes a change of the members, and repeats it while etcd waits for stable connections.
func (e *Engine) change(ctx context.Context, try func(context.Context) error) error {
	if err := e.waitForLeader(ctx); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, changeLimit)
	defer cancel()
	for {
		err := try(bounded)
		unsettled := errors.Is(err, etcderrors.ErrUnhealthy) || errors.Is(err, etcderrors.ErrLeaderChanged) ||
			errors.Is(err, errNoClusterVersion)
		if !unsettled || bounded.Err() != nil {
			return e.changeError(ctx, err)
		}
		select {
		case <-bounded.Done():
			return e.changeError(ctx, err)
		case <-e.lifetime.Done():
			return context.Cause(e.lifetime)
		case <-time.After(changePause):
		}
	}
}

// changePause is the pause between two attempts of a change.
const changePause = 200 * time.Millisecond

// changeError turns etcd's error of a change of the members into an error of the contract. etcd returns some errors
// only before it accepts a change. After any other error the result is unknown, and the change may be repeated without
// harm.
func (e *Engine) changeError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	for _, known := range []struct{ etcd, store error }{
		{etcderrors.ErrLearnerNotReady, store.ErrNotInSync},
		{membership.ErrIDNotFound, store.ErrMember},
		{membership.ErrIDRemoved, store.ErrMember},
		{etcderrors.ErrUnhealthy, store.ErrLosesQuorum},
		{etcderrors.ErrNotEnoughStartedMembers, store.ErrLosesQuorum},
		{membership.ErrTooManyLearners, store.ErrInvalid},
		{membership.ErrPeerURLexists, store.ErrInvalid},
		{store.ErrInvalid, store.ErrInvalid},
		{errNoClusterVersion, store.ErrUnavailable},
	} {
		if errors.Is(err, known.etcd) {
			return fmt.Errorf("%w: %w", known.store, err)
		}
	}
	if isRetryable(err) {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return fmt.Errorf("%w: %w", store.ErrUnknown, errors.Join(e.checkOpen(ctx), err))
}

// registerAddress sends this member's address to the others, if it changed.
func (e *Engine) registerAddress(ctx context.Context) error {
	server := e.server.Server
	own := server.Cluster().Member(server.MemberID())
	if e.config.PeerURL == "" || own == nil || slices.Equal(own.PeerURLs, []string{e.config.PeerURL}) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, changeLimit)
	defer cancel()
	attributes := membership.RaftAttributes{PeerURLs: []string{e.config.PeerURL}, IsLearner: own.IsLearner}
	if _, err := server.UpdateMember(ctx, membership.Member{ID: own.ID, RaftAttributes: attributes}); err != nil {
		return fmt.Errorf("tell the address of this member: %w", err)
	}
	return nil
}
