package agent

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

// MeasureConfig configures the measurements of the machine and of tasks.
type MeasureConfig struct {
	// Stats measures what the machine uses. One goroutine calls it with the data directory, every few seconds. Default:
	// the machine's own; a Volatile agent has no default and then reports no statistics.
	Stats func(dir string) (cluster.NodeStats, error)
	// Scarcity measures how short of memory the machine is, as often as Stats and on the same goroutine. Default: the
	// machine's own, or a value derived from Stats where Stats is given.
	Scarcity func() (facts.Scarcity, error)
	// Pressure are the thresholds of memory pressure.
	Pressure PressureConfig
	// TaskCgroup is the control group of all tasks, default "/berth".
	TaskCgroup string
	// Samples, unless nil, gets the use of each container since its start, after each measurement. The measuring
	// goroutine calls it and waits for its return.
	Samples func([]telemetry.ContainerSample)
	// Requests returns the number of requests that the program at a port of this node has answered so far. Default: the
	// agent asks the program.
	Requests func(ctx context.Context, port int, m cluster.RequestCounter) (float64, error)
}

// setDefaults sets the defaults. A Volatile agent has no machine to measure.
func (c *MeasureConfig) setDefaults(volatile bool) {
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

// statsSource adds statistics to those of the machine. The measuring goroutine calls it.
type statsSource interface {
	AddStats(s *cluster.NodeStats)
}

// nodeMeter measures the machine and its tasks. It belongs to the goroutine that measures.
type nodeMeter struct {
	node     *node.Node
	config   MeasureConfig
	facts    func() cluster.Facts
	disks    statsSource
	tasks    *taskMeter
	stats    *reportedStats
	pressure memoryPressure
}

// begin prepares for a run of the agent.
func (m *nodeMeter) begin() {
	m.tasks.begin()
	m.pressure = memoryPressure{config: m.config.Pressure}
}

// watch measures until ctx ends. It calls sendSoon in three cases: the machine comes near a limit, is
// short of memory, or its use or a task's use jumps. The server then decides how closely to watch.
func (m *nodeMeter) watch(ctx context.Context, sendSoon func()) {
	tick := time.NewTicker(measureInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if m.measure() {
			sendSoon()
		}
	}
}

// measure measures once and reports whether the server needs to know at once.
func (m *nodeMeter) measure() bool {
	s, err := m.config.Stats(m.node.DataDir)
	if err != nil {
		m.node.Logger.Debug("not all statistics of the machine could be measured", "error", err)
	}
	s.Tasks = m.tasks.running()
	m.disks.AddStats(&s)
	running := m.tasks.measure()
	for i := range running {
		s.Each = append(s.Each, running[i].stats)
	}
	urgent := m.pressure.update(m.scarcity(&s), running, time.Now())
	s.Pressure = m.pressure.current
	return m.stats.measured(&s, urgent, m.node.Boot())
}

// scarcity measures how short of memory the machine is. Without a Scarcity function it is derived from s.
func (m *nodeMeter) scarcity(s *cluster.NodeStats) *facts.Scarcity {
	if m.config.Scarcity == nil {
		total := m.facts().Memory
		return &facts.Scarcity{Stall: -1, Free: total - s.Memory, Total: total}
	}
	short, err := m.config.Scarcity()
	if err != nil {
		m.node.Logger.Debug("the memory pressure of the machine could not be measured in full", "error", err)
	}
	return &short
}
