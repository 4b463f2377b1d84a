package controlplane_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/controlplane"
	"github.com/berthd/berth/internal/store"
)

// leadParts runs a control plane with parts for a domain, as the server s2.
func (w *world) leadParts(domain string, parts ...controlplane.Part) (stop func()) {
	w.put(p.Domain(domain), &cluster.Domain{Name: domain, Number: 1})
	plane := controlplane.New(controlplane.Config{
		Engine: w.engine, Tables: w.server.tables, Domain: domain, Server: "s2", Random: rand.New(rand.NewPCG(2, 2)),
		Logger: slog.New(slog.DiscardHandler), Now: time.Now,
		Clock: func() time.Duration { return time.Since(w.began) },
	})
	for _, part := range parts {
		plane.Register("part", part)
	}
	ctx, cancel := context.WithCancel(w.server.ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = plane.Run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// writeHost writes a record with a writer and returns its error.
func writeHost(t *testing.T, w *controlplane.TermWriter, name string) error {
	t.Helper()
	var u store.Unit
	if err := u.Put(p.Host(name), &cluster.Host{Name: name}); err != nil {
		t.Fatal(err)
	}
	applied, _, err := w.Commit(t.Context(), []store.Unit{u})
	if err == nil && !applied[0] {
		t.Errorf("the write of %s is refused without an error", name)
	}
	return err
}

// A part runs for one term of its leader. Once another server leads, the part can write nothing, even before its
// context ends. In the next term it gets a writer that can (P1.4).
func TestPartOfADeposedLeader(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		terms, ended := make(chan *controlplane.TermWriter, 9), make(chan struct{}, 9)
		stop := w.leadParts("other", func(ctx context.Context, w *controlplane.TermWriter) error {
			terms <- w
			<-ctx.Done()
			ended <- struct{}{}
			return ctx.Err()
		})
		first := <-terms
		if err := writeHost(t, first, "first"); err != nil {
			t.Errorf("the part of a leader writes: %v", err)
		}
		w.put(p.Leader("other"), &cluster.Leader{Epoch: 99, Incarnation: 1, Holder: "s3"})
		if err := writeHost(t, first, "deposed"); !errors.Is(err, store.ErrFenced) {
			t.Errorf("the part of a deposed leader writes: %v, want %v", err, store.ErrFenced)
		}
		<-ended
		second := <-terms // s3 is silent, so s2 takes over again
		if err := writeHost(t, first, "late"); !errors.Is(err, store.ErrFenced) {
			t.Errorf("the part of the former term writes: %v, want %v", err, store.ErrFenced)
		}
		if err := writeHost(t, second, "second"); err != nil {
			t.Errorf("the part of the next term writes: %v", err)
		}
		w.until(time.Second, "both hosts", func(s *store.Snapshot) bool {
			_, one := s.Host("first")
			_, two := s.Host("second")
			return one && two
		})
		for _, name := range []string{"deposed", "late"} {
			if _, ok := w.server.tables.Snapshot().Host(name); ok {
				t.Errorf("the host %s is written", name)
			}
		}
		stop()
		<-ended
	})
}

// A part that fails begins again in the same term, and disturbs no other part. A part that is done does not.
func TestPartThatFailsBeginsAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		failing, done := map[*controlplane.TermWriter]int{}, map[*controlplane.TermWriter]int{}
		stop := w.leadParts("other",
			func(_ context.Context, w *controlplane.TermWriter) error {
				mu.Lock()
				defer mu.Unlock()
				failing[w]++
				return errors.New("no luck")
			},
			func(_ context.Context, w *controlplane.TermWriter) error {
				mu.Lock()
				defer mu.Unlock()
				done[w]++
				return nil
			})
		time.Sleep(21 * time.Second) // in-bubble: inWorld makes one
		stop()
		if len(failing) != 1 || len(done) != 1 {
			t.Errorf("the parts ran in %d and %d terms, want 1", len(failing), len(done))
		}
		for writer, n := range failing {
			if n < 3 || done[writer] != 1 {
				t.Errorf("the failing part began %d times, the other %d times; want some, and once", n, done[writer])
			}
		}
	})
}
