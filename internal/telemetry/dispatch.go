package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Dispatcher is the metrics of a dispatcher; it is a dispatcher.Metrics. Safe for concurrent use.
type Dispatcher struct {
	sessions prometheus.Gauge
	reports  prometheus.Histogram
	attempts *prometheus.CounterVec
	opened   prometheus.Counter
	broken   prometheus.Counter
}

// NewDispatcher registers the metrics.
func NewDispatcher(registry prometheus.Registerer) *Dispatcher {
	m := NewMetrics(registry, "dispatcher")
	return &Dispatcher{
		sessions: m.Gauge("sessions", "Nodes whose session is with this server."),
		reports: m.Histogram("report_duration_seconds",
			"How long it took until a report was durable and answered.", commitBuckets()),
		attempts: m.Counters("reported_attempts_total", "Attempts in reports, by whether they were taken.", "result"),
		opened:   m.Counter("connections_total", "Assignment streams that agents opened at this server."),
		broken: m.Counter("interrupted_connections_total",
			"Assignment streams of agents that ended while this server ran."),
	}
}

// Sessions sets how many nodes have a session.
func (d *Dispatcher) Sessions(n int) { d.sessions.Set(float64(n)) }

// Reported counts one report that was answered.
func (d *Dispatcher) Reported(took time.Duration, taken, refused int) {
	d.reports.Observe(took.Seconds())
	d.attempts.WithLabelValues("taken").Add(float64(taken))
	d.attempts.WithLabelValues("refused").Add(float64(refused))
}

// Connected counts an assignment stream that an agent opened.
func (d *Dispatcher) Connected() { d.opened.Inc() }

// Interrupted counts an assignment stream that ended while the server ran.
func (d *Dispatcher) Interrupted() { d.broken.Inc() }
