// Package election elects the leader of a domain: one server at a time, over a store (protocol, part P1). A Candidate
// campaigns until it leads, and the Leadership beats until it ends.
package election

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/berthd/berth/internal/clause"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/store"
)

// The times of leadership (P1.2, P1.3).
const (
	// BeatEvery is how often a leader writes its beat.
	BeatEvery = 250 * time.Millisecond
	// IdleBeatEvery is how often the leader of a domain without work writes its beat. The beat promises when the next
	// one follows: both the leader and observers add the difference to their limits.
	IdleBeatEvery = 10 * BeatEvery
	// BeatLimit is how long a leader continues after the last beat that was acknowledged.
	BeatLimit = time.Second
	// ObserveEvery is the tick of an observer. The silence that an observer accepts is BeatLimit at first, which is ten
	// ticks. It doubles with each takeover within RingSpan, up to SilenceLimit.
	ObserveEvery = 100 * time.Millisecond
	// restTicks is how many ticks an observer lets pass without a read once it saw a beat: the next one is not due yet.
	restTicks    = int(BeatEvery / ObserveEvery)
	SilenceLimit = 10 * time.Second
	// AnswerLimit is how long an observer waits for the engine to answer one read. A slow answer counts as one tick,
	// however many passed: the stall of the observer's reads may also stall the leader's beats.
	AnswerLimit = time.Second
	RingSpan    = time.Minute
)

// Why a leadership ended.
var (
	// ErrDeposed says that another server took over.
	ErrDeposed = errors.New("another server leads")
	// ErrSilent says that no beat could be written for BeatLimit (P1.2).
	ErrSilent = errors.New("the leader could not write its beat")
	// ErrResigned says that the leader gave up by itself.
	ErrResigned = errors.New("the leader resigned")
)

// CandidateConfig configures a candidate; every field but Member, Defer, Idle and Without is required.
type CandidateConfig struct {
	Engine store.Engine
	// Member is this server's member of the engine; nil where the engine has none in Berth's servers.
	Member store.EngineMember
	Prefix store.Prefix
	Domain string
	// Server is this server's id, the same after a restart. No two live servers share it.
	Server string
	// Random is the source of the jitter. Only the candidate uses it.
	Random *rand.Rand
	// Defer returns how long this candidate leaves a domain without a holder to the others; nil means not at all.
	Defer func() time.Duration
	// Idle reports whether the domain has no work, so that its leader beats every IdleBeatEvery; nil means never. It is
	// called before each beat.
	Idle func() bool
	// Without switches clauses off.
	Without clause.Set
}

// Candidate seeks the leadership of a domain for one server, over and over. It counts the takeovers that it saw. Each
// makes it wait longer for the next, so that servers on a stalling disk do not depose each other in a ring (P1.3). One
// goroutine at a time may use it.
type Candidate struct {
	config    CandidateConfig
	seen      uint64      // the highest epoch seen
	led       uint64      // the last epoch that this candidate led by
	takeovers []time.Time // when they were seen, oldest first
	engine    engineLeaderView
}

// NewCandidate returns a candidate that has seen nothing.
func NewCandidate(config CandidateConfig) *Candidate { return &Candidate{config: config} }

// BeatKey returns the key of a domain's beat. It lies next to the prefix, not under it, so that the tables' watch does
// not carry beats.
func BeatKey(p store.Prefix, domain string) string {
	return strings.TrimSuffix(string(p), "/") + "-beat/" + domain
}

// Leadership is one epoch of a domain led by this server. Its context ends when another server took over, when no beat
// could be written for BeatLimit, with Resign, or with the context of the campaign. The fence refuses writes that are
// still in flight then (P1.4). Safe for concurrent use.
type Leadership struct {
	Leader cluster.Leader
	// Record is the leader record as this server wrote it. The leader commits nothing else until the tables contain the
	// record (P1.5): wait for its Modified.
	Record store.Record

	ctx     context.Context //nolint:containedctx // the leadership's life
	cancel  context.CancelCauseFunc
	running sync.WaitGroup
}

// Context ends with the leadership; its cause is Err.
func (l *Leadership) Context() context.Context { return l.ctx }

// Err returns why the leadership ended, or nil while it lasts.
func (l *Leadership) Err() error { return context.Cause(l.ctx) }

// Fence returns the precondition of every write of this leader (P1.4).
func (l *Leadership) Fence() *store.Fence {
	return &store.Fence{
		Key: l.Record.Key, Modified: l.Record.Modified, Incarnation: l.Leader.Incarnation,
		Epoch: l.Leader.Epoch,
	}
}

