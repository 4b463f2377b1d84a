package agent

import (
	"context"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

// measureEvery is how often the agent looks at what its machine uses.
const measureEvery = 2 * time.Second

// use returns what was measured last, nil if nothing was. Nobody changes it.
func (m *machine) use() *cluster.NodeStats {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stats
}

// refreshUse is after how long what hardly changed is told all the same: people look at it.
const refreshUse = 5 * time.Minute

// news returns what was measured last, nil if the server knows it well enough.
func (m *machine) news() *cluster.NodeStats {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.told != nil && m.stats != nil && m.stats.At.Sub(m.told.At) < refreshUse && transport.Same(m.stats, m.told, m.known) {
		return nil
	}
	return m.stats
}

// toldUse notes what the server knows, unless nil.
func (m *machine) toldUse(s *cluster.NodeStats) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s != nil {
		m.told = s
	}
}

// watchUse measures until ctx ends, and has a report sent at once when the machine comes near a limit or its use changes by
// a jump: the server then says how closely it wants to watch.
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
	a.machine.mu.Lock()
	defer a.machine.mu.Unlock()
	a.machine.stats = &s
	if a.machine.told == nil {
		return false
	}
	total := a.machine.known
	return transport.Shares(&s, total).Presses(transport.Shares(a.machine.told, total))
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
