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
	restoring    bool           // the next leader record is that of a snapshot
	highestToken cluster.Token  // of all leaders of the default domain ever
	other        cluster.Leader // the present one of the other domain
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

// applyOtherLeader processes the leader record of the other domain.
func (v *leadershipChecker) applyOtherLeader(c *store.Change) {
	l, err := store.Decode[cluster.Leader](c.Value)
	if c.Deleted || err != nil {
		return
	}
	now := cluster.Token{Incarnation: l.Incarnation, Epoch: l.Epoch}
	before := cluster.Token{Incarnation: v.other.Incarnation, Epoch: v.other.Epoch}
	if now.Compare(before) <= 0 && !v.restored {
		v.breach("epoch-back", "after epoch %d of the other domain's incarnation %d came %d of %d", before.Epoch,
			before.Incarnation, l.Epoch, l.Incarnation)
	}
	v.other = *l
}

// presentLeader returns the present leader of the domain that wrote a plan.
func (v *leadershipChecker) presentLeader(plan uint64) (l cluster.Leader, ok bool) {
	if cluster.DomainOfPlan(plan) != 0 {
		return v.other, v.other.Epoch > 0
	}
	if len(v.leaders) == 0 {
		return l, false
	}
	return v.leaders[len(v.leaders)-1].leader, true
}

// checkToken checks the token of a new plan record: it is the leader's (P1.4), and no registered agent has seen a
// higher one (P1.7).
func (v *leadershipChecker) checkToken(p *cluster.PlanRecord) {
	if l, ok := v.presentLeader(p.Seq); ok && !v.restored && p.Token.Epoch != l.Epoch {
		v.breach("fenced", "plan %d of epoch %d was written in epoch %d", p.Seq, p.Token.Epoch, l.Epoch)
	}
	for name, s := range v.nodes { // order-free: at most one breach
		if s.status == nil || !v.shownToDomainOf(p.Seq, s) {
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

// shownToDomainOf reports whether the token that a node's agent showed is of the domain that wrote a plan, as far as
// the node's records tell.
func (v *leadershipChecker) shownToDomainOf(plan uint64, s *nodeView) bool {
	if !v.story.claims() {
		return true
	}
	return s.drivers[s.status.Token.Generation] == domainOfPlan(plan)
}

// domainOfPlan returns the domain that wrote a plan.
func domainOfPlan(plan uint64) string {
	if cluster.DomainOfPlan(plan) != 0 {
		return otherDomain
	}
	return cluster.DefaultDomain
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
