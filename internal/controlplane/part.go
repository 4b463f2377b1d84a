package controlplane

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/store"
)

// partRetryInterval is the pause before a part that failed begins again.
const partRetryInterval = 5 * time.Second

// Part is work that only the leader of a domain does, in parallel to its cycle. It is called once in each leadership
// term. The control plane does not know what it does.
//
// The context ends with the term. The part then returns soon: this server leads again only after all parts have
// returned. No two calls of one part run at the same time.
//
// Nil says that nothing is left to do in this term. Any other error is logged, and the part begins again after
// partRetryInterval; it ends neither the term nor another part.
type Part func(ctx context.Context, w *TermWriter) error

// TermWriter writes with the fence of one leadership term: once another server leads, it writes nothing (P1.4). It is
// safe for concurrent use.
type TermWriter struct {
	engine store.Engine
	fence  *store.Fence
	writer *store.Writer
}

// Commit writes units as store.Writer.Commit does. If units were refused because another server leads, it returns an
// error that wraps store.ErrFenced, even before the context of the term ends.
func (w *TermWriter) Commit(ctx context.Context, units []store.Unit) (applied []bool, revision uint64, err error) {
	applied, revision, err = w.writer.Commit(ctx, units)
	if err != nil || !slices.Contains(applied, false) {
		return applied, revision, err
	}
	leader, err := w.engine.Read(ctx, w.fence.Key)
	switch {
	case err != nil:
		return applied, revision, fmt.Errorf("read who leads: %w", err)
	case leader.Modified != w.fence.Modified:
		return applied, revision, fmt.Errorf("commit in epoch %d: %w", w.fence.Epoch, store.ErrFenced)
	}
	return applied, revision, nil
}

// namedPart is a registered part.
type namedPart struct {
	name string
	lead Part
}

// Register adds a part, which runs in each leadership term of this server. The name is for the log. It is called before
// Run.
func (p *Plane) Register(name string, part Part) { p.parts = append(p.parts, namedPart{name, part}) }

// runPart runs a part until the term ends or the part is done.
func (p *Plane) runPart(ctx context.Context, n namedPart, w *TermWriter) {
	for {
		err := n.lead(ctx, w)
		if err == nil || ctx.Err() != nil {
			return
		}
		p.config.Logger.Error("a part of the leader failed", "part", n.name, "error", err)
		if pause.For(ctx, partRetryInterval) != nil {
			return
		}
	}
}
