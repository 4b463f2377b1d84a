package apiserver

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/telemetry"
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
	m := telemetry.NewMetrics(reg, "apiserver")
	return &metrics{
		requests: m.Counters("requests_total", "Requests answered, by route and status.", "method", "route", "status"),
		durations: m.Histograms("request_duration_seconds",
			"Time to answer a request, blocking reads and streams left out.",
			prometheus.ExponentialBuckets(0.0005, 4, 8), "route"),
		streams: m.Gauges("open_streams",
			"Requests that wait for changes now, by kind: streams of a list or of events, and lists with ?wait.",
			"kind"),
		computed: m.Counters("computed_lists_total",
			"Lists that were computed for all who wait for them, by list, and whether the whole or what changed.",
			"list", "part"),
		refused: m.Counters("refused_requests_total",
			"Requests that were not let in, by status: 401 unauthenticated, 403 not permitted.", "status"),
		conflicts: m.Counter("write_conflicts_total", "Writes that were computed again after a concurrent write."),
		lost:      m.Counter("lost_events_total", "Events that streams left out because their readers were slow."),
	}
}

func (m *metrics) request(rt *route.Route, status int, took time.Duration) {
	m.requests.WithLabelValues(rt.Method, rt.Path, strconv.Itoa(status)).Inc()
	if !rt.Long {
		m.durations.WithLabelValues(rt.Path).Observe(took.Seconds())
	}
}
