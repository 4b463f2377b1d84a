package state_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/agent/state"
	"github.com/berthd/berth/internal/cluster"
)

// TestMemoryOutlivesItsStores: the next run finds committed changes, and those that were not lost with a crash.
func TestMemoryOutlivesItsStores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken error
		disk := &state.Memory{Fault: func() error { return broken }}
		log := slog.New(slog.DiscardHandler)
		record := func(uuid string) *attempt.Record {
			return attempt.New(cluster.Desired{UUID: uuid, Task: "c.web.1.0", Attempt: 1}, 1, "boot-1")
		}
		life := func(do func(s *state.Store)) {
			s := state.OpenMemory(disk, log)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- s.Run(ctx) }()
			do(s)
			cancel()
			<-ended
		}
		count := func() (n int) {
			saved, err := state.OpenMemory(disk, log).Load()
			if err != nil {
				t.Fatal(err)
			}
			return len(saved.Attempts)
		}
		life(func(s *state.Store) {
			if err := <-s.CommitAttempt(record("a")); err != nil {
				t.Error(err)
			}
			broken = errors.New("input/output error")
			if err := <-s.CommitAttempt(record("b")); !errors.Is(err, broken) {
				t.Errorf("on a broken disk: got error %v, want %v", err, broken)
			}
			broken = nil
			disk.Crash()
		})
		if n := count(); n != 1 {
			t.Errorf("after a crash: %d attempts, want the one that was committed", n)
		}
		life(func(s *state.Store) { s.QueueAttempt(record("c")) })
		if n := count(); n != 2 {
			t.Errorf("after an end in peace: %d attempts, want 2", n)
		}
		disk.Wipe()
		if n := count(); n != 0 {
			t.Errorf("after a wipe: %d attempts, want none", n)
		}
	})
}
