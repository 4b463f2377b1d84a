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
	labels := prometheus.Labels{"node": node}
	opts := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{
			Namespace: "berth", Subsystem: "agent", Name: name, Help: help, ConstLabels: labels,
		}
	}
	a := &Agent{
		creates: prometheus.NewCounterVec(opts("container_creates_total",
			"Tries to make a container, with its image and files, by whether they succeeded."),
			[]string{"executor", "result"}),
		starts: prometheus.NewCounterVec(opts("container_starts_total",
			"Tries to start the program of a container, by whether they succeeded."), []string{"executor", "result"}),
		connections: prometheus.NewCounter(opts("connections_total",
			"Assignment streams from a server that the agent opened.")),
		interrupted: prometheus.NewCounter(opts("interrupted_connections_total",
			"Assignment streams from a server that ended while the agent ran.")),
		lostLines: prometheus.NewCounterVec(opts("lost_log_lines_total",
			"Lines of the output of tasks that a reader did not get, by the reason."), []string{"reason"}),
	}
	a.lostLines.WithLabelValues(linesNotRead)
	a.lostLines.WithLabelValues(linesNotWritten)
	registry.MustRegister(a.creates, a.starts, a.connections, a.interrupted, a.lostLines)
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
