package apiserver

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthd/berth/internal/apiserver/route"
)

// metrics holds the server's own metrics: berth_apiserver_<name>_<unit>.
type metrics struct {
	requests  *prometheus.CounterVec
	durations *prometheus.HistogramVec
	streams   *prometheus.GaugeVec
	computed  *prometheus.CounterVec
	refused   *prometheus.CounterVec
	conflicts prometheus.Counter
	lost      prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "berth", Subsystem: "apiserver", Name: "requests_total",
			Help: "Requests answered, by route and status.",
		}, []string{"method", "route", "status"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "berth", Subsystem: "apiserver", Name: "request_duration_seconds",
			Help:    "Time to answer a request, blocking reads and streams left out.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 8),
		}, []string{"route"}),
		streams: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "berth", Subsystem: "apiserver", Name: "open_streams",
			Help: "Requests that wait for changes now, by kind: streams of a list or of events, and lists with ?wait.",
		}, []string{"kind"}),
		computed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "berth", Subsystem: "apiserver", Name: "computed_lists_total",
			Help: "Lists that were computed for all who wait for them, by list, and whether the whole or what changed.",
		}, []string{"list", "part"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "berth", Subsystem: "apiserver", Name: "refused_requests_total",
			Help: "Requests that were not let in, by status: 401 unauthenticated, 403 not permitted.",
		}, []string{"status"}),
		conflicts: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "berth", Subsystem: "apiserver", Name: "write_conflicts_total",
			Help: "Writes that were computed again after a concurrent write.",
		}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "berth", Subsystem: "apiserver", Name: "lost_events_total",
			Help: "Events that streams left out because their readers were slow.",
		}),
	}
	reg.MustRegister(m.requests, m.durations, m.streams, m.computed, m.refused, m.conflicts, m.lost)
	return m
}

func (m *metrics) request(rt *route.Route, status int, took time.Duration) {
	m.requests.WithLabelValues(rt.Method, rt.Path, strconv.Itoa(status)).Inc()
	if !rt.Long {
		m.durations.WithLabelValues(rt.Path).Observe(took.Seconds())
	}
}
