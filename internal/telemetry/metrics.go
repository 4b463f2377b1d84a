package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics makes the metrics of a part of Berth and registers them, as berth_<part>_<name>. Each method panics if the
// registry has the metric already.
type Metrics struct {
	registry promauto.Factory
	part     string
	labels   prometheus.Labels // the same for all series of the part
}

// NewMetrics returns the metrics of a part, none so far.
func NewMetrics(registry prometheus.Registerer, part string) Metrics {
	return Metrics{registry: promauto.With(registry), part: part}
}

func (m Metrics) opts(name, help string) prometheus.Opts {
	return prometheus.Opts{Namespace: "berth", Subsystem: m.part, Name: name, Help: help, ConstLabels: m.labels}
}

func (m Metrics) histogram(name, help string, buckets []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Namespace: "berth", Subsystem: m.part, Name: name, Help: help, ConstLabels: m.labels, Buckets: buckets,
	}
}

// Counter makes a counter.
func (m Metrics) Counter(name, help string) prometheus.Counter {
	return m.registry.NewCounter(prometheus.CounterOpts(m.opts(name, help)))
}

// Counters makes a counter for each value of the labels.
func (m Metrics) Counters(name, help string, labels ...string) *prometheus.CounterVec {
	return m.registry.NewCounterVec(prometheus.CounterOpts(m.opts(name, help)), labels)
}

// Gauge makes a gauge.
func (m Metrics) Gauge(name, help string) prometheus.Gauge {
	return m.registry.NewGauge(prometheus.GaugeOpts(m.opts(name, help)))
}

// Gauges makes a gauge for each value of the labels.
func (m Metrics) Gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return m.registry.NewGaugeVec(prometheus.GaugeOpts(m.opts(name, help)), labels)
}

// Histogram makes a histogram with these upper bounds.
func (m Metrics) Histogram(name, help string, buckets []float64) prometheus.Histogram {
	return m.registry.NewHistogram(m.histogram(name, help, buckets))
}

// Histograms makes a histogram for each value of the labels.
func (m Metrics) Histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return m.registry.NewHistogramVec(m.histogram(name, help, buckets), labels)
}

// commitBuckets are the upper bounds of durations of commits and of calls between servers, from half a millisecond to
// four seconds.
func commitBuckets() []float64 { return prometheus.ExponentialBuckets(0.0005, 2, 14) }
