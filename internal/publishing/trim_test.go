package publishing

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// small are limits that a test reaches. A batch without a message has about 100 bytes.
var small = limits{kept: 20, batches: 60, trimmed: 5, bytes: 20_000, trimmedBytes: 1_000}

// The log keeps what the slowest publisher has not sent, until it is full. The newest batches always stay.
func TestTrim(t *testing.T) {
	tests := []struct {
		name          string
		written, size int
		// cursors are the cursors of the publishers: the number of a batch, or -1 for none.
		cursors []int
		left    int
		lost    uint64 // by the first publisher
	}{
		{"few batches", 24, 0, nil, 24, 0},
		{"no publisher", 50, 0, nil, 20, 0},
		{"a publisher that sent everything", 50, 0, []int{49}, 20, 0},
		{"a slow publisher", 50, 0, []int{9}, 40, 0},
		{"a slow publisher among fast ones", 50, 0, []int{12, 30, 49}, 40, 0},
		{"a publisher that sent nothing", 50, 0, []int{-1}, 50, 0},
		{"a slow publisher and a full log", 80, 0, []int{9}, 60, 10},
		{"a publisher that sent nothing and a full log", 80, 0, []int{-1, 79}, 60, 20},
		{"a slow publisher and many bytes", 50, 500, []int{0}, 30, 19},
		{"many bytes in few batches", 40, 2000, []int{0}, 20, 19},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			w.events(test.written, test.size)
			names := []string{"p", "q", "r"}
			for i, c := range test.cursors {
				p := cluster.Publisher{Name: names[i], Position: uint64(c + 1)}
				if c >= 0 {
					p.Cursor = w.written[c]
				}
				w.put(prefix.Publisher(p.Name), &p)
			}
			for w.trim(small) {
			}
			snap := w.snapshot()
			if got := snap.EventCount(); got != test.left {
				t.Errorf("batches in the log: got %d, want %d (%d bytes)", got, test.left, snap.EventBytes())
			}
			var trim cluster.EventTrim
			if e, ok := snap.EventTrim(); ok {
				trim = *e.Value
			}
			want := cluster.EventTrim{Batches: uint64(test.written - test.left)}
			if want.Batches > 0 {
				want.Last, want.LastAt = w.written[want.Batches-1], w.now
			}
			if diff := cmp.Diff(want, trim); diff != "" {
				t.Errorf("trim/event (-want +got):\n%s", diff)
			}
			if len(test.cursors) == 0 {
				return
			}
			sent := uint64(test.cursors[0] + 1)
			wantLeft := Backlog{Lost: test.lost, Waiting: uint64(test.written) - sent - test.lost}
			if diff := cmp.Diff(wantLeft, BacklogOf(snap, w.publisher())); diff != "" {
				t.Errorf("backlog (-want +got):\n%s", diff)
			}
		})
	}
}

// A publisher whose record is deleted keeps nothing in the log.
func TestRemovedPublisherFreesTheLog(t *testing.T) {
	w := newWorld(t)
	w.put(prefix.Publisher("p"), &cluster.Publisher{Name: "p"})
	w.events(50, 0)
	if w.trim(small) {
		t.Fatal("the log is trimmed before the publisher sent it")
	}
	w.commit(store.Op{Key: prefix.Publisher("p"), Delete: true})
	for w.trim(small) {
	}
	if got := w.snapshot().EventCount(); got != small.kept {
		t.Errorf("batches in the log: got %d, want %d", got, small.kept)
	}
}

// A write has as many operations as the engine takes, and each batch is counted once, even if two leaders of two
// domains trim the log.
func TestTrimIsBoundedAndCountedOnce(t *testing.T) {
	w := newWorld(t)
	w.events(50, 0)
	const most = 5 // one compare, one record, three deletions
	old, ok, err := small.trim(w.snapshot(), prefix, most)
	if err != nil || !ok || len(old.Ops)+len(old.Compares) != most {
		t.Fatalf("got %d compares and %d operations (%v %v), want %d in all", len(old.Compares), len(old.Ops), ok, err,
			most)
	}
	w.trim(small)
	applied, _, err := w.writer.Commit(context.Background(), []store.Unit{old})
	if err != nil || applied[0] {
		t.Errorf("a trim from an old snapshot: applied %v, error %v; want it refused", applied, err)
	}
	trim, _ := w.snapshot().EventTrim()
	if left := w.snapshot().EventCount(); trim.Value.Batches != 5 || left != 45 {
		t.Errorf("got %d batches trimmed and %d left, want 5 and 45", trim.Value.Batches, left)
	}
}

// The limits of the log let a write of the leader trim it, and are far enough apart.
func TestLogLimits(t *testing.T) {
	l := logLimits()
	if l.kept+l.trimmed >= l.batches-l.trimmed || l.trimmedBytes >= l.bytes {
		t.Errorf("limits: %+v", l)
	}
}