// Resign ends the leadership and returns when its beats have ended. Other servers still wait for the silence.
func (l *Leadership) Resign() {
	l.cancel(ErrResigned)
	l.running.Wait()
}

// leadershipState is the engine's present record of a domain's leadership.
type leadershipState struct {
	leader cluster.Leader
	record store.Record // the leader record; Modified is 0 if there never was one
	beat   uint64       // the revision of the beat record
	// quiet is how long after the beat no other one is due, beyond BeatEvery.
	quiet time.Duration
}

// Campaign blocks until this server leads the domain, and returns the leadership, which ends with ctx at the latest. A
// domain without a holder is taken over immediately, and so is one whose holder is this server before its restart. Any
// other holder has to be silent first. Campaign waits out faults of the engine, and waits until this server's member of
// the engine has its vote. It returns the context's error, ErrClosed, or an ErrVersion for a leader record that cannot
// be read.
func (c *Candidate) Campaign(ctx context.Context) (*Leadership, error) {
	for {
		// 1. Wait for this server's vote, and read who leads.
		found, err := c.awaitLeadershipState(ctx)
		if err != nil {
			return nil, err
		}
		// 2. Unless the holder is this server before its restart, wait until it is silent or lost the engine to this
		// server.
		c.countTakeovers(found)
		c.engine.begin(c.config.Member, found.record.Modified)
		if !c.isVacant(found) {
			over, err := c.observe(ctx, &found)
			if err != nil {
				return nil, err
			}
			if !over {
				continue
			}
		} else if c.leavesToOthers(ctx, &found) {
			continue
		}
		// 3. Take over.
		leadership, err := c.takeOver(ctx, found)
		if leadership != nil {
			return leadership, nil
		}
		if err != nil { // the next read settles an unknown result: see isVacant
			if err := pause.For(ctx, ObserveEvery); err != nil {
				return nil, err
			}
		}
	}
}

// awaitLeadershipState waits until the engine has its vote and answers, and returns the state that it read.
func (c *Candidate) awaitLeadershipState(ctx context.Context) (leadershipState, error) {
	for {
		if m := c.config.Member; m == nil || m.Votes() {
			found, err := c.readLeadershipState(ctx)
			switch {
			case err == nil:
				return found, nil
			case errors.Is(err, store.ErrVersion), errors.Is(err, store.ErrClosed):
				return found, fmt.Errorf("campaign for %s: %w", c.config.Domain, err)
			}
		}
		if err := pause.For(ctx, ObserveEvery); err != nil {
			return leadershipState{}, err
		}
	}
}

// isVacant reports whether no server can be leading. The domain has no holder, or this server holds it by an epoch that
// this candidate never led by. Such an epoch is from before a restart, or from a takeover whose result was unknown.
func (c *Candidate) isVacant(s leadershipState) bool {
	return s.leader.Holder == "" || s.leader.Holder == c.config.Server && s.leader.Epoch != c.led
}

// leavesToOthers waits while this candidate leaves a domain without a holder to others. It returns true if one of them
// took the domain, or if that is not known, and updates s to the state that was read last.
func (c *Candidate) leavesToOthers(ctx context.Context, s *leadershipState) bool {
	if c.config.Defer == nil || s.leader.Holder != "" {
		return false
	}
	wait := c.config.Defer()
	if wait <= 0 {
		return false
	}
	if pause.For(ctx, wait) != nil {
		return true
	}
	now, err := c.pollLeadershipState(ctx)
	if err != nil || now.record.Modified != s.record.Modified {
		return true
	}
	*s = now
	return false
}

// readLeadershipState reads the leader record and the beat, in one round trip where the engine can.
func (c *Candidate) readLeadershipState(ctx context.Context) (leadershipState, error) {
	var s leadershipState
	both, err := readTogether(ctx, c.config.Engine, c.config.Prefix.Leader(c.config.Domain),
		BeatKey(c.config.Prefix, c.config.Domain))
	if err != nil {
		return s, fmt.Errorf("read leader record and beat: %w", err)
	}
	if record := both[0]; record.Modified != 0 {
		leader, err := store.Decode[cluster.Leader](record.Value)
		if err != nil {
			return s, fmt.Errorf("leader record: %w", errors.Join(store.ErrVersion, err))
		}
		s.leader, s.record = *leader, record
	}
	s.beat = both[1].Modified
	if b, err := store.Decode[beatRecord](both[1].Value); err == nil && b.Next > 0 {
		next := min(time.Duration(b.Next)*time.Millisecond, IdleBeatEvery)
		s.quiet = max(0, next-BeatEvery)
	}
	return s, nil
}

