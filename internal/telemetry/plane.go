// Package telemetry turns what the parts of Berth tell about themselves into Prometheus metrics, named
// berth_<subsystem>_<name>_<unit>.
package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Plane is the metrics of a control plane; it is a controlplane.Metrics. Safe for concurrent use.
type Plane struct {
	cycles  prometheus.Histogram
	placed  prometheus.Counter
	waiting prometheus.Gauge
}

// NewPlane registers the metrics.
func NewPlane(registry prometheus.Registerer) *Plane {
	p := &Plane{
		cycles: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "berth", Subsystem: "controlplane", Name: "cycle_duration_seconds",
			Help:    "How long a cycle of deciding and committing took.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}),
		placed: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "berth", Subsystem: "controlplane", Name: "placed_tasks_total",
			Help: "Tasks that were placed.",
		}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "berth", Subsystem: "controlplane", Name: "waiting_tasks",
			Help: "Tasks that wait to be placed.",
		}),
	}
	registry.MustRegister(p.cycles, p.placed, p.waiting)
	return p
}

// Cycled counts one cycle.
func (p *Plane) Cycled(took time.Duration, placed, waiting int) {
	p.cycles.Observe(took.Seconds())
	p.placed.Add(float64(placed))
	p.waiting.Set(float64(waiting))
}
