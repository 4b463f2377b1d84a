package election_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/clause"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/election"
	"github.com/berthd/berth/internal/store/memory"
)

// candidate returns a candidate of a server, on a handle of the engine, which may also be the server's member.
func candidate(engine store.Engine, server string, without ...clause.Set) *election.Candidate {
	var off clause.Set
	for _, w := range without {
		off |= w
	}
	member, _ := engine.(store.EngineMember)
	return election.NewCandidate(election.CandidateConfig{
		Engine: engine,
		Member: member,
		Prefix: store.DefaultPrefix,
		Domain: "main",
		Server: server,
		Random: rand.New(rand.NewPCG(1, uint64(len(server)))),

		Without: off,
	})
}

// lead campaigns and returns the leadership and how long it took.
func lead(ctx context.Context, t *testing.T, c *election.Candidate) (*election.Leadership, time.Duration) {
	t.Helper()
	began := time.Now()
	l, err := c.Campaign(ctx)
	if err != nil {
		t.Fatalf("campaign: %v", err)
	}
	return l, time.Since(began)
}

// isFenced reports whether a write under a leadership's fence is refused.
func isFenced(t *testing.T, engine store.Engine, l *election.Leadership) bool {
	t.Helper()
	fence := l.Fence()
	result, err := engine.Commit(t.Context(), []store.Group{{
		Compares: []store.Compare{{Key: fence.Key, Modified: fence.Modified}},
		Ops:      []store.Op{{Key: "berth/state/n/t", Value: fmt.Append(nil, fence.Epoch)}},
	}})
	if err != nil {
		t.Fatalf("commit: %v", err)
	}
	return result.Applied[0]
}

// sleep lets the time of the bubble pass.
func sleep(d time.Duration) { time.Sleep(d) } // in-bubble: every caller is

func TestCampaignOfOneServerTakesOverImmediately(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := memory.New(memory.Options{})
		first, took := lead(t.Context(), t, candidate(engine, "a"))
		if took != 0 {
			t.Errorf("the first leader ever waited %v", took)
		}
		if first.Leader.Epoch != 1 || first.Leader.Holder != "a" ||
			first.Leader.Incarnation != uint64(time.Now().UnixMilli()) {
			t.Errorf("leader: got %+v, want epoch 1 of a, incarnated now", first.Leader)
		}
		record, err := engine.Read(t.Context(), "berth/leader/main")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(record, first.Record); diff != "" {
			t.Errorf("leader record (-engine +leadership):\n%s", diff)
		}
		sleep(time.Minute)
		if err := first.Err(); err != nil {
			t.Fatalf("the leadership ended after a minute of peace: %v", err)
		}
		// The process dies and comes back.
		first.Resign()
		if !errors.Is(first.Err(), election.ErrResigned) {
			t.Errorf("cause: got %v, want ErrResigned", first.Err())
		}
		second, took := lead(t.Context(), t, candidate(engine, "a"))
		defer second.Resign()
		if took != 0 || second.Leader.Epoch != 2 || second.Leader.Incarnation != first.Leader.Incarnation {
			t.Errorf("after a restart: got %+v after %v, want epoch 2 of the same incarnation after 0s", second.Leader,
				took)
		}
		if isFenced(t, engine, first) || !isFenced(t, engine, second) {
			t.Error("the fence lets the old epoch write, or refuses the new one")
		}
	})
}

func TestCampaignWaitsForSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := memory.New(memory.Options{})
		life, kill := context.WithCancel(t.Context())
		first, _ := lead(life, t, candidate(engine, "a"))
		killed := time.Now().Add(30 * time.Second)
		time.AfterFunc(30*time.Second, kill)
		second, took := lead(t.Context(), t, candidate(engine, "bb"))
		defer second.Resign()
		if took < 30*time.Second {
			t.Fatalf("the second took over after %v from a leader that was alive", took)
		}
		// The last beat may be one interval old; ten to twelve ticks follow.
		if since := time.Since(killed); since < election.BeatLimit-election.BeatEvery || since > 1500*time.Millisecond {
			t.Errorf("the second took over %v after the first died, want about 1 s", since)
		}
		if second.Leader.Epoch != 2 {
			t.Errorf("epoch: got %d, want 2", second.Leader.Epoch)
		}
		if isFenced(t, engine, first) {
			t.Error("the dead leader's epoch can still write")
		}
	})
}

// readCounter counts the reads of a domain's beat.
type readCounter struct {
	store.Engine
	reads atomic.Int64
}