// countTakeovers notes the takeovers since the last call, as the epoch shows them, eight at most.
func (c *Candidate) countTakeovers(s leadershipState) {
	if c.seen > 0 {
		for range min(s.leader.Epoch-min(c.seen, s.leader.Epoch), 8) {
			c.takeovers = append(c.takeovers, time.Now())
		}
	}
	c.seen = s.leader.Epoch
}

// recentTakeovers returns how many takeovers were seen within RingSpan.
func (c *Candidate) recentTakeovers() int {
	for len(c.takeovers) > 0 && time.Since(c.takeovers[0]) > RingSpan {
		c.takeovers = c.takeovers[1:]
	}
	return len(c.takeovers)
}

// silenceLimitTicks returns for how many consecutive ticks the leader has to be silent.
func (c *Candidate) silenceLimitTicks() int {
	const first, most = int(BeatLimit / ObserveEvery), int(SilenceLimit / ObserveEvery)
	ticks := min(first<<min(c.recentTakeovers(), 8), most)
	if c.config.Without.Off(clause.TakeoverBackoff) {
		ticks = first
	}
	return ticks + c.config.Random.IntN(ticks/4+1) + c.engine.yieldedTicks()
}

// observe returns true when this server may take over, and updates s to the state that was read last. The leader was
// silent for long enough, or the engine's leadership moved from the leader's server to this one. It returns false when
// the leader changed. A tick counts only if its read was sent on time and the engine answered within AnswerLimit. An
// observer that was paused, or got no answer, has no evidence (P1.3). It reads nothing while no beat is due. These
// ticks count unless the leader promised to beat slowly.
func (c *Candidate) observe(ctx context.Context, s *leadershipState) (bool, error) {
	ticker := time.NewTicker(ObserveEvery)
	defer ticker.Stop()
	enginePoll := time.NewTicker(engineLeaderPollInterval)
	defer enginePoll.Stop()
	waits := time.Now() // the start of the present wait for a tick
	due := waits.Add(s.quietTime())
	limit := c.silenceLimitTicks()
	for silent := 0; silent < limit; {
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-enginePoll.C:
			if !c.inheritedEngineLeadership(s.leader) {
				continue
			}
			now, err := c.pollLeadershipState(ctx)
			waits = time.Now()
			if err == nil && now.record.Modified == s.record.Modified {
				*s = now
				return true, nil
			}
			continue // the next tick decides
		case <-ticker.C:
		}
		sent := time.Now()
		if sent.Before(due) {
			waits = sent
			continue
		}
		late := sent.Sub(waits) > ObserveEvery*3/2
		now, err := c.pollLeadershipState(ctx)
		waits = time.Now()
		late = late || waits.Sub(sent) > AnswerLimit
		switch {
		case ctx.Err() != nil:
			return false, ctx.Err()
		case errors.Is(err, store.ErrClosed):
			return false, store.ErrClosed
		case err != nil || late:
			silent, limit = 0, c.silenceLimitTicks()
		case now.record.Modified != s.record.Modified:
			return false, nil
		case now.beat != s.beat:
			silent, limit = 0, c.silenceLimitTicks()
		default:
			silent++
			continue
		}
		if err == nil && now.beat != s.beat {
			s.beat = now.beat
			due = waits.Add(now.quietTime())
			if now.quiet == 0 && !late {
				silent, due = restTicks, waits.Add(time.Duration(restTicks)*ObserveEvery+ObserveEvery/2)
			}
		}
	}
	return true, nil
}

// quietTime returns how long an observer waits, once it saw the beat, until it counts ticks. The leader ends by itself
// before the ticks reach their limit, although the wait may end between two of them.
func (s *leadershipState) quietTime() time.Duration {
	if s.quiet == 0 {
		return 0
	}
	return s.quiet + ObserveEvery
}

// pollLeadershipState is readLeadershipState bounded by AnswerLimit.
func (c *Candidate) pollLeadershipState(ctx context.Context) (leadershipState, error) {
	brief, cancel := context.WithTimeout(ctx, AnswerLimit)
	defer cancel()
	return c.readLeadershipState(brief)
}

