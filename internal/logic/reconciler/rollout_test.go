package reconciler_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/logic/watcher"
)

// policy draws an update policy.
func (c *chaos) policy() cluster.Update {
	portion := func(label string, most int) *cluster.Portion {
		if c.coin(label + "?") {
			return nil
		}
		if c.coin(label + " in percent") {
			return &cluster.Portion{N: 25 * (1 + c.choose(label, 4)), Percent: true}
		}
		return &cluster.Portion{N: c.choose(label, most+1)}
	}
	u := cluster.Update{
		MaxSurge: portion("surge", 2), MinHealthy: portion("least", 4), Parallelism: portion("parallelism", 3),
		AutoPromote:     true,
		HealthyDeadline: cluster.Duration(90 * time.Second),
	}
	if c.choose("canaries?", 3) == 0 {
		u.Canaries = &cluster.Portion{N: 1 + c.choose("canaries", 3)}
	}
	if c.choose("stagger?", 3) == 0 {
		u.Stagger = cluster.Duration(30 * time.Second)
	}
	if c.choose("order?", 3) == 0 {
		u.Order = cluster.StopFirst
	}
	if c.choose("gate?", 3) == 0 {
		u.Gates = []cluster.Gate{{Name: "errors", HTTP: "http://gate"}}
	}
	return u
}

// deployed returns a world with a healthy service of n tasks, a random update policy, and a second version for a
// rollout.
func deployed(t *rapid.T, seen map[string]int) (c chaos, next cluster.Ref) {
	c = chaos{T: t, world: newWorld(), seen: seen}
	c.nodes = []string{"n1", "n2", "n3", "n4", "n5", "n6"}
	pinned := c.choose("pinned", 4) == 0
	ports := func(d *cluster.TaskDefinition) {
		if pinned {
			d.Ports = []cluster.Port{{Name: "http", Port: 80}}
		}
	}
	first := c.define("web@1", ports)
	next = c.define("web@2", ports)
	c.service = &cluster.Service{
		Name: "web", Definition: first, Count: 1 +
			c.choose("count", 5), Update: c.policy(), Lifespan: cluster.Lifespan{Generation: 1},
	}
	c.service.SetDefaults()
	c.owner = c.service.Owner()
	c.agentsRequestPermits = c.coin("asks")
	c.turns(20, nil)
	if c.healthy() != c.service.Count || c.rollout.State != cluster.RolloutComplete {
		t.Fatalf("a first deployment: %s, %d healthy:\n%s", c.rollout.State, c.healthy(), c.listAttempts())
	}
	return c, next
}

func (c *chaos) limits() cluster.Limits {
	def := c.definitions[c.service.Definition]
	return c.service.Update.Limits(c.service.Desired(), def != nil && def.Pinned())
}

// checkPermits checks each permit. A healthy attempt gets one only while enough others are healthy (P5.4): those
// without a stop, and those that await a permit. A permit answers the newest request of an agent that reports.
func (c *chaos) checkPermits(d reconciler.Decision, least int) {
	c.Helper()
	for i := range d.Stops {
		s := &d.Stops[i]
		stop := s.Desired.Stop
		if stop.Permit == "" {
			continue
		}
		c.seen["permit"]++
		r := c.find(s.Desired.Task, s.Desired.Attempt)
		if stop.Class != cluster.StopVoluntary || stop.Permit != r.Observed.Ask || r.Desired.Stop == nil ||
			c.absent[r.node()] != watcher.Present {
			c.Fatalf("permit %s for attempt %d of %s, which asks %q", stop.Permit, r.attempt, r.id, r.Observed.Ask)
		}
		if r.Desired.OnDisconnect == cluster.DisconnectWait {
			least = min(least, c.service.Desired()-1)
		}
		if r.Observed.Healthy() && !c.healthyTasks()[r.id] && c.healthy()+c.asking(d.Stops[:i], r) < least {
			c.Fatalf("attempt %d of %s may stop with %d healthy, want %d:\n%s%s", r.attempt, r.id, c.healthy(), least,
				describe(d), c.listAttempts())
		}
	}
}