func (e *readCounter) Read(ctx context.Context, key string) (store.Record, error) {
	if key == election.BeatKey(store.DefaultPrefix, "main") {
		e.reads.Add(1)
	}
	return e.Engine.Read(ctx, key)
}

// TestObserverReadsOnceForEachBeat: an observer reads a third of its ticks while the leader beats, and takes over as
// soon after the leader's death as with a read at each tick.
func TestObserverReadsOnceForEachBeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := memory.New(memory.Options{})
		life, kill := context.WithCancel(t.Context())
		lead(life, t, candidate(engine, "a"))
		observer := &readCounter{Engine: engine}
		const lived = time.Minute
		killed := time.Now().Add(lived)
		var reads int64
		time.AfterFunc(lived, func() {
			reads = observer.reads.Load()
			kill()
		})
		second, _ := lead(t.Context(), t, candidate(observer, "bb"))
		defer second.Resign()
		if most := int64(lived / election.BeatEvery); reads > most || reads < most*4/5 {
			t.Errorf("%d reads in %v, want about %d", reads, lived, most)
		}
		if since := time.Since(killed); since < election.BeatLimit-election.BeatEvery || since > 1500*time.Millisecond {
			t.Errorf("the second took over %v after the first died, want about 1 s", since)
		}
	})
}

// TestBeatsDiffer leads for a minute. No two beats have the same value, since some engines keep the revision of a
// record that is written with its present value.
func TestBeatsDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		beatKey := election.BeatKey(store.DefaultPrefix, "main")
		seen, beats := map[string]bool{}, 0
		engine := memory.New(memory.Options{Observe: func(changes []store.Change, _ uint64, _ bool) {
			for _, c := range changes {
				if c.Key == beatKey {
					beats++
					seen[string(c.Value)] = true
				}
			}
		}})
		for range 2 { // two epochs of one server
			l, _ := lead(t.Context(), t, candidate(engine, "a"))
			sleep(30 * time.Second)
			l.Resign()
		}
		if least := int(time.Minute / election.BeatEvery); beats < least || len(seen) < beats {
			t.Errorf("got %d beats with %d different values, want at least %d that all differ", beats, len(seen), least)
		}
	})
}

// TestPausedLeaderIsFenced is T10: a leader stalls, another takes over, the first wakes and
// commits.
func TestPausedLeaderIsFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := memory.New(memory.Options{})
		defer engine.Close()
		var stalled atomic.Bool
		wake := make(chan struct{})
		own := engine.Open(memory.Hooks{Before: func(context.Context, []store.Group) error {
			if stalled.Load() {
				<-wake // whatever the context says, as a stopped process does
			}
			return nil
		}})
		first, _ := lead(t.Context(), t, candidate(own, "a"))
		began := time.Now()
		stalled.Store(true)
		<-first.Context().Done()
		if took := time.Since(began); took > election.BeatLimit || !errors.Is(first.Err(), election.ErrSilent) {
			t.Errorf("the stalled leader stopped after %v with %v, want ErrSilent within %v", took, first.Err(),
				election.BeatLimit)
		}
		second, _ := lead(t.Context(), t, candidate(engine, "bb"))
		defer second.Resign()
		if time.Since(began) < election.BeatLimit-election.BeatEvery {
			t.Errorf("the second took over after %v", time.Since(began))
		}
		stalled.Store(false)
		close(wake)
		for range 3 {
			if isFenced(t, own, first) {
				t.Fatal("the woken leader could write")
			}
			sleep(time.Second)
		}
		if second.Err() != nil {
			t.Errorf("the new leader ended: %v", second.Err())
		}
	})
}

func TestDeposedLeaderStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := memory.New(memory.Options{})
		first, _ := lead(t.Context(), t, candidate(engine, "a"))
		err := election.Reincarnate(t.Context(), engine, store.DefaultPrefix, "a snapshot was restored")
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		<-first.Context().Done()
		if took := time.Since(began); took > election.BeatEvery || !errors.Is(first.Err(), election.ErrDeposed) {
			t.Errorf("ended after %v with %v, want ErrDeposed within %v", took, first.Err(), election.BeatEvery)
		}
	})
}

