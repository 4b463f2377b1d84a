package agent

import (
	"context"
	"time"

	"github.com/berthd/berth/internal/agent/facts"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

// measureEvery is how often the agent looks at what its machine and its tasks use.
const measureEvery = 2 * time.Second

// use returns what was measured last, nil if nothing was. Nobody changes it.
func (m *machine) use() *cluster.NodeStats {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stats
}

// refreshUse is after how long what hardly changed is told all the same: people look at it.
const refreshUse = 5 * time.Minute

// news returns what was measured last, nil if the server knows it well enough. Of the attempts it holds those that
// changed.
func (m *machine) news() *cluster.NodeStats {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stats == nil {
		return nil
	}
	each := news(m.stats.Each, m.each)
	if m.told != nil && len(each) == 0 && m.stats.At.Sub(m.told.At) < refreshUse &&
		transport.Same(m.stats, m.told, m.known) {
		return nil
	}
	s := *m.stats
	s.Each = each
	return &s
}

// toldUse notes what the server knows, unless nil; anew says that it knows nothing else.
func (m *machine) toldUse(s *cluster.NodeStats, anew bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if anew {
		m.told, m.each = nil, nil
	}
	if s == nil {
		return
	}
	m.told = s
	if s.Sweep != nil {
		m.sweep = s.Sweep
	}
	m.tellings++
	if len(s.Each) == 0 {
		return
	}
	each := make(map[string]toldStats, len(m.each)+len(s.Each))
	for _, t := range m.stats.Each { // what is measured no more is forgotten
		if before, known := m.each[t.UUID]; known {
			each[t.UUID] = before
		}
	}
	for _, t := range s.Each {
		each[t.UUID] = toldStats{t, m.tellings}
	}
	m.each = each
}

// watchUse measures until ctx ends, and has a report sent at once when the machine comes near a limit or is short of
// memory, or its use or that of a task changes by a jump: the server then says how closely it wants to watch.
func (a *Agent) watchUse(ctx context.Context) {
	tick := time.NewTicker(measureEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if a.measure() {
			a.reports.press()
		}
	}
}

// measure measures once and reports whether the server should know at once.
func (a *Agent) measure() bool {
	s, err := a.Stats(a.DataDir)
	if err != nil {
		a.Logger.Debug("not all of what the machine uses is known", "error", err)
	}
	s.Tasks = a.running()
	s.ImagesRemoved, s.ImagesFreed = int(a.imagesRemoved.Load()), cluster.Bytes(a.imagesFreed.Load())
	s.Sweep, s.DiskFull = a.roomNews()
	running := a.measureTasks()
	for i := range running {
		s.Each = append(s.Each, running[i].stats)
	}
	squeezed := a.squeeze.take(&a.Config, a.scarcity(&s), running, time.Now())
	s.Pressure = a.squeeze.now
	m := &a.machine
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stats = &s
	if m.told == nil {
		return false
	}
	jump := a.Boot()-m.jumped >= jumpEvery && jumped(s.Each, m.each)
	if jump {
		m.jumped = a.Boot()
	}
	return squeezed || jump || s.Sweep != nil && s.Sweep != m.sweep ||
		(s.DiskFull == nil) != (m.told.DiskFull == nil) ||
		transport.Shares(&s, m.known).Presses(transport.Shares(m.told, m.known))
}

// scarcity measures how short of memory the machine is, where there is nothing to measure it by from what it uses.
func (a *Agent) scarcity(s *cluster.NodeStats) *facts.Scarcity {
	if a.Scarcity == nil {
		total := a.machine.facts().Memory
		return &facts.Scarcity{Stall: -1, Free: total - s.Memory, Total: total}
	}
	short, err := a.Scarcity()
	if err != nil {
		a.Logger.Debug("not all of how short of memory the machine is is known", "error", err)
	}
	return &short
}

// running counts the attempts of which something runs.
func (a *Agent) running() int {
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
