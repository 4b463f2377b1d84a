package store

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
)

// The times of leadership (P1.2, P1.3).
const (
	// BeatEvery is how often a leader writes its beat.
	BeatEvery = 250 * time.Millisecond
	// BeatLimit is how long a leader goes on after the last beat that was acknowledged.
	BeatLimit = time.Second
	// ObserveEvery is the tick of an observer, and BeatLimit the silence that it
	// bears at first: ten ticks. It doubles for each takeover of the last RingSpan, up to
	// SilenceLimit.
	ObserveEvery = 100 * time.Millisecond
	SilenceLimit = 10 * time.Second
	// AnswerLimit is how long an observer waits for the engine's answer to one look. A slow answer counts for one tick,
	// however many passed meanwhile: what stalls the observer's looks may stall the leader's beats too.
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

// CandidateConfig is what a candidate needs; all but Without is demanded.
type CandidateConfig struct {
	Engine Engine
	Prefix Prefix
	Domain string
	// Server is this server's id, the same after a restart. No two live servers share it.
	Server string
	// Random makes the jitter. The candidate alone uses it.
	Random *rand.Rand
	// Without switches clauses off.
	Without clause.Set
}

// Candidate seeks the leadership of a domain for one server, over and over. It knows the takeovers it
// saw, which make it more patient, so that servers on a stalling disk do not depose each other in
// a ring (P1.3). One goroutine at a time may use it.
type Candidate struct {
	config    CandidateConfig
	seen      uint64      // the highest epoch seen
	led       uint64      // the last epoch that this candidate led by
	takeovers []time.Time // the latest
	engine    engineSight
}

// NewCandidate returns a candidate that has seen nothing.
func NewCandidate(config CandidateConfig) *Candidate { return &Candidate{config: config} }

// Beat returns the key of a domain's beat. It lies beside the prefix, not under it, so
// that the tables' watch does not carry beats.
func (p Prefix) Beat(domain string) string {
	return strings.TrimSuffix(string(p), "/") + "-beat/" + domain
}

// Leadership is one epoch of a domain led by this server. It ends with its context: when
// another took over, when no beat could be written for BeatLimit, with Resign, or with
// the context of the campaign. Whatever still is on its way then is refused by the fence (P1.4).
// Safe for concurrent use.
type Leadership struct {
	Leader cluster.Leader
	// Record is the leader record as this server wrote it. Nothing but it may be
	// committed until the tables contain it (P1.5): wait for its Modified.
	Record Record

	ctx     context.Context //nolint:containedctx // the leadership's life
	cancel  context.CancelCauseFunc
	running sync.WaitGroup
}

// Context ends when the leadership does; its cause is Err.
func (l *Leadership) Context() context.Context { return l.ctx }

// Err returns why the leadership ended, or nil while it lasts.
func (l *Leadership) Err() error { return context.Cause(l.ctx) }

// Fence returns what every write of this leader compares (P1.4).
func (l *Leadership) Fence() *Fence {
	return &Fence{
		Key: l.Record.Key, Modified: l.Record.Modified, Incarnation: l.Leader.Incarnation,
		Epoch: l.Leader.Epoch,
	}
}

// Resign ends the leadership and returns when its beats have ended. The others still wait
// for the silence.
func (l *Leadership) Resign() {
	l.cancel(ErrResigned)
	l.running.Wait()
}

// standing is what the engine holds about a domain's leadership.
type standing struct {
	leader cluster.Leader
	record Record // of the leader; Modified is 0 if there never was one
	beat   uint64 // the revision of the beat record
}

// Campaign blocks until this server leads the domain, and returns the leadership, which
// lives no longer than ctx. A domain without a holder is taken over at once, and
// so is one whose holder is this server before its restart; any other holder has to be
// silent first. It returns the context's error, ErrClosed, or that the leader record
// cannot be read; faults of the engine it waits out, and the time until an engine that is a Voter has its vote.
func (c *Candidate) Campaign(ctx context.Context) (*Leadership, error) {
	for {
		// 1. See who leads, once this server may.
		found, err := c.see(ctx)
		if err != nil {
			return nil, err
		}
		// 2. Wait until a leader that is not a former life of this server is silent, or lost the engine to this server.
		c.note(found)
		c.engine.begin(c.config.Engine, found.record.Modified)
		if !c.free(found) {
			over, err := c.observe(ctx, &found)
			if err != nil {
				return nil, err
			}
			if !over {
				continue
			}
		}
		// 3. Take over.
		leadership, err := c.take(ctx, found)
		if leadership != nil {
			return leadership, nil
		}
		if err != nil { // an unknown result is settled by looking again: see free
			if err := pause(ctx); err != nil {
				return nil, err
			}
		}
	}
}

// see waits until the engine has its vote and answers, and returns what it holds.
func (c *Candidate) see(ctx context.Context) (standing, error) {
	for {
		voter, ok := c.config.Engine.(Voter)
		if !ok || voter.Votes() {
			found, err := c.look(ctx)
			switch {
			case err == nil:
				return found, nil
			case errors.Is(err, ErrVersion), errors.Is(err, ErrClosed):
				return found, fmt.Errorf("campaign for %s: %w", c.config.Domain, err)
			}
		}
		if err := pause(ctx); err != nil {
			return standing{}, err
		}
	}
}

// free says that nobody can be leading: there is no holder, or it is this server, by an
// epoch that this life of it never led by, be it of an earlier life or of a takeover whose result was
// unknown.
func (c *Candidate) free(s standing) bool {
	return s.leader.Holder == "" || s.leader.Holder == c.config.Server && s.leader.Epoch != c.led
}

// look reads the leader record and the beat, in one round trip where the engine can.
func (c *Candidate) look(ctx context.Context) (standing, error) {
	var s standing
	both, err := readTogether(ctx, c.config.Engine, c.config.Prefix.Leader(c.config.Domain),
		c.config.Prefix.Beat(c.config.Domain))
	if err != nil {
		return s, fmt.Errorf("read leader record and beat: %w", err)
	}
	if record := both[0]; record.Modified != 0 {
		leader, err := Decode[cluster.Leader](record.Value)
		if err != nil {
			return s, fmt.Errorf("leader record: %w", errors.Join(ErrVersion, err))
		}
		s.leader, s.record = *leader, record
	}
	s.beat = both[1].Modified
	return s, nil
}

// note counts the takeovers that a standing shows.
func (c *Candidate) note(s standing) {
	if c.seen > 0 {
		for range min(s.leader.Epoch-min(c.seen, s.leader.Epoch), 8) {
			c.takeovers = append(c.takeovers, time.Now())
		}
	}
	c.seen = s.leader.Epoch
}

// recent returns how many takeovers were seen in the last RingSpan.
func (c *Candidate) recent() int {
	for len(c.takeovers) > 0 && time.Since(c.takeovers[0]) > RingSpan {
		c.takeovers = c.takeovers[1:]
	}
	return len(c.takeovers)
}

// patience returns for how many ticks in a row the leader has to be silent.
func (c *Candidate) patience() int {
	const first, most = int(BeatLimit / ObserveEvery), int(SilenceLimit / ObserveEvery)
	ticks := min(first<<min(c.recent(), 8), most)
	if c.config.Without.Off(clause.Patience) {
		ticks = first
	}
	return ticks + c.config.Random.IntN(ticks/4+1) + c.engine.courtesy()
}

// observe returns true when the leader may be followed, with the standing that was found last: it was silent for long
// enough, or the engine's leadership left its server for this one. It returns false when the leader changed. A tick
// counts only if its look was sent on time and the engine answered within AnswerLimit: an observer that was away, or
// saw nothing, has no evidence (P1.3).
func (c *Candidate) observe(ctx context.Context, s *standing) (bool, error) {
	ticker := time.NewTicker(ObserveEvery)
	defer ticker.Stop()
	glance := time.NewTicker(glanceEvery)
	defer glance.Stop()
	waits := time.Now() // since when it does nothing but wait for the next tick
	limit := c.patience()
	for silent := 0; silent < limit; {
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-glance.C:
			if !c.called(s.leader) {
				continue
			}
			now, err := c.glimpse(ctx)
			waits = time.Now()
			if err == nil && now.record.Modified == s.record.Modified {
				*s = now
				return true, nil
			}
			continue // the next tick tells what is the matter
		case <-ticker.C:
		}
		sent := time.Now()
		late := sent.Sub(waits) > ObserveEvery*3/2
		now, err := c.glimpse(ctx)
		waits = time.Now()
		late = late || waits.Sub(sent) > AnswerLimit
		switch {
		case ctx.Err() != nil:
			return false, ctx.Err()
		case errors.Is(err, ErrClosed):
			return false, ErrClosed
		case err != nil || late:
			silent, limit = 0, c.patience()
		case now.record.Modified != s.record.Modified:
			return false, nil
		case now.beat != s.beat:
			silent, limit = 0, c.patience()
		default:
			silent++
			continue
		}
		if err == nil {
			s.beat = now.beat
		}
	}
	return true, nil
}

