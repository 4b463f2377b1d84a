package usage

import (
	"maps"
	"time"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/agent/node"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/telemetry"
)

// The growth of memory is computed from maxSamples samples, one each sampleInterval: ten minutes in all.
const (
	sampleInterval = 10 * time.Second
	maxSamples     = 60
	minTrendSpan   = time.Minute
)

// trend holds the memory of an attempt over the last ten minutes and its growth.
type trend struct {
	at     [maxSamples]time.Duration
	memory [maxSamples]cluster.Bytes
	n      int // number of samples so far
	growth cluster.Bytes
}

// add takes a sample if one is due, and returns the growth of memory in a minute. The growth is the slope of the
// least-squares line through the samples, 0 while they span less than minTrendSpan.
func (t *trend) add(now time.Duration, memory cluster.Bytes) cluster.Bytes {
	if t.n > 0 && now-t.at[(t.n-1)%maxSamples] < sampleInterval {
		return t.growth
	}
	t.at[t.n%maxSamples], t.memory[t.n%maxSamples] = now, memory
	t.n++
	count := min(t.n, maxSamples)
	first := t.at[(t.n-count)%maxSamples]
	if now-first < minTrendSpan {
		return 0
	}
	var meanX, meanY float64
	for i := range count {
		meanX += (t.at[i] - first).Minutes() / float64(count)
		meanY += float64(t.memory[i]) / float64(count)
	}
	var both, square float64
	for i := range count {
		x := (t.at[i] - first).Minutes() - meanX
		both += x * (float64(t.memory[i]) - meanY)
		square += x * x
	}
	if square > 0 {
		t.growth = cluster.Bytes(both / square)
	}
	return t.growth
}

// attemptUse is the newest measurement of one attempt.
type attemptUse struct {
	runs  map[executor.ID]time.Duration // CPU time of each run
	at    time.Duration
	trend trend
	stats cluster.TaskStats
	round uint64 // the newest round that saw it
	// cpu is the use of each container of several; detailed is measured less often.
	cpu      map[executor.ID]cluster.MilliCPU
	detailed detailed
	storage  *cluster.StorageUse
}

// TaskMeter measures what attempts use. It belongs to the goroutine that measures.
type TaskMeter struct {
	Node      *node.Node
	Executors Executors
	Attempts  func() []attempt.Status // ordered by UUID
	Requests  *RequestRates
	Storage   Storage
	// Samples, unless nil, gets the use of each container since its start, after each measurement.
	Samples func([]telemetry.ContainerSample)

	all   map[string]*attemptUse // by UUID
	round uint64
}

// Executors finds the executors of attempts.
type Executors interface {
	// ByName returns the executor with the name, or an error if it has never answered.
	ByName(name string) (executor.Executor, error)
}

// Storage knows what the volumes of attempts use.
type Storage interface {
	// Use returns the use of the attempt's volumes that the agent keeps, or before if that is the same; nil if it has
	// none.
	Use(v *attempt.View, before *cluster.StorageUse) *cluster.StorageUse
}

// begin prepares for a run of the agent.
func (m *TaskMeter) begin() { m.all, m.round = map[string]*attemptUse{}, 0 }

// running returns the number of attempts with a running program.
func (m *TaskMeter) running() int {
	n := 0
	for _, a := range m.Attempts() {
		if a.View != nil && a.View.Record.MayRun() {
			n++
		}
	}
	return n
}

// measured is a running attempt with its use.
type measured struct {
	view  *attempt.View
	stats cluster.TaskStats
}

// measure measures all running attempts, ordered by UUID.
func (m *TaskMeter) measure() []measured {
	m.round++
	now := m.Node.Boot()
	var found []measured
	running := map[string]map[executor.ID]executor.Process{} // by executor
	for _, a := range m.Attempts() {
		v := a.View
		if v == nil || !v.Record.MayRun() {
			continue
		}
		found = append(found, measured{view: v})
		for i := range v.Record.Containers {
			if c := &v.Record.Containers[i]; c.Progress == attempt.Running {
				if running[v.Record.Executor] == nil {
					running[v.Record.Executor] = map[executor.ID]executor.Process{}
				}
				running[v.Record.Executor][c.ID] = c.Process
			}
		}
	}
	usage := map[executor.ID]executor.Usage{}
	for name, runs := range running { // order-free: ids are unique
		if e, err := m.Executors.ByName(name); err == nil {
			if meter, ok := e.(executor.Meter); ok {
				maps.Copy(usage, meter.Usage(runs))
			}
		}
	}
	counts := m.readDetails(found, now)
	kept := found[:0]
	for i, f := range found {
		if s, ok := m.update(&f.view.Record, usage, now); ok {
			s.Requests = m.Requests.rate(s.UUID)
			u := m.all[s.UUID]
			u.detailed.update(f.view, usage, u.cpu, counts, now, i)
			s.Detail = u.detailed.detail
			s.Storage = m.Storage.Use(f.view, u.storage)
			u.storage = s.Storage
			kept = append(kept, measured{f.view, s})
		}
	}
	if m.Samples != nil {
		m.Samples(m.samples(kept, usage))
	}
	for uuid, u := range m.all { // order-free: attempts are independent
		if u.round != m.round {
			delete(m.all, uuid)
		}
	}
	return kept
}

// update sums the use of an attempt's containers; ok is false if none is known.
func (m *TaskMeter) update(
	r *attempt.Record, usage map[executor.ID]executor.Usage, now time.Duration,
) (s cluster.TaskStats, ok bool) {
	u := m.all[r.Desired.UUID]
	if u == nil {
		u = &attemptUse{runs: map[executor.ID]time.Duration{}}
		m.all[r.Desired.UUID] = u
	}
	u.round = m.round
	s = cluster.TaskStats{Task: r.Desired.Task, UUID: r.Desired.UUID}
	runs := make(map[executor.ID]time.Duration, len(r.Containers))
	var worked time.Duration
	restarted, past := false, now-u.at
	u.cpu = nil
	for i := range r.Containers {
		id := r.Containers[i].ID
		now, known := usage[id]
		if !known {
			continue
		}
		ok = true
		runs[id] = now.CPU
		s.Memory += now.Memory
		before, was := u.runs[id]
		restarted = restarted || !was
		if !was {
			continue
		}
		worked += max(now.CPU-before, 0)
		if len(r.Containers) > 1 && past > 0 {
			if u.cpu == nil {
				u.cpu = make(map[executor.ID]cluster.MilliCPU, len(r.Containers))
			}
			u.cpu[id] = cluster.MilliCPU(max(now.CPU-before, 0) * 1000 / past)
		}
	}
	if !ok {
		return s, false
	}
	if restarted || len(runs) != len(u.runs) {
		u.trend = trend{} // memory of another program
	}
	if u.at != 0 && past > 0 {
		s.CPU = cluster.MilliCPU(worked * 1000 / past)
	}
	s.Growth = u.trend.add(now, s.Memory)
	u.runs, u.at, u.stats = runs, now, s
	return s, true
}
