package store

import (
	"context"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// An engine whose members run in Berth's servers elects a leader of its own, and finds out sooner than any observer of
// beats when that one is gone: it has to, before it answers anybody. So the two leaderships are kept on one server,
// where they are lost together: a domain's leader draws the engine's leadership to its own server, and the server that
// the engine's leadership moves to takes the domain over at once (P1.3).

const (
	// glanceEvery is how often an observer looks who leads the engine. It is a look in this process's memory.
	glanceEvery = ObserveEvery / 4
	// engineTakeovers is how many takeovers of the last RingSpan leave a change of the engine's leader reason enough
	// for the next. After more, the engine is what goes round in a ring, and only silence counts.
	engineTakeovers = 3
	// courtesyTicks is how much longer an observer waits when the engine's leader is another observer.
	courtesyTicks = 2
	// drawEvery is how often a leader asks for the engine's leadership that is not its server's, and drawLimit how long
	// one attempt may take.
	drawEvery, drawLimit = 5 * time.Second, 2 * time.Second
)

// engineSight is what a candidate sees of the engine's own leadership.
type engineSight struct {
	teller       LeaderTeller // nil where the engine has none
	record       uint64       // the revision of the leader record under which it looks
	self, leader string       // leader is the last one known
	left         string       // the member that the leadership left when it came to this one
}

// begin forgets what was seen under another leader: only a change under the eyes of an observer of this one counts.
func (e *engineSight) begin(engine Engine, record uint64) {
	teller, ok := engine.(LeaderTeller)
	if !ok {
		return
	}
	leader, self, _ := teller.EngineLeader()
	if self != "" && (e.teller == nil || e.record != record) {
		*e = engineSight{teller: teller, record: record, self: self, leader: leader}
	}
}

// look notes a change of the engine's leader.
func (e *engineSight) look() {
	if e.teller == nil {
		return
	}
	leader, _, _ := e.teller.EngineLeader()
	if leader == "" || leader == e.leader {
		return
	}
	e.left = ""
	if leader == e.self {
		e.left = e.leader
	}
	e.leader = leader
}

// courtesy returns how many ticks this observer lets the engine's leader go first.
func (e *engineSight) courtesy() int {
	if e.teller == nil || e.leader == "" || e.leader == e.self {
		return 0
	}
	return courtesyTicks
}

// called says that the engine's leadership left the leader's server and came to this one, for which it may take
// over at once, unless there were many takeovers of late.
func (c *Candidate) called(leader cluster.Leader) bool {
	c.engine.look()
	left := c.engine.left
	return left != "" && left == leader.Member && left != c.engine.self && c.recent() < engineTakeovers
}

// draw moves the engine's leadership to this server, while it leads the domain.
func (l *Leadership) draw(engine Engine) {
	mover, ok := engine.(LeaderMover)
	if !ok {
		return
	}
	ticker := time.NewTicker(drawEvery)
	defer ticker.Stop()
	for {
		leader, self, _ := mover.EngineLeader()
		if self == "" {
			return
		}
		if leader != "" && leader != self {
			ctx, cancel := context.WithTimeout(l.ctx, drawLimit)
			_ = mover.MoveLeader(ctx) // asked again
			cancel()
		}
		select {
		case <-l.ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