// glimpse is look, given up after AnswerLimit.
func (c *Candidate) glimpse(ctx context.Context) (standing, error) {
	brief, cancel := context.WithTimeout(ctx, AnswerLimit)
	defer cancel()
	return c.look(brief)
}

// take writes the next epoch with a first beat, if neither a leader nor a beat came in
// between. It returns nil without an error if one did.
func (c *Candidate) take(ctx context.Context, s standing) (*Leadership, error) {
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
	value, err := Encode(leader)
	if err != nil {
		return nil, err
	}
	beat, err := Encode(beatRecord{Epoch: leader.Epoch})
	if err != nil {
		return nil, err
	}
	key, beatKey := c.config.Prefix.Leader(c.config.Domain), c.config.Prefix.Beat(c.config.Domain)
	sent := time.Now()
	result, err := c.config.Engine.Commit(ctx, []Group{{
		Compares: []Compare{{Key: key, Modified: s.record.Modified}, {Key: beatKey, Modified: s.beat}},
		Ops:      []Op{{Key: key, Value: value}, {Key: beatKey, Value: beat}},
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
		Record: Record{Key: key, Value: value, Created: created, Modified: result.Revision},
	}
	if s.record.Modified != 0 {
		c.note(standing{leader: leader})
	}
	c.seen, c.led = leader.Epoch, leader.Epoch
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	l.running.Go(func() { l.beat(c.config.Engine, Op{Key: beatKey, Value: beat}, sent) })
	l.running.Go(func() { l.draw(c.config.Engine) })
	return l, nil
}

// beatRecord is the content of a beat. What counts is that it was written.
type beatRecord struct {
	Epoch uint64 `json:"epoch"`
}

// beat writes the beat until the leadership ends, or ends it. The time of a beat is when it
// was sent: what was acknowledged late says nothing about now.
func (l *Leadership) beat(engine Engine, op Op, sent time.Time) {
	defer l.cancel(nil)
	silence := time.AfterFunc(time.Until(sent.Add(BeatLimit)), func() { l.cancel(ErrSilent) })
	defer silence.Stop()
	group := []Group{{Compares: []Compare{{Key: l.Record.Key, Modified: l.Record.Modified}}, Ops: []Op{op}}}
	ticker := time.NewTicker(BeatEvery)
	defer ticker.Stop()
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-ticker.C:
		}
		sent := time.Now()
		result, err := engine.Commit(l.ctx, group)
		switch {
		case err != nil: // tried again, until the silence is too long
		case !result.Applied[0]:
			l.cancel(ErrDeposed)
		default:
			silence.Reset(time.Until(sent.Add(BeatLimit)))
		}
	}
}

// pause waits for a tick.
func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(ObserveEvery):
		return nil
	}
}
