package election_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/election"
	"github.com/berthd/berth/internal/store/memory"
)

// engineElection is the engine's leadership, as all of its members see it.
type engineElection struct {
	mu     sync.Mutex
	leader string
	term   uint64
}

func (e *engineElection) elect(leader string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.leader = leader
	e.term++
}

// member is an engine's handle on one server, with the id of the server's member. It cannot take over the engine's
// leadership.
type member struct {
	store.Engine
	*engineElection
	id string
}

func (m member) EngineLeader() (leader, self string, term uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.leader, m.id, m.term
}

func (m member) Votes() bool { return true }

func (m member) MoveLeader(context.Context) error { return errors.New("not now") }

// mover is a member that can take over the engine's leadership.
type mover struct {
	member
	fails int // how many moves fail before one succeeds
}

func (m *mover) MoveLeader(context.Context) error {
	if m.fails > 0 {
		m.fails--
		return errors.New("not now")
	}
	m.elect(m.id)
	return nil
}

// newLedDomain returns a domain with leader a, whose server also has the engine's leadership, and observers b and c.
func newLedDomain(t *testing.T) (engine *memory.Engine, e *engineElection, a *election.Leadership, kill func()) {
	t.Helper()
	engine = memory.New(memory.Options{})
	e = &engineElection{leader: "A"}
	life, kill := context.WithCancel(t.Context())
	a, _ = lead(life, t, candidate(member{engine, e, "A"}, "a"))
	if a.Leader.Member != "A" {
		t.Fatalf("leader record: got %+v, want member A", a.Leader)
	}
	return engine, e, a, kill
}

// race lets observers on the servers b and c campaign, and returns the winner and the time that it took.
func race(ctx context.Context, t *testing.T, engine *memory.Engine, e *engineElection) (won *election.Leadership,
	took time.Duration,
) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	t.Cleanup(cancel)
	began := time.Now()
	leaderships := make(chan *election.Leadership, 2)
	for server, id := range map[string]string{"bb": "B", "ccc": "C"} {
		go func() {
			if l, err := candidate(member{engine, e, id}, server).Campaign(ctx); err == nil {
				leaderships <- l
			}
		}()
	}
	select {
	case l := <-leaderships:
		return l, time.Since(began)
	case <-ctx.Done():
		return nil, time.Since(began)
	}
}

// TestEngineLeaderTakesOver loses the leader's server. The engine elects another leader 600 ms later, whose server
// takes over immediately, long before the silence is over (P1.3).
func TestEngineLeaderTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine, e, _, kill := newLedDomain(t)
		time.AfterFunc(10*time.Second, func() { kill(); e.elect("") })
		time.AfterFunc(10*time.Second+600*time.Millisecond, func() { e.elect("B") })
		won, took := race(t.Context(), t, engine, e)
		if won == nil || won.Leader.Holder != "bb" || won.Leader.Member != "B" || won.Leader.Epoch != 2 {
			t.Fatalf("after %v: got %+v, want bb", took, won)
		}
		if late := took - 10*time.Second; late < 600*time.Millisecond || late > 650*time.Millisecond {
			t.Errorf("took over %v after the leader died, want right after 600ms", late)
		}
	})
}

// TestEngineLeavesLivingLeader moves the engine's leadership away from a living leader: the domain follows, by
// compare-and-set.
func TestEngineLeavesLivingLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine, e, a, _ := newLedDomain(t)
		time.AfterFunc(10*time.Second, func() { e.elect("C") })
		won, took := race(t.Context(), t, engine, e)
		if won == nil || won.Leader.Holder != "ccc" || took > 11*time.Second {
			t.Fatalf("after %v: got %+v, want ccc", took, won)
		}
		<-a.Context().Done()
		if !errors.Is(a.Err(), election.ErrDeposed) && !errors.Is(a.Err(), election.ErrSilent) ||
			isFenced(t, engine, a) {
			t.Errorf("the former leader ended with %v", a.Err())
		}
	})
}