// asking counts the other tasks that have a stop and run until their agent has a permit. It leaves out the stops that
// are given now.
func (c *chaos) asking(given []reconciler.Stop, r *record) int {
	tasks := map[cluster.TaskID]bool{}
	for _, o := range c.records {
		if o.id == r.id || !o.Observed.Healthy() || o.Desired == nil || o.Desired.Stop == nil ||
			c.absent[o.node()] != watcher.Present ||
			c.healthyTasks()[o.id] {
			continue
		}
		answered := slices.ContainsFunc(given, func(s reconciler.Stop) bool { return s.Desired.UUID == o.Desired.UUID })
		if ask := o.Observed.Ask; ask != "" && ask != o.Desired.Stop.Permit && !answered {
			tasks[o.id] = true
		}
	}
	return len(tasks)
}

// turns runs n turns of five seconds, with agents' steps in any order, and calls check after each.
func (c *chaos) turns(n int, check func()) {
	c.Helper()
	for range n {
		c.measure()
		d := c.decide(c.tasks())
		c.check(d)
		c.commit(d)
		if c.rollout != nil {
			c.seen["rollout "+string(c.rollout.State)]++
		}
		if err := c.placeAll(d); err != nil {
			c.Fatal(err)
		}
		for i := range d.Moves {
			c.commitMove(&d.Moves[i])
		}
		for _, r := range slices.Clone(c.records) {
			if c.choose("agent", 4) > 0 {
				c.step(r)
			}
		}
		c.checkLive()
		c.now = c.now.Add(5 * time.Second)
		if check != nil {
			check()
		}
	}
}

// measure measures the gates, some time after the rollout's last change.
func (c *chaos) measure() {
	c.gates = nil
	if c.rollout == nil || c.rollout.State.Ended() || c.rollout.Most == 0 ||
		c.now.Sub(c.rollout.Changed) < 10*time.Second {
		return
	}
	for _, g := range c.service.Update.Gates {
		r := cluster.GateResult{Name: g.Name, Passes: 1}
		if c.rollout.Definition == c.closed {
			r.Passes, r.Failures = 0, cluster.DefaultGateFailures
		}
		c.gates = append(c.gates, r)
	}
}

// ending reports whether the attempt has a stop, or ended without an outcome yet.
func (r *record) ending() bool {
	return r.Observed != nil && r.Observed.State.Terminal() || r.Desired != nil && r.Desired.Stop != nil
}

// checkLimits checks that no more tasks live and start than the policy allows.
func (c *chaos) checkLimits() {
	c.Helper()
	l := c.limits()
	live, coming, useful := map[cluster.TaskID]bool{}, 0, false
	for _, r := range c.records {
		if r.Outcome != nil {
			continue
		}
		live[r.id] = true
		parts, _ := r.id.Parts()
		newest := parts.Generation == c.service.Generation || r.Desired != nil &&
			r.Desired.Definition == c.service.Definition
		if newest && !r.Observed.Healthy() && !r.ending() {
			coming++
		}
		useful = useful || !newest && r.Observed.Healthy()
	}
	if most := l.Surge + c.service.Count + l.Canaries; len(live) > most {
		c.Fatalf("%d tasks live, want at most %d:\n%s", len(live), most, c.listAttempts())
	}
	if most := max(l.Parallelism, l.Canaries); useful && coming > most {
		c.Fatalf("%d tasks on their way, want at most %d:\n%s", coming, most, c.listAttempts())
	}
}

