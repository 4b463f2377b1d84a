package storetest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/election"
	"github.com/berthd/berth/internal/suite"
	"github.com/berthd/berth/internal/yardstick"
)

// testCampaign lets two servers lead one after the other, on the engine's own time.
func testCampaign(c *check) {
	var member store.EngineMember
	if e, ok := c.Engine.(store.ServerEngine); ok {
		member = e.Membership()
	}
	newCandidate := func(server string) *election.Candidate {
		return election.NewCandidate(election.CandidateConfig{
			Engine: c.Engine, Member: member, Prefix: store.DefaultPrefix, Domain: "d", Server: server,
			Random: rand.New(rand.NewPCG(1, 2)),
		})
	}
	write := func(l *election.Leadership, value string) bool {
		fence := l.Fence()
		return c.commit(store.Group{
			Compares: []store.Compare{{Key: fence.Key, Modified: fence.Modified}},
			Ops:      []store.Op{put("e/last", value)},
		}).Applied[0]
	}
	ctx := suite.Context(c, time.Minute)
	// 1. The first candidate leads immediately, and continues leading.
	first, err := newCandidate("a").Campaign(ctx)
	if err != nil {
		c.Fatalf("first campaign: %v", err)
	}
	if first.Leader.Epoch != 1 || !write(first, "a") {
		c.Fatalf("first leader: got %+v, want epoch 1 with the right to write", first.Leader)
	}
	// 2. Its beats raise the revision of the beat record, which is all that observers see.
	key := election.BeatKey(store.DefaultPrefix, "d")
	beat := c.read(key).Modified
	suite.Eventually(c, deliveryTimeout, func() error {
		if c.read(key).Modified == beat {
			return fmt.Errorf("the beat record keeps revision %d", beat)
		}
		return nil
	})
	// 3. The first leader stops. The second takes over once the first was silent long enough.
	began := time.Now()
	first.Resign()
	second, err := newCandidate("b").Campaign(ctx)
	if err != nil {
		c.Fatalf("second campaign: %v", err)
	}
	if took := time.Since(began); took < election.BeatLimit {
		c.Errorf("the second took over after %v, want at least %v", took, election.BeatLimit)
	}
	if second.Leader.Epoch != 2 || second.Leader.Incarnation != first.Leader.Incarnation {
		c.Errorf("second leader: got %+v, want epoch 2 in the incarnation of %+v", second.Leader, first.Leader)
	}
	// 4. The old epoch is fenced off, and the stored record equals the leader's copy.
	if write(first, "a again") || !write(second, "b") {
		c.Errorf("the old epoch can write, or the new one cannot")
	}
	c.wantList("e/", "e/last=b")
	if got := c.read(second.Record.Key); got.Modified != second.Record.Modified || got.Created != first.Record.Created {
		c.Errorf("leader record: got %+v, want %+v", got, second.Record)
	}
	// 5. The same server does not wait after a restart.
	second.Resign()
	watch := yardstick.NewStopwatch()
	third, err := newCandidate("b").Campaign(ctx)
	if err != nil {
		c.Fatalf("third campaign: %v", err)
	}
	defer third.Resign()
	if took := watch.Elapsed(); took > election.BeatLimit || third.Leader.Epoch != 3 {
		c.Errorf("a restarted leader: got epoch %d after %v, want 3 after 0s", third.Leader.Epoch, took)
	}
}
