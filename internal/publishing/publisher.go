package publishing

import (
	"context"
	"fmt"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// maxBatchesPerSend is the maximum number of batches in one call of Config.Send.
const maxBatchesPerSend = 100

// Writer writes with the fence of one leadership term. Once another server leads, it writes nothing (P1.4).
type Writer interface {
	// Commit writes units as store.Writer.Commit does.
	Commit(ctx context.Context, units []store.Unit) (applied []bool, revision uint64, err error)
}

// Config is what New needs.
type Config struct {
	// Name is the name of the publisher, unique in the store.
	Name   string
	Tables *store.Tables
	Now    func() time.Time
	// Send sends batches to the system, in their order, and returns once the system has acknowledged all of them. After
	// an error they are sent again. Send must not change the batches. It is never called concurrently.
	Send func(ctx context.Context, batches []*cluster.EventBatch) error
}

// Publisher sends the event log to one system.
type Publisher struct{ config Config }

// New returns a publisher. It starts nothing.
func New(c Config) *Publisher { return &Publisher{c} }

// Lead sends events during one leadership term, as a part of the leader, until the context ends. It returns the error
// of the context, of Send or of the writer. A later call continues after the last batch whose acknowledgement is in the
// record. The first call of a publisher without a record begins after the newest batch. So does a call after the record
// was deleted.
//
// The tables hold everything that was written before the term. No two calls run at the same time.
func (p *Publisher) Lead(ctx context.Context, w Writer) error {
	follow := p.config.Tables.Follow(store.TopicEvents)
	defer follow.Close()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-follow.Wake():
		}
		follow.Take()
		for more := true; more; {
			var err error
			if more, err = p.step(ctx, w); err != nil {
				return err
			}
		}
	}
}

// step does one of the publisher's writes, after it has sent what the write says. It reports whether more is to be
// done.
func (p *Publisher) step(ctx context.Context, w Writer) (more bool, err error) {
	snap, now := p.config.Tables.Snapshot(), p.config.Now().UTC()
	record, ok := snap.Publisher(p.config.Name)
	if !ok {
		return true, p.write(ctx, w, 0, beginAtEnd(snap, p.config.Name, now))
	}
	if next, gap, ok := countGap(snap, record.Value, now); ok {
		return true, p.write(ctx, w, record.Modified, next, gap)
	}
	batches, next := nextBatches(snap, record.Value, maxBatchesPerSend, now)
	if len(batches) == 0 {
		return false, nil
	}
	if err := p.config.Send(ctx, batches); err != nil {
		return false, fmt.Errorf("publisher %s: send events: %w", p.config.Name, err)
	}
	return true, p.write(ctx, w, record.Modified, next)
}

// write replaces the publisher's record of a revision, and waits until the tables show it.
func (p *Publisher) write(ctx context.Context, w Writer, revision uint64, next *cluster.Publisher,
	events ...cluster.Event,
) error {
	u := store.Unit{Events: events}
	key := p.config.Tables.Prefix().Publisher(p.config.Name)
	u.Compare(key, revision)
	if err := u.Put(key, next); err != nil {
		return err
	}
	applied, revision, err := w.Commit(ctx, []store.Unit{u})
	switch {
	case err != nil:
		return fmt.Errorf("publisher %s: write the cursor: %w", p.config.Name, err)
	case !applied[0]:
		return fmt.Errorf("publisher %s: another writer changed the record %s", p.config.Name, key)
	}
	_, err = p.config.Tables.WaitFor(ctx, revision)
	return err
}
