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

	"github.com/berthd/berth/internal/pause"
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

// errNoClusterVersion says that the store has not agreed on its version yet; until then no server can join.
var errNoClusterVersion = errors.New("the store has just begun")

// memberSet is the set of the members of the engine, and the changes of it.
type memberSet struct{ *calls }

// MemberID returns this process's member, or "" where etcd runs elsewhere.
func (s *memberSet) MemberID() string {
	if s.server == nil {
		return ""
	}
	return s.server.Server.MemberID().String()
}

// Members returns all members, learners included, ordered by name and id. Without a quorum it returns the last list
// that this member knew. For an etcd that runs elsewhere no member is Self.
func (s *memberSet) Members(ctx context.Context) ([]Member, error) {
	if err := s.checkOpen(ctx); err != nil {
		return nil, err
	}
	if s.server == nil {
		return s.remoteMembers(ctx)
	}
	brief, cancel := context.WithTimeout(ctx, listLimit)
	_, _ = s.client.MemberList(brief) // brings the local list up to date, if there is a quorum
	cancel()
	var probes sync.WaitGroup
	members := s.localMembers()
	for i := range members {
		m := &members[i]
		if m.Self {
			m.Healthy = m.Leader || s.server.Server.Leader() != 0
			continue
		}
		probes.Go(func() { m.Healthy = reachable(ctx, s.config, m.PeerURL) })
	}
	probes.Wait()
	return members, ctx.Err()
}

