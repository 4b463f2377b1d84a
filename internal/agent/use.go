package agent

import (
	"context"
	"time"

	"github.com/berthd/berth/internal/agent/facts"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

// measureInterval is how often the agent measures its machine and its tasks.
const measureInterval = 2 * time.Second

// latestStats returns the newest measurement, nil before the first. Callers do not change it.
func (m *machine) latestStats() *cluster.NodeStats {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stats
}

// maxStatsAge is the age at which almost unchanged statistics are reported again, for people who watch them.
const maxStatsAge = 5 * time.Minute

// unreportedUse returns the newest measurement with the changed attempts, nil if the server knows it well enough.
func (m *machine) unreportedUse() *cluster.NodeStats {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stats == nil {
		return nil
	}
	each := changedStats(m.stats.Each, m.reportedTasks)
	if m.reported != nil && len(each) == 0 && m.stats.At.Sub(m.reported.At) < maxStatsAge &&
		transport.Same(m.stats, m.reported, m.known) {
		return nil
	}
	s := *m.stats
	s.Each = each
	return &s
}

// noteReported records that the server knows s, unless nil; anew means that it knows nothing else.
func (m *machine) noteReported(s *cluster.NodeStats, anew bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if anew {
		m.reported, m.reportedTasks = nil, nil
	}
	if s == nil {
		return
	}
	m.reported = s
	if s.Sweep != nil {
		m.knownSweep = s.Sweep
	}
	m.reportCount++
	if len(s.Each) == 0 {
		return
	}
	each := make(map[string]reportedStats, len(m.reportedTasks)+len(s.Each))
	for _, t := range m.stats.Each { // forget attempts that are measured no more
		if before, known := m.reportedTasks[t.UUID]; known {
			each[t.UUID] = before
		}
	}
	for _, t := range s.Each {
		each[t.UUID] = reportedStats{t, m.reportCount}
	}
	m.reportedTasks = each
}

// watchUse measures until ctx ends. It makes a report leave at once in three cases: the machine comes near a limit, is
// short of memory, or its use or a task's use jumps. The server then decides how closely to watch.
func (a *Agent) watchUse(ctx context.Context) {
	tick := time.NewTicker(measureInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if a.measure() {
			a.reports.sendSoon()
		}
	}
}

// measure measures once and reports whether the server needs to know at once.
func (a *Agent) measure() bool {
	s, err := a.Stats(a.DataDir)
	if err != nil {
		a.Logger.Debug("not all statistics of the machine could be measured", "error", err)
	}
	s.Tasks = a.countRunning()
	s.ImagesRemoved, s.ImagesFreed = int(a.imagesRemoved.Load()), cluster.Bytes(a.imagesFreed.Load())
	s.Sweep, s.DiskFull = a.sweepToReport()
	running := a.measureTasks()
	for i := range running {
		s.Each = append(s.Each, running[i].stats)
	}
	pressureNews := a.pressure.update(&a.Config, a.scarcity(&s), running, time.Now())
	s.Pressure = a.pressure.current
	m := &a.machine
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stats = &s
	if m.reported == nil {
		return false
	}
	jump := a.Boot()-m.jumpReportedAt >= minJumpInterval && hasJump(s.Each, m.reportedTasks)
	if jump {
		m.jumpReportedAt = a.Boot()
	}
	return pressureNews || jump || s.Sweep != nil && s.Sweep != m.knownSweep ||
		(s.DiskFull == nil) != (m.reported.DiskFull == nil) ||
		transport.Shares(&s, m.known).NeedsReportNow(transport.Shares(m.reported, m.known))
}

// scarcity measures how short of memory the machine is. Without a Scarcity function it is derived from s.
func (a *Agent) scarcity(s *cluster.NodeStats) *facts.Scarcity {
	if a.Scarcity == nil {
		total := a.machine.facts().Memory
		return &facts.Scarcity{Stall: -1, Free: total - s.Memory, Total: total}
	}
	short, err := a.Scarcity()
	if err != nil {
		a.Logger.Debug("the memory pressure of the machine could not be measured in full", "error", err)
	}
	return &short
}

// countRunning returns the number of attempts with a running program.
func (a *Agent) countRunning() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for _, t := range a.tasks {
		if v := t.view.Load(); v != nil && v.rec.MayRun() {
			n++
		}
	}
	return n
}
