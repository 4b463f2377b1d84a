package election_test

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/election"
	"github.com/berthd/berth/internal/store/memory"
)

// idleWorld is an engine and the candidates of a domain that may be idle.
type idleWorld struct {
	engine *memory.Engine
	idle   atomic.Bool
	beats  atomic.Int64
	seed   uint64
}

func newIdleWorld() *idleWorld {
	w := &idleWorld{}
	beatKey := election.BeatKey(store.DefaultPrefix, "main")
	w.engine = memory.New(memory.Options{Observe: func(changes []store.Change, _ uint64, _ bool) {
		for _, c := range changes {
			if c.Key == beatKey {
				w.beats.Add(1)
			}
		}
	}})
	w.idle.Store(true)
	return w
}

func (w *idleWorld) candidate(engine store.Engine, server string) *election.Candidate {
	return election.NewCandidate(election.CandidateConfig{
		Engine: engine, Prefix: store.DefaultPrefix, Domain: "main", Server: server,
		Random: rand.New(rand.NewPCG(w.seed, uint64(len(server)))), Idle: w.idle.Load,
	})
}

// rate returns the number of beats in a minute.
func (w *idleWorld) rate() int64 {
	before := w.beats.Load()
	sleep(time.Minute)
	return w.beats.Load() - before
}

// TestIdleDomainBeatsSlowly: the leader of an idle domain writes a tenth of the beats, and an observer leaves it the
// domain, although some beats are lost. It beats as usual once there is work.
func TestIdleDomainBeatsSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newIdleWorld()
		sent := 0 // in the leader's goroutine alone
		own := w.engine.Open(memory.Hooks{Before: func(context.Context, []store.Group) error {
			if sent++; sent%5 == 0 {
				return store.ErrUnknown
			}
			return nil
		}})
		leader, _ := lead(t.Context(), t, w.candidate(own, "a"))
		defer leader.Resign()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			if l, err := w.candidate(w.engine, "bb").Campaign(ctx); err == nil {
				t.Errorf("the observer leads in epoch %d, although the leader lives", l.Leader.Epoch)
				l.Resign()
			}
		}()
		const most = int64(time.Minute/election.IdleBeatEvery) + 2
		const least = int64(time.Minute/election.BeatEvery)*4/5 - 12
		if n := w.rate(); n > most {
			t.Errorf("an idle domain has %d beats in a minute, want at most %d", n, most)
		}
		w.idle.Store(false)
		if n := w.rate(); n < least {
			t.Errorf("a domain with work has %d beats in a minute, want at least %d", n, least)
		}
		w.idle.Store(true)
		if n := w.rate(); n > most+4 {
			t.Errorf("a domain that is idle again has %d beats in a minute, want at most %d", n, most+4)
		}
		if err := leader.Err(); err != nil {
			t.Errorf("the leader ended: %v", err)
		}
	})
}

// TestIdleLeaderEndsBeforeItsSuccessor cuts leaders off at any time of a beat, of idle domains, of others, and of those
// that change. The next beat is written without an acknowledgement, or not at all. A leader ends by itself before
// another server takes over, within a bounded time.
func TestIdleLeaderEndsBeforeItsSuccessor(t *testing.T) {
	const step = 70 * time.Millisecond
	for after := time.Duration(0); after < 2*election.IdleBeatEvery; after += step {
		for _, change := range []string{"idle", "busy", "begins", "ends"} {
			for _, writes := range []bool{true, false} {
				synctest.Test(t, func(t *testing.T) { cutOff(t, change, after, writes) })
			}
		}
	}
}

// cutOff has a leader lead for a while, and cuts it off: nothing is acknowledged from then on, and nothing written but
// its next beat if writes is set.
func cutOff(t *testing.T, change string, after time.Duration, writes bool) {
	w := newIdleWorld()
	w.seed = uint64(after)
	w.idle.Store(change == "idle" || change == "begins")
	var cut atomic.Bool
	var written atomic.Int64
	own := w.engine.Open(memory.Hooks{
		Before: func(context.Context, []store.Group) error {
			if cut.Load() && (!writes || written.Load() > 0) {
				return store.ErrUnknown
			}
			return nil
		},
		After: func(context.Context, []store.Group, store.Result) error {
			if cut.Load() {
				written.Add(1)
				return store.ErrUnknown
			}
			return nil
		},
	})
	first, _ := lead(t.Context(), t, w.candidate(own, "a"))
	at := time.Now().Add(10*time.Second + after)
	time.AfterFunc(10*time.Second+after, func() {
		cut.Store(true)
		if change == "begins" || change == "ends" {
			w.idle.Store(change == "ends")
		}
	})
	second, _ := lead(t.Context(), t, w.candidate(w.engine, "bb"))
	defer second.Resign()
	took := time.Since(at)
	synctest.Wait() // both may happen at one moment
	select {
	case <-first.Context().Done():
	default:
		t.Errorf("%s, cut off after %v: two servers lead, %v after the cut", change, after, took)
		first.Resign()
	}
	// A beat that is due may be written just before the limit, and promise the next one.
	if most := 2*election.IdleBeatEvery + 2*election.BeatLimit; took > most {
		t.Errorf("%s, cut off after %v: another server led after %v, want %v at most", change, after, took, most)
	}
}
