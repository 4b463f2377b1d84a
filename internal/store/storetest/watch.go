package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/suite"
	"github.com/berthd/berth/internal/yardstick"
)

// deliveryTimeout bounds the time that a watch may take to deliver changes.
const deliveryTimeout = 10 * time.Second

// mirror is the state that results from a watch's batches. It checks each batch.
type mirror struct {
	c       *check
	watch   store.Watch
	prefix  string
	records map[string]store.Record
	at      uint64
	resyncs int
	changes int
}

// mirrorOf opens a watch after a revision. The caller passes the records that exist at that revision.
func (c *check) mirrorOf(prefix string, after uint64, present ...store.Record) *mirror {
	m := &mirror{
		c: c, prefix: prefix, at: after,
		watch:   c.Engine.Watch(c.Context(), prefix, after),
		records: map[string]store.Record{},
	}
	for _, r := range present {
		m.records[r.Key] = r
	}
	c.Cleanup(m.watch.Close)
	return m
}

// next applies one batch.
func (m *mirror) next() store.Batch {
	m.c.Helper()
	ctx, cancel := yardstick.WithLimit(m.c.Context(), deliveryTimeout)
	defer cancel()
	batch, err := m.watch.Next(ctx)
	if err != nil {
		m.c.Fatalf("next batch after revision %d: %v", m.at, err)
	}
	m.apply(batch)
	return batch
}

// apply checks a batch and adds it to the state.
func (m *mirror) apply(batch store.Batch) {
	m.c.Helper()
	if !batch.Resync && batch.Revision <= m.at {
		m.c.Errorf("a batch at revision %d came after %d, and is no resync", batch.Revision, m.at)
	}
	if m.c.Whole && !batch.Resync && len(batch.Changes) > 0 {
		m.c.Errorf("a batch with changes is no resync: %+v", batch)
	}
	if batch.Resync {
		m.resyncs++
		clear(m.records)
	}
	var keys []string
	for _, change := range batch.Changes {
		m.changes++
		keys = append(keys, change.Key)
		if !strings.HasPrefix(change.Key, m.prefix) {
			m.c.Errorf("key %q is not under %q", change.Key, m.prefix)
		}
		if change.Modified > batch.Revision {
			m.c.Errorf("key %q has revision %d in a batch at %d", change.Key, change.Modified, batch.Revision)
		}
		if !change.Deleted {
			m.records[change.Key] = change.Record
			continue
		}
		if batch.Resync || change.Value != nil {
			m.c.Errorf("deletion of %q: value %q, in a resync: %v; want neither", change.Key, change.Value,
				batch.Resync)
		}
		delete(m.records, change.Key)
	}
	if !isStrictlyRising(keys) {
		m.c.Errorf("the keys of a batch are not in order, each once: %q", keys)
	}
	m.at = batch.Revision
}

// reach applies batches until the revision is delivered, and compares the state with the engine, which must be idle.
func (m *mirror) reach(revision uint64) {
	m.c.Helper()
	for m.at < revision {
		m.next()
	}
	m.equal()
}

func (m *mirror) equal() {
	m.c.Helper()
	want := map[string]store.Record{}
	for _, r := range m.c.list(m.prefix).Records {
		want[r.Key] = r
	}
	if diff := cmp.Diff(want, m.records, cmpopts.EquateEmpty()); diff != "" {
		m.c.Fatalf("records by the watch, at revision %d (-want +got):\n%s", m.at, diff)
	}
}

// testWatchWhole begins with a resync of the whole prefix.
func testWatchWhole(c *check) {
	empty := c.mirrorOf("w/", 0)
	if b := empty.next(); !b.Resync || len(b.Changes) != 0 {
		c.Fatalf("first batch of an empty prefix: got %+v, want an empty resync", b)
	}
	last := c.put("w/a", "1", "w/b", "1", "v/a", "1").Revision
	m := c.mirrorOf("w/", 0)
	if b := m.next(); !b.Resync || len(b.Changes) != 2 || b.Revision != last {
		c.Fatalf("first batch: got %+v, want a resync of two records at revision %d", b, last)
	}
	m.equal()
	all := c.mirrorOf("", 0)
	all.reach(last)
	empty.reach(last)
}

// testWatchAfter begins at a revision in the past.
func testWatchAfter(c *check) {
	c.put("w/a", "1")
	before := c.put("w/b", "1", "w/c", "1")
	exists := c.list("w/").Records
	c.put("w/a", "2")
	c.delete("w/b")
	c.put("w/a", "3")
	last := c.delete("v/none", "w/c").Revision
	m := c.mirrorOf("w/", before.Revision, exists...)
	m.reach(last)
	if !c.Whole && m.resyncs > 0 {
		c.Errorf("%d resyncs, want none: the history is all there", m.resyncs)
	}
	now := c.mirrorOf("w/", last, c.list("w/").Records...)
	now.reach(c.put("w/d", "1").Revision)
	if !c.Whole && (now.resyncs > 0 || now.changes != 1) {
		c.Errorf("from now on: got %d resyncs and %d changes, want 0 and 1", now.resyncs, now.changes)
	}
}

