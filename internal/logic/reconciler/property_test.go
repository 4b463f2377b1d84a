package reconciler_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/logic/watcher"
	"github.com/berthd/berth/internal/testkit"
)

// chaos drives the model at random and checks every decision on the way.
type chaos struct {
	*rapid.T
	*world
	machines int
	draws    uint64
	// closed is the version that the gates do not let pass.
	closed cluster.Ref
	// seen counts what happened, so that the test can say whether it looked at anything.
	seen map[string]int
}

// choose draws a number below n, each as likely as the others: rapid's own ranges prefer small numbers, and a world of
// which every turn is the same shows little.
func (c *chaos) choose(label string, n int) int {
	c.draws++
	x := rapid.Uint64().Draw(c.T, label) + c.draws*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return int((x ^ x>>31) % uint64(n))
}

func (c *chaos) some(label string) bool { return c.choose(label, 2) == 0 }

// check demands what must hold of any decision.
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
			c.Fatalf("attempt %d of %s is told that it has an outcome, and has none", r.attempt, r.id)
		}
		c.seen["stop "+string(s.Desired.Stop.Reason)]++
	}
}

// checkBudget demands that voluntary stops leave as many healthy tasks as are wanted (P5.4).
func (c *chaos) checkBudget(d reconciler.Decision) {
	c.Helper()
	if c.service == nil {
		return
	}
	least := c.limits().Least
	c.checkPermits(d, least)
	was := map[*record]*cluster.Stop{}
	write := func(s *cluster.Desired) {
		if r := c.find(s.Task, s.Attempt); r.Desired != nil {
			was[r], r.Desired.Stop = r.Desired.Stop, s.Stop
		}
	}
	voluntary := func(s *reconciler.Stop) bool { return s.Desired.Stop.Class == cluster.StopVoluntary }
	for i := range d.Stops { // what must happen comes first
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
		c.Fatalf("voluntary stops leave %d of %d healthy tasks, want %d:\n%s%s", after, before, least, describe(d), c.picture())
	}
	c.checkMoves(d)
	for r, stop := range was { // order-free: each is restored by itself
		r.Desired.Stop = stop
	}
}

// checkMoves demands that moves leave as many healthy tasks as are wanted but one, whichever find a place. Each is written
// to the records.
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
	if after, least := c.healthy(), min(c.limits().Least, c.service.Desired()-1); after < min(before, least) {
		c.Fatalf("moves leave %d of %d healthy tasks, want %d:\n%s%s", after, before, least, describe(d), c.picture())
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
	newest, standing := 0, []string(nil)
	for _, r := range c.records {
		if r.id != p.Task {
			continue
		}
		newest = max(newest, r.attempt)
		if r.Desired != nil || r.Observed != nil {
			standing = append(standing, r.node())
		}
		if r.Outcome == nil {
			c.Fatalf("%s is pending and attempt %d has no outcome", p.Task, r.attempt)
		}
		if c.job != nil && r.Outcome.State == cluster.StateSucceeded {
			c.Fatalf("%s is pending and has succeeded", p.Task)
		}
	}
	slices.Sort(standing)
	if !slices.Equal(slices.Compact(standing), p.Avoid) || p.Attempt != newest+1 {
		c.Fatalf("%s asks for attempt %d off %v, want %d off %v", p.Task, p.Attempt, p.Avoid, newest+1, standing)
	}
	parts, ok := p.Task.Parts()
	if !ok || parts.Owner != c.owner.Name || p.Owner != c.owner || p.Definition.Version == 0 || p.OwnerRev != 7 ||
		p.Count < 1 || p.Priority < 1 || p.OnDisconnect == "" || !p.NeedsImage {
		c.Fatalf("pending %+v", p)
	}
}

