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
	"github.com/berthd/berth/internal/testkit"
)

// checkUntilSeen repeats a property until all wanted events were seen, at most five times.
func checkUntilSeen(t *testing.T, seen map[string]int, wanted []string, property func(*rapid.T)) {
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
	checkUntilSeen(t, seen, []string{
		"pending", "outcome failed", "outcome lost", "outcome cancelled", "stop rollout", "stop scale-down",
		"stop replaced",
		// drain-wait.txt has the limited moves, which are rare
		"stop deleted", "lives twice", "moved", "stop drain", "stop preempted", "record lost", "permit",
	}, func(t *rapid.T) {
		c := chaos{T: t, world: newWorld(), seen: seen}
		c.nodes = []string{"n1", "n2", "n3", "n4"}
		refs := []cluster.Ref{
			c.define("web@1", nil), c.define("web@2", nil), c.define("bad@1", nil),
			c.define("port@1", func(d *cluster.TaskDefinition) { d.Ports = []cluster.Port{{Name: "http", Port: 80}} }),
		}
		c.sick[refs[2]] = true
		c.service = &cluster.Service{
			Name: "web", Definition: refs[0], Count: 3,
			Lifespan: cluster.Lifespan{Generation: 1},
		}
		c.service.OnDisconnect = rapid.SampledFrom(
			[]cluster.OnDisconnect{cluster.DisconnectKeep, cluster.DisconnectWait}).Draw(t, "class")
		c.service.SetDefaults()
		c.owner = c.service.Owner()
		c.agentsRequestPermits = c.coin("asks")
		if c.choose("outage", 3) == 0 {
			c.outage()
		}
		for range rapid.IntRange(20, 80).Draw(t, "turns") {
			if c.choose("user", 12) == 0 {
				c.user(refs)
			}
			c.turn()
		}
		// At the end the user wants an attainable state.
		c.ask(func(s *cluster.Service) {
			s.Stopped, s.Count, s.Definition, s.Restarted = false, max(1, s.Count), refs[1], s.Generation+1
		})
		if c.service.Generation < c.service.Restarted { // the definition already was that one before
			c.service.Generation++
		}
		s := *c.service
		c.service = &s
		c.heal()
		st := reconciler.StatusOfService(c.input(c.tasks()))
		want := reconciler.ServiceStatus{
			Desired: s.Count, Running: s.Count, Healthy: s.Count, Updated: s.Count, State: cluster.ServiceHealthy,
			Rollout: cluster.RolloutComplete, RolloutMessage: st.RolloutMessage,
			Versions: []reconciler.VersionCount{{
				Generation: st.Versions[0].Generation, Definition: refs[1],
				Live: s.Count, Healthy: s.Count, Newest: true,
			}},
		}
		if diff := cmp.Diff(want, st); diff != "" {
			t.Fatalf("at rest:\n%s\n%s", diff, c.listAttempts())
		}
		for _, r := range c.records {
			if p, _ := r.id.Parts(); p.Generation != s.Generation || r.attempt < c.newestNumber(r.id) &&
				(r.Desired != nil || r.Observed != nil) {
				t.Fatalf("attempt %d of %s is left over:\n%s", r.attempt, r.id, c.listAttempts())
			}
		}
		// A deleted service leaves nothing.
		s.Deleted = true
		c.heal()
		if c.service != nil || len(c.records) != 0 {
			t.Fatalf("left of the deleted service:\n%s", c.listAttempts())
		}
	})
}

// user changes the service.
func (c *chaos) user(refs []cluster.Ref) {
	s := *c.service
	switch c.choose("change", 4) {
	case 0:
		s.Count = c.choose("count", 5)
	case 1, 2:
		c.ask(func(s *cluster.Service) { s.Definition = refs[c.choose("definition", len(refs))] })
		return
	case 3:
		s.Stopped = c.coin("stopped")
	}
	c.service = &s
}