// TestEngineElsewhereIsNoReason moves the engine's leadership between servers that do not lead the domain, and then to
// the leader's server. No server takes over.
func TestEngineElsewhereIsNoReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine, e, a, _ := newLedDomain(t)
		e.elect("B") // before any observer starts
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		for i, leader := range []string{"C", "B", "", "C", "A"} {
			time.AfterFunc(time.Duration(i+1)*3*time.Second, func() { e.elect(leader) })
		}
		if won, took := race(ctx, t, engine, e); won != nil || a.Err() != nil {
			t.Errorf("after %v: got %+v, and the leader ended with %v", took, won, a.Err())
		}
	})
}

// TestEngineInARing has the engine elect another leader every second, as on disks that stall. The domain stops
// following after some changes (T9).
func TestEngineInARing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := memory.New(memory.Options{})
		e := &engineElection{leader: "A"}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var running sync.WaitGroup
		running.Go(func() {
			for i := 1; ctx.Err() == nil; i++ {
				sleep(time.Second)
				e.elect([]string{"A", "B", "C"}[i%3])
			}
		})
		for i, server := range []string{"a", "bb", "ccc"} {
			running.Go(func() {
				c := candidate(member{engine, e, []string{"A", "B", "C"}[i]}, server)
				for {
					l, err := c.Campaign(ctx)
					if err != nil {
						return
					}
					<-l.Context().Done()
					l.Resign()
				}
			})
		}
		running.Wait()
		record, err := engine.Read(t.Context(), "berth/leader/main")
		if err != nil {
			t.Fatal(err)
		}
		leader, err := store.Decode[struct{ Epoch uint64 }](record.Value)
		if err != nil || leader.Epoch < 3 || leader.Epoch > 9 {
			t.Errorf("%d takeovers in a minute, error %v: want some, and at most 9", leader.Epoch, err)
		}
	})
}

// TestLeaderDrawsEngine wins a domain on a server that does not lead the engine. The leader requests the engine's
// leadership until it has it.
func TestLeaderDrawsEngine(t *testing.T) {
	for _, fails := range []int{0, 2} {
		t.Run(fmt.Sprint(fails, " failures"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &engineElection{leader: "B"}
				l, _ := lead(t.Context(), t,
					candidate(&mover{member{memory.New(memory.Options{}), e, "A"}, fails}, "a"))
				defer l.Resign()
				sleep(11 * time.Second)
				if leader, _, term := (member{engineElection: e}).EngineLeader(); leader != "A" || term != 1 {
					t.Errorf("the engine's leader is %s after %d elections, want A after one", leader, term)
				}
			})
		})
	}
}

// nonVoter is a member without a vote until it is promoted.
type nonVoter struct {
	member
	votes *atomic.Bool
}

func (f nonVoter) Votes() bool { return f.votes.Load() }

// TestLearnerDoesNotCampaign has a server without a vote find a domain without a leader: it waits for its vote.
func TestLearnerDoesNotCampaign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		votes := new(atomic.Bool)
		time.AfterFunc(20*time.Second, func() { votes.Store(true) })
		learner := nonVoter{member{memory.New(memory.Options{}), &engineElection{leader: "B"}, "A"}, votes}
		l, took := lead(t.Context(), t, candidate(learner, "a"))
		defer l.Resign()
		if took < 20*time.Second || took > 21*time.Second {
			t.Errorf("a learner led after %v, want when it had its vote, after 20s", took)
		}
	})
}

// TestEngineLeaderGoesFirst silences a leader whose server never led the engine. The one of two observers with the
// engine's leader takes over.
func TestEngineLeaderGoesFirst(t *testing.T) {
	for _, first := range []string{"B", "C"} {
		synctest.Test(t, func(t *testing.T) {
			engine, e, _, kill := newLedDomain(t)
			e.elect(first)
			kill()
			won, took := race(t.Context(), t, engine, e)
			if won == nil || won.Leader.Member != first {
				t.Errorf("after %v: got %+v, want %s", took, won, first)
			}
		})
	}
}
