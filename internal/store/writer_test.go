package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
)

// units returns n units that each compare and write a key of their own, with an event.
func units(t *testing.T, n int) []store.Unit {
	t.Helper()
	out := make([]store.Unit, n)
	for i := range out {
		key := p.Scheduled(cluster.ServiceTask("c", "s", 1, i))
		out[i].Compare(key, 0)
		out[i].Mark(key)
		out[i].Event(cluster.Event{Type: "task.running", Message: fmt.Sprint(i)})
	}
	return out
}

func count(applied []bool) int {
	n := 0
	for _, ok := range applied {
		if ok {
			n++
		}
	}
	return n
}

// countEvents counts the events and the batches of the log.
func countEvents(s *store.Snapshot) (events, batches int) {
	for e := range s.EventBatches() {
		events += len(e.Value.Events)
		batches++
	}
	return events, batches
}

// The writer writes any number of units within the engine's limits, with few event records.
func TestWriterKeepsTheLimits(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		applied, rev, err := w.writer.Commit(t.Context(), units(t, 1000))
		if err != nil || count(applied) != 1000 {
			t.Fatalf("applied: got %d %v, want 1000", count(applied), err)
		}
		if events, batches := countEvents(w.at(rev)); events != 1000 || batches > 30 {
			t.Errorf("log: got %d events in %d batches, want 1000 in 30 at most", events, batches)
		}
	})
}

// A refused unit does not affect other units, and its event is not written.
func TestWriterRefusesOneByOne(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		all := units(t, 300)
		w.put(all[17].Ops[0].Key, &store.Newest{})
		w.put(all[250].Ops[0].Key, &store.Newest{})
		applied, rev, err := w.writer.Commit(t.Context(), all)
		if err != nil || count(applied) != 298 || applied[17] || applied[250] {
			t.Fatalf("applied: got %d %v, want all but two", count(applied), err)
		}
		if events, _ := countEvents(w.at(rev)); events != 298 {
			t.Errorf("events: got %d, want 298", events)
		}
	})
}

// The writer reports a unit that can never be written, and writes all others.
func TestWriterLeavesTheHopelessOut(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*store.Unit)
		want  error
	}{
		"too large": {func(u *store.Unit) { u.Ops[0].Value = make([]byte, 5<<20) }, store.ErrTooLarge},
		"too many": {func(u *store.Unit) {
			for i := range 20_000 {
				u.Compare(p.Cluster(fmt.Sprint(i)), 0)
			}
		}, store.ErrTooLarge},
		"malformed":    {func(u *store.Unit) { u.Compare("", 0) }, store.ErrInvalid},
		"long message": {func(u *store.Unit) { u.Events[0].Message = strings.Repeat("<", 3<<20) }, store.ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				all := units(t, 40)
				c.spoil(&all[20])
				applied, _, err := w.writer.Commit(t.Context(), all)
				if !errors.Is(err, c.want) || count(applied) != 39 || applied[20] {
					t.Errorf("got %d applied, %v; want 39 and %v", count(applied), err, c.want)
				}
			})
		})
	}
}

// The second of two units that write one key is written after the first, and is refused if it compares that key.
func TestWriterOrdersWritesOfAKey(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		all := units(t, 3)
		all[2] = all[0]
		var last store.Unit // compares nothing
		last.Delete(all[0].Ops[0].Key)
		applied, _, err := w.writer.Commit(t.Context(), append(all, last))
		if want := []bool{true, true, false, true}; err != nil || fmt.Sprint(applied) != fmt.Sprint(want) {
			t.Errorf("applied: got %v %v, want %v", applied, err, want)
		}
		if _, err := w.engine.Read(t.Context(), all[0].Ops[0].Key); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("the key: got %v, want it deleted", err)
		}
	})
}

// P1.4: no write and no event of a deposed leader is applied.
func TestWriterOfADeposedLeaderWritesNoEvent(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		old := w.writer
		w.lead(2)
		applied, _, err := old.Commit(t.Context(), units(t, 200))
		if err != nil || count(applied) != 0 {
			t.Errorf("applied: got %d %v, want none", count(applied), err)
		}
		if events, _ := countEvents(w.now()); events != 0 {
			t.Errorf("events: got %d, want none", events)
		}
	})
}

// If a later call fails, the result still reports the units that earlier calls made durable.
func TestWriterReportsWhatWasWrittenBeforeAFault(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		calls := 0
		faulty := w.engine.Open(memory.Hooks{Before: func(context.Context, []store.Group) error {
			if calls++; calls > 1 {
				return store.ErrNoSpace
			}
			return nil
		}})
		all := units(t, 20_000)
		applied, rev, err := store.NewWriter(faulty, p, w.fence, nil).Commit(t.Context(), all)
		if !errors.Is(err, store.ErrNoSpace) || rev == 0 {
			t.Fatalf("got revision %d, %v, want ErrNoSpace after the first call", rev, err)
		}
		if _, batches := countEvents(w.at(rev)); count(applied) == 0 || batches == 0 {
			t.Error("the first call is not reported")
		}
	})
}
