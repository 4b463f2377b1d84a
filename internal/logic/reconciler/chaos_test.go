package reconciler_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/logic/watcher"
)

// chaos drives the model at random and checks every decision on the way.
type chaos struct {
	*rapid.T
	*world
	machines int
	draws    uint64
	// closed is the version that the gates reject.
	closed cluster.Ref
	// seen counts events, so that the test can prove that they occurred.
	seen map[string]int
}

// choose draws a number below n with equal probability. The ranges of rapid prefer small numbers, and a world in which
// every turn is the same covers little.
func (c *chaos) choose(label string, n int) int {
	c.draws++
	x := rapid.Uint64().Draw(c.T, label) + c.draws*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return int((x ^ x>>31) % uint64(n))
}

func (c *chaos) coin(label string) bool { return c.choose(label, 2) == 0 }

// check checks the rules of every decision.
func (c *chaos) check(d reconciler.Decision) {
	c.Helper()
	tasks := c.tasks()
	shuffled := rapid.Permutation(tasks).Draw(c.T, "order")
	if diff := cmp.Diff(d, c.decide(shuffled)); diff != "" {
		c.Fatalf("the decision depends on the order of the tasks:\n%s", diff)
	}
	for _, p := range d.Pending {
		c.checkPending(p)
	}
	for i := range d.Conclusions {
		o := d.Conclusions[i].Outcome
		if !o.State.Terminal() || o.UUID == "" || o.Node == "" || o.Owner != c.owner || o.Ended.IsZero() {
			c.Fatalf("outcome %+v", o)
		}
		c.seen["outcome "+string(o.State)]++
	}
	c.checkBudget(d)
	for i := range d.Stops {
		s := &d.Stops[i]
		if s.Desired.Stop == nil || s.Desired.Stop.Reason == "" || s.Desired.UUID == "" || s.Event.Type == "" {
			c.Fatalf("stop %+v", s)
		}
		r := c.find(s.Desired.Task, s.Desired.Attempt)
		if r.Outcome == nil && s.Desired.Stop.Ended {
			c.Fatalf("attempt %d of %s gets a stop that says that it ended, and has no outcome", r.attempt, r.id)
		}
		c.seen["stop "+string(s.Desired.Stop.Reason)]++
	}
}

// checkBudget checks that voluntary stops leave enough healthy tasks (P5.4).
func (c *chaos) checkBudget(d reconciler.Decision) {
	c.Helper()
	if c.service == nil {
		return
	}
	least := c.limits().MinHealthy
	c.checkPermits(d, least)
	was := map[*record]*cluster.Stop{}
	write := func(s *cluster.Desired) {
		if r := c.find(s.Task, s.Attempt); r.Desired != nil {
			was[r], r.Desired.Stop = r.Desired.Stop, s.Stop
		}
	}
	voluntary := func(s *reconciler.Stop) bool { return s.Desired.Stop.Class == cluster.StopVoluntary }
	for i := range d.Stops { // mandatory stops come first
		if !voluntary(&d.Stops[i]) {
			write(&d.Stops[i].Desired)
		}
	}
	before := c.healthy()
	for i := range d.Stops {
		if voluntary(&d.Stops[i]) {
			write(&d.Stops[i].Desired)
		}
	}
	if after := c.healthy(); after < min(before, least) {
		c.Fatalf("voluntary stops leave %d of %d healthy tasks, want %d:\n%s%s", after, before, least, describe(d),
			c.listAttempts())
	}
	c.checkMoves(d)
	for r, stop := range was { // order-free: each is restored by itself
		r.Desired.Stop = stop
	}
}