// takeOver writes the next epoch with a first beat, if the leader record and the beat are unchanged. It returns nil
// without an error if one of them changed.
func (c *Candidate) takeOver(ctx context.Context, s leadershipState) (*Leadership, error) {
	leader := cluster.Leader{
		Epoch:       s.leader.Epoch + 1,
		Holder:      c.config.Server,
		Incarnation: s.leader.Incarnation,
		Since:       time.Now().UTC(),
		Member:      c.engine.self,
	}
	if leader.Incarnation == 0 {
		leader.Incarnation = uint64(time.Now().UnixMilli())
	}
	value, err := store.Encode(leader)
	if err != nil {
		return nil, err
	}
	beat, err := store.Encode(beatRecord{Epoch: leader.Epoch, Number: 1})
	if err != nil {
		return nil, err
	}
	key, beatKey := c.config.Prefix.Leader(c.config.Domain), BeatKey(c.config.Prefix, c.config.Domain)
	sent := time.Now()
	result, err := c.config.Engine.Commit(ctx, []store.Group{{
		Compares: []store.Compare{{Key: key, Modified: s.record.Modified}, {Key: beatKey, Modified: s.beat}},
		Ops:      []store.Op{{Key: key, Value: value}, {Key: beatKey, Value: beat}},
	}})
	if err != nil || !result.Applied[0] {
		return nil, err
	}
	created := s.record.Created
	if created == 0 {
		created = result.Revision
	}
	l := &Leadership{
		Leader: leader,
		Record: store.Record{Key: key, Value: value, Created: created, Modified: result.Revision},
	}
	if s.record.Modified != 0 {
		c.countTakeovers(leadershipState{leader: leader})
	}
	c.seen, c.led = leader.Epoch, leader.Epoch
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	l.running.Go(func() { l.beat(c.config.Engine, beatKey, sent, c.config.Idle) })
	l.running.Go(func() { l.pullEngineLeadership(c.config.Member) })
	return l, nil
}

// beatRecord is the content of a beat. A new revision of the record proves that the leader lives. The number rises with
// each beat of an epoch, since some engines keep the revision of a record that is written with its present value.
type beatRecord struct {
	Epoch  uint64 `json:"epoch"`
	Number uint64 `json:"number"`
	// Next is the time until the next beat in milliseconds, if it is longer than BeatEvery.
	Next int64 `json:"next,omitempty"`
}

// beat writes the beat until the leadership ends, and ends the leadership when beats fail for BeatLimit. The first beat
// was written by the takeover. The time of a beat is when it was sent: a late acknowledgement proves nothing about the
// present.
func (l *Leadership) beat(engine store.Engine, key string, sent time.Time, idle func() bool) {
	defer l.cancel(nil)
	silence := time.AfterFunc(time.Until(sent.Add(BeatLimit)), func() { l.cancel(ErrSilent) })
	defer silence.Stop()
	compares := []store.Compare{{Key: l.Record.Key, Modified: l.Record.Modified}}
	next := time.NewTimer(time.Until(sent.Add(BeatEvery)))
	defer next.Stop()
	for number := uint64(2); ; number++ {
		select {
		case <-l.ctx.Done():
			return
		case <-next.C:
		}
		beat, every := beatRecord{Epoch: l.Leader.Epoch, Number: number}, BeatEvery
		if idle != nil && idle() {
			every = IdleBeatEvery
			beat.Next = every.Milliseconds()
		}
		value, err := store.Encode(beat)
		if err != nil {
			l.cancel(err)
			return
		}
		sent := time.Now()
		result, err := engine.Commit(l.ctx, []store.Group{{
			Compares: compares, Ops: []store.Op{{Key: key, Value: value}},
		}})
		switch {
		case err != nil: // tried again, until the silence is too long
			every = BeatEvery
		case !result.Applied[0]:
			l.cancel(ErrDeposed)
		default:
			silence.Reset(time.Until(sent.Add(BeatLimit + every - BeatEvery)))
		}
		// No beat is sent before it is due. So one that promises less than the last does not end the leadership sooner,
		// although observers may see it while its acknowledgement is lost.
		next.Reset(time.Until(sent.Add(every)))
	}
}

// readTogether reads records through any engine. An engine that cannot read them together reads one after the other.
func readTogether(ctx context.Context, engine store.Engine, keys ...string) ([]store.Record, error) {
	if e, ok := engine.(store.TogetherReader); ok {
		return e.ReadTogether(ctx, keys...)
	}
	records := make([]store.Record, len(keys))
	for i, key := range keys {
		record, err := engine.Read(ctx, key)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, err
		}
		records[i] = record
	}
	return records, nil
}