// live demands that no task lives twice that must not.
func (c *chaos) live() {
	c.Helper()
	open := map[cluster.TaskID]int{}
	for _, r := range c.records {
		if r.Outcome == nil {
			open[r.id]++
		}
	}
	for id, n := range open { // order-free: each is looked at by itself
		if n > 1 {
			c.Fatalf("%s has %d attempts without an outcome", id, n)
		}
	}
	for id, n := range c.running() { // order-free
		wait := c.find(id, c.newestNumber(id)).Desired
		if n > 1 && wait != nil && wait.OnDisconnect == cluster.DisconnectWait {
			c.Fatalf("%s must not live twice and does:\n%s", id, c.picture())
		}
		if n > 1 {
			c.seen["lives twice"]++ // a keep task, while its node is unreachable
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
	c.live()
}

// outage lets everything come up, cuts off a node for a while and, perhaps, sees its return: rare by chance.
func (c *chaos) outage() {
	c.Helper()
	rounds := func(n int) {
		for range n {
			c.check(c.decide(c.tasks()))
			if _, err := c.round(); err != nil {
				c.Fatal(err)
			}
			c.live()
		}
	}
	usual := c.stays
	c.stays = func() bool { return true }
	rounds(5)
	c.absent["n1"], c.absent["n2"] = watcher.Silent, watcher.Silent
	rounds(5)
	if c.some("return") {
		c.absent["n1"] = watcher.Present
		rounds(3)
	}
	c.stays = usual
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
		if (m.Limit == 0 || limited < m.Limit) && c.choose("moved", 4) > 0 && c.leave(m) {
			c.seen["moved"]++
			if m.Limit > 0 {
				limited++
			}
		}
	}
	for _, p := range d.Pending {
		node := c.nodes[c.choose("node", len(c.nodes))]
		if c.choose("placed", 4) == 0 || !c.takes(node, &p) {
			continue
		}
		if err := c.place(p, node); err != nil {
			c.Fatal(err)
		}
	}
}

// disturb changes what is known of a node.
func (c *chaos) disturb() {
	i := c.choose("disturbed", len(c.nodes))
	node := c.nodes[i]
	switch c.choose("how", 10) {
	case 8:
		c.sendOff()
	case 9:
		clear(c.leaves)
	case 5:
		c.drains[node] = &cluster.Drain{Since: c.now, Force: c.choose("force", 4) == 0}
		if c.some("deadline") {
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
	case 2: // it is destroyed, and another one takes its place
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

// heal ends all faults and lets the world go on until nothing is left to do.
func (c *chaos) heal() {
	c.Helper()
	for _, n := range c.nodes {
		c.absent[n] = watcher.Present
	}
	clear(c.drains)
	clear(c.leaves)
	c.stays = nil
	for range 400 {
		d, err := c.round()
		if err != nil {
			c.Fatal(err)
		}
		c.check(c.decide(c.tasks()))
		if c.asks {
			c.now = c.now.Add(10 * time.Second) // permits do not live long
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
	c.Fatalf("it does not come to rest:\n%s%s", describe(c.decide(c.tasks())), c.picture())
}

// often checks a property, and again until all that is named was seen, at most five times.
func often(t *testing.T, seen map[string]int, wanted []string, property func(*rapid.T)) {
	t.Helper()
	unseen := func(what string) bool { return seen[what] == 0 }
	testkit.CheckRounds(t, 5, property, func() bool { return !slices.ContainsFunc(wanted, unseen) })
	for _, what := range wanted {
		if unseen(what) {
			t.Errorf("never seen: %s", what)
		}
	}
}

func TestServiceUnderFaults(t *testing.T) {
	seen := map[string]int{}
	often(t, seen, []string{
		"pending", "outcome failed", "outcome lost", "outcome cancelled", "stop rollout", "stop scale-down", "stop replaced",
		"stop deleted", "lives twice", "moved", "stop drain", "stop preempted", "record lost", "permit", // drain-wait.txt has the limited moves, which are rare
	}, func(t *rapid.T) {
		c := chaos{T: t, world: newWorld(), seen: seen}
		c.nodes = []string{"n1", "n2", "n3", "n4"}
		refs := []cluster.Ref{
			c.define("web@1", nil), c.define("web@2", nil), c.define("bad@1", nil),
			c.define("port@1", func(d *cluster.TaskDefinition) { d.Ports = []cluster.Port{{Name: "http", Port: 80}} }),
		}
		c.sick[refs[2]] = true
		c.service = &cluster.Service{Name: "web", Definition: refs[0], Count: 3, Lifespan: cluster.Lifespan{Generation: 1}}
		c.service.OnDisconnect = rapid.SampledFrom([]cluster.OnDisconnect{cluster.DisconnectKeep, cluster.DisconnectWait}).Draw(t, "class")
		c.service.SetDefaults()
		c.owner = c.service.Owner()
		c.asks = c.some("asks")
		if c.choose("outage", 3) == 0 {
			c.outage()
		}
		for range rapid.IntRange(20, 80).Draw(t, "turns") {
			if c.choose("user", 12) == 0 {
				c.user(refs)
			}
			c.turn()
		}
		// In the end the user wants what can be had.
		c.ask(func(s *cluster.Service) {
			s.Stopped, s.Count, s.Definition, s.Restarted = false, max(1, s.Count), refs[1], s.Generation+1
		})
		if c.service.Generation < c.service.Restarted { // the definition was that one before
			c.service.Generation++
		}
		s := *c.service
		c.service = &s
		c.heal()
		st := reconciler.StatusOfService(c.input(c.tasks()))
		want := reconciler.ServiceStatus{
			Desired: s.Count, Running: s.Count, Healthy: s.Count, Updated: s.Count, State: reconciler.Healthy,
			Rollout: cluster.RolloutComplete, RolloutMessage: st.RolloutMessage,
			Versions: []reconciler.VersionCount{{Generation: st.Versions[0].Generation, Definition: refs[1], Live: s.Count, Healthy: s.Count, Newest: true}},
		}
		if diff := cmp.Diff(want, st); diff != "" {
			t.Fatalf("at rest:\n%s\n%s", diff, c.picture())
		}
		for _, r := range c.records {
			if p, _ := r.id.Parts(); p.Generation != s.Generation || r.attempt < c.newestNumber(r.id) && (r.Desired != nil || r.Observed != nil) {
				t.Fatalf("attempt %d of %s is left over:\n%s", r.attempt, r.id, c.picture())
			}
		}
		// Deleted, it leaves nothing.
		s.Deleted = true
		c.heal()
		if c.service != nil || len(c.records) != 0 {
			t.Fatalf("left of the deleted service:\n%s", c.picture())
		}
	})
}

// user changes the service.
func (c *chaos) user(refs []cluster.Ref) {
	s := *c.service
	switch c.choose("wish", 4) {
	case 0:
		s.Count = c.choose("count", 5)
	case 1, 2:
		c.ask(func(s *cluster.Service) { s.Definition = refs[c.choose("definition", len(refs))] })
		return
	case 3:
		s.Stopped = c.some("stopped")
	}
	c.service = &s
}

func TestJobUnderFaults(t *testing.T) {
	seen := map[string]int{}
	often(t, seen, []string{
		"pending", "outcome failed", "outcome lost", "outcome cancelled", "outcome succeeded", "job succeeded", "job failed",
		"job cancelled", "lives twice", "stop drain", "stop taint", "stop preempted", "record lost",
	}, func(t *rapid.T) {
		c := chaos{T: t, world: newWorld(), seen: seen}
		c.nodes = []string{"n1", "n2", "n3", "n4"}
		w := c.define("w@1", nil)
		bad := rapid.IntRange(0, 5).Draw(t, "bad attempts")
		c.fails = func(id cluster.TaskID, n int) bool { return (len(id)+int(id[len(id)-1])+n)%7 < bad }
		c.stays = func() bool { return c.choose("stays", 12) > 0 }
		class := rapid.SampledFrom([]cluster.OnDisconnect{cluster.DisconnectKeep, cluster.DisconnectWait}).Draw(t, "class")
		retries := rapid.IntRange(0, 3).Draw(t, "retries")
		c.job = &cluster.Job{Name: "work", Lifespan: cluster.Lifespan{Generation: 1}, Steps: []cluster.Step{
			{Name: "a", Definition: w, Count: 3, Retries: retries, OnDisconnect: class},
			{Name: "b", Definition: w, Count: 1, Retries: retries, OnDisconnect: class},
		}}
		c.job.SetDefaults()
		c.owner = c.job.Owner()
		if c.choose("outage", 3) == 0 {
			c.outage()
		}
		for range rapid.IntRange(30, 120).Draw(t, "turns") {
			if c.choose("cancel", 60) == 0 {
				c.job.Cancelled = true
			}
			c.turn()
		}
		c.heal()
		st := reconciler.StatusOfJob(reconciler.JobInput{Spec: c.job, Tasks: c.tasks()})
		if !st.Done() || st.Total != 4 || st.Succeeded+st.Failed+st.Cancelled != 4 || st.Finished.IsZero() && st.State != reconciler.Cancelled {
			t.Fatalf("at rest: %+v\n%s", st, c.picture())
		}
		seen["job "+st.State]++
		tries := map[cluster.TaskID]int{}
		for _, r := range c.records {
			if !r.Outcome.Free {
				tries[r.id]++
			}
		}
		for id, n := range tries { // order-free: each is looked at by itself
			if n > retries+1 {
				t.Fatalf("%s was tried %d times with %d retries:\n%s", id, n, retries, c.picture())
			}
		}
		c.job.Deleted = true
		c.heal()
		if c.job != nil || len(c.records) != 0 {
			t.Fatalf("left of the deleted job:\n%s", c.picture())
		}
	})
}

// TestRolloutKeepsTheServiceUp rolls a healthy service over in a world without faults, in agents' steps of any order:
// never fewer healthy tasks than wanted, one less where old and new cannot live side by side; never more than one task
// too many; and only one new task at a time on its way.
func TestRolloutKeepsTheServiceUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := chaos{T: t, world: newWorld(), seen: map[string]int{}}
		pinned := rapid.Bool().Draw(t, "pinned")
		ports := func(d *cluster.TaskDefinition) {
			if pinned {
				d.Ports = []cluster.Port{{Name: "http", Port: 80}}
			}
		}
		first, second := c.define("web@1", ports), c.define("web@2", ports)
		n := rapid.IntRange(1, 5).Draw(t, "count")
		c.service = &cluster.Service{Name: "web", Definition: first, Count: n, Lifespan: cluster.Lifespan{Generation: 1}}
		c.service.SetDefaults()
		c.owner = c.service.Owner()
		c.heal()
		if c.healthy() != n {
			t.Fatalf("%d healthy before the rollout, want %d", c.healthy(), n)
		}
		s := *c.service
		s.Definition, s.Generation = second, 2
		c.service = &s
		least, most := n, n+1
		if pinned {
			least, most = n-1, n
		}
		for range 60 * n {
			d := c.decide(c.tasks())
			c.check(d)
			c.commitSome(d)
			for _, r := range slices.Clone(c.records) {
				if c.some("agent") {
					c.step(r)
				}
			}
			c.now = c.now.Add(time.Second)
			running, coming := 0, 0
			for _, r := range c.records {
				if r.Outcome != nil {
					continue
				}
				running++
				if p, _ := r.id.Parts(); p.Generation == 2 && !r.Observed.Healthy() {
					coming++
				}
			}
			if pinned && running > most || c.healthy() < least || coming > 1 {
				t.Fatalf("%d healthy of %d, %d live, %d on their way:\n%s", c.healthy(), n, running, coming, c.picture())
			}
		}
		c.heal()
	})
}

// TestHealthyTasksAreStoppedOnlyForHealthyOnes looks at single decisions in any state of a rollout.
func TestHealthyTasksAreStoppedOnlyForHealthyOnes(t *testing.T) {
	stopped := 0
	rapid.Check(t, func(t *rapid.T) {
		c := chaos{T: t, world: newWorld(), seen: map[string]int{}}
		refs := []cluster.Ref{c.define("web@1", nil), c.define("web@2", nil), c.define("web@3", nil)}
		n := rapid.IntRange(1, 5).Draw(t, "count")
		c.service = &cluster.Service{Name: "web", Definition: refs[2], Count: n, Lifespan: cluster.Lifespan{Generation: 3}}
		c.service.SetDefaults()
		c.owner = c.service.Owner()
		for gen := 1; gen <= 3; gen++ {
			for i := range n {
				if c.choose("exists", 4) > 0 {
					c.put(gen, i, refs[gen-1])
				}
			}
		}
		before := c.healthy()
		d := c.decide(c.tasks())
		c.check(d)
		c.commit(d)
		stopped += before - c.healthy()
		if after := c.healthy(); after < min(before, n) {
			t.Fatalf("%d of %d healthy tasks are left, %d are wanted:\n%s%s", after, before, n, describe(d), c.picture())
		}
	})
	if stopped == 0 {
		t.Error("no healthy task was ever stopped")
	}
}

// put adds an attempt in a random state.
func (c *chaos) put(gen, index int, ref cluster.Ref) {
	c.uuid++
	r := &record{id: cluster.ServiceTask("default", "web", uint64(gen), index), attempt: 1}
	r.Desired = &cluster.Desired{
		Task: r.id, Attempt: 1, UUID: fmt.Sprintf("u%d", c.uuid), Node: c.nodes[c.choose("on", len(c.nodes))],
		Owner: c.owner, Definition: ref, OnDisconnect: cluster.DisconnectKeep,
	}
	r.DesiredRev = c.next()
	states := []cluster.State{cluster.StateRunning, cluster.StateRunning, cluster.StateRunning, cluster.StateStarting, cluster.StateFailed, ""}
	state := states[c.choose("state", len(states))]
	if state != "" {
		r.real = &cluster.Observed{Task: r.id, Attempt: 1, UUID: r.Desired.UUID, Node: r.Desired.Node, State: state}
		if state == cluster.StateRunning {
			r.real.Started = c.now
			healths := []cluster.Health{cluster.HealthHealthy, cluster.HealthHealthy, cluster.HealthFailing, cluster.HealthUnknown}
			r.real.Health = healths[c.choose("health", len(healths))]
		}
		c.report(r)
	}
	c.records = append(c.records, r)
}

// TestDrainKeepsTheServiceUp empties one node after the other under a healthy service, in agents' steps of any order: the
// service never has fewer healthy tasks than wanted, and nothing is left on the nodes.
func TestDrainKeepsTheServiceUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := chaos{T: t, world: newWorld(), seen: map[string]int{}}
		n := rapid.IntRange(1, 5).Draw(t, "count")
		c.service = &cluster.Service{Name: "web", Definition: c.define("web@1", nil), Count: n, Lifespan: cluster.Lifespan{Generation: 1}}
		c.service.SetDefaults()
		c.owner = c.service.Owner()
		c.heal()
		for _, node := range []string{"n1", "n2"} {
			c.drains[node] = &cluster.Drain{Since: c.now}
		}
		for range 80 * n {
			d := c.decide(c.tasks())
			c.check(d)
			c.commitSome(d)
			for _, r := range slices.Clone(c.records) {
				if c.some("agent") {
					c.step(r)
				}
			}
			c.live()
			c.now = c.now.Add(time.Second)
			if c.healthy() < n {
				t.Fatalf("%d of %d healthy:\n%s", c.healthy(), n, c.picture())
			}
		}
		for _, r := range c.records {
			if c.drains[r.node()] != nil && (r.Desired != nil || r.Observed != nil) {
				t.Fatalf("%s attempt %d is left:\n%s", r.id, r.attempt, c.picture())
			}
		}
	})
}