// TestReincarnate is the engine's part of T11: it restores an earlier snapshot while the clock is right, ahead or
// behind.
func TestReincarnate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := memory.New(memory.Options{})
		sleep(time.Second)
		first, _ := lead(t.Context(), t, candidate(engine, "a"))
		first.Resign()
		for range 2 { // within the same millisecond
			if err := election.Reincarnate(t.Context(), engine, store.DefaultPrefix,
				"a snapshot was restored"); err != nil {
				t.Fatal(err)
			}
		}
		second, took := lead(t.Context(), t, candidate(engine, "bb"))
		defer second.Resign()
		if took != 0 || second.Leader.Epoch != 4 || second.Leader.Incarnation < first.Leader.Incarnation+2 {
			t.Errorf("got %+v after %v, want epoch 4 without delay, with an incarnation above %d", second.Leader, took,
				first.Leader.Incarnation+1)
		}
		if isFenced(t, engine, first) {
			t.Error("the leader from before the restore could write")
		}
	})
}

// slow is an engine whose reads take some time.
type slow struct {
	store.Engine
	delay func() time.Duration
}

func (s slow) Read(ctx context.Context, key string) (store.Record, error) {
	sleep(s.delay())
	return s.Engine.Read(context.WithoutCancel(ctx), key)
}

// pausingMember is an engine's member in a process that is paused now and then between two ticks, until a given time.
type pausingMember struct {
	member
	until time.Time
	polls *int
}

func (n pausingMember) EngineLeader() (leader, self string, term uint64) {
	*n.polls++
	if *n.polls%30 == 0 && time.Now().Before(n.until) {
		sleep(300 * time.Millisecond)
	}
	return n.member.EngineLeader()
}

// TestObserverBearsSlowAnswers kills a leader behind slow links. The observer notices the silence, later on slower
// links, and never deposes a living leader.
func TestObserverBearsSlowAnswers(t *testing.T) {
	for _, test := range []struct{ each, most time.Duration }{
		{20 * time.Millisecond, 1500 * time.Millisecond},
		{60 * time.Millisecond, 2500 * time.Millisecond},
		{400 * time.Millisecond, 12 * time.Second},
	} {
		t.Run(test.each.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				engine := memory.New(memory.Options{})
				life, kill := context.WithCancel(t.Context())
				lead(life, t, candidate(engine, "a"))
				killed := time.Now().Add(30 * time.Second)
				time.AfterFunc(30*time.Second, kill)
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				defer cancel()
				second, took := lead(ctx, t, candidate(slow{engine, func() time.Duration { return test.each }}, "bb"))
				defer second.Resign()
				if took < 30*time.Second {
					t.Fatalf("took over after %v from a leader that was alive", took)
				}
				if since := time.Since(killed); since < election.BeatLimit-election.BeatEvery || since > test.most {
					t.Errorf("took over %v after the first died, want between 750ms and %v", since, test.most)
				}
			})
		})
	}
}

// TestObserverWithoutEvidenceWaits shows that an observer's own pauses, and an engine that does not answer, start its
// count again (P1.3).
func TestObserverWithoutEvidenceWaits(t *testing.T) {
	t.Run("own gaps", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			engine := memory.New(memory.Options{})
			life, kill := context.WithCancel(t.Context())
			lead(life, t, candidate(engine, "a"))
			kill()
			began, reads := time.Now(), 0
			observer := slow{engine, func() time.Duration {
				reads++
				if reads%10 == 0 && time.Since(began) < 10*time.Second {
					return election.AnswerLimit + 300*time.Millisecond
				}
				return 0
			}}
			second, took := lead(t.Context(), t, candidate(observer, "bb"))
			defer second.Resign()
			if took < 10*time.Second {
				t.Errorf("an observer with gaps took over after %v, want at least 10s", took)
			}
		})
	})
	t.Run("stopped between ticks", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			engine := memory.New(memory.Options{})
			life, kill := context.WithCancel(t.Context())
			lead(life, t, candidate(engine, "a"))
			kill()
			seat := member{engine, &engineElection{leader: "A"}, "B"}
			observer := pausingMember{seat, time.Now().Add(10 * time.Second), new(int)}
			second, took := lead(t.Context(), t, candidate(observer, "bb"))
			defer second.Resign()
			if took < 10*time.Second {
				t.Errorf("an observer that was stopped now and then took over after %v, want at least 10s", took)
			}
		})
	})
	t.Run("engine away", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			engine := memory.New(memory.Options{})
			first, _ := lead(t.Context(), t, candidate(engine, "a"))
			var back time.Time
			time.AfterFunc(5*time.Second, engine.Crash)
			time.AfterFunc(15*time.Second, func() { back = time.Now(); engine.Restart() })
			second, _ := lead(t.Context(), t, candidate(engine, "bb"))
			defer second.Resign()
			if !errors.Is(first.Err(), election.ErrSilent) {
				t.Errorf("the first ended with %v, want ErrSilent", first.Err())
			}
			// Ten ticks have nine intervals between them.
			if since := time.Since(back); back.IsZero() || since < election.BeatLimit-election.ObserveEvery {
				t.Errorf("took over %v after the engine was back, want at least ten ticks", since)
			}
		})
	})
}

