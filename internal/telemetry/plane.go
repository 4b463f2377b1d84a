// Package telemetry turns what the parts of Berth report about themselves into Prometheus metrics, named
// berth_<subsystem>_<name>_<unit>.
//
// # Traces
//
// A trace goes through the store in the spec, because no call leads from the write of a spec to the running task. The
// API server sets the W3C traceparent of each write in the spec (`trace` of Lifespan). The control plane puts the
// traceparent of its own span into the plan, from where it reaches the desired records, and the dispatcher passes its
// own on with the assignment. Spans are api.write, api.commit, plane.decide, plane.commit, dispatcher.assign,
// agent.prepare, agent.start and agent.running. No decision, comparison of specs or precondition reads the field. A
// process without a tracer passes on what it received. A placement more than 15 minutes after the last write starts a
// trace of its own; later rounds of a task's containers get no spans. Only this package knows OpenTelemetry; other
// packages know a Tracer that may be nil and then costs no allocation. Spans leave by OTLP over HTTP, in batches, and
// only if an endpoint is configured. A missing collector costs spans and one log line a minute. A traced write makes
// its spec and each desired record 70 bytes longer.
package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Planes is the metrics of the control planes of all domains. Safe for concurrent use.
type Planes struct {
	cycles  *prometheus.HistogramVec
	placed  *prometheus.CounterVec
	waiting *prometheus.GaugeVec
	failed  *prometheus.CounterVec
	lost    *prometheus.CounterVec
}

// NewPlanes registers the metrics.
func NewPlanes(registry prometheus.Registerer) *Planes {
	m := NewMetrics(registry, "controlplane")
	return &Planes{
		cycles: m.Histograms("cycle_duration_seconds",
			"How long a cycle of deciding and committing took.", commitBuckets(), "domain"),
		placed:  m.Counters("placed_tasks_total", "Tasks that were placed.", "domain"),
		waiting: m.Gauges("waiting_tasks", "Tasks that wait to be placed.", "domain"),
		failed: m.Counters("failed_placements_total",
			"Tries to place a task that failed, by the reason.", "domain", "reason"),
		lost: m.Counters("lost_nodes_total", "Nodes that became down.", "domain"),
	}
}

// Of returns the metrics of a domain's control plane.
func (p *Planes) Of(domain string) *Plane {
	return &Plane{
		cycles: p.cycles.WithLabelValues(domain), placed: p.placed.WithLabelValues(domain),
		waiting: p.waiting.WithLabelValues(domain), unplaced: p.failed.WithLabelValues(domain, "no_node"),
		refused: p.failed.WithLabelValues(domain, "refused"), lost: p.lost.WithLabelValues(domain),
	}
}

// Plane is the metrics of a control plane; it is a controlplane.Metrics. Safe for concurrent use.
type Plane struct {
	cycles   prometheus.Observer
	placed   prometheus.Counter
	waiting  prometheus.Gauge
	unplaced prometheus.Counter
	refused  prometheus.Counter
	lost     prometheus.Counter
}

// Ended forgets the waiting tasks: the next leader, on another server, counts them.
func (p *Plane) Ended() { p.waiting.Set(0) }

// Cycled counts one cycle.
func (p *Plane) Cycled(took time.Duration, placed, waiting int) {
	p.cycles.Observe(took.Seconds())
	p.placed.Add(float64(placed))
	p.waiting.Set(float64(waiting))
}

// Unplaced counts tasks that a placement found no node for.
func (p *Plane) Unplaced(tasks int) { p.unplaced.Add(float64(tasks)) }

// PlacementsRefused counts placements that the store refused.
func (p *Plane) PlacementsRefused(placements int) { p.refused.Add(float64(placements)) }

// NodesLost counts nodes that became down.
func (p *Plane) NodesLost(nodes int) { p.lost.Add(float64(nodes)) }
