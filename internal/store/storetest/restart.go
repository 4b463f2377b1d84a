package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/suite"
)

// testRestart ends the engine and opens it on its data.
func testRestart(c *check) {
	c.requireHook(c.Restart != nil, "Restart")
	c.put("r/a", "1", "r/b", "1")
	middle := c.delete("r/b").Revision
	atMiddle := c.list("r/").Records
	c.put("r/c", "1")
	before := c.list("")
	c.restart()
	after := c.list("")
	if diff := cmp.Diff(before.Records, after.Records, cmpopts.EquateEmpty()); diff != "" {
		c.Fatalf("after a restart (-before +after):\n%s", diff)
	}
	if after.Revision < before.Revision {
		c.Fatalf("the revision went from %d back to %d", before.Revision, after.Revision)
	}
	last := c.put("r/d", "1").Revision
	if last <= before.Revision {
		c.Fatalf("a commit after a restart has revision %d, and %d was before it", last, before.Revision)
	}
	m := c.mirrorOf("r/", middle, atMiddle...)
	m.reach(last)
	if !c.Whole && m.resyncs > 0 {
		c.Errorf("%d resyncs, want none: the history is durable", m.resyncs)
	}
}

// testSnapshot copies an engine.
func testSnapshot(c *check) {
	c.requireHook(c.Restore != nil, "Restore")
	c.put("z/a", "1", "z/b", "1", "z/c", "", "z/\xff", "\xfe")
	c.put("z/a", "2")
	c.delete("z/b")
	var snapshot bytes.Buffer
	if err := c.Engine.Snapshot(c.Context(), &snapshot); err != nil {
		c.Fatalf("snapshot: %v", err)
	}
	want := c.list("").Records
	c.put("z/late", "1", "z/a", "3")
	engine, err := c.Restore(bytes.NewReader(snapshot.Bytes()))
	if err != nil {
		c.Fatalf("restore: %v", err)
	}
	c.Engine = engine
	restored := c.list("")
	if diff := cmp.Diff(want, restored.Records, cmpopts.EquateEmpty()); diff != "" {
		c.Fatalf("after a restore (-want +got):\n%s", diff)
	}
	// The engine works on: compares with old revisions hold, and new ones rise.
	result := c.commit(store.Group{
		Compares: []store.Compare{{Key: "z/a", Modified: want[0].Modified}},
		Ops:      []store.Op{put("z/a", "4")},
	})
	c.wantApplied(result, true)
	if result.Revision <= restored.Revision {
		c.Errorf("a commit after a restore at revision %d has %d", restored.Revision, result.Revision)
	}
	c.wantList("z/", "z/a=4", "z/c=", "z/\xff=\xfe")
}

// testSnapshotBack restores a snapshot under a watch that has seen later revisions: the watch must begin with a resync.
func testSnapshotBack(c *check) {
	c.requireHook(c.Restore != nil, "Restore")
	c.put("z/a", "1")
	var snapshot bytes.Buffer
	if err := c.Engine.Snapshot(c.Context(), &snapshot); err != nil {
		c.Fatalf("snapshot: %v", err)
	}
	for i := range 10 {
		c.put("z/a", "later", fmt.Sprintf("z/%d", i), "later")
	}
	m := c.mirrorOf("z/", 0)
	m.reach(c.list("z/").Revision)
	engine, err := c.Restore(&snapshot)
	if err != nil {
		c.Fatalf("restore: %v", err)
	}
	reopened := engine != c.Engine
	c.Engine = engine
	ahead := c.mirrorOf("z/", m.at)
	for i := range 15 { // so that the revisions pass the watch's position
		c.put("z/a", fmt.Sprint(i))
	}
	between := c.mirrorOf("z/", m.at)
	mirrors := []*mirror{ahead}
	if reopened { // the old watch ended with the old engine; the new engine has its history
		mirrors = append(mirrors, between)
	} else {
		mirrors = append(mirrors, m)
	}
	for _, m := range mirrors {
		if b := m.next(); !b.Resync {
			c.Fatalf("first batch after a restore: got %+v, want a resync", b)
		}
		m.reach(c.put("z/b", "2").Revision)
	}
}

// testSnapshotFuture opens a watch at a revision that a restored engine has not reached yet.
func testSnapshotFuture(c *check) {
	c.put("z/a", "1")
	m := c.mirrorOf("z/", c.list("").Revision+1_000)
	if b := m.next(); !b.Resync {
		c.Fatalf("first batch: got %+v, want a resync", b)
	}
	m.equal()
	m.reach(c.put("z/b", "2").Revision)
}

// testSnapshotDamaged restores damaged snapshots.
func testSnapshotDamaged(c *check) {
	c.requireHook(c.Restore != nil, "Restore")
	c.put("z/a", "1", "z/b", "1")
	var snapshot bytes.Buffer
	if err := c.Engine.Snapshot(c.Context(), &snapshot); err != nil {
		c.Fatalf("snapshot: %v", err)
	}
	whole := snapshot.Bytes()
	for _, test := range []struct {
		name string
		data []byte
	}{
		{"empty", nil},
		{"cut short", whole[:len(whole)*2/3]},
		{"something else", bytes.Repeat([]byte("berth"), 1000)},
	} {
		if _, err := c.Restore(bytes.NewReader(test.data)); err == nil {
			c.Errorf("%s: restored, want an error", test.name)
		}
	}
	ended, cancel := context.WithCancel(c.Context())
	cancel()
	var nothing bytes.Buffer
	if err := c.Engine.Snapshot(ended, &nothing); err == nil {
		c.Errorf("a snapshot with an ended context: got no error")
	}
	if err := c.Engine.Snapshot(c.Context(), failingWriter{}); err == nil {
		c.Errorf("a snapshot to a broken writer: got no error")
	}
}

// failingWriter is a writer on a failed disk.
type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("the disk is gone") }

// testClose closes the engine under a waiting watch, and calls the engine afterwards.
func testClose(c *check) {
	c.put("c/a", "1")
	ended := make(chan error, 1)
	w := c.Engine.Watch(c.Context(), "c/", 0)
	defer w.Close()
	if _, err := w.Next(suite.Context(c, deliveryTimeout)); err != nil {
		c.Fatalf("first batch: %v", err)
	}
	go func() {
		var err error
		for err == nil {
			_, err = w.Next(c.Context())
		}
		ended <- err
	}()
	if err := c.Engine.Close(); err != nil {
		c.Fatalf("close: %v", err)
	}
	if err := c.Engine.Close(); err != nil {
		c.Fatalf("close twice: %v", err)
	}
	c.wantError(<-ended, store.ErrClosed)

	ctx := c.Context()
	_, err := c.Engine.Read(ctx, "c/a")
	c.wantError(err, store.ErrClosed)
	_, err = c.Engine.List(ctx, "c/")
	c.wantError(err, store.ErrClosed)
	_, err = c.Engine.Revision(ctx, "c/")
	c.wantError(err, store.ErrClosed)
	_, err = c.Engine.Commit(ctx, []store.Group{{Ops: []store.Op{put("c/b", "1")}}})
	c.wantError(err, store.ErrClosed)
	c.wantError(c.Engine.Snapshot(ctx, &bytes.Buffer{}), store.ErrClosed)
	late := c.Engine.Watch(ctx, "c/", 0)
	defer late.Close()
	_, err = late.Next(suite.Context(c, deliveryTimeout))
	c.wantError(err, store.ErrClosed)
}
