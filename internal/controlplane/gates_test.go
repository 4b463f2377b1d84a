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

// fakeMeasurer gives the answers of a test after a delay, and counts the questions.
type fakeMeasurer struct {
	takes time.Duration

	mu     sync.Mutex
	gate   func(name string) (bool, error)
	value  float64
	asked  map[string]int
	now    int // questions being answered
	most   int
	silent bool // no answer comes before the asker gives up
}

func (o *fakeMeasurer) ask(ctx context.Context, what string) error {
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
func (o *fakeMeasurer) Query(ctx context.Context, _, query string) (float64, error) {
	o.mu.Lock()
	value := o.value // the value at the time of the question
	o.mu.Unlock()
	return value, o.ask(ctx, query)
}

// Gate is part of controlplane.Measurer.
func (o *fakeMeasurer) Gate(ctx context.Context, g cluster.Gate) (bool, string, error) {
	if err := o.ask(ctx, g.Name); err != nil {
		return false, "", err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	ok, err := o.gate(g.Name)
	return ok, "queried " + g.Name, err
}

func (o *fakeMeasurer) set(do func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	do()
}

func (o *fakeMeasurer) count(what string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.asked[what]
}

func gatedUpdate(names ...string) cluster.Update {
	u := cluster.Update{}
	for _, n := range names {
		u.Gates = append(u.Gates, cluster.Gate{
			Name: n, HTTP: "http://" + n, Interval: cluster.Duration(2 * time.Second), Passes: 2, Failures: 3,
		})
	}
	return u
}

// startGatedService starts a service of 3 tasks, healthy in its first version.
func (w *world) startGatedService(u cluster.Update) {
	w.t.Helper()
	w.node("n1")
	w.node("n2")
	w.definition(1, 100)
	w.definition(2, 100)
	w.putRolledService(3, 1, 1, u)
	w.until(3*time.Minute, "the first version is complete", func(s *store.Snapshot) bool {
		return healthyOfVersion(s, 1) == 3 && rolloutOf(s).State == cluster.RolloutComplete
	})
}

// A gate that does not pass pauses a rollout. Once it passes as often in a row as its spec says, the rollout continues,
// batch by batch.
func TestGatePausesARollout(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		open := false
		o := &fakeMeasurer{takes: 100 * time.Millisecond}
		failures := 0
		o.gate = func(string) (bool, error) {
			if failures++; !open && failures%3 == 0 { // never so often in a row that the rollout fails
				return true, nil
			}
			return open, nil
		}
		w.server.stop()
		w.measurer = o
		w.start()
		w.startGatedService(gatedUpdate("errors"))
		w.putRolledService(3, 2, 2, gatedUpdate("errors"))
		w.until(time.Minute, "one is healthy", func(s *store.Snapshot) bool { return healthyOfVersion(s, 2) == 1 })
		time.Sleep(time.Minute) // in-bubble: inWorld makes one
		s := w.server.tables.Snapshot()
		if n := healthyOfVersion(s, 2); n != 1 || rolloutOf(s).State != cluster.RolloutRolling {
			t.Errorf("behind a closed gate: %d tasks of the new version, %s; want 1, rolling", n, rolloutOf(s).State)
		}
		if seen := w.server.plane.Gates(cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: "web"}); len(
			seen) != 1 || seen[0].Message == "" {
			t.Errorf("what was seen of the gate: got %+v", seen)
		}
		closed := 0
		o.set(func() { open, closed = true, o.asked["errors"] })
		w.until(time.Minute, "the rollout is complete", func(s *store.Snapshot) bool {
			return healthyOfVersion(s, 2) == 3 && rolloutOf(s).State == cluster.RolloutComplete
		})
		before := o.count("errors")
		if before-closed < 4 {
			t.Errorf("%d queries for two batches, want two for each", before-closed)
		}
		time.Sleep(time.Minute) // in-bubble: inWorld makes one
		if o.count("errors") > before+1 {
			t.Errorf("the gate was queried after the end of the rollout")
		}
	})
}

// A gate that fails three times in a row fails the rollout, which is reverted; so does a gate without an answer.
func TestGateFailsARollout(t *testing.T) {
	for name, gate := range map[string]func(string) (bool, error){
		"refused": func(string) (bool, error) { return false, nil },
		"error":   func(string) (bool, error) { return false, errors.New("connection refused") },
		"silent":  nil,
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				o := &fakeMeasurer{gate: func(string) (bool, error) { return true, nil }}
				w.server.stop()
				w.measurer = o
				w.start()
				w.startGatedService(gatedUpdate("errors"))
				o.set(func() { o.gate, o.silent = gate, gate == nil })
				w.putRolledService(3, 2, 2, gatedUpdate("errors"))
				w.until(2*time.Minute, "the last version is back", func(s *store.Snapshot) bool {
					svc, _ := s.Service("c", "web")
					return svc.Value.Rollout.Reverted == 2 && healthyOfVersion(s, 1) == 3 && countRecords(s) == 3
				})
			})
		})
	}
}

// However many gates there are, few are queried concurrently, and the loop waits for none.
func TestGatesAreQueriedConcurrently(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		o := &fakeMeasurer{takes: 3 * time.Second, gate: func(string) (bool, error) { return true, nil }}
		w.server.stop()
		w.measurer = o
		w.start()
		var names []string
		for i := range 40 {
			names = append(names, "g"+string(rune('a'+i%26))+string(rune('a'+i/26)))
		}
		w.startGatedService(gatedUpdate(names...))
		o.set(func() { o.asked, o.most = nil, 0 })
		w.putRolledService(3, 2, 2, gatedUpdate(names...))
		w.until(time.Minute, "one is healthy", func(s *store.Snapshot) bool { return healthyOfVersion(s, 2) == 1 })
		time.Sleep(2500 * time.Millisecond) // in-bubble: inWorld makes one
		began := time.Now()
		w.job(1, 0)
		w.until(10*time.Second, "a job has run meanwhile", func(s *store.Snapshot) bool { return succeeded(s) == 1 })
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the job took %v while gates were queried", took)
		}
		w.until(5*time.Minute, "the rollout is complete", func(s *store.Snapshot) bool {
			return healthyOfVersion(s, 2) == 3 && rolloutOf(s).State == cluster.RolloutComplete
		})
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.most > 16 || o.most < 2 || len(o.asked) != 40 {
			t.Errorf("queried %d gates, %d concurrently; want 40, 16", len(o.asked), o.most)
		}
	})
}
