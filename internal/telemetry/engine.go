package telemetry

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthd/berth/internal/store"
)

// Engine measures the commits of the engine that it wraps, and changes nothing.
type Engine struct {
	store.ServerEngine
	commits *prometheus.HistogramVec
	groups  *prometheus.CounterVec
	writes  prometheus.Counter
	written prometheus.Counter
}

// NewEngine wraps an engine and registers its metrics.
func NewEngine(e store.ServerEngine, registry prometheus.Registerer) *Engine {
	m := NewMetrics(registry, "store")
	return &Engine{
		ServerEngine: e,
		commits: m.Histograms("commit_duration_seconds",
			"How long commits took, by how they ended.", commitBuckets(), "result"),
		groups:  m.Counters("groups_total", "Groups of writes, by whether their preconditions held.", "result"),
		writes:  m.Counter("writes_total", "Records that were written or deleted."),
		written: m.Counter("written_bytes_total", "Bytes of the keys and values that were written."),
	}
}

// Commit is part of store.Engine.
func (e *Engine) Commit(ctx context.Context, groups []store.Group) (store.Result, error) {
	began := time.Now()
	res, err := e.ServerEngine.Commit(ctx, groups)
	e.commits.WithLabelValues(ending(err)).Observe(time.Since(began).Seconds())
	applied, writes, size := 0, 0, 0
	for i, ok := range res.Applied {
		if !ok {
			continue
		}
		applied++
		writes += len(groups[i].Ops)
		for j := range groups[i].Ops {
			size += len(groups[i].Ops[j].Key) + len(groups[i].Ops[j].Value)
		}
	}
	e.writes.Add(float64(writes))
	e.written.Add(float64(size))
	e.groups.WithLabelValues("applied").Add(float64(applied))
	e.groups.WithLabelValues("refused").Add(float64(len(res.Applied) - applied))
	return res, err
}

// ending names how a commit ended.
func ending(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, store.ErrUnknown):
		return "unknown"
	case errors.Is(err, store.ErrNoSpace):
		return "no_space"
	default:
		return "error"
	}
}