// TestStallingDiskMakesNoRing is T9: writes stall for two seconds of every three, so that every leader falls silent.
// The doubled limit keeps the servers from deposing each other forever.
func TestStallingDiskMakesNoRing(t *testing.T) {
	takeovers := func(t *testing.T, without clause.Set) (count uint64) {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			engine := memory.New(memory.Options{})
			stall := func(context.Context, []store.Group) error {
				if phase := time.Since(began) % (3 * time.Second); phase > time.Second {
					sleep(3*time.Second - phase)
				}
				return nil
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var running sync.WaitGroup
			for _, server := range []string{"a", "bb", "ccc"} {
				running.Go(func() {
					c := candidate(engine.Open(memory.Hooks{Before: stall}), server, without)
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
			if err != nil {
				t.Fatal(err)
			}
			count = leader.Epoch
		})
		return count
	}
	if got := takeovers(t, 0); got > 9 {
		t.Errorf("%d takeovers in a minute, want at most 9", got)
	}
	if got := takeovers(t, clause.TakeoverBackoff); got < 15 {
		t.Errorf("%d takeovers in a minute without the doubling: the test shows nothing", got)
	}
}

// TestEpochsOverFaults lets three servers contend for ten minutes over an engine that
// crashes, stalls and loses acknowledgements. Every epoch has one holder, and no write
// under an epoch comes after one under a higher.
func TestEpochsOverFaults(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { contend(t, seed) })
		})
	}
}

func contend(t *testing.T, seed uint64) {
	engine := memory.New(memory.Options{Random: rand.New(rand.NewPCG(seed, 9))})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 0))
	chance := func(n int) bool {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(n) == 0
	}
	hooks := memory.Hooks{
		Before: func(context.Context, []store.Group) error {
			if chance(200) {
				sleep(3 * time.Second)
			}
			return nil
		},
		After: func(context.Context, []store.Group, store.Result) error {
			if chance(50) {
				return store.ErrUnknown
			}
			return nil
		},
	}
	holders := map[uint64]string{}
	var running sync.WaitGroup
	for _, server := range []string{"a", "bb", "ccc"} {
		running.Go(func() {
			handle := engine.Open(hooks)
			c := candidate(handle, server)
			for {
				l, err := c.Campaign(ctx)
				if err != nil {
					return
				}
				mu.Lock()
				if other, twice := holders[l.Leader.Epoch]; twice {
					t.Errorf("epoch %d was led by %s and %s", l.Leader.Epoch, other, server)
				}
				holders[l.Leader.Epoch] = server
				mu.Unlock()
				writeForEver(ctx, handle, l)
				l.Resign()
			}
		})
	}
	running.Go(func() {
		for ctx.Err() == nil {
			sleep(20 * time.Second)
			engine.Crash()
			sleep(time.Second)
			engine.Restart()
		}
	})
	w := engine.Watch(ctx, "berth/state/", 0)
	highest := uint64(0)
	for {
		batch, err := w.Next(ctx)
		if err != nil {
			break
		}
		for _, change := range batch.Changes {
			epoch, err := strconv.ParseUint(string(change.Value), 10, 64)
			if err != nil || epoch < highest {
				t.Errorf("a write under epoch %q came after one under %d", change.Value, highest)
			}
			highest = epoch
		}
	}
	running.Wait()
	if len(holders) < 3 || highest < 3 {
		t.Errorf("%d leaderships, writes up to epoch %d: the faults are too mild to show anything", len(holders),
			highest)
	}
}

// writeForEver writes under the fence even after the leadership ended, as a paused leader would.
func writeForEver(ctx context.Context, engine store.Engine, l *election.Leadership) {
	fence := l.Fence()
	for ended := 0; ended < 20 && ctx.Err() == nil; {
		if l.Err() != nil {
			ended++
		}
		_, _ = engine.Commit(ctx, []store.Group{{
			Compares: []store.Compare{{Key: fence.Key, Modified: fence.Modified}},
			Ops:      []store.Op{{Key: "berth/state/n/t", Value: fmt.Append(nil, fence.Epoch)}},
		}})
		sleep(100 * time.Millisecond)
	}
}
