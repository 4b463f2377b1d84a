// Package usage measures what a machine and its tasks use, and decides what of it the server needs to know.
//
// Agents keep counters and report rates. cluster.Counts never leaves the node. cluster.UseDetail holds rates over about
// ten seconds. It is sent when it changed by half and by a noticeable amount, with a report that is due anyway; it
// never causes one. CPU and memory are read every 2 s, the rest every 10 s for each attempt, spread over that time: 200
// containers cost 16 ms in ten seconds. The network belongs to a task and not to a container, and each namespace counts
// once. Rates come from differences of the kernel's totals and not from avg10, so all cover the same time.
//
// Prometheus reads the agents, at an address that is off by default and must be loopback without a token. A scrape
// returns the last measurement, so it costs none. Series are bounded to 1,000 containers a node and fewer than 20
// series each. The owner is in the labels service or job_name, because Prometheus would rename a label job. Servers do
// not export metrics of tasks: they would be one page of a million lines, and no counter can be made of rates.
package usage

import (
	"context"
	"time"

	"github.com/berthd/berth/internal/agent/facts"
	"github.com/berthd/berth/internal/agent/node"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/telemetry"
)

// measureInterval is how often the agent measures its machine and its tasks.
const measureInterval = 2 * time.Second

// Config configures the measurements of the machine and of tasks.
type Config struct {
	// Stats measures what the machine uses. One goroutine calls it with the data directory, every few seconds. Default:
	// the machine's own; a Volatile agent has no default and then reports no statistics.
	Stats func(dir string) (cluster.NodeStats, error)
	// Scarcity measures how short of memory the machine is, as often as Stats and on the same goroutine. Default: the
	// machine's own, or a value derived from Stats where Stats is given.
	Scarcity func() (facts.Scarcity, error)
	// Pressure are the thresholds of memory pressure.
	Pressure Thresholds
	// TaskCgroup is the control group of all tasks, default "/berth".
	TaskCgroup string
	// Samples, unless nil, gets the use of each container since its start, after each measurement. The measuring
	// goroutine calls it and waits for its return.
	Samples func([]telemetry.ContainerSample)
	// Requests returns the number of requests that the program at a port of this node has answered so far. Default: the
	// agent asks the program.
	Requests func(ctx context.Context, port int, m cluster.RequestCounter) (float64, error)
}

// SetDefaults sets the settings that are missing. A volatile agent has no machine to measure.
func (c *Config) SetDefaults(volatile bool) {
	if c.TaskCgroup == "" {
		c.TaskCgroup = "/berth"
	}
	if c.Stats == nil && !volatile {
		meter := new(facts.Sampler)
		c.Stats = meter.Measure
		if c.Scarcity == nil {
			c.Scarcity = func() (facts.Scarcity, error) { return meter.Scarcity(c.TaskCgroup) }
		}
	}
}

// Source adds statistics to those of the machine. The measuring goroutine calls it.
type Source interface {
	AddStats(s *cluster.NodeStats)
}

// NodeMeter measures the machine and its tasks. It belongs to the goroutine that measures.
type NodeMeter struct {
	Node     *node.Node
	Config   Config
	Facts    func() cluster.Facts
	Disks    Source
	Tasks    *TaskMeter
	Stats    *Statistics
	pressure memoryPressure
}

// Begin prepares for a run of the agent.
func (m *NodeMeter) Begin() {
	m.Tasks.begin()
	m.pressure = memoryPressure{config: m.Config.Pressure}
}

// Watch measures until ctx ends. It calls sendSoon in three cases: the machine comes near a limit, is
// short of memory, or its use or a task's use jumps. The server then decides how closely to watch.
func (m *NodeMeter) Watch(ctx context.Context, sendSoon func()) {
	tick := time.NewTicker(measureInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if m.Measure() {
			sendSoon()
		}
	}
}

// Measure measures once and reports whether the server needs a report now.
func (m *NodeMeter) Measure() bool {
	s, err := m.Config.Stats(m.Node.DataDir)
	if err != nil {
		m.Node.Logger.Debug("not all statistics of the machine could be measured", "error", err)
	}
	s.Tasks = m.Tasks.running()
	m.Disks.AddStats(&s)
	running := m.Tasks.measure()
	for i := range running {
		s.Each = append(s.Each, running[i].stats)
	}
	urgent := m.pressure.update(m.scarcity(&s), running, time.Now())
	s.Pressure = m.pressure.current
	return m.Stats.measured(&s, urgent, m.Node.Boot())
}

// scarcity measures how short of memory the machine is. Without a Scarcity function it is derived from s.
func (m *NodeMeter) scarcity(s *cluster.NodeStats) *facts.Scarcity {
	if m.Config.Scarcity == nil {
		total := m.Facts().Memory
		return &facts.Scarcity{Stall: -1, Free: total - s.Memory, Total: total}
	}
	short, err := m.Config.Scarcity()
	if err != nil {
		m.Node.Logger.Debug("the memory pressure of the machine could not be measured in full", "error", err)
	}
	return &short
}
