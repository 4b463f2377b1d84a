package controlplane

import (
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/telemetry"
)

// traceLife is for how long after a write of a spec what is placed for it belongs to the write's trace. Later, a lost
// node or a restart limit is the cause, and a trace of its own begins.
const traceLife = 15 * time.Minute

// trace begins the spans of a proposal and puts their traceparents into it, for the agents. The decision began earlier;
// the returned function tells that the proposal was committed, or why not. Nothing is decided by any of it.
func (l *loop) trace(snap *store.Snapshot, p *store.Proposal, began time.Time) (committed func(error)) {
	now := l.config.Now()
	spans := make([]*telemetry.Span, len(p.Owners))
	for i := range p.Owners {
		o := &p.Owners[i]
		parent := ""
		if life := lifespan(snap, o.Owner); now.Sub(life.Updated) < traceLife {
			parent = life.Trace
		}
		about := telemetry.About{Owner: o.Owner, What: o.Step, Count: len(o.Tasks), Began: began}
		decided := l.config.Tracer.Span("plane.decide", parent, about)
		decided.End(nil)
		about.Began = time.Time{}
		spans[i] = l.config.Tracer.Span("plane.commit", decided.Parent(parent), about)
		o.Trace = spans[i].Parent(parent)
	}
	return func(err error) {
		for _, s := range spans {
			s.End(err)
		}
	}
}

// lifespan returns that of an owner's spec, empty for one that is gone.
func lifespan(snap *store.Snapshot, o cluster.OwnerRef) cluster.Lifespan {
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
