package reconciler_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/watcher"
)

// TestDaemonsOnNodesThatComeAndGo lets nodes fall silent, be drained, and lose and regain a daemon's constraints, while
// tasks crash and users change the service. No node ever has two wanted tasks, and no rollout takes the daemon below
// the minimum of its counted nodes. Once all nodes are back, each has a healthy task of the newest version; if the
// rollout failed meanwhile by its deadline, after a user has asked again.
func TestDaemonsOnNodesThatComeAndGo(t *testing.T) {
	seen := map[string]int{}
	checkUntilSeen(t, seen, []string{
		"permit", "drain", "unmatched", "rollout", "silent with a task",
		"back to a version that ended there",
	}, func(t *rapid.T) {
		c := chaos{T: t, world: newWorld(), seen: seen}
		refs := []cluster.Ref{c.define("log@1", nil), c.define("log@2", nil)}
		c.nodes = []string{"n1", "n2", "n3", "n4"}[:2+c.choose("nodes", 3)]
		c.service = &cluster.Service{
			Name: "log", Definition: refs[0], Mode: cluster.ModeDaemon,
			Lifespan: cluster.Lifespan{Generation: 1},
		}
		if c.coin("policy") {
			c.service.Update = c.policy()
			c.service.Update.Gates, c.service.Update.Canaries = nil, nil
		}
		c.service.SetDefaults()
		c.owner = c.service.Owner()
		c.agentsRequestPermits = c.coin("asks")
		unfit := map[string]bool{}
		for range 60 {
			if c.choose("quiet", 3) == 0 {
				c.disturbDaemon(refs, unfit)
			}
			c.turnOfDaemon(unfit)
		}
		clear(unfit)
		clear(c.drains)
		clear(c.alone)
		clear(c.absent)
		settle := func() {
			for range 120 {
				c.turnOfDaemon(unfit)
			}
		}
		if settle(); c.rollout.State == cluster.RolloutFailed {
			c.ask(func(s *cluster.Service) { s.Generation++ })
			settle()
		}
		if c.service.Rollout.Paused = false; c.healthy() != len(c.nodes) || c.rollout.State != cluster.RolloutComplete {
			t.Fatalf("%s %s, %d healthy on %d nodes:\n%s%s", c.rollout.State, c.rollout.Message, c.healthy(),
				len(c.nodes), describe(c.decide(c.tasks())), c.listAttempts())
		}
	})
}

// disturbDaemon does one thing to a node, a task or the daemon's spec.
func (c *chaos) disturbDaemon(refs []cluster.Ref, unfit map[string]bool) {
	node := c.nodes[c.choose("node", len(c.nodes))]
	switch c.choose("unsettled", 6) {
	case 0:
		c.ask(func(s *cluster.Service) { s.Definition = refs[c.choose("definition", len(refs))] })
	case 1:
		c.absent[node] = []watcher.Absence{watcher.Suspected, watcher.Silent, watcher.Present}[c.choose("absence", 3)]
		if c.absent[node] == watcher.Silent && len(c.attemptsOn(node)) > 0 {
			c.seen["silent with a task"]++
		}
	case 2:
		if c.alone[node] = !c.alone[node]; !c.alone[node] {
			delete(c.alone, node)
			delete(c.drains, node)
			return
		}
		c.drains[node] = &cluster.Drain{Since: c.now}
	case 3:
		unfit[node] = !unfit[node]
	case 4:
		if on := c.attemptsOn(node); len(on) > 0 {
			c.crash(on[0], cluster.ReasonUnknownExit)
		}
	default:
		for n := range c.absent { // order-free: all
			delete(c.absent, n)
		}
	}
}

// attemptsOn returns the records of the node's attempts without an outcome.
func (c *chaos) attemptsOn(node string) []*record {
	return slices.DeleteFunc(slices.Clone(c.records), func(r *record) bool {
		return r.node() != node || r.Outcome != nil
	})
}

