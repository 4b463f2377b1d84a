package publishing

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// A publisher begins after the newest batch, and sends each later batch once if nothing fails.
func TestPublisherFollowsTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.events(3, 0)
		var sent []string
		p := w.newPublisher(func(b []*cluster.EventBatch) error {
			sent = append(sent, ids(b)...)
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.Lead(ctx, w.writer) }()
		synctest.Wait()
		w.events(2*maxBatchesPerSend+1, 0)
		synctest.Wait()
		w.events(1, 0)
		synctest.Wait()
		if diff := cmp.Diff(w.written[3:], sent); diff != "" {
			t.Errorf("sent (-want +got):\n%s", diff)
		}
		want := cluster.Publisher{
			Name: "p", Cursor: w.written[len(w.written)-1], CursorAt: w.now, At: w.now,
			Position: uint64(len(w.written)),
		}
		if diff := cmp.Diff(&want, w.publisher()); diff != "" {
			t.Errorf("record (-want +got):\n%s", diff)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the publisher ended with %v, want %v", err, context.Canceled)
		}
	})
}

// Another server takes over after the system acknowledged batches and before the cursor is written. The former leader
// writes nothing, and the next one sends the batches again.
func TestLeaderChangeBetweenSendAndCursor(t *testing.T) {
	w := newWorld(t)
	var sent []string
	takeOver := false
	p := w.newPublisher(func(b []*cluster.EventBatch) error {
		sent = append(sent, ids(b)...)
		if takeOver {
			takeOver = false
			w.lead()
		}
		return nil
	})
	mustStep(t, w, p) // writes the record
	w.events(3, 0)
	takeOver = true
	if _, err := w.step(p); err == nil {
		t.Error("the former leader wrote the cursor")
	}
	if got := w.publisher(); got.Cursor != "" || got.Position != 0 {
		t.Errorf("the cursor moved to %q, position %d", got.Cursor, got.Position)
	}
	mustStep(t, w, p)
	if diff := cmp.Diff(slices.Concat(w.written, w.written), sent); diff != "" {
		t.Errorf("sent (-want +got):\n%s", diff)
	}
	if got := w.publisher(); got.Cursor != w.written[2] || got.Position != 3 {
		t.Errorf("the cursor is %q at position %d, want %q at 3", got.Cursor, got.Position, w.written[2])
	}
}

// mustStep does one step without an error.
func mustStep(t *testing.T, w *world, p *Publisher) (more bool) {
	t.Helper()
	more, err := w.step(p)
	if err != nil {
		t.Fatal(err)
	}
	return more
}

// mustDrain does steps until nothing is left to do.
func mustDrain(t *testing.T, w *world, p *Publisher) {
	t.Helper()
	for range 100 {
		if !mustStep(t, w, p) {
			return
		}
	}
	t.Fatal("the publisher has no end")
}

// A publisher that resumes behind a trimmed log counts the batches that it lost, once, and reports them as an event. It
// continues with the oldest batch of the log.
func TestGapIsCountedOnce(t *testing.T) {
	w := newWorld(t)
	var sent []string
	p := w.newPublisher(func(b []*cluster.EventBatch) error {
		sent = append(sent, ids(b)...)
		return nil
	})
	mustStep(t, w, p)
	w.events(10, 0)
	mustStep(t, w, p)
	sent = nil
	w.events(70, 0)
	for w.trim(small) {
	}
	if _, err := p.step(context.Background(), deafWriter{w.writer}); !errors.Is(err, store.ErrUnknown) {
		t.Fatalf("a write without an answer: %v, want %v", err, store.ErrUnknown)
	}
	w.note()
	mustDrain(t, w, p)
	if diff := cmp.Diff([]int{10}, gaps(w.snapshot())); diff != "" {
		t.Errorf("events of gaps (-want +got):\n%s", diff)
	}
	if got := w.publisher(); got.Lost != 10 || !got.LostAt.Equal(w.now) {
		t.Errorf("the record counts %d lost batches at %v, want 10 at %v", got.Lost, got.LostAt, w.now)
	}
	if diff := cmp.Diff(w.written[20:], sent); diff != "" { // the last batch is the event of the gap
		t.Errorf("sent (-want +got):\n%s", diff)
	}
}

