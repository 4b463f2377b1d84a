package publishing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

const prefix = store.Prefix(store.DefaultPrefix)

// tester is what the tests and the property need of testing.T and rapid.T.
type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// world is a store in memory with an event log and a leader.
type world struct {
	t      tester
	branch *store.Branch
	// written are the ids of all batches since the store began, in the order of the log.
	written []string
	noted   map[string]bool
	epoch   uint64
	writer  *store.Writer // of the present leader
	now     time.Time
}

func newWorld(t tester) *world {
	t.Helper()
	b, err := store.LoadBranch(nil, 0, prefix, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, branch: b, noted: map[string]bool{}, now: time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)}
	w.lead()
	return w
}

// lead begins the term of another leader.
func (w *world) lead() {
	w.t.Helper()
	w.epoch++
	key := prefix.Leader(cluster.DefaultDomain)
	revision := w.put(key, &cluster.Leader{Epoch: w.epoch, Holder: "s", Incarnation: 1})
	w.writer = store.NewWriter(w.branch, prefix, &store.Fence{Key: key, Modified: revision, Epoch: w.epoch}, nil)
}

// put writes a record and returns its revision.
func (w *world) put(key string, record any) uint64 {
	w.t.Helper()
	value, err := store.Encode(record)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.commit(store.Op{Key: key, Value: value})
}

// commit writes without a precondition and returns the revision.
func (w *world) commit(ops ...store.Op) uint64 {
	w.t.Helper()
	result, err := w.branch.Commit(context.Background(), []store.Group{{Ops: ops}})
	if err != nil {
		w.t.Fatal(err)
	}
	w.note()
	return result.Revision
}

// note takes note of the batches that were written since the last call.
func (w *world) note() {
	for e := range w.snapshot().EventBatches() {
		if !w.noted[e.Value.ID] {
			w.noted[e.Value.ID] = true
			w.written = append(w.written, e.Value.ID)
		}
	}
}

func (w *world) snapshot() *store.Snapshot { return w.branch.Tables().Snapshot() }

// events writes batches, each with one event whose message has the given size, in one commit.
func (w *world) events(n, size int) {
	w.t.Helper()
	ops := make([]store.Op, n)
	for i := range ops {
		b := cluster.EventBatch{
			ID: fmt.Sprintf("e%06d", len(w.written)+i), At: w.now,
			Events: []cluster.Event{{Type: "task.running", Message: strings.Repeat("m", size)}},
		}
		value, err := store.Encode(&b)
		if err != nil {
			w.t.Fatal(err)
		}
		ops[i] = store.Op{Key: prefix.Event(b.ID), Value: value}
	}
	w.commit(ops...)
}

// trim trims the log by one write, and returns false if there was none.
func (w *world) trim(l limits) bool {
	w.t.Helper()
	u, ok, err := l.trim(w.snapshot(), prefix, w.writer.MaxUnitOperations())
	if err != nil {
		w.t.Fatal(err)
	}
	if !ok {
		return false
	}
	applied, _, err := w.writer.Commit(context.Background(), []store.Unit{u})
	if err != nil || !applied[0] {
		w.t.Fatalf("trim: applied %v, error %v", applied, err)
	}
	return true
}

// publisher returns the record of the publisher that the tests use.
func (w *world) publisher() *cluster.Publisher {
	w.t.Helper()
	e, ok := w.snapshot().Publisher("p")
	if !ok {
		w.t.Fatal("the publisher has no record")
	}
	return e.Value
}

// newPublisher returns a publisher that sends with the function.
func (w *world) newPublisher(send func([]*cluster.EventBatch) error) *Publisher {
	return New(Config{
		Name: "p", Tables: w.branch.Tables(), Now: func() time.Time { return w.now },
		Send: func(_ context.Context, batches []*cluster.EventBatch) error { return send(batches) },
	})
}

// step does one step of a publisher with the writer of the present leader.
func (w *world) step(p *Publisher) (more bool, err error) {
	w.t.Helper()
	more, err = p.step(context.Background(), w.writer)
	w.note()
	return more, err
}

// deafWriter is a writer that loses the answers to its writes.
type deafWriter struct{ Writer }

func (w deafWriter) Commit(ctx context.Context, units []store.Unit) ([]bool, uint64, error) {
	applied, _, err := w.Writer.Commit(ctx, units)
	return applied, 0, errors.Join(err, store.ErrUnknown)
}

// ids returns the ids of batches.
func ids(batches []*cluster.EventBatch) []string {
	all := make([]string, len(batches))
	for i, b := range batches {
		all[i] = b.ID
	}
	return all
}

// gaps returns the counts of the events that report gaps.
func gaps(snap *store.Snapshot) (counts []int) {
	for e := range snap.EventBatches() {
		for _, event := range e.Value.Events {
			if event.Type == "publisher.gap" {
				counts = append(counts, event.Count)
			}
		}
	}
	return counts
}

var _ tester = (*testing.T)(nil)
