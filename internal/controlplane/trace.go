package controlplane

import (
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/telemetry"
)

// maxTraceAge is how long after a write of a spec its placements belong to the write's trace. A later placement has
// another cause, such as a lost node or a restart limit, and begins its own trace.
const maxTraceAge = 15 * time.Minute

// startSpans begins the spans of a plan batch and puts their traceparents into it, for the agents; began is the start
// of the decision. The returned function ends the spans with the result of the commit. No decision depends on spans.
func (c *planCommits) startSpans(snap *store.Snapshot, b *store.PlanBatch, began time.Time) (committed func(error)) {
	now := c.config.Now()
	spans := make([]*telemetry.Span, len(b.Owners))
	for i := range b.Owners {
		o := &b.Owners[i]
		parent := ""
		if lifespan := lifespanOf(snap, o.Owner); now.Sub(lifespan.Updated) < maxTraceAge {
			parent = lifespan.Trace
		}
		about := telemetry.About{Owner: o.Owner, What: o.Step, Count: len(o.Tasks), Began: began}
		decided := c.config.Tracer.Span("plane.decide", parent, about)
		decided.End(nil)
		about.Began = time.Time{}
		spans[i] = c.config.Tracer.Span("plane.commit", decided.Parent(parent), about)
		o.Trace = spans[i].Parent(parent)
	}
	return func(err error) {
		for _, s := range spans {
			s.End(err)
		}
	}
}

// lifespanOf returns the lifespan of an owner's spec; empty for an owner that is gone.
func lifespanOf(snap *store.Snapshot, o cluster.OwnerRef) cluster.Lifespan {
	if o.Kind == cluster.KindJob {
		if e, ok := snap.Job(o.Cluster, o.Name); ok {
			return e.Value.Lifespan
		}
		return cluster.Lifespan{}
	}
	if e, ok := snap.Service(o.Cluster, o.Name); ok {
		return e.Value.Lifespan
	}
	return cluster.Lifespan{}
}
