package sim

import (
	"fmt"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// livenessChecker checks sessions of nodes, verdicts on them, and attempts that are given up for their silence.
type livenessChecker struct {
	*observation
	// quietSince is the end of the last fault that hinders leaders, zero during such a fault. leaderFaults counts the
	// present ones.
	quietSince   time.Time
	leaderFaults int
}

// applyRegistration processes the record of a node's session.
func (v *livenessChecker) applyRegistration(node string, c *store.Change, was store.Record) {
	s := v.nodeView(node)
	if c.Deleted {
		s.status, s.session = nil, 0
		return
	}
	n, err := store.Decode[cluster.NodeStatus](c.Value)
	if err != nil {
		return
	}
	if old, err := store.Decode[cluster.NodeStatus](was.Value); was.Key != "" && err == nil && !v.restored &&
		n.Session < old.Session {
		v.breach("session-back", "the session of %s went from %d to %d", node, old.Session, n.Session)
	}
	s.status = n
}

// checkRegistration checks a registration that a server accepted: it must follow every earlier one.
func (v *livenessChecker) checkRegistration(node string, previous, session uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.nodeView(node)
	if previous < s.session && !v.restored {
		v.breach("session-back", "a registration of %s that follows session %d was taken after session %d had begun",
			node, previous, s.session)
	}
	s.session = max(s.session, session)
}

// applyVerdict processes the control plane's record of a node.
func (v *livenessChecker) applyVerdict(node string, c *store.Change, was store.Record) {
	s := v.nodeView(node)
	v.verdictChanged = time.Now()
	if c.Deleted { // the node was forgotten, and its generations begin again with its next machine
		s.verdict, s.drivers = nil, nil
		return
	}
	n, err := store.Decode[cluster.Node](c.Value)
	if err != nil {
		return
	}
	if old, err := store.Decode[cluster.Node](was.Value); was.Key != "" && err == nil && old.Domain != n.Domain {
		for a := range s.attempts { // order-free: at most one breach
			if a.isOpen() {
				v.breach("owner-changed", "%s went from domain %s to %s while %s/%d is on it", node, old.Domain,
					n.Domain, a.task, a.number)
				break
			}
		}
	}
	if s.drivers == nil {
		s.drivers = map[uint64]string{}
	}
	if by := s.drivers[n.Generation]; n.Domain != "" && by != "" && by != n.Domain && !v.restored {
		v.breach("two-drivers", "%s and %s own %s in generation %d", by, n.Domain, node, n.Generation)
	}
	if n.Domain != "" {
		s.drivers[n.Generation] = n.Domain
	}
	if n.State == cluster.NodeDown && (s.verdict == nil || s.verdict.State != cluster.NodeDown) && s.status != nil &&
		s.status.Session == n.Session && time.Since(s.status.Registered) < 20*time.Second && !v.isDeclaredGone(node) {
		v.breach("down-unjust", "%s registered %v ago and is down: %s", node, time.Since(s.status.Registered), n.Reason)
	}
	s.verdict = n
}

// checkLoss checks an outcome that declares an attempt lost.
func (v *livenessChecker) checkLoss(a *attemptHistory, o *cluster.Outcome) {
	if o.State != cluster.StateLost || o.Reason != cluster.ReasonNodeDown || v.restored || v.isDeclaredGone(a.node) {
		return
	}
	s := v.nodeView(a.node)
	if since := time.Since(s.answered); since < 20*time.Second && !v.quietSince.IsZero() &&
		time.Since(v.quietSince) > 2*time.Minute {
		v.breach("lost-unjust", "%s/%d was given up for the silence of %s, which was heard %v ago", a.task, a.number,
			a.node, since)
	}
}

// checkDeadNodes checks that nodes that are silent for long are down.
func (v *livenessChecker) checkDeadNodes() {
	bound := 100 * time.Second
	if v.story.Seed%3 == 0 || v.story.Has(Pressure) {
		bound += time.Minute // idle nodes promise to report within that
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if n := len(v.leaders); n == 0 || time.Since(v.leaders[n-1].at) < bound || v.quietSince.IsZero() ||
		time.Since(v.quietSince) < bound {
		return
	}
	for name, s := range v.nodes { // order-free: each by itself
		if s.status == nil || s.requested.IsZero() || time.Since(s.requested) < bound {
			continue
		}
		if s.verdict == nil || s.verdict.State != cluster.NodeDown {
			v.breach("down-late", "%s was last heard %v ago and is %s", name,
				time.Since(s.requested).Round(time.Second), fmt.Sprint(s.verdict))
		}
	}
}

// countLeaderFaults counts the begin (1) or end (-1) of a fault that hinders leaders.
func (v *livenessChecker) countLeaderFaults(n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.leaderFaults += n; v.leaderFaults > 0 {
		v.quietSince = time.Time{}
	} else {
		v.quietSince = time.Now()
	}
}

func (v *livenessChecker) endFaults() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.leaderFaults, v.quietSince = 0, time.Now()
	v.addToChronicle("CALM")
}