// TestRolloutsOfAnyPolicy rolls out a good or a bad build in a world without other faults, under any policy. The
// service keeps the policy's minimum and maximum. The good build completes; after the bad one all tasks are healthy in
// the version before.
func TestRolloutsOfAnyPolicy(t *testing.T) {
	seen := map[string]int{}
	checkUntilSeen(t, seen, []string{
		"rollout rolling", "rollout complete", "rollout canary", "rolled back", "completed",
		"permit", "gate closed",
	}, func(t *rapid.T) {
		c, next := deployed(t, seen)
		c.agentsRequestPermits = c.coin("asks now")
		bad := c.choose("bad", 4)
		c.sick[next] = bad == 1
		if bad == 3 && len(c.service.Update.Gates) > 0 {
			c.closed = next
			seen["gate closed"]++
		} else if bad == 3 {
			bad = 0
		}
		c.ask(func(s *cluster.Service) { s.Definition = next })
		least := c.limits().MinHealthy
		failed := c.service.Generation
		c.turns(200, func() {
			c.checkLimits()
			if bad == 2 { // the build ends badly as soon as it runs
				for _, r := range c.records {
					if r.Outcome == nil && r.Desired != nil && r.Desired.Definition == next && r.Desired.Stop == nil {
						c.crash(r, cluster.ReasonExit)
					}
				}
			}
			if c.healthy() < least {
				t.Fatalf("%d healthy, want %d:\n%s", c.healthy(), least, c.listAttempts())
			}
		})
		want := next
		if bad > 0 {
			want = cluster.Ref{Name: "web", Version: 1}
			if c.service.Rollout.Reverted != failed || c.rollout.History[0].State != cluster.RolloutRolledBack {
				t.Fatalf("a bad build was not taken back: %+v\n%s", c.rollout, c.listAttempts())
			}
			seen["rolled back"]++
		} else {
			seen["completed"]++
		}
		c.checkEnded(want)
	})
}

// checkEnded checks that the rollout is complete and only healthy tasks of that version are left.
func (c *chaos) checkEnded(want cluster.Ref) {
	c.Helper()
	st := reconciler.StatusOfService(c.input(c.tasks()))
	if c.rollout.State != cluster.RolloutComplete || c.service.Definition != want ||
		st.State != cluster.ServiceHealthy || len(st.Versions) != 1 ||
		st.Versions[0].Definition != want || c.rollout.Healthy.Definition != want {
		c.Fatalf("%s, %s, %+v; want %s:\n%s%s", c.rollout.State, c.service.Definition, st, want, c.listAttempts(),
			describe(c.decide(c.tasks())))
	}
}

// TestRolloutsUnderFaults rolls out builds while nodes fall silent, tasks crash and users scale, pause and undo. Each
// decision follows the rules. Once the faults end, every rollout ends with all tasks healthy.
func TestRolloutsUnderFaults(t *testing.T) {
	seen := map[string]int{}
	checkUntilSeen(t, seen, []string{
		"paused", "undone", "scaled", "permit", "rollout canary", "rolled back",
		"outcome lost",
	}, func(t *rapid.T) {
		c, next := deployed(t, seen)
		c.service.Update.ProgressDeadline = cluster.Duration(4 * time.Minute)
		other := c.define("web@3", nil)
		c.sick[other] = true
		refs := []cluster.Ref{next, other, {Name: "web", Version: 1}}
		for range rapid.IntRange(5, 15).Draw(t, "faults") {
			c.turns(1+c.choose("turns", 20), nil)
			c.disturbRollout(refs)
		}
		for _, n := range c.nodes {
			c.absent[n] = watcher.Present
		}
		good := cluster.Ref{Name: "web", Version: 1}
		c.ask(func(s *cluster.Service) { s.Definition, s.Count = good, max(1, s.Count) })
		if c.service.Rollout.Reverted != 0 && c.rollout.State == cluster.RolloutFailed {
			c.service.Generation++ // the same definition again: a restart
		}
		c.turns(200, nil)
		if c.rollout.State == cluster.RolloutRolledBack || c.rollout.State == cluster.RolloutFailed {
			seen["failed at rest"]++
		}
		if !c.rollout.State.Ended() || c.healthy() < c.service.Count {
			t.Fatalf("%+v (%+v): %d healthy of %d:\n%s%s", c.rollout, c.service, c.healthy(), c.service.Count,
				c.listAttempts(), describe(c.decide(c.tasks())))
		}
	})
}