func TestJobUnderFaults(t *testing.T) {
	seen := map[string]int{}
	checkUntilSeen(t, seen, []string{
		"pending", "outcome failed", "outcome lost", "outcome cancelled", "outcome succeeded", "job succeeded",
		"job failed",
		"job cancelled", "lives twice", "stop drain", "stop taint", "stop preempted", "record lost",
		"step succeeded", "step failed", "step skipped", "step cancelled",
	}, func(t *rapid.T) {
		c := chaos{T: t, world: newWorld(), seen: seen}
		c.nodes = []string{"n1", "n2", "n3", "n4"}
		w := c.define("w@1", nil)
		bad := rapid.IntRange(0, 5).Draw(t, "bad attempts")
		c.fails = func(id cluster.TaskID, n int) bool { return (len(id)+int(id[len(id)-1])+n)%7 < bad }
		c.goesOn = func() bool { return c.choose("stays", 12) > 0 }
		class := rapid.SampledFrom([]cluster.OnDisconnect{cluster.DisconnectKeep, cluster.DisconnectWait}).Draw(t,
			"class")
		retries := rapid.IntRange(0, 3).Draw(t, "retries")
		template := cluster.Step{Definition: w, Retries: retries, OnDisconnect: class}
		c.job = &cluster.Job{
			Name: "work", Lifespan: cluster.Lifespan{Generation: 1}, Steps: drawSteps(t, template),
		}
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
		if !st.State.Ended() || st.Succeeded+st.Failed+st.Cancelled != st.Total || st.Finished.IsZero() &&
			st.State != cluster.JobCancelled {
			t.Fatalf("at rest: %+v\n%s", st, c.listAttempts())
		}
		seen["job "+string(st.State)]++
		ended := c.endedSteps()
		for _, step := range st.Steps {
			seen["step "+string(step.State)]++
			if want := ended[step.Name]; step.State != want {
				t.Fatalf("step %s is %s, want %s\n%+v\n%s", step.Name, step.State, want, c.job.Steps, c.listAttempts())
			}
		}
		tries := map[cluster.TaskID]int{}
		for _, r := range c.records {
			if !r.Outcome.Free {
				tries[r.id]++
			}
		}
		for id, n := range tries { // order-free: each is checked by itself
			if n > retries+1 {
				t.Fatalf("%s was tried %d times with %d retries:\n%s", id, n, retries, c.listAttempts())
			}
		}
		c.job.Deleted = true
		c.heal()
		if c.job != nil || len(c.records) != 0 {
			t.Fatalf("left of the deleted job:\n%s", c.listAttempts())
		}
	})
}

// TestRolloutKeepsTheServiceUp rolls out a healthy service in a world without faults, with agents' steps in any order.
// There are never fewer healthy tasks than wanted, or one less where old and new cannot live side by side. There is
// never more than one surplus task, and only one starting task at a time.
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
		c.service = &cluster.Service{
			Name: "web", Definition: first, Count: n,
			Lifespan: cluster.Lifespan{Generation: 1},
		}
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
				if c.coin("agent") {
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
				t.Fatalf("%d healthy of %d, %d live, %d on their way:\n%s", c.healthy(), n, running, coming,
					c.listAttempts())
			}
		}
		c.heal()
	})
}

// TestHealthyTasksAreStoppedOnlyForHealthyOnes checks single decisions in any state of a rollout.
func TestHealthyTasksAreStoppedOnlyForHealthyOnes(t *testing.T) {
	stopped := 0
	rapid.Check(t, func(t *rapid.T) {
		c := chaos{T: t, world: newWorld(), seen: map[string]int{}}
		refs := []cluster.Ref{c.define("web@1", nil), c.define("web@2", nil), c.define("web@3", nil)}
		n := rapid.IntRange(1, 5).Draw(t, "count")
		c.service = &cluster.Service{
			Name: "web", Definition: refs[2], Count: n,
			Lifespan: cluster.Lifespan{Generation: 3},
		}
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
			t.Fatalf("%d of %d healthy tasks are left, %d are wanted:\n%s%s", after, before, n, describe(d),
				c.listAttempts())
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
	states := []cluster.State{
		cluster.StateRunning, cluster.StateRunning, cluster.StateRunning, cluster.StateStarting,
		cluster.StateFailed, "",
	}
	state := states[c.choose("state", len(states))]
	if state != "" {
		r.real = &cluster.Observed{Task: r.id, Attempt: 1, UUID: r.Desired.UUID, Node: r.Desired.Node, State: state}
		if state == cluster.StateRunning {
			r.real.Started = c.now
			healths := []cluster.Health{
				cluster.HealthHealthy, cluster.HealthHealthy, cluster.HealthFailing,
				cluster.HealthUnknown,
			}
			r.real.Health = healths[c.choose("health", len(healths))]
		}
		c.report(r)
	}
	c.records = append(c.records, r)
}

// TestDrainKeepsTheServiceUp drains one node after the other under a healthy service, with agents' steps in any order.
// The service never has fewer healthy tasks than wanted, and nothing is left on the nodes.
func TestDrainKeepsTheServiceUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := chaos{T: t, world: newWorld(), seen: map[string]int{}}
		n := rapid.IntRange(1, 5).Draw(t, "count")
		c.service = &cluster.Service{
			Name: "web", Definition: c.define("web@1", nil), Count: n,
			Lifespan: cluster.Lifespan{Generation: 1},
		}
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
				if c.coin("agent") {
					c.step(r)
				}
			}
			c.checkLive()
			c.now = c.now.Add(time.Second)
			if c.healthy() < n {
				t.Fatalf("%d of %d healthy:\n%s", c.healthy(), n, c.listAttempts())
			}
		}
		for _, r := range c.records {
			if c.drains[r.node()] != nil && (r.Desired != nil || r.Observed != nil) {
				t.Fatalf("%s attempt %d is left:\n%s", r.id, r.attempt, c.listAttempts())
			}
		}
	})
}
