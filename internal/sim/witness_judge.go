package sim

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// judge holds what one revision touched against the invariants.
func (v *witness) judge(uint64) {
	for _, key := range v.fresh {
		v.untold(key)
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
				v.changed(p.Cluster + "/" + p.Owner)
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

// open reports whether the attempt has a record that asks for it, and no outcome.
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

// holds reports whether the attempt takes up room on its node.
func (a *attempt) holds() bool {
	if a.seen != nil && a.seen.Gone {
		return false
	}
	return a.planned && !a.ended || a.desired != nil
}

func (v *witness) judgeNode(node string) {
	if v.liar(node) || v.restored {
		return // what was lost is found again by what agents report, and that tells neither ports nor size
	}
	var used cluster.MilliCPU
	ports := map[int]*attempt{}
	for a := range v.shore(node).attempts { // order-free: a sum
		if !a.holds() {
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
	v.daemons(node)
	if used > nodeCPU {
		v.breach("capacity", "%s holds %d of %d mCPU", node, used, nodeCPU)
	}
}

// liar reports whether what the node says may be untrue, or its records were meddled with.
func (v *witness) liar(node string) bool {
	return v.meddled || v.story.hits(node, Lie)
}

// liedAbout reports whether an attempt of the task is on a liar. What such a node called gone is cleared away, numbers
// and all, and may be told of again.
func (v *witness) liedAbout(task cluster.TaskID) bool {
	for a := range v.tasks[task] { // order-free: any will do
		if v.liar(a.node) {
			return true
		}
	}
	return v.meddled
}

// registration takes the record of a node's session.
func (v *witness) registration(node string, c *store.Change, was store.Record) {
	s := v.shore(node)
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

// registered takes a registration that a server took: it must follow every one that came before.
func (v *witness) registered(node string, previous, session uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.shore(node)
	if previous < s.session && !v.restored {
		v.breach("session-back", "a registration of %s that follows session %d was taken after session %d had begun",
			node, previous, s.session)
	}
	s.session = max(s.session, session)
}

// verdict takes the control plane's record of a node.
func (v *witness) verdict(node string, c *store.Change, was store.Record) {
	s := v.shore(node)
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
		s.status.Session == n.Session && time.Since(s.status.Registered) < 20*time.Second && !v.lost(node) {
		v.breach("down-unjust", "%s registered %v ago and is down: %s", node, time.Since(s.status.Registered), n.Reason)
	}
	s.verdict = n
}

// lost reports whether the operator said that the machine will not come back.
func (v *witness) lost(node string) bool {
	h, err := store.Decode[cluster.Host](v.records["host/"+node].Value)
	return err == nil && h.Gone
}

// event takes a batch of events: it is written once, and tells of each end once.
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
			v.told[fmt.Sprint(e.Task, "/", e.Attempt)]++
		}
		if e.Type == "task.moving" { // also of one that stops first, whose end is told of later
			v.moving[fmt.Sprint(e.Task, "/", e.Attempt)] = true
		}
	}
}

// untold judges, once a revision is whole, that every outcome it wrote is told of.
func (v *witness) untold(key string) {
	if n := v.told[key]; n != 1 && (n != 0 || !v.moving[key]) && !v.restored && !v.liar(v.outcomes[key].node) &&
		!v.liedAbout(v.outcomes[key].task) {
		v.breach("events", "%d events tell of the end of %s", n, key)
	}
}

// Bounds of leadership: more takeovers than most within a ringSpan make a ring.
const (
	ringSpan = time.Minute
	ringMost = 12
)

func (v *witness) leader(c *store.Change) {
	l, err := store.Decode[cluster.Leader](c.Value)
	if c.Deleted || err != nil {
		return
	}
	if v.restoring { // what was restored is not led by anybody
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
	v.leaders = append(v.leaders, reign{c.Modified, *l, time.Now()})
	if n := len(v.leaders) - 1 - ringMost; n >= 0 && time.Since(v.leaders[n].at) < ringSpan && v.story.Servers > 1 &&
		!v.story.Has(ServerCrash, ServerPause, Cut, EngineCrash) {
		v.breach("ring", "the leadership changed hands %d times within %v", ringMost+1, time.Since(v.leaders[n].at))
	}
}

// wrote judges what a server's commit wrote, once it is known what became of it.
func (v *witness) wrote(server string, groups []store.Group, result store.Result, err error) {
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
			if plane(op.Key) && holder != server {
				v.breach("fenced", "%s wrote %s at revision %d, when %q led", server, op.Key, result.Revision, holder)
				return
			}
		}
	}
}

// plane reports whether only the leader writes a key.
func plane(key string) bool {
	return strings.HasPrefix(key, string(prefix)+"plan/") || strings.HasPrefix(key, string(prefix)+"attempt/") ||
		strings.HasPrefix(key, string(prefix)+"node/")
}

// justly judges an outcome that says an attempt is lost.
func (v *witness) justly(a *attempt, o *cluster.Outcome) {
	if o.State != cluster.StateLost || o.Reason != cluster.ReasonNodeDown || v.restored || v.lost(a.node) {
		return
	}
	s := v.shore(a.node)
	if since := time.Since(s.heard); since < 20*time.Second && !v.quietSince.IsZero() &&
		time.Since(v.quietSince) > 2*time.Minute {
		v.breach("lost-unjust", "%s/%d was given up for the silence of %s, which was heard %v ago", a.task, a.number,
			a.node, since)
	}
}

// heard notes that a node's agent had an answer.
func (v *witness) heard(node string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.shore(node).heard = time.Now()
}

// acknowledged notes which ends an agent was told are durable.
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

// elsewhere picks an attempt that runs on another node, for a liar.
func (v *witness) elsewhere(node string, d *dice) (cluster.Observed, bool) {
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

// deaths looks for nodes that nobody has heard for long and that are not down.
func (v *witness) deaths() {
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

// storm notes that a fault begins (1) or ends (-1) that keeps leaders from their work.
func (v *witness) storm(n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.storms += n; v.storms > 0 {
		v.quietSince = time.Time{}
	} else {
		v.quietSince = time.Now()
	}
}
