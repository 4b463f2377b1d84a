package reconciler_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/watcher"
)

// TestCanariesWait scales a service, drains and silences nodes, and crashes tasks of both versions, while canaries wait
// for a user. There are never more tasks of the new version than canaries, and the healthy tasks of the proven version
// are not given up for them. If a canary fails, the service goes back.
func TestCanariesWait(t *testing.T) {
	seen := map[string]int{}
	checkUntilSeen(t, seen, []string{"canaries wait", "went back", "scaled", "promoted"}, func(t *rapid.T) {
		c := chaos{T: t, world: newWorld(), seen: seen}
		c.nodes = []string{"n1", "n2", "n3", "n4"}
		refs := []cluster.Ref{c.define("web@1", nil), c.define("web@2", nil)}
		c.service = &cluster.Service{
			Name: "web", Definition: refs[0], Count: 2 + c.choose("count", 3),
			Lifespan: cluster.Lifespan{Generation: 1},
		}
		canaries := 1 + c.choose("canaries", 2)
		c.service.Update.Canaries = &cluster.Portion{N: canaries}
		c.service.SetDefaults()
		c.owner = c.service.Owner()
		c.heal()
		c.ask(func(s *cluster.Service) { s.Definition = refs[1] })
		for range 40 {
			switch node := c.nodes[c.choose("node", len(c.nodes))]; c.choose("event", 7) {
			case 0:
				s := *c.service
				s.Count = c.choose("scaled to", 6)
				c.service = &s
				c.seen["scaled"]++
			case 1:
				c.absent[node] = []watcher.Absence{watcher.Silent, watcher.Present}[c.choose("absence", 2)]
			case 2:
				if on := c.attemptsOn(node); len(on) > 0 {
					c.crash(on[0], cluster.ReasonRestartLimit)
				}
			case 3:
				if c.drains[node] = nil; c.coin("drained") {
					c.drains[node] = &cluster.Drain{Since: c.now}
				}
			}
			for range 1 + c.choose("rounds", 3) {
				c.check(c.decide(c.tasks()))
				if _, err := c.round(); err != nil {
					t.Fatal(err)
				}
				fresh := map[cluster.TaskID]bool{}
				for _, r := range c.records {
					if r.Outcome == nil && r.Desired.Definition == refs[1] && r.Desired.Stop == nil {
						fresh[r.id] = true
					}
				}
				if len(fresh) > canaries {
					t.Fatalf("%d tasks of the new version and %d canaries, %s:\n%s", len(fresh), canaries,
						c.rollout.State, c.listAttempts())
				}
			}
			switch {
			case c.service.Definition == refs[0]:
				c.seen["went back"]++
			case c.rollout.State == cluster.RolloutCanary:
				c.seen["canaries wait"]++
			}
			c.now = c.now.Add(10 * time.Second)
		}
		if c.service.Definition == refs[1] {
			c.ask(func(s *cluster.Service) { s.Count, s.Rollout.Promoted = max(1, s.Count), s.Generation })
			c.seen["promoted"]++
		}
		c.heal()
		if c.healthy() != c.service.Count {
			t.Fatalf("%d of %d healthy at rest, %s:\n%s", c.healthy(), c.service.Count, c.rollout.State,
				c.listAttempts())
		}
	})
}