// turnOfDaemon runs a daemon for five seconds.
func (c *chaos) turnOfDaemon(unfit map[string]bool) {
	c.Helper()
	counted := map[string]bool{} // the daemon's counted nodes
	c.matching = nil
	for _, n := range c.nodes {
		on, away := c.attemptsOn(n), c.absent[n] != watcher.Present
		if unfit[n] || len(on) == 0 && (away || c.alone[n]) {
			continue
		}
		c.matching = append(c.matching, n)
		counted[n] = !c.alone[n] && c.absent[n] < watcher.Silent
	}
	healthy := func() (on int) {
		for _, r := range c.records {
			stopping := r.Desired != nil && r.Desired.Stop != nil
			if counted[r.node()] && r.Observed.Healthy() && !stopping && c.absent[r.node()] == watcher.Present {
				on++
			}
		}
		return on
	}
	n := 0
	for _, yes := range counted { // order-free: a count
		if yes {
			n++
		}
	}
	least := min(c.service.Update.Limits(n, true).MinHealthy, max(0, n-1))

	d := c.decide(c.tasks())
	for i := range d.Stops {
		stop := d.Stops[i].Desired.Stop
		c.seen[string(stop.Reason)]++
		r := c.find(d.Stops[i].Desired.Task, d.Stops[i].Desired.Attempt)
		if stop.Permit == "" || !counted[r.node()] {
			continue
		}
		if c.seen["permit"]++; r.Observed.Healthy() && healthy()+c.asking(d.Stops[:i], r) < least {
			c.Fatalf("attempt %d of %s may stop with %d healthy, want %d:\n%s%s", r.attempt, r.id, healthy(), least,
				describe(d), c.listAttempts())
		}
	}
	before := healthy()
	c.commit(d)
	if after := healthy(); after < min(before, least) {
		c.Fatalf("%d of %d healthy tasks are left, want %d:\n%s%s", after, before, least, describe(d), c.listAttempts())
	}
	if err := c.placeAll(d); err != nil {
		c.Fatal(err)
	}
	for _, node := range c.nodes {
		on := c.attemptsOn(node)
		if len(on) > 1 {
			c.Fatalf("%s and %s are on %s:\n%s%s", on[0].id, on[1].id, node, describe(d), c.listAttempts())
		}
		if len(on) == 1 && on[0].attempt > 1 {
			c.seen["back to a version that ended there"]++
		}
	}
	for _, r := range slices.Clone(c.records) {
		if c.choose("agent", 4) > 0 {
			c.step(r)
		}
	}
	c.now = c.now.Add(5 * time.Second)
}

// TestCanariesOfADaemonWait lets nodes join, leave and fall silent, and old tasks crash, while the canaries of a daemon
// wait for a user. The new version is on no more nodes than there are canaries, and every other node keeps the proven
// version. Once the canaries are promoted, each node gets the new version.
func TestCanariesOfADaemonWait(t *testing.T) {
	seen := map[string]int{}
	checkUntilSeen(t, seen, []string{"canaries wait", "old task crashed", "node joined"}, func(t *rapid.T) {
		c := chaos{T: t, world: newWorld(), seen: seen}
		refs := []cluster.Ref{c.define("log@1", nil), c.define("log@2", nil)}
		all := []string{"n1", "n2", "n3", "n4", "n5", "n6"}
		c.nodes = slices.Clone(all[:4])
		c.service = &cluster.Service{
			Name: "log", Definition: refs[0], Mode: cluster.ModeDaemon, Lifespan: cluster.Lifespan{Generation: 1},
		}
		canaries := 1 + c.choose("canaries", 2)
		c.service.Update.Canaries = &cluster.Portion{N: canaries}
		c.service.SetDefaults()
		c.owner = c.service.Owner()
		for c.rollout == nil || c.rollout.State != cluster.RolloutComplete {
			c.turnOfDaemon(nil)
		}
		c.ask(func(s *cluster.Service) { s.Definition = refs[1] })
		for range 40 {
			node := c.nodes[c.choose("node", len(c.nodes))]
			on := c.attemptsOn(node)
			isOld := len(on) > 0 && on[0].Desired.Definition == refs[0]
			switch c.choose("event", 8) {
			case 0:
				c.nodes = slices.Clone(all[:4+c.choose("nodes", 3)])
				c.seen["node joined"]++
			case 1: // another canary replaces one on a silent node
				if isOld || c.absent[node] == watcher.Silent {
					c.absent[node] = []watcher.Absence{watcher.Silent, watcher.Present}[c.choose("absence", 2)]
				}
			case 2:
				if isOld {
					c.crash(on[0], cluster.ReasonRestartLimit)
					c.seen["old task crashed"]++
				}
			}
			c.turnOfDaemon(nil)
			fresh := 0
			for _, r := range c.records {
				if r.Outcome == nil && r.Desired.Definition == refs[1] && r.Desired.Stop == nil {
					fresh++
				}
			}
			if fresh > canaries {
				t.Fatalf("%d tasks of the new version and %d canaries, %s:\n%s", fresh, canaries, c.rollout.State,
					c.listAttempts())
			}
			if c.rollout.State == cluster.RolloutCanary {
				c.seen["canaries wait"]++
			}
		}
		clear(c.absent)
		c.ask(func(s *cluster.Service) { s.Rollout.Promoted = s.Generation })
		for range 150 {
			c.turnOfDaemon(nil)
		}
		if c.healthy() != len(c.nodes) || c.rollout.State != cluster.RolloutComplete ||
			c.rollout.Definition != refs[1] {
			t.Fatalf("%s %s, %d healthy on %d nodes:\n%s", c.rollout.State, c.rollout.Message, c.healthy(),
				len(c.nodes), c.listAttempts())
		}
	})
}
