package storetest

import (
	"context"
	"errors"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/store"
)

// testReadTogether reads several records in one call, if the engine has such a call.
func testReadTogether(c *check) {
	reader, ok := c.Engine.(store.TogetherReader)
	if !ok {
		return
	}
	c.put("t/a", "1", "t/b", "1")
	c.put("t/a", "2")
	got, err := reader.ReadTogether(c.Context(), "t/b", "t/none", "t/a")
	if err != nil {
		c.Fatalf("read together: %v", err)
	}
	if diff := cmp.Diff([]store.Record{c.read("t/b"), {}, c.read("t/a")}, got); diff != "" {
		c.Errorf("records (-want +got):\n%s", diff)
	}
	ended, cancel := context.WithCancel(c.Context())
	cancel()
	_, err = reader.ReadTogether(ended, "t/a")
	c.wantError(err, context.Canceled)
}

// testServer uses what servers need of an engine besides its records, if the engine is a store.ServerEngine.
func testServer(c *check) {
	e, ok := c.Engine.(store.ServerEngine)
	if !ok {
		return
	}
	health := func() store.EngineHealth {
		c.Helper()
		h, err := e.Health(c.Context())
		if err != nil {
			c.Fatalf("health: %v", err)
		}
		return h
	}
	written := c.put("s/a", "1").Revision
	if h := health(); !h.Writes || h.Reason != "" || !h.Quorum || h.Revision < written {
		c.Errorf("health: got %+v, want that writes are accepted, and at least revision %d", h, written)
	}
	if c.Fill != nil {
		c.Fill(true)
		if h := health(); h.Writes || h.Reason == "" {
			c.Errorf("health with a full disk: got %+v, want that writes are refused, and why", h)
		}
		c.Fill(false)
	}
	ended := make(chan error, 1)
	go func() { ended <- e.Run(c.Context()) }()
	if err := e.Close(); err != nil {
		c.Fatalf("close: %v", err)
	}
	c.wantError(<-ended, store.ErrClosed)
	if _, err := e.Health(c.Context()); !errors.Is(err, store.ErrClosed) {
		c.Errorf("health of a closed engine: got error %v, want ErrClosed", err)
	}
}
