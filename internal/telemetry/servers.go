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
	m := NewMetrics(registry, "peers")
	return &Peers{
		digests: m.Histograms("digest_duration_seconds",
			"How long a digest to another server took, by whether it arrived.", commitBuckets(), "result"),
		pulses:  m.Counter("pulses_sent_total", "Pulses of nodes that were sent to other servers."),
		servers: m.Gauges("servers", "Other servers, by whether they answered last.", "state"),
	}
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
	m := NewMetrics(registry, "backup")
	return &Backups{
		took: m.Histogram("duration_seconds",
			"How long a copy of the store took.", prometheus.ExponentialBuckets(0.01, 2, 14)),
		size: m.Gauge("size_bytes", "Size of the newest copy of the store that this server made."),
		last: m.Gauge("last_timestamp_seconds",
			"When this server began its newest copy of the store, in Unix time; 0 for never since its start."),
		failures: m.Counter("failures_total", "Copies of the store that could not be made."),
	}
}

// Saved notes a complete copy.
func (b *Backups) Saved(began time.Time, size int64, took time.Duration) {
	b.took.Observe(took.Seconds())
	b.size.Set(float64(size))
	b.last.Set(float64(began.Unix()))
}

// Failed counts a copy that could not be made.
func (b *Backups) Failed() { b.failures.Inc() }
