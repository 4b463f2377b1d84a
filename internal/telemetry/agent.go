package telemetry

import "github.com/prometheus/client_golang/prometheus"

// Agent is the metrics of an agent; it is a node.Metrics. Safe for concurrent use.
type Agent struct {
	creates     *prometheus.CounterVec
	starts      *prometheus.CounterVec
	connections prometheus.Counter
	interrupted prometheus.Counter
	lostLines   *prometheus.CounterVec
}

// NewAgent registers the metrics of the agent of a node.
func NewAgent(node string, registry prometheus.Registerer) *Agent {
	m := NewMetrics(registry, "agent")
	m.labels = prometheus.Labels{"node": node}
	a := &Agent{
		creates: m.Counters("container_creates_total",
			"Tries to make a container, with its image and files, by whether they succeeded.", "executor", "result"),
		starts: m.Counters("container_starts_total",
			"Tries to start the program of a container, by whether they succeeded.", "executor", "result"),
		connections: m.Counter("connections_total", "Assignment streams from a server that the agent opened."),
		interrupted: m.Counter("interrupted_connections_total",
			"Assignment streams from a server that ended while the agent ran."),
		lostLines: m.Counters("lost_log_lines_total",
			"Lines of the output of tasks that a reader did not get, by the reason.", "reason"),
	}
	a.lostLines.WithLabelValues(linesNotRead)
	a.lostLines.WithLabelValues(linesNotWritten)
	return a
}

// Reasons of lost lines.
const (
	linesNotRead    = "not_read"
	linesNotWritten = "not_written"
)

// ContainerCreated counts a try to make a container.
func (a *Agent) ContainerCreated(executor string, err error) { countResult(a.creates, executor, err) }

// ContainerStarted counts a try to start a container.
func (a *Agent) ContainerStarted(executor string, err error) { countResult(a.starts, executor, err) }

// countResult counts a try. Both series of an executor exist from its first try on, so that a rate sees the first
// failure.
func countResult(tries *prometheus.CounterVec, executor string, err error) {
	succeeded, failed := tries.WithLabelValues(executor, "ok"), tries.WithLabelValues(executor, "error")
	if err != nil {
		failed.Inc()
	} else {
		succeeded.Inc()
	}
}

// Connected counts an assignment stream that the agent opened.
func (a *Agent) Connected() { a.connections.Inc() }

// Interrupted counts an assignment stream that ended while the agent ran.
func (a *Agent) Interrupted() { a.interrupted.Inc() }

// LogLinesLost counts lines that a reader did not get.
func (a *Agent) LogLinesLost(lines int64, written bool) {
	reason := linesNotRead
	if !written {
		reason = linesNotWritten
	}
	a.lostLines.WithLabelValues(reason).Add(float64(lines))
}
