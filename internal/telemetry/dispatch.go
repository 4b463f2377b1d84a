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
	d := &Dispatcher{
		sessions: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "berth", Subsystem: "dispatcher", Name: "sessions",
			Help: "Nodes whose session is with this server.",
		}),
		reports: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "berth", Subsystem: "dispatcher", Name: "report_duration_seconds",
			Help:    "How long it took until a report was durable and answered.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "berth", Subsystem: "dispatcher", Name: "reported_attempts_total",
			Help: "Attempts in reports, by whether they were taken.",
		}, []string{"result"}),
		opened: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "berth", Subsystem: "dispatcher", Name: "connections_total",
			Help: "Assignment streams that agents opened at this server.",
		}),
		broken: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "berth", Subsystem: "dispatcher", Name: "interrupted_connections_total",
			Help: "Assignment streams of agents that ended while this server ran.",
		}),
	}
	registry.MustRegister(d.sessions, d.reports, d.attempts, d.opened, d.broken)
	return d
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