// testWatchChanges shows each kind of change as a batch.
func testWatchChanges(c *check) {
	m := c.mirrorOf("w/", c.put("w/a", "1").Revision, c.list("w/").Records...)
	for _, step := range []struct {
		name string
		do   func() store.Result
		want []store.Change
	}{
		{"created", func() store.Result {
			return c.put("w/b", "1")
		}, []store.Change{{Record: store.Record{Key: "w/b", Value: []byte("1")}}}},
		{"changed", func() store.Result {
			return c.put("w/a", "2", "v/a", "2")
		}, []store.Change{{Record: store.Record{Key: "w/a", Value: []byte("2")}}}},
		{"two in one transaction", func() store.Result {
			return c.commit(store.Group{Ops: []store.Op{put("w/c", "1")}}, store.Group{Ops: []store.Op{remove("w/a")}})
		}, []store.Change{
			{Record: store.Record{Key: "w/a"}, Deleted: true},
			{Record: store.Record{Key: "w/c", Value: []byte("1")}},
		}},
	} {
		result := step.do()
		batch := m.next()
		m.reach(result.Revision)
		if c.Whole {
			continue
		}
		for i := range batch.Changes {
			if batch.Changes[i].Modified != result.Revision {
				c.Errorf("%s: got revision %d, want %d", step.name, batch.Changes[i].Modified, result.Revision)
			}
			batch.Changes[i].Modified, batch.Changes[i].Created = 0, 0
		}
		if diff := cmp.Diff(step.want, batch.Changes); diff != "" {
			c.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
}

// testWatchSlow reads nothing while a few keys change often: the reader then gets the
// latest value of each, deletions included, not all versions.
func testWatchSlow(c *check) {
	m := c.mirrorOf("w/", 0)
	m.next()
	const writes = 3000
	var last uint64
	for i := range writes {
		last = c.put(fmt.Sprintf("w/%d", i%7), fmt.Sprint(i)).Revision
	}
	last = max(last, c.delete("w/3").Revision)
	// A writer at rest gives the engine time to bring everything to the reader's door.
	quick := c.mirrorOf("w/", 0)
	quick.reach(last)
	m.reach(last)
	if m.changes > writes/2 {
		c.Errorf("a slow reader got %d changes of %d writes to 7 keys, want far fewer", m.changes, writes)
	}
}

// testWatchProgress reaches revisions that changed nothing under the prefix.
func testWatchProgress(c *check) {
	m := c.mirrorOf("w/", 0)
	m.next()
	m.reach(c.put("v/a", "1").Revision)
	m.reach(c.put("v/a", "2").Revision)
	refused := c.commit(store.Group{Compares: []store.Compare{{Key: "v/a"}}, Ops: []store.Op{put("w/a", "1")}})
	m.reach(refused.Revision)
	if m.resyncs != 1 || m.changes != 0 {
		c.Errorf("got %d resyncs and %d changes, want 1 and 0", m.resyncs, m.changes)
	}
}

// testWatchCompaction begins at a revision that is forgotten, and lags behind one.
func testWatchCompaction(c *check) {
	c.requireHook(c.Compact != nil, "Compact")
	old := c.put("w/a", "1", "w/b", "1").Revision
	c.delete("w/a")
	c.put("w/c", "1")
	c.Compact()
	m := c.mirrorOf("w/", old, store.Record{Key: "w/a"})
	if b := m.next(); !b.Resync {
		c.Fatalf("first batch after compaction: got %+v, want a resync", b)
	}
	m.equal()
	for i := range 20 {
		c.put("w/b", fmt.Sprint(i))
		c.delete("w/c")
		c.Compact()
	}
	m.reach(c.put("w/d", "1").Revision)
}

// testWatchConverges lets writers change keys at random while mirrors follow.
func testWatchConverges(c *check) {
	const writers, writes, readers = 4, 100, 3
	var running sync.WaitGroup
	for writer := range writers {
		running.Go(func() {
			random := rand.New(rand.NewPCG(7, uint64(writer)))
			for i := range writes {
				key := fmt.Sprintf("w/%d", random.IntN(20))
				op := put(key, fmt.Sprintf("%d.%d", writer, i))
				if random.IntN(3) == 0 {
					op = remove(key)
				}
				if _, err := c.Engine.Commit(c.Context(), []store.Group{{Ops: []store.Op{op}}}); err != nil {
					c.Errorf("commit: %v", err)
				}
			}
		})
	}
	mirrors := make([]*mirror, readers)
	for i := range mirrors {
		mirrors[i] = c.mirrorOf("w/", 0)
		mirrors[i].next()
		if i == 1 && c.Compact != nil {
			c.Compact()
		}
	}
	running.Wait()
	last := c.put("w/end", "1").Revision
	for _, m := range mirrors {
		m.reach(last)
	}
}

// testWatchEnds ends a watch in each of the ways.
func testWatchEnds(c *check) {
	opened, cancel := context.WithCancel(c.Context())
	defer cancel()
	w := c.Engine.Watch(opened, "w/", 0)
	defer w.Close()
	if _, err := w.Next(suite.Context(c, deliveryTimeout)); err != nil {
		c.Fatalf("first batch: %v", err)
	}
	short, done := context.WithTimeout(c.Context(), 10*time.Millisecond)
	defer done()
	_, err := w.Next(short)
	c.wantError(err, context.DeadlineExceeded)
	c.put("w/a", "1")
	if b, err := w.Next(suite.Context(c, deliveryTimeout)); err != nil || len(b.Changes) != 1 {
		c.Fatalf("after a call that ended: got %+v and error %v, want the change", b, err)
	}
	cancel()
	_, err = w.Next(suite.Context(c, deliveryTimeout))
	c.wantError(err, context.Canceled)

	closed := c.Engine.Watch(c.Context(), "w/", 0)
	answer := make(chan error, 1)
	go func() {
		var err error
		for err == nil {
			_, err = closed.Next(c.Context())
		}
		answer <- err
	}()
	closed.Close()
	closed.Close()
	if err := <-answer; !errors.Is(err, store.ErrClosed) {
		c.Fatalf("a closed watch: got error %v, want ErrClosed", err)
	}
}
