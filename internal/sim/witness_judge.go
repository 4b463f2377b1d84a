package sim

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// judge checks the attempts that one revision touched against the invariants.
func (v *witness) judge(uint64) {
	for _, key := range v.fresh {
		v.checkEndReported(key)
	}
	v.fresh = v.fresh[:0]
	tasks, nodes := map[cluster.TaskID]bool{}, map[string]bool{}
	for a := range v.touched { // order-free: sets
		tasks[a.task], nodes[a.node] = true, true
		was := a.healthy
		wanted := a.desired == nil && a.planned && !a.ended || a.desired != nil && a.desired.Stop == nil
		a.healthy = wanted && a.seen.Healthy() && !a.seen.Gone
		if was && !a.healthy && (a.desired == nil || a.desired.Stop == nil) { // not by Berth's own act
			if p, ok := a.task.Parts(); ok {
				v.noteServiceChange(p.Cluster + "/" + p.Owner)
			}
		}
	}
	clear(v.touched)
	for task := range tasks { // order-free: each task by itself
		v.judgeTask(task)
	}
	for node := range nodes { // order-free: each node by itself
		v.judgeNode(node)
	}
}

// open reports whether the attempt has a record that wants it, and no outcome.
func (a *attempt) open() bool { return !a.ended && (a.planned || a.desired != nil) }

func (v *witness) judgeTask(task cluster.TaskID) {
	var first *attempt
	for a := range v.tasks[task] { // order-free: any two of them
		if !a.open() {
			continue
		}
		if first != nil && !v.restored {
			v.breach("one-attempt", "%s has two attempts without an outcome: %d on %s and %d on %s", task, first.number,
				first.node, a.number, a.node)
			return
		}
		first = a
	}
}

// holdsResources reports whether the attempt takes up room on its node.
func (a *attempt) holdsResources() bool {
	if a.seen != nil && a.seen.Gone {
		return false
	}
	return a.planned && !a.ended || a.desired != nil
}

func (v *witness) judgeNode(node string) {
	if v.liar(node) || v.restored {
		return // recovered attempts come from reports, which lack ports and sizes
	}
	var used cluster.MilliCPU
	ports := map[int]*attempt{}
	for a := range v.nodeView(node).attempts { // order-free: a sum
		if !a.holdsResources() {
			continue
		}
		used += v.cpu[a.def]
		for _, p := range a.ports { // order-free: a set
			if other := ports[p]; other != nil {
				v.breach("ports", "port %d of %s is held by %s/%d and %s/%d", p, node, other.task, other.number, a.task,
					a.number)
			}
			ports[p] = a
		}
	}
	v.checkDaemons(node)
	if used > nodeCPU {
		v.breach("capacity", "%s holds %d of %d mCPU", node, used, nodeCPU)
	}
}

// liar reports whether the node's reports may be false, or its records were overwritten.
func (v *witness) liar(node string) bool {
	return v.overwritten || v.story.hits(node, Lie)
}

// liedAbout reports whether an attempt of the task is on a lying node. An attempt that such a node calls gone is
// cleaned up with its number, and may be reported again.
func (v *witness) liedAbout(task cluster.TaskID) bool {
	for a := range v.tasks[task] { // order-free: any will do
		if v.liar(a.node) {
			return true
		}
	}
	return v.overwritten
}

