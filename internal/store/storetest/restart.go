package storetest

import (
	"io"

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
	c.wantError(c.Engine.Snapshot(ctx, "", io.Discard), store.ErrClosed)
	late := c.Engine.Watch(ctx, "c/", 0)
	defer late.Close()
	_, err = late.Next(suite.Context(c, deliveryTimeout))
	c.wantError(err, store.ErrClosed)
}
