package peers

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/store"
)

// Pauses between tries to write the server's record.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = 5 * time.Second
	// maxOvertaken limits the immediate retries after another write of the record came first.
	maxOvertaken = 8
)

// recorder writes the record of this server.
type recorder struct {
	*self
	writer *store.Writer
}

func (c *recorder) incarnation() uint64 {
	if l, ok := c.config.Tables.Snapshot().Leader(cluster.DefaultDomain); ok {
		return l.Value.Incarnation
	}
	return 0
}

// recordServer writes the server's own record, and retries until ctx ends. It writes the record once, so that a later
// removal of the member is final.
func (c *recorder) recordServer(ctx context.Context) {
	select {
	case <-c.config.Tables.Synced():
	case <-ctx.Done():
		return
	}
	logged, overtaken := false, 0
	retry := pause.Backoff{Shortest: firstPause, Longest: maxPause}
	for {
		done, err := c.writeRecord(ctx)
		if done || ctx.Err() != nil {
			return
		}
		if err == nil && overtaken < maxOvertaken { // for example by the list of secrets' keys in it
			overtaken++
			continue
		}
		if err != nil && !logged {
			logged = true
			c.config.Logger.Warn("this server's record cannot be written yet", "server", c.config.Server.ID, "error",
				err)
		}
		if retry.Wait(ctx) != nil {
			return
		}
	}
}

// writeRecord tries once. If another write came first, or a result was lost, the next try starts from the store's
// record.
func (c *recorder) writeRecord(ctx context.Context) (done bool, err error) {
	self := c.config.Server
	key := c.config.Tables.Prefix().Server(self.ID)
	r, err := c.config.Engine.Read(ctx, key)
	joined := errors.Is(err, store.ErrNotFound)
	switch {
	case joined:
	case err != nil:
		return false, err
	default:
		old, err := store.Decode[cluster.Server](r.Value)
		if err == nil && same(*old, self) {
			return true, nil
		}
	}
	var u store.Unit
	u.Compare(key, r.Modified) // 0 where there is none
	if err := u.Put(key, &self); err != nil {
		return false, err
	}
	if joined {
		u.Event(cluster.Event{
			Type:    "server.joined",
			Message: "server " + self.Name + " (" + self.ID + ") joined the control plane",
		})
	}
	applied, _, err := c.writer.Commit(ctx, []store.Unit{u})
	return err == nil && applied[0], err
}

// same reports whether two records are equal.
func same(a, b cluster.Server) bool {
	started := a.Started.Equal(b.Started)
	a.Started, b.Started = time.Time{}, time.Time{}
	return started && reflect.DeepEqual(a, b)
}
