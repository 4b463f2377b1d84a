package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Peers is the metrics of the talk between servers; it is a peers.Metrics. Safe for concurrent use.
type Peers struct {
	digests *prometheus.HistogramVec
	pulses  prometheus.Counter
	servers *prometheus.GaugeVec
}

// NewPeers registers the metrics.
func NewPeers(registry prometheus.Registerer) *Peers {
	p := &Peers{
		digests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "berth", Subsystem: "peers", Name: "digest_duration_seconds",
			Help:    "How long a digest to another server took, by whether it arrived.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}, []string{"result"}),
		pulses: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "berth", Subsystem: "peers", Name: "pulses_sent_total",
			Help: "Pulses of nodes that were sent to other servers.",
		}),
		servers: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "berth", Subsystem: "peers", Name: "servers",
			Help: "Other servers, by whether they answered last.",
		}, []string{"state"}),
	}
	registry.MustRegister(p.digests, p.pulses, p.servers)
	return p
}

// Digested counts one digest.
func (p *Peers) Digested(took time.Duration, pulses int, arrived bool) {
	result := "ok"
	if !arrived {
		result = "error"
	}
	p.digests.WithLabelValues(result).Observe(took.Seconds())
	p.pulses.Add(float64(pulses))
}

// Reached sets how many servers answered last.
func (p *Peers) Reached(reached, all int) {
	p.servers.WithLabelValues("reached").Set(float64(reached))
	p.servers.WithLabelValues("unreached").Set(float64(all - reached))
}

// Backups is the metrics of the copies of the store; it is a backup.Metrics. Safe for concurrent use.
type Backups struct {
	took     prometheus.Histogram
	size     prometheus.Gauge
	last     prometheus.Gauge
	failures prometheus.Counter
}

// NewBackups registers the metrics.
func NewBackups(registry prometheus.Registerer) *Backups {
	b := &Backups{
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "berth", Subsystem: "backup", Name: "duration_seconds",
			Help:    "How long a copy of the store took.",
			Buckets: prometheus.ExponentialBuckets(0.01, 2, 14),
		}),
		size: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "berth", Subsystem: "backup", Name: "size_bytes",
			Help: "Size of the newest copy of the store that this server made.",
		}),
		last: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "berth", Subsystem: "backup", Name: "last_timestamp_seconds",
			Help: "When this server began its newest copy of the store, in Unix time; 0 for never since its start.",
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "berth", Subsystem: "backup", Name: "failures_total",
			Help: "Copies of the store that could not be made.",
		}),
	}
	registry.MustRegister(b.took, b.size, b.last, b.failures)
	return b
}

// Saved notes a complete copy.
func (b *Backups) Saved(began time.Time, size int64, took time.Duration) {
	b.took.Observe(took.Seconds())
	b.size.Set(float64(size))
	b.last.Set(float64(began.Unix()))
}

// Failed counts a copy that could not be made.
func (b *Backups) Failed() { b.failures.Inc() }
