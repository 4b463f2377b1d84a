package sim

import (
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// leadershipChecker checks that leadership terms follow each other and that only the leader writes (P1.4, P1.7).
type leadershipChecker struct {
	*observation
	restoring    bool          // the next leader record is that of a snapshot
	highestToken cluster.Token // of all leaders ever
}

// Limits of leadership changes: more than maxTakeovers within a takeoverSpan are a breach.
const (
	takeoverSpan = time.Minute
	maxTakeovers = 12
)

func (v *leadershipChecker) applyLeader(c *store.Change) {
	l, err := store.Decode[cluster.Leader](c.Value)
	if c.Deleted || err != nil {
		return
	}
	if v.restoring { // a restored store has no leader
		v.restoring = false
		return
	}
	now := cluster.Token{Incarnation: l.Incarnation, Epoch: l.Epoch}
	if now.Compare(v.highestToken) <= 0 && !v.restored {
		v.breach(
			"epoch-back",
			"after epoch %d of incarnation %d came %d of %d",
			v.highestToken.Epoch,
			v.highestToken.Incarnation,
			l.Epoch,
			l.Incarnation,
		)
	}
	if now.Compare(v.highestToken) > 0 {
		v.highestToken = now
	}
	v.leaders = append(v.leaders, leadershipTerm{c.Modified, *l, time.Now()})
	if n := len(v.leaders) - 1 - maxTakeovers; n >= 0 && time.Since(v.leaders[n].at) < takeoverSpan &&
		v.story.Servers > 1 && !v.story.Has(ServerCrash, ServerPause, Cut, EngineCrash) {
		v.breach("ring", "the leadership changed hands %d times within %v", maxTakeovers+1, time.Since(v.leaders[n].at))
	}
}

// checkToken checks the token of a new plan record: it is the leader's (P1.4), and no registered agent has seen a
// higher one (P1.7).
func (v *leadershipChecker) checkToken(p *cluster.PlanRecord) {
	if n := len(v.leaders); n > 0 && !v.restored && p.Token.Epoch != v.leaders[n-1].leader.Epoch {
		v.breach("fenced", "plan %d of epoch %d was written in epoch %d", p.Seq, p.Token.Epoch,
			v.leaders[n-1].leader.Epoch)
	}
	for name, s := range v.nodes { // order-free: at most one breach
		if s.status == nil {
			continue
		}
		shown := cluster.Token{Incarnation: s.status.Token.Incarnation, Epoch: s.status.Token.Epoch}
		if p.Token.Compare(shown) < 0 {
			v.breach("epoch-back", "plan %d was written by epoch %d of incarnation %d, and %s had shown %d of %d",
				p.Seq,
				p.Token.Epoch, p.Token.Incarnation, name, shown.Epoch, shown.Incarnation)
			return
		}
	}
}

// checkCommit checks the writes of a server's commit once its result is known.
func (v *leadershipChecker) checkCommit(server string, groups []store.Group, result store.Result, err error) {
	if err != nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.restored || v.story.claims() { // the leaders of two domains both project and trim
		return
	}
	holder := ""
	for i := range v.leaders { // a leader's first commit has the revision of its leader record if it changed nothing
		if v.leaders[i].revision <= result.Revision {
			holder = v.leaders[i].leader.Holder
		}
	}
	for i, g := range groups {
		if !result.Applied[i] {
			continue
		}
		for _, op := range g.Ops {
			if leaderOnly(op.Key) && holder != server {
				v.breach("fenced", "%s wrote %s at revision %d, when %q led", server, op.Key, result.Revision, holder)
				return
			}
		}
	}
}

// leaderOnly reports whether only the leader writes a key.
func leaderOnly(key string) bool {
	return strings.HasPrefix(key, string(prefix)+"plan/") || strings.HasPrefix(key, string(prefix)+"attempt/") ||
		strings.HasPrefix(key, string(prefix)+"node/")
}
