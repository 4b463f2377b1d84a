package election

import (
	"context"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// An engine whose members run in Berth's servers elects a leader of its own. The engine notices the loss of its leader
// sooner than any observer of beats, since it cannot answer without one. Berth therefore keeps both leaderships on one
// server, where they are lost together (P1.3). A domain's leader pulls the engine's leadership to its own server. The
// server that the engine's leadership moves to takes the domain over immediately.

const (
	// engineLeaderPollInterval is how often an observer requests the engine's leader. The answer comes from this
	// process's memory.
	engineLeaderPollInterval = ObserveEvery / 4
	// maxEngineTakeovers limits the takeovers within RingSpan that a change of the engine's leader may cause. Above the
	// limit the engine's own leadership is going round in a ring, and only silence counts.
	maxEngineTakeovers = 3
	// yieldTicks is how many ticks longer an observer waits when another observer leads the engine.
	yieldTicks = 2
	// moveLeaderInterval is how often a leader requests the engine's leadership while another server has it.
	// moveLeaderTimeout bounds one attempt.
	moveLeaderInterval, moveLeaderTimeout = 5 * time.Second, 2 * time.Second
)

// engineLeaderView tracks, for a candidate, changes of the engine's own leadership.
type engineLeaderView struct {
	member       store.EngineMember // nil where the engine has none
	record       uint64             // the revision of the leader record since which changes are tracked
	self, leader string             // leader is the last one known
	formerLeader string             // the member that lost the leadership to this one
}

// begin starts the tracking again for another leader record. Only changes seen under the present leader record count.
func (e *engineLeaderView) begin(member store.EngineMember, record uint64) {
	if member == nil || e.member != nil && e.record == record {
		return
	}
	leader, self, _ := member.EngineLeader()
	*e = engineLeaderView{member: member, record: record, self: self, leader: leader}
}

// update notes a change of the engine's leader.
func (e *engineLeaderView) update() {
	if e.member == nil {
		return
	}
	leader, _, _ := e.member.EngineLeader()
	if leader == "" || leader == e.leader {
		return
	}
	e.formerLeader = ""
	if leader == e.self {
		e.formerLeader = e.leader
	}
	e.leader = leader
}

// yieldedTicks returns how many more ticks this observer waits, so that the engine's leader goes first.
func (e *engineLeaderView) yieldedTicks() int {
	if e.member == nil || e.leader == "" || e.leader == e.self {
		return 0
	}
	return yieldTicks
}

// inheritedEngineLeadership reports whether the engine's leadership moved from the leader's server to this one. This
// server may then take over immediately, unless there were too many takeovers of late.
func (c *Candidate) inheritedEngineLeadership(leader cluster.Leader) bool {
	c.engine.update()
	former := c.engine.formerLeader
	return former != "" && former == leader.Member && former != c.engine.self &&
		c.recentTakeovers() < maxEngineTakeovers
}

// pullEngineLeadership moves the engine's leadership to this server for as long as it leads the domain.
func (l *Leadership) pullEngineLeadership(member store.EngineMember) {
	if member == nil {
		return
	}
	ticker := time.NewTicker(moveLeaderInterval)
	defer ticker.Stop()
	for {
		leader, self, _ := member.EngineLeader()
		if leader != "" && leader != self {
			ctx, cancel := context.WithTimeout(l.ctx, moveLeaderTimeout)
			_ = member.MoveLeader(ctx) // the next tick tries again
			cancel()
		}
		select {
		case <-l.ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