// TestFailedRolloutsKeepTrying lets rollouts fail without a rollback, while tasks of all versions crash permanently,
// nodes come and go, and the user scales, also to 0. The number of wanted tasks is never lower than the service's
// count.
func TestFailedRolloutsKeepTrying(t *testing.T) {
	seen := map[string]int{}
	checkUntilSeen(t, seen, []string{"rollout failed", "scaled", "nothing", "never healthy"}, func(t *rapid.T) {
		c, next := deployed(t, seen)
		off, first := false, c.service.Definition
		c.service.Update.AutoRollback, c.sick[next] = &off, true
		if c.choose("never healthy", 3) == 0 { // no version is known to work
			c.rollout.Healthy = nil
			seen["never healthy"]++
		}
		c.ask(func(s *cluster.Service) { s.Definition = next })
		for range rapid.IntRange(5, 10).Draw(t, "faults") {
			c.turns(1+c.choose("turns", 20), c.checkWanted)
			switch c.choose("fault", 4) {
			case 3: // a requirement of both versions is missing
				c.sick[first] = !c.sick[first]
			case 0:
				c.ask(func(s *cluster.Service) { s.Count = c.choose("scaled", 5) })
				seen["scaled"]++
				if c.service.Count == 0 {
					seen["nothing"]++
				}
			case 1:
				for _, r := range c.records {
					if c.coin("crashed") {
						c.crash(r, cluster.ReasonRestartLimit)
					}
				}
			default:
				c.absent[c.nodes[c.choose("node", len(c.nodes))]] = []watcher.Absence{
					watcher.Silent,
					watcher.Present,
				}[c.choose("how", 2)]
			}
		}
		for _, n := range c.nodes {
			c.absent[n] = watcher.Present
		}
		c.turns(100, c.checkWanted)
	})
}

// checkWanted checks that a decision about a failed rollout wants as many tasks as the service's count: live tasks
// without a stop, and tasks that are placed now or later.
func (c *chaos) checkWanted() {
	c.Helper()
	if c.rollout == nil || c.rollout.State != cluster.RolloutFailed {
		return
	}
	d := c.decide(c.tasks())
	tasks := map[cluster.TaskID]bool{}
	for _, r := range c.records {
		if r.Outcome == nil {
			tasks[r.id] = true
		}
	}
	for i := range d.Stops {
		// An ended attempt was replaced by another one, and an attempt with a permit takes up its place until it ends.
		if s := &d.Stops[i].Desired; !s.Stop.Ended && s.Stop.Permit == "" {
			delete(tasks, s.Task)
		}
	}
	for _, w := range d.Waits {
		if w.Code == cluster.ReasonRescheduled {
			tasks[w.Task] = true
		}
	}
	for i := range d.Conclusions { // a task that ends now begins again with the next decision
		tasks[d.Conclusions[i].Outcome.Task] = true
	}
	for i := range d.Pending {
		tasks[d.Pending[i].Task] = true
	}
	if len(tasks) < c.service.Desired() {
		c.Fatalf("%d tasks are wanted, want %d:\n%s%s", len(tasks), c.service.Desired(), describe(d), c.listAttempts())
	}
}

// disturbRollout does one thing to the world, or for the user.
func (c *chaos) disturbRollout(refs []cluster.Ref) {
	switch c.choose("stir", 8) {
	case 0, 1:
		was := c.service.Definition
		c.ask(func(s *cluster.Service) { s.Definition = refs[c.choose("definition", len(refs))] })
		if c.service.Definition != was {
			c.seen["undone"]++
		}
	case 2:
		c.ask(func(s *cluster.Service) { s.Count = 1 + c.choose("scaled", 6) })
		c.seen["scaled"]++
	case 3:
		c.ask(func(s *cluster.Service) { s.Rollout.Paused = c.coin("paused") })
		if c.service.Rollout.Paused {
			c.seen["paused"]++
		}
	case 4:
		if len(c.records) > 0 {
			c.crash(c.records[c.choose("crashed", len(c.records))], cluster.ReasonUnknownExit)
		}
	default:
		node := c.nodes[c.choose("disturbed", len(c.nodes))]
		c.absent[node] = []watcher.Absence{
			watcher.Suspected, watcher.Silent, watcher.Present,
			watcher.Present,
		}[c.choose("how", 4)]
	}
	if len(c.rollout.History) > 0 && c.rollout.History[0].State == cluster.RolloutRolledBack {
		c.seen["rolled back"]++
	}
}