// checkMoves checks that moves leave all healthy tasks but one, whichever of them find a place. It writes each to the
// records.
func (c *chaos) checkMoves(d reconciler.Decision) {
	c.Helper()
	before, limited := c.healthy(), 0
	for _, i := range rapid.Permutation(indices(len(d.Moves))).Draw(c.T, "places") {
		m := &d.Moves[i]
		if m.Stop == nil || m.Limit > 0 && limited == m.Limit {
			continue
		}
		r := c.find(m.Stop.Desired.Task, m.Stop.Desired.Attempt)
		stopped := *r.Desired
		stopped.Stop = m.Stop.Desired.Stop
		was := r.Desired
		r.Desired = &stopped
		defer func() { r.Desired = was }()
		if m.Limit > 0 {
			limited++
		}
	}
	if after, least := c.healthy(), min(c.limits().MinHealthy, c.service.Desired()-1); after < min(before, least) {
		c.Fatalf("moves leave %d of %d healthy tasks, want %d:\n%s%s", after, before, least, describe(d),
			c.listAttempts())
	}
	c.seen["limited moves"] += limited
}

func indices(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

func (c *chaos) checkPending(p cluster.Pending) {
	c.Helper()
	c.seen["pending"]++
	newest, occupied := 0, []string(nil)
	for _, r := range c.records {
		if r.id != p.Task {
			continue
		}
		newest = max(newest, r.attempt)
		if r.Desired != nil || r.Observed != nil {
			occupied = append(occupied, r.node())
		}
		if r.Outcome == nil {
			c.Fatalf("%s is pending and attempt %d has no outcome", p.Task, r.attempt)
		}
		if c.job != nil && r.Outcome.State == cluster.StateSucceeded {
			c.Fatalf("%s is pending and has succeeded", p.Task)
		}
	}
	slices.Sort(occupied)
	if !slices.Equal(slices.Compact(occupied), p.ExcludedNodes) || p.Attempt != newest+1 {
		c.Fatalf("%s requests attempt %d off %v, want %d off %v", p.Task, p.Attempt, p.ExcludedNodes, newest+1,
			occupied)
	}
	parts, ok := p.Task.Parts()
	if !ok || parts.Owner != c.owner.Name || p.Owner != c.owner || p.Definition.Version == 0 || p.OwnerRev != 7 ||
		p.Count < 1 || p.Priority < 1 || p.OnDisconnect == "" || !p.NeedsImage {
		c.Fatalf("pending %+v", p)
	}
}

// checkLive checks that no task lives twice that must not.
func (c *chaos) checkLive() {
	c.Helper()
	open := map[cluster.TaskID]int{}
	for _, r := range c.records {
		if r.Outcome == nil {
			open[r.id]++
		}
	}
	for id, n := range open { // order-free: each is checked by itself
		if n > 1 {
			c.Fatalf("%s has %d attempts without an outcome", id, n)
		}
	}
	for id, n := range c.running() { // order-free
		wait := c.find(id, c.newestNumber(id)).Desired
		if n > 1 && wait != nil && wait.OnDisconnect == cluster.DisconnectWait {
			c.Fatalf("%s must not live twice and does:\n%s", id, c.listAttempts())
		}
		if n > 1 {
			c.seen["lives twice"]++ // on_disconnect keep, while its node is unreachable
		}
	}
}

func (c *chaos) newestNumber(id cluster.TaskID) int {
	n := 0
	for _, r := range c.records {
		if r.id == id {
			n = max(n, r.attempt)
		}
	}
	return n
}

// turn does one random thing to the world.
func (c *chaos) turn() {
	c.Helper()
	switch c.choose("turn", 10) {
	case 0, 1, 2:
		d := c.decide(c.tasks())
		c.check(d)
		c.commitSome(d)
	case 3, 4, 5, 6:
		for _, r := range slices.Clone(c.records) {
			if c.choose("agent", 4) > 0 {
				c.step(r)
			}
		}
	case 7:
		c.disturb()
	case 8:
		if len(c.records) > 0 && c.choose("crash", 2) == 0 {
			c.crash(c.records[c.choose("crashed", len(c.records))], cluster.ReasonExit)
		}
	case 9:
		c.now = c.now.Add(time.Duration(c.choose("wait", 90)) * time.Second)
	}
	c.checkLive()
}

// outage lets all tasks come up, cuts off two nodes and sometimes brings one back: rare by chance alone.
func (c *chaos) outage() {
	c.Helper()
	rounds := func(n int) {
		for range n {
			c.check(c.decide(c.tasks()))
			if _, err := c.round(); err != nil {
				c.Fatal(err)
			}
			c.checkLive()
		}
	}
	usual := c.goesOn
	c.goesOn = func() bool { return true }
	rounds(5)
	c.absent["n1"], c.absent["n2"] = watcher.Silent, watcher.Silent
	rounds(5)
	if c.coin("return") {
		c.absent["n1"] = watcher.Present
		rounds(3)
	}
	c.goesOn = usual
}

// commitSome writes and places a random part of a decision.
func (c *chaos) commitSome(d reconciler.Decision) {
	keep := func(n int, label string, cut func(i int)) {
		for i := n - 1; i >= 0; i-- {
			if c.choose(label, 4) == 0 {
				cut(i)
			}
		}
	}
	keep(len(d.Conclusions), "refused outcome", func(i int) { d.Conclusions = slices.Delete(d.Conclusions, i, i+1) })
	keep(len(d.Stops), "refused stop", func(i int) { d.Stops = slices.Delete(d.Stops, i, i+1) })
	keep(len(d.Cleanups), "refused cleanup", func(i int) { d.Cleanups = slices.Delete(d.Cleanups, i, i+1) })
	c.commit(d)
	limited := 0
	for i := range d.Moves {
		m := &d.Moves[i]
		if (m.Limit == 0 || limited < m.Limit) && c.choose("moved", 4) > 0 && c.commitMove(m) {
			c.seen["moved"]++
			if m.Limit > 0 {
				limited++
			}
		}
	}
	for _, p := range d.Pending {
		if p.Hold != (cluster.Hold{}) {
			continue
		}
		node := c.nodes[c.choose("node", len(c.nodes))]
		if c.choose("placed", 4) == 0 || !c.acceptsTasks(node, &p) {
			continue
		}
		if err := c.place(p, node); err != nil {
			c.Fatal(err)
		}
	}
}

// disturb changes the leader's view of a node.
func (c *chaos) disturb() {
	i := c.choose("disturbed", len(c.nodes))
	node := c.nodes[i]
	switch c.choose("how", 10) {
	case 8:
		c.leaveSome()
	case 9:
		clear(c.leaves)
	case 5:
		c.drains[node] = &cluster.Drain{Since: c.now, Force: c.choose("force", 4) == 0}
		if c.coin("deadline") {
			c.drains[node].Deadline = c.now.Add(time.Minute)
		}
	case 6:
		delete(c.drains, node)
	case 7: // the store loses a record
		if len(c.records) > 0 {
			if r := c.records[c.choose("lost record", len(c.records))]; r.Observed != nil && r.Outcome == nil {
				r.Desired, r.DesiredRev = nil, 0
				c.seen["record lost"]++
			}
		}
	case 0:
		c.absent[node] = watcher.Suspected
	case 1:
		c.absent[node] = watcher.Silent
	case 2: // the node is destroyed, and another one replaces it
		c.absent[node] = watcher.Gone
		for _, r := range c.records {
			if r.node() == node {
				r.real = nil
			}
		}
		c.machines++
		c.nodes[i] = fmt.Sprintf("m%d", c.machines)
	default:
		c.absent[node] = watcher.Present
	}
}

// heal ends all faults and runs the world until nothing is left to do.
func (c *chaos) heal() {
	c.Helper()
	for _, n := range c.nodes {
		c.absent[n] = watcher.Present
	}
	clear(c.drains)
	clear(c.leaves)
	c.goesOn = nil
	for range 400 {
		d, err := c.round()
		if err != nil {
			c.Fatal(err)
		}
		c.check(c.decide(c.tasks()))
		if c.agentsRequestPermits {
			c.now = c.now.Add(10 * time.Second) // permits expire soon
		} else {
			c.now = c.now.Add(time.Minute)
		}
		quiet := d.Empty()
		for _, r := range c.records {
			quiet = quiet && (r.Outcome != nil || r.Observed.Healthy())
		}
		if again := c.decide(c.tasks()); quiet && again.Empty() {
			return
		}
	}
	c.Fatalf("it does not converge:\n%s%s", describe(c.decide(c.tasks())), c.listAttempts())
}