// registration processes the record of a node's session.
func (v *witness) registration(node string, c *store.Change, was store.Record) {
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

// registered checks a registration that a server accepted: it must follow every earlier one.
func (v *witness) registered(node string, previous, session uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.nodeView(node)
	if previous < s.session && !v.restored {
		v.breach("session-back", "a registration of %s that follows session %d was taken after session %d had begun",
			node, previous, s.session)
	}
	s.session = max(s.session, session)
}

// verdict processes the control plane's record of a node.
func (v *witness) verdict(node string, c *store.Change, was store.Record) {
	s := v.nodeView(node)
	v.verdicts = time.Now()
	if c.Deleted {
		s.verdict = nil
		return
	}
	n, err := store.Decode[cluster.Node](c.Value)
	if err != nil {
		return
	}
	if old, err := store.Decode[cluster.Node](was.Value); was.Key != "" && err == nil && old.Domain != n.Domain {
		for a := range s.attempts { // order-free: at most one breach
			if a.open() {
				v.breach("owner-changed", "%s went from domain %s to %s while %s/%d stands on it", node, old.Domain,
					n.Domain, a.task, a.number)
				break
			}
		}
	}
	if n.State == cluster.NodeDown && (s.verdict == nil || s.verdict.State != cluster.NodeDown) && s.status != nil &&
		s.status.Session == n.Session && time.Since(s.status.Registered) < 20*time.Second && !v.declaredGone(node) {
		v.breach("down-unjust", "%s registered %v ago and is down: %s", node, time.Since(s.status.Registered), n.Reason)
	}
	s.verdict = n
}

// declaredGone reports whether the operator declared the machine gone.
func (v *witness) declaredGone(node string) bool {
	h, err := store.Decode[cluster.Host](v.records["host/"+node].Value)
	return err == nil && h.Gone
}

// event processes a batch of events. A batch is written once, and each end has one event.
func (v *witness) event(id string, c *store.Change) {
	if c.Deleted {
		return // the log is bounded
	}
	if was, ok := v.batches[id]; ok {
		if !bytes.Equal(was, c.Value) {
			v.breach("events", "the events %s were changed", id)
		}
		return
	}
	v.batches[id] = c.Value
	b, err := store.Decode[cluster.EventBatch](c.Value)
	if err != nil {
		v.breach("events", "the events %s cannot be read: %v", id, err)
		return
	}
	for i := range b.Events {
		e := &b.Events[i]
		if state, ok := strings.CutPrefix(e.Type, "task."); ok && cluster.State(state).Terminal() {
			v.endEvents[fmt.Sprint(e.Task, "/", e.Attempt)]++
		}
		if e.Type == "task.moving" { // even if it stops first and its end is reported later
			v.moving[fmt.Sprint(e.Task, "/", e.Attempt)] = true
		}
	}
}

// checkEndReported checks, after a revision, that every outcome in it has its event.
func (v *witness) checkEndReported(key string) {
	if n := v.endEvents[key]; n != 1 && (n != 0 || !v.moving[key]) && !v.restored && !v.liar(v.outcomes[key].node) &&
		!v.liedAbout(v.outcomes[key].task) {
		v.breach("events", "%d events tell of the end of %s", n, key)
	}
}

// Limits of leadership changes: more than maxTakeovers within a takeoverSpan are a breach.
const (
	takeoverSpan = time.Minute
	maxTakeovers = 12
)

func (v *witness) leader(c *store.Change) {
	l, err := store.Decode[cluster.Leader](c.Value)
	if c.Deleted || err != nil {
		return
	}
	if v.restoring { // a restored store has no leader
		v.restoring = false
		return
	}
	now := cluster.Token{Incarnation: l.Incarnation, Epoch: l.Epoch}
	if now.Compare(v.highest) <= 0 && !v.restored {
		v.breach("epoch-back", "after epoch %d of incarnation %d came %d of %d", v.highest.Epoch, v.highest.Incarnation,
			l.Epoch, l.Incarnation)
	}
	if now.Compare(v.highest) > 0 {
		v.highest = now
	}
	v.leaders = append(v.leaders, leadershipTerm{c.Modified, *l, time.Now()})
	if n := len(v.leaders) - 1 - maxTakeovers; n >= 0 && time.Since(v.leaders[n].at) < takeoverSpan &&
		v.story.Servers > 1 && !v.story.Has(ServerCrash, ServerPause, Cut, EngineCrash) {
		v.breach("ring", "the leadership changed hands %d times within %v", maxTakeovers+1, time.Since(v.leaders[n].at))
	}
}

// checkCommit checks the writes of a server's commit once its result is known.
func (v *witness) checkCommit(server string, groups []store.Group, result store.Result, err error) {
	if err != nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.restored || v.story.claims() { // the leaders of two domains both project and trim
		return
	}
	holder := ""
	for i := range v.leaders {
		if v.leaders[i].revision < result.Revision {
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

// checkLoss checks an outcome that declares an attempt lost.
func (v *witness) checkLoss(a *attempt, o *cluster.Outcome) {
	if o.State != cluster.StateLost || o.Reason != cluster.ReasonNodeDown || v.restored || v.declaredGone(a.node) {
		return
	}
	s := v.nodeView(a.node)
	if since := time.Since(s.heard); since < 20*time.Second && !v.quietSince.IsZero() &&
		time.Since(v.quietSince) > 2*time.Minute {
		v.breach("lost-unjust", "%s/%d was given up for the silence of %s, which was heard %v ago", a.task, a.number,
			a.node, since)
	}
}

// heard records that a node's agent got an answer.
func (v *witness) heard(node string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.nodeView(node).heard = time.Now()
}

// acknowledged records which ends were acknowledged to an agent.
func (v *witness) acknowledged(n *node, r reportOf, refused func(uuid string) bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, o := range r {
		a := v.attempts[o.UUID]
		if a == nil || !o.State.Terminal() || refused(o.UUID) || v.liar(n.name) || v.restored {
			continue
		}
		if a.acked = o.State; a.seen == nil || !a.seen.State.Terminal() {
			if !a.ended {
				v.breach("report-lost", "%s was told that the end of %s/%d (%s) is durable, and the store "+
					"has neither its status nor its outcome", n.name, a.task, a.number, o.State)
			}
		}
	}
}

// reportOf is the attempts of a report.
type reportOf = []cluster.Observed

// attemptElsewhere picks an attempt of another node, for a lying node.
func (v *witness) attemptElsewhere(node string, d *dice) (cluster.Observed, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var all []*attempt
	for _, a := range v.attempts {
		if a.node != node && a.open() {
			all = append(all, a)
		}
	}
	if len(all) == 0 {
		return cluster.Observed{}, false
	}
	a := all[d.of(len(all))]
	return cluster.Observed{Task: a.task, Attempt: a.number, UUID: a.uuid}, true
}

// checkDeadNodes checks that nodes that are silent for long are down.
func (v *witness) checkDeadNodes() {
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
		if s.status == nil || s.heard.IsZero() || time.Since(s.heard) < bound {
			continue
		}
		if s.verdict == nil || s.verdict.State != cluster.NodeDown {
			v.breach("down-late", "%s was last heard %v ago and is %s", name, time.Since(s.heard).Round(time.Second),
				fmt.Sprint(s.verdict))
		}
	}
}

// countLeaderFaults counts the begin (1) or end (-1) of a fault that hinders leaders.
func (v *witness) countLeaderFaults(n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.leaderFaults += n; v.leaderFaults > 0 {
		v.quietSince = time.Time{}
	} else {
		v.quietSince = time.Now()
	}
}
