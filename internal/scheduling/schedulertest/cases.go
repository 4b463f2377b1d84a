package schedulertest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/suite"
	"github.com/berthd/berth/internal/yardstick"
)

// fleet adds three nodes of 4 CPUs, and publishes them.
func (b *bench) fleet() {
	b.change(func() {
		for i := range 3 {
			b.node(fmt.Sprintf("n%d", i+1), room(4, 8))
		}
	})
}

// awaitProposal waits until the scheduler has claimed the domain and sent a proposal.
func (b *bench) awaitProposal() {
	b.Helper()
	b.await(func() error {
		switch claims, proposals := b.counts(); {
		case claims == 0:
			return errors.New("the domain is not claimed")
		case proposals == 0:
			return errors.New("no proposal came, not even one without commands")
		}
		return nil
	})
}

// claim has a scheduler claim the domain once, and read its state.
func claim(b *bench) {
	b.fleet()
	b.start("one")
	b.awaitProposal()
	suite.Pause(b, absence)
	if claims, _ := b.counts(); claims > 1 {
		b.Errorf("the domain was claimed %d times, and nobody else claimed it", claims)
	}
}

// place has pending tasks of two services, some of them as one entry.
func place(b *bench) {
	b.fleet()
	b.change(func() {
		b.service("web", 5, 500, room(1, 1))
		g := b.service("batch", 1, 400, room(1, 1))
		g.Pending[0].Further = 4
	})
	b.start("one")
	b.placed(0)
}

// follow has tasks, and a node for some of them, arrive while the scheduler runs.
func follow(b *bench) {
	b.fleet()
	b.start("one")
	b.awaitProposal()
	b.change(func() { b.service("web", 6, 500, room(1, 1)) })
	b.placed(0)
	b.change(func() { b.service("large", 1, 500, room(7, 7)) })
	suite.Pause(b, absence/3)
	b.change(func() { b.node("n9", room(8, 16)) })
	b.placed(0)
	if n := b.on()["n9"]; n != 1 {
		b.Errorf("%d tasks are on the new node, want 1", n)
	}
}

// order has more tasks than room: those of the higher priority get it.
func order(b *bench) {
	b.change(func() {
		b.node("n1", room(4, 8))
		b.service("a-low", 4, 100, room(1, 1))
		b.service("b-high", 3, 900, room(1, 1))
	})
	b.start("one")
	b.placed(3)
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.groups["main/b-high/b-high@1"].Pending); n != 0 {
		b.Errorf("%d tasks of the higher priority wait, and tasks of a lower one were placed", n)
	}
}

// unready has nodes and tasks that are not to be used.
func unready(b *bench) {
	b.change(func() {
		b.node("n1", room(16, 32)).Accepts = false
		b.node("n2", room(4, 8))
		g := b.service("web", 4, 500, room(1, 1))
		g.Pending[0].Held = "its priority is 0"
		g.Pending[1].OnlyNode = "n2"
		g.Pending[2].ExcludedNodes = []string{"n2"}
	})
	b.start("one")
	b.placed(3)
	suite.Pause(b, absence)
	b.placed(3)
	if on := b.on(); on["n1"] != 0 || on["n2"] != 1 {
		b.Errorf("the nodes run %v", on)
	}
}

// full has a task that fits nowhere. The scheduler must not propose it without a pause.
func full(b *bench) {
	b.fleet()
	b.change(func() { b.service("huge", 2, 500, room(32, 64)) })
	b.start("one")
	b.awaitProposal()
	b.calm()
}

// calm fails the case if the scheduler proposes in a busy loop.
func (b *bench) calm() {
	b.Helper()
	_, before := b.counts()
	suite.Pause(b, absence)
	if _, after := b.counts(); after-before > maxProposals {
		b.Errorf("%d proposals came in %s, and nothing changed", after-before, absence)
	}
}

// refused refuses a node for the tasks, for a reason that the state does not show. The scheduler tries others.
func refused(b *bench) {
	b.verdict = func(c *cluster.ProposalCommand) (cluster.ReasonCode, string) {
		if c.Node != "n2" {
			return cluster.ReasonPort, "port 8080 is taken"
		}
		return "", ""
	}
	b.fleet()
	b.change(func() { b.service("web", 2, 500, room(1, 1)) })
	b.start("one")
	b.placed(0)
	b.change(func() { b.service("other", 4, 500, room(1, 1)) }) // two of them fit
	b.placed(2)
	b.calm()
}