// A publisher whose record was deleted begins again after the newest batch.
func TestPublisherWithoutARecordBeginsAtTheEnd(t *testing.T) {
	w := newWorld(t)
	var sent []string
	p := w.newPublisher(func(b []*cluster.EventBatch) error {
		sent = append(sent, ids(b)...)
		return nil
	})
	mustStep(t, w, p)
	w.events(5, 0)
	w.commit(store.Op{Key: prefix.Publisher("p"), Delete: true})
	mustDrain(t, w, p)
	w.events(1, 0)
	mustDrain(t, w, p)
	if diff := cmp.Diff(w.written[5:], sent); diff != "" {
		t.Errorf("sent (-want +got):\n%s", diff)
	}
}

// After a batch at the cursor vanished without a trim, the whole log is sent again: the batch may have been any.
func TestForeignDeletionOfTheCursor(t *testing.T) {
	w := newWorld(t)
	var sent []string
	p := w.newPublisher(func(b []*cluster.EventBatch) error {
		sent = append(sent, ids(b)...)
		return nil
	})
	mustStep(t, w, p)
	w.events(3, 0)
	mustStep(t, w, p)
	sent = nil
	w.commit(store.Op{Key: prefix.Event(w.written[2]), Delete: true})
	mustDrain(t, w, p)
	if diff := cmp.Diff(w.written[:2], sent); diff != "" {
		t.Errorf("sent (-want +got):\n%s", diff)
	}
	if got := w.publisher(); got.Position != 2 || got.Lost != 0 {
		t.Errorf("position %d with %d lost batches, want 2 with none", got.Position, got.Lost)
	}
}

// Whatever fails, each batch is sent or in a counted gap, and the position is that of the cursor in the log.
func TestEachBatchIsSentOrCounted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		isSent, inGap := map[string]bool{}, map[string]bool{}
		var fault string
		p := w.newPublisher(func(b []*cluster.EventBatch) error {
			if fault == "not sent" {
				return errors.New("the system does not answer")
			}
			for _, id := range ids(b) {
				isSent[id] = true
			}
			if fault == "takeover" {
				w.lead()
			}
			return nil
		})
		if _, err := w.step(p); err != nil {
			t.Fatal(err)
		}
		reported := 0
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			before := *w.publisher()
			switch rapid.SampledFrom([]string{"events", "events", "trim", "publish"}).Draw(t, "action") {
			case "events":
				w.events(rapid.IntRange(1, 30).Draw(t, "batches"), rapid.SampledFrom([]int{0, 500}).Draw(t, "size"))
			case "trim":
				w.trim(small)
			case "publish":
				fault = rapid.SampledFrom([]string{"", "", "not sent", "takeover", "no answer"}).Draw(t, "fault")
				var by Writer = w.writer
				if fault == "no answer" {
					by = deafWriter{by}
				}
				_, err := p.step(context.Background(), by)
				w.note()
				if fault == "" && err != nil {
					t.Fatal(err)
				}
			}
			after := w.publisher()
			if after.Lost != before.Lost {
				for _, id := range w.written[before.Position:after.Position] {
					inGap[id] = true
				}
				if got, want := after.Lost-before.Lost, after.Position-before.Position; got != want {
					t.Errorf("a gap of %d batches is counted as %d", want, got)
				}
				reported += int(after.Lost - before.Lost)
			}
			if after.Position > 0 && w.written[after.Position-1] != after.Cursor {
				t.Errorf("the cursor %s is at position %d, which is %s", after.Cursor, after.Position,
					w.written[after.Position-1])
			}
		}
		fault = ""
		before := *w.publisher()
		for more := true; more; {
			var err error
			if more, err = w.step(p); err != nil {
				t.Fatal(err)
			}
		}
		after := w.publisher()
		lost := after.Lost - before.Lost // in at most one gap, at the beginning
		for _, id := range w.written[before.Position : before.Position+lost] {
			inGap[id] = true
		}
		for _, id := range w.written {
			if !isSent[id] && !inGap[id] {
				t.Errorf("the batch %s is neither sent nor in a gap", id)
			}
		}
		if uint64(reported)+lost != after.Lost {
			t.Errorf("%d lost batches in gaps, and %d in the record", uint64(reported)+lost, after.Lost)
		}
		if after.Position != uint64(len(w.written)) {
			t.Errorf("the cursor is at %d of %d", after.Position, len(w.written))
		}
	})
}