// TestDaemonsOfAnyPolicy rolls out a good or a bad build over the nodes of a daemon, under any policy. There are never
// two tasks on a node together and never fewer healthy tasks than the minimum. It ends as other rollouts do, with one
// healthy task on each node.
func TestDaemonsOfAnyPolicy(t *testing.T) {
	seen := map[string]int{}
	checkUntilSeen(t, seen, []string{"rollout canary", "rolled back", "completed", "permit"}, func(t *rapid.T) {
		c := chaos{T: t, world: newWorld(), seen: seen}
		first, next := c.define("log@1", nil), c.define("log@2", nil)
		c.nodes = []string{"n1", "n2", "n3", "n4", "n5"}[:1+c.choose("nodes", 5)]
		c.matching = slices.Clone(c.nodes)
		c.service = &cluster.Service{
			Name: "log", Definition: first, Mode: cluster.ModeDaemon, Update: c.policy(),
			Lifespan: cluster.Lifespan{Generation: 1},
		}
		c.service.SetDefaults()
		c.owner = c.service.Owner()
		c.turnsOnNodes(20)
		if c.healthy() != len(c.nodes) {
			t.Fatalf("%d healthy on %d nodes:\n%s", c.healthy(), len(c.nodes), c.listAttempts())
		}
		c.agentsRequestPermits, c.sick[next] = c.coin("asks"), c.coin("bad")
		c.ask(func(s *cluster.Service) { s.Definition = next })
		c.turnsOnNodes(200)
		want := next
		if c.sick[next] {
			want = first
			seen["rolled back"]++
		} else {
			seen["completed"]++
		}
		if c.service.Definition != want || c.rollout.State != cluster.RolloutComplete || c.healthy() != len(c.nodes) {
			t.Fatalf("%+v: %s, %d healthy on %d nodes:\n%s", c.rollout, c.service.Definition, c.healthy(), len(c.nodes),
				c.listAttempts())
		}
	})
}

// turnsOnNodes runs n turns of five seconds of a daemon.
func (c *chaos) turnsOnNodes(n int) {
	c.Helper()
	for range n {
		c.measure()
		d := c.decide(c.tasks())
		l := c.service.Update.Limits(len(c.nodes), true)
		least := min(l.MinHealthy, len(c.nodes)-1)
		c.checkPermits(d, least)
		before := c.healthy()
		c.commit(d)
		if after := c.healthy(); after < min(before, least) {
			c.Fatalf("%d of %d healthy tasks are left, want %d:\n%s%s", after, before, least, describe(d),
				c.listAttempts())
		}
		for _, p := range d.Pending {
			if !p.Daemon || p.OnlyNode == "" {
				c.Fatalf("pending %+v", p)
			}
		}
		if c.rollout != nil {
			c.seen["rollout "+string(c.rollout.State)]++
		}
		if err := c.placeAll(d); err != nil {
			c.Fatal(err)
		}
		live := map[string]int{}
		for _, r := range slices.Clone(c.records) {
			if r.Outcome == nil {
				live[r.node()]++
			}
			if live[r.node()] > 1 {
				c.Fatalf("two tasks on %s:\n%s", r.node(), c.listAttempts())
			}
			if c.choose("agent", 4) > 0 {
				c.step(r)
			}
		}
		c.now = c.now.Add(5 * time.Second)
	}
}