// stale refuses the first placements as stale. The scheduler tries again, and may do so on the same node.
func stale(b *bench) {
	left := 3
	b.verdict = func(*cluster.ProposalCommand) (cluster.ReasonCode, string) {
		if left == 0 {
			return "", ""
		}
		left--
		return cluster.ReasonStale, "the state changed"
	}
	b.change(func() {
		b.node("n1", room(4, 8))
		b.service("web", 3, 500, room(1, 1))
	})
	b.start("one")
	b.placed(0)
}

// nodeDeath has a node leave. Its tasks go to others.
func nodeDeath(b *bench) {
	b.fleet()
	b.change(func() { b.service("web", 6, 500, room(1, 1)) })
	b.start("one")
	b.placed(0)
	on := b.on()
	dead := slices.MaxFunc([]string{"n1", "n2", "n3"}, func(x, y string) int { return on[x] - on[y] })
	b.change(func() { b.die(dead) })
	b.placed(0)
}

// reset has another leader take over, in whose state a node is missing. The scheduler connects again, and forgets the
// node.
func reset(b *bench) {
	b.fleet()
	b.change(func() { b.service("web", 3, 500, room(1, 1)) })
	b.start("one")
	b.placed(0)
	b.mu.Lock()
	old := b.feed
	b.begin(2)
	b.nodes["n1"].Tasks, b.nodes["n1"].Free = nil, b.nodes["n1"].Capacity
	delete(b.nodes, "n1")
	b.service("more", 4, 500, room(1, 1))
	b.verdict = func(c *cluster.ProposalCommand) (cluster.ReasonCode, string) {
		if c.Node == "n1" {
			b.addFault("it proposes %s, which the state has no more since the line with reset", c.Node)
		}
		return "", ""
	}
	b.publish()
	b.mu.Unlock()
	old.End()
	b.placed(0)
}

// beats watches an idle domain: a proposal comes before the take-over, again and again.
func beats(b *bench) {
	b.fleet()
	b.change(func() { b.service("web", 1, 500, room(1, 1)) })
	b.start("one")
	b.placed(0)
	_, before := b.counts()
	suite.Pause(b, 2*TakeOver)
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.at) == before {
		b.Errorf("the scheduler was silent for %s: the domain would have been taken over after %s", 2*TakeOver,
			TakeOver)
		return
	}
	last := b.at[0]
	for _, at := range append(b.at[1:], time.Now()) {
		if silence := at.Sub(last); silence > yardstick.Scaled(TakeOver) {
			b.Errorf("the scheduler was silent for %s: the domain would have been taken over after %s",
				silence.Truncate(time.Second/10), TakeOver)
		}
		last = at
	}
}

// takeOver has the built-in scheduler take the domain. The scheduler claims it again.
func takeOver(b *bench) {
	b.fleet()
	b.start("one")
	b.awaitProposal()
	b.change(func() {
		b.claim = &cluster.SchedulerClaim{Holder: cluster.BuiltinScheduler, Since: time.Now().UTC(), Reason: "silent"}
		b.revision++
		b.service("web", 3, 500, room(1, 1))
	})
	b.placed(0)
}

// fenced has a second instance claim the domain. The first one must leave it to that.
func fenced(b *bench) {
	b.fleet()
	b.start("one")
	b.awaitProposal()
	before, _ := b.counts()
	b.change(func() {
		b.claim = &cluster.SchedulerClaim{Holder: Name, Instance: "two", Since: time.Now().UTC()}
		b.revision++
		b.service("web", 3, 500, room(1, 1))
	})
	suite.Pause(b, 2*absence)
	if claims, _ := b.counts(); claims > before {
		b.Errorf("the first instance claims the domain again, and would fence off the second one")
		return
	}
	b.placed(3)
}

// unavailable has proposals fail for a while. The scheduler goes on afterwards.
func unavailable(b *bench) {
	b.fleet()
	b.broken = 503
	b.change(func() { b.service("web", 3, 500, room(1, 1)) })
	b.start("one")
	suite.Pause(b, absence)
	b.change(func() { b.broken = 0 })
	b.placed(0)
}
