package main

import (
	"cmp"
	"container/heap"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/berthd/berth/internal/logic/backfill"
)

// state is a machine at a moment.
type state struct {
	jobs    []job
	now     int64
	free    int64
	procs   int64
	waiting []int // jobs, in order of arrival
	running []held
}

// held is a job that runs.
type held struct {
	job     int
	started int64
	limit   int64 // the moment at which it is stopped
}

// policy chooses the waiting jobs that start now.
type policy interface {
	start(s *state) []int
}

// learner is a policy that gets the ended jobs.
type learner interface{ ended(j job) }

// waker is a policy that names the time of its next decision, at which nothing else need happen; 0 is never.
type waker interface{ nextDecisionAt() int64 }

// finishes is a heap of what runs, by the moment of its real end.
type finishes []finish

type finish struct {
	at  int64
	job int
}

func (f finishes) Len() int { return len(f) }
func (f finishes) Less(a, b int) bool {
	return f[a].at < f[b].at || f[a].at == f[b].at && f[a].job < f[b].job
}
func (f finishes) Swap(a, b int) { f[a], f[b] = f[b], f[a] }
func (f *finishes) Push(x any)   { *f = append(*f, x.(finish)) } //nolint:errcheck // only finishes are pushed
func (f *finishes) Pop() any {
	old := *f
	x := old[len(old)-1]
	*f = old[:len(old)-1]
	return x
}

// replay lets a trace's jobs arrive as they did, and returns how long each waited.
func replay(t *trace, p policy) ([]int64, error) {
	s := &state{jobs: t.jobs, free: t.procs, procs: t.procs}
	waits := make([]int64, len(t.jobs))
	var ends finishes
	for next := 0; next < len(t.jobs) || len(s.waiting) > 0; {
		if !s.advance(next, ends, p) {
			return nil, fmt.Errorf("%d jobs wait at %d, and nothing will ever happen", len(s.waiting), s.now)
		}
		for len(ends) > 0 && ends[0].at <= s.now { // 1. what has ended
			e, _ := heap.Pop(&ends).(finish)
			s.free += t.jobs[e.job].procs
			s.running = slices.DeleteFunc(s.running, func(h held) bool { return h.job == e.job })
			if l, ok := p.(learner); ok {
				l.ended(t.jobs[e.job])
			}
		}
		for next < len(t.jobs) && t.jobs[next].arrived <= s.now { // 2. what has arrived
			s.waiting = append(s.waiting, next)
			next++
		}
		if len(s.waiting) == 0 {
			continue
		}
		started := p.start(s) // 3. what starts
		for _, i := range started {
			j := t.jobs[i]
			if s.free -= j.procs; s.free < 0 {
				return nil, fmt.Errorf("job %d starts at %d, and nothing is free for it", i, s.now)
			}
			waits[i] = s.now - j.arrived
			s.running = append(s.running, held{job: i, started: s.now, limit: s.now + j.limit})
			heap.Push(&ends, finish{s.now + j.run, i})
		}
		if len(started) > 0 {
			slices.Sort(started)
			s.waiting = slices.DeleteFunc(s.waiting, func(i int) bool {
				_, ok := slices.BinarySearch(started, i)
				return ok
			})
		}
	}
	return waits, nil
}

// advance goes to the next moment at which something happens or the policy wants to be asked; there may be none.
func (s *state) advance(next int, ends finishes, p policy) bool {
	var moments []int64
	if next < len(s.jobs) {
		moments = append(moments, s.jobs[next].arrived)
	}
	if len(ends) > 0 {
		moments = append(moments, ends[0].at)
	}
	if w, ok := p.(waker); ok && w.nextDecisionAt() > s.now {
		moments = append(moments, w.nextDecisionAt())
	}
	if len(moments) == 0 {
		return false
	}
	s.now = slices.Min(moments)
	return true
}

// priorityAfter returns how long others may be preferred to a job of the given length; 0 means without end.
type priorityAfter func(length time.Duration) time.Duration

// berth is the policy of internal/logic/backfill.
type berth struct {
	history *backfill.History
	// priorityAfter gets how long a job may run. blind hides the limits: the policy then knows of a job only how long
	// earlier jobs of its user ran.
	priorityAfter priorityAfter
	blind         bool

	next  int64
	stats struct {
		decisions, waited int
		took, longest     time.Duration
	}
	expected map[int]time.Duration // of what runs, where blind
}

func newBerth(after priorityAfter, blind bool) *berth {
	return &berth{
		history: backfill.NewHistory(1 << 14), priorityAfter: after, blind: blind,
		expected: map[int]time.Duration{},
	}
}

func (b *berth) nextDecisionAt() int64 { return b.next }

func (b *berth) ended(j job) {
	e := backfill.Ended{Kind: kind(j), Ran: seconds(j.run), Limit: seconds(j.limit)}
	if b.blind {
		e.Limit = 0
	}
	b.history.Learn(e)
}

func (b *berth) start(s *state) []int { return b.decide(s, b.input(s)) }

// decide returns the jobs that start by a decision about an input.
func (b *berth) decide(s *state, in backfill.Input) []int {
	began := time.Now()
	d := backfill.Decide(in)
	took := time.Since(began)
	b.stats.decisions++
	b.stats.waited = max(b.stats.waited, len(s.waiting))
	b.stats.took += took
	b.stats.longest = max(b.stats.longest, took)
	b.next = 0
	if !d.NextDecisionAt.IsZero() {
		b.next = d.NextDecisionAt.Unix()
	}
	start := make([]int, 0, len(d.Start))
	for _, i := range d.Start {
		start = append(start, s.waiting[i])
		b.expected[s.waiting[i]] = in.Waiting[i].Expected
	}
	return start
}

func (b *berth) input(s *state) backfill.Input {
	now := time.Unix(s.now, 0)
	in := backfill.Input{Now: now, Capacity: backfill.Amounts{s.procs}}
	for _, r := range s.running {
		ends := time.Unix(r.limit, 0)
		if b.blind {
			ends = time.Time{}
			if e := backfill.Longer(b.expected[r.job], now.Sub(time.Unix(r.started, 0))); e > 0 {
				ends = time.Unix(r.started, 0).Add(e)
			}
		}
		in.Running = append(in.Running,
			backfill.Running{ID: strconv.Itoa(r.job), Demand: backfill.Amounts{s.jobs[r.job].procs}, Ends: ends})
	}
	for _, i := range s.waiting {
		j := s.jobs[i]
		w := backfill.Waiting{
			ID: fmt.Sprintf("%07d", i), Arrived: time.Unix(j.arrived, 0), Demand: backfill.Amounts{j.procs},
			Limit: seconds(j.limit), Priority: 1,
		}
		if b.blind {
			w.Limit = 0
		}
		w.Expected = b.history.Expect(kind(j), w.Limit)
		w.PriorityAfter = b.priorityAfter(cmp.Or(w.Limit, w.Expected))
		in.Waiting = append(in.Waiting, w)
	}
	return in
}

func kind(j job) backfill.Kind {
	return backfill.Kind{Owner: j.user, Shape: strconv.FormatInt(j.procs, 10)}
}

func seconds(n int64) time.Duration { return time.Duration(n) * time.Second }
