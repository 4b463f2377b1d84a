package controlplane_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// outside answers as a test says, after a while, and counts.
type outside struct {
	takes time.Duration

	mu     sync.Mutex
	gate   func(name string) (bool, error)
	value  float64
	asked  map[string]int
	now    int // under way
	most   int
	silent bool // nothing is answered before the asker gives up
}

func (o *outside) ask(ctx context.Context, what string) error {
	o.mu.Lock()
	if o.asked == nil {
		o.asked = map[string]int{}
	}
	o.asked[what]++
	o.now++
	o.most = max(o.most, o.now)
	takes := o.takes
	if o.silent {
		takes = time.Hour
	}
	o.mu.Unlock()
	sleep(ctx, takes)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.now--
	return ctx.Err()
}

// Query is part of controlplane.Measurer.
func (o *outside) Query(ctx context.Context, _, query string) (float64, error) {
	o.mu.Lock()
	value := o.value // as it was when it was asked for
	o.mu.Unlock()
	return value, o.ask(ctx, query)
}

// Gate is part of controlplane.Measurer.
func (o *outside) Gate(ctx context.Context, g cluster.Gate) (bool, string, error) {
	if err := o.ask(ctx, g.Name); err != nil {
		return false, "", err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	ok, err := o.gate(g.Name)
	return ok, "looked at " + g.Name, err
}

func (o *outside) set(do func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	do()
}

func (o *outside) count(what string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.asked[what]
}

func gated(names ...string) cluster.Update {
	u := cluster.Update{}
	for _, n := range names {
		u.Gates = append(u.Gates, cluster.Gate{
			Name: n, HTTP: "http://" + n, Interval: cluster.Duration(2 * time.Second), Passes: 2, Failures: 3,
		})
	}
	return u
}

// gatedService begins a service of 3 tasks, healthy in its first version.
func (w *world) gatedService(u cluster.Update) {
	w.t.Helper()
	w.node("n1")
	w.node("n2")
	w.definition(1, 100)
	w.definition(2, 100)
	w.rolled(3, 1, 1, u)
	w.until(3*time.Minute, "the first version is complete", func(s *store.Snapshot) bool {
		return runs(s, 1) == 3 && rolloutOf(s).State == cluster.RolloutComplete
	})
}

// A gate that does not pass holds a rollout; one that passes so often in a row as it says lets it go on, batch by
// batch.
func TestGateHoldsARollout(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		open := false
		o := &outside{takes: 100 * time.Millisecond}
		failures := 0
		o.gate = func(string) (bool, error) {
			if failures++; !open && failures%3 == 0 { // never so often in a row as would fail the rollout
				return true, nil
			}
			return open, nil
		}
		w.server.stop()
		w.measurer = o
		w.start()
		w.gatedService(gated("errors"))
		w.rolled(3, 2, 2, gated("errors"))
		w.until(time.Minute, "one is healthy", func(s *store.Snapshot) bool { return runs(s, 2) == 1 })
		time.Sleep(time.Minute) // in-bubble: inWorld makes one
		s := w.server.tables.Snapshot()
		if n := runs(s, 2); n != 1 || rolloutOf(s).State != cluster.RolloutRolling {
			t.Errorf("behind a closed gate: %d tasks of the new version, %s; want 1, rolling", n, rolloutOf(s).State)
		}
		if seen := w.server.plane.Gates(cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: "web"}); len(
			seen) != 1 || seen[0].Message == "" {
			t.Errorf("what was seen of the gate: got %+v", seen)
		}
		closed := 0
		o.set(func() { open, closed = true, o.asked["errors"] })
		w.until(time.Minute, "the rollout is complete", func(s *store.Snapshot) bool {
			return runs(s, 2) == 3 && rolloutOf(s).State == cluster.RolloutComplete
		})
		before := o.count("errors")
		if before-closed < 4 {
			t.Errorf("looked %d times for two batches, want two looks for each", before-closed)
		}
		time.Sleep(time.Minute) // in-bubble: inWorld makes one
		if o.count("errors") > before+1 {
			t.Errorf("the gate was looked at after the end of the rollout")
		}
	})
}

// A gate that does not pass three times in a row fails the rollout, which is taken back; so does one that nobody
// answers for.
func TestGateFailsARollout(t *testing.T) {
	for name, gate := range map[string]func(string) (bool, error){
		"refused": func(string) (bool, error) { return false, nil },
		"error":   func(string) (bool, error) { return false, errors.New("connection refused") },
		"silent":  nil,
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				o := &outside{gate: func(string) (bool, error) { return true, nil }}
				w.server.stop()
				w.measurer = o
				w.start()
				w.gatedService(gated("errors"))
				o.set(func() { o.gate, o.silent = gate, gate == nil })
				w.rolled(3, 2, 2, gated("errors"))
				w.until(2*time.Minute, "the last version is back", func(s *store.Snapshot) bool {
					svc, _ := s.Service("c", "web")
					return svc.Value.Rollout.Reverted == 2 && runs(s, 1) == 3 && standing(s) == 3
				})
			})
		})
	}
}

// However many gates there are, few are looked at at once, and the loop waits for none.
func TestGatesAreLookedAtAside(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		o := &outside{takes: 3 * time.Second, gate: func(string) (bool, error) { return true, nil }}
		w.server.stop()
		w.measurer = o
		w.start()
		var names []string
		for i := range 40 {
			names = append(names, "g"+string(rune('a'+i%26))+string(rune('a'+i/26)))
		}
		w.gatedService(gated(names...))
		o.set(func() { o.asked, o.most = nil, 0 })
		w.rolled(3, 2, 2, gated(names...))
		w.until(time.Minute, "one is healthy", func(s *store.Snapshot) bool { return runs(s, 2) == 1 })
		time.Sleep(2500 * time.Millisecond) // in-bubble: inWorld makes one
		began := time.Now()
		w.job(1, 0)
		w.until(10*time.Second, "a job has run meanwhile", func(s *store.Snapshot) bool { return succeeded(s) == 1 })
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the job took %v while gates were looked at", took)
		}
		w.until(5*time.Minute, "the rollout is complete", func(s *store.Snapshot) bool {
			return runs(s, 2) == 3 && rolloutOf(s).State == cluster.RolloutComplete
		})
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.most > 16 || o.most < 2 || len(o.asked) != 40 {
			t.Errorf("looked at %d gates, %d at once; want 40, 16", len(o.asked), o.most)
		}
	})
}