// localMembers returns the members that this one knows, without their health.
func (s *memberSet) localMembers() []Member {
	server := s.server.Server
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

// remoteMembers lists the members of an etcd that runs elsewhere. The members that answer are healthy.
func (s *memberSet) remoteMembers(ctx context.Context) ([]Member, error) {
	bounded, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	list, err := s.client.MemberList(bounded)
	if err != nil {
		return nil, s.readError(ctx, err)
	}
	members := make([]Member, 0, len(list.Members))
	for _, m := range list.Members {
		member := Member{ID: strconv.FormatUint(m.ID, 16), Name: m.Name, Learner: m.IsLearner}
		if len(m.PeerURLs) > 0 {
			member.PeerURL = m.PeerURLs[0]
		}
		for _, u := range m.ClientURLs {
			brief, cancel := context.WithTimeout(ctx, reachLimit)
			status, err := s.client.Status(brief, u)
			cancel()
			if err == nil {
				member.Healthy, member.Leader = true, status.Leader == m.ID
				break
			}
		}
		members = append(members, member)
	}
	slices.SortFunc(members, func(a, b Member) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return members, nil
}

// AddLearner adds a member that follows without a vote. It returns all members, the new one included, for Config.Join
// of the new one. A second call with the same peer URL returns the same member while it has not started, so that a join
// may be repeated. name, the server's id, is checked against the other members; the new member sets its name itself
// when it starts.
func (s *memberSet) AddLearner(ctx context.Context, name, peerURL string) ([]Member, error) {
	if err := s.checkOpen(ctx); err != nil {
		return nil, err
	}
	parsed, err := url.Parse(peerURL)
	switch {
	case s.server == nil:
		return nil, errElsewhere
	case s.config.PeerURL == "":
		return nil, fmt.Errorf("this server listens for no other members: it needs a peer address: %w",
			store.ErrInvalid)
	case err != nil || Config{PeerURL: peerURL, PeerTLS: &TLSFiles{}, Election: time.Second}.check() != nil:
		return nil, fmt.Errorf("peer address %q is not like https://10.0.0.1:7072: %w", peerURL, store.ErrInvalid)
	}
	var result []Member
	err = s.change(ctx, func(ctx context.Context) error {
		for _, m := range s.localMembers() {
			switch {
			case m.PeerURL == peerURL && m.Name == "":
				result = s.localMembers()
				return nil
			case m.PeerURL == peerURL:
				return fmt.Errorf("the address %s is that of member %s of server %s: remove that first: %w", peerURL,
					m.ID, m.Name, store.ErrInvalid)
			case m.Name == name && name != "":
				return fmt.Errorf("server %s is member %s already: remove that first: %w", name, m.ID, store.ErrInvalid)
			}
		}
		if s.server.Server.ClusterVersion() == nil {
			return errNoClusterVersion
		}
		now := time.Now()
		// The id is a hash of these values. The random part keeps it different from a member that was removed just now.
		_, err := s.server.Server.AddMember(ctx,
			*membership.NewMemberAsLearner("", []url.URL{*parsed}, uuid.NewString(), &now))
		result = s.localMembers()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("add a member: %w", err)
	}
	return result, nil
}

// Promote gives a learner its vote. It returns store.ErrNotInSync while the learner lags or is not up, and
// store.ErrMember for an unknown id. Promoting a member with a vote is no error.
func (s *memberSet) Promote(ctx context.Context, id string) error {
	number, err := s.memberCall(ctx, id)
	if err != nil {
		return err
	}
	err = s.change(ctx, func(ctx context.Context) error {
		_, err := s.server.Server.PromoteMember(ctx, number)
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
// the remaining members could not continue. An unknown id is no error.
func (s *memberSet) Remove(ctx context.Context, id string) error {
	number, err := s.memberCall(ctx, id)
	if err != nil {
		return err
	}
	err = s.change(ctx, func(ctx context.Context) error {
		_, err := s.server.Server.RemoveMember(ctx, number)
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
func (s *memberSet) memberCall(ctx context.Context, id string) (uint64, error) {
	if err := s.checkOpen(ctx); err != nil {
		return 0, err
	}
	if s.server == nil {
		return 0, errElsewhere
	}
	number, err := strconv.ParseUint(id, 16, 64)
	if err != nil {
		return 0, fmt.Errorf("member %q: %w", id, store.ErrMember)
	}
	return number, nil
}

// change makes a change of the members, and repeats it while etcd waits for stable connections.
func (s *memberSet) change(ctx context.Context, try func(context.Context) error) error {
	if err := s.waitForLeader(ctx); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, changeLimit)
	defer cancel()
	for {
		err := try(bounded)
		unsettled := errors.Is(err, etcderrors.ErrUnhealthy) || errors.Is(err, etcderrors.ErrLeaderChanged) ||
			errors.Is(err, errNoClusterVersion)
		if !unsettled || bounded.Err() != nil {
			return s.changeError(ctx, err)
		}
		ended, over := pause.Until(bounded, s.lifetime.Done(), changePause)
		switch {
		case ended:
			return context.Cause(s.lifetime)
		case over != nil:
			return s.changeError(ctx, err)
		}
	}
}

// changePause is the pause between two attempts of a change.
const changePause = 200 * time.Millisecond

// changeError turns etcd's error of a change of the members into an error of the contract. etcd returns some errors
// only before it accepts a change. After any other error the result is unknown, and the change may be repeated without
// harm.
func (s *memberSet) changeError(ctx context.Context, err error) error {
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
	return fmt.Errorf("%w: %w", store.ErrUnknown, errors.Join(s.checkOpen(ctx), err))
}

// registerAddress sends this member's address to the others, if it changed.
func (s *memberSet) registerAddress(ctx context.Context) error {
	server := s.server.Server
	own := server.Cluster().Member(server.MemberID())
	if s.config.PeerURL == "" || own == nil || slices.Equal(own.PeerURLs, []string{s.config.PeerURL}) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, changeLimit)
	defer cancel()
	attributes := membership.RaftAttributes{PeerURLs: []string{s.config.PeerURL}, IsLearner: own.IsLearner}
	if _, err := server.UpdateMember(ctx, membership.Member{ID: own.ID, RaftAttributes: attributes}); err != nil {
		return fmt.Errorf("publish the address of this member: %w", err)
	}
	return nil
}

// publishAddress sends this member's address to the others until they know it.
func (s *memberSet) publishAddress() {
	for {
		err := s.registerAddress(s.lifetime)
		if err == nil || s.lifetime.Err() != nil {
			return
		}
		s.config.Log.Warn("the other members of the store do not know this one's address yet", "address",
			s.config.PeerURL, "error", err)
		select {
		case <-s.lifetime.Done():
			return
		case <-time.After(changeLimit):
		}
	}
}
