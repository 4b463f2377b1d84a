package usage

import (
	"fmt"
	"strings"
	"time"

	"github.com/berthd/berth/internal/agent/facts"
	"github.com/berthd/berth/internal/cluster"
)

// Defaults of Thresholds, in percent: the share of time that tasks wait for memory, and the share of memory that is
// free.
const (
	DefaultPressureStall = 10.0
	DefaultPressureFree  = 5.0
)

// Thresholds are the thresholds of memory pressure, in percent.
type Thresholds struct {
	// Stall is the share of time that tasks wait for memory, where the kernel reports it (PSI); default
	// DefaultPressureStall.
	Stall float64
	// Free is the free share of memory, of the machine or of the limit of all tasks; default DefaultPressureFree. Where
	// the kernel reports the waiting time, the machine's free share counts only if Free differs from the default.
	Free float64
}

// pressureMeasurements is how many consecutive measurements begin or end memory pressure. Pressure ends with
// hysteresis: at less than half of the stall threshold and at 1.5 times the free threshold.
const pressureMeasurements = 3

// memoryPressure decides whether the machine is short of memory. It belongs to the goroutine that measures.
type memoryPressure struct {
	config       Thresholds
	above, below int
	current      *cluster.Pressure // nil without pressure
	// namedAt is when the victim was named. spared holds earlier victims that were not moved: a daemon's task belongs
	// on its node, and another task may have no other place.
	namedAt time.Time
	spared  map[string]bool
}

// victimInterval is how long one victim stays named before the next one.
const victimInterval = 30 * time.Second

// exceededThresholds describes the thresholds that the measurement exceeds, "" for none. The factor is 1 to begin
// pressure and larger to end it. The kernel's stall time takes precedence over the machine's free share unless the
// operator set Free.
func (c *Thresholds) exceededThresholds(s *facts.Scarcity, factor float64) string {
	stall, free := c.Stall, c.Free
	if stall <= 0 {
		stall = DefaultPressureStall
	}
	if free <= 0 {
		free = DefaultPressureFree
	}
	byShare := s.Stall < 0 || free > DefaultPressureFree || free < DefaultPressureFree
	var out []string
	if s.Stall >= 0 && s.Stall >= stall/factor/factor {
		out = append(out, fmt.Sprintf("tasks stall %.0f%% of the time", s.Stall))
	}
	if share := 100 * float64(s.Free) / float64(max(s.Total, 1)); byShare && s.Total > 0 && share < free*factor {
		out = append(out, fmt.Sprintf("%.0f%% of the machine is used", 100-share))
	}
	if share := 100 * float64(s.Used) / float64(max(s.Limit, 1)); s.Limit > 0 && share > 100-free*factor {
		out = append(out, fmt.Sprintf("the tasks use %.0f%% of their %v", share, s.Limit))
	}
	return strings.Join(out, ", ")
}

// update takes a measurement and the running attempts. It reports whether the server needs a report now.
func (q *memoryPressure) update(s *facts.Scarcity, running []measured, now time.Time) bool {
	const hysteresis = 1.5
	c := &q.config
	why := c.exceededThresholds(s, 1)
	if why != "" {
		q.above, q.below = q.above+1, 0
	} else if q.above = 0; c.exceededThresholds(s, hysteresis) == "" {
		q.below++
	} else {
		q.below = 0
	}
	switch {
	case q.current == nil && q.above < pressureMeasurements:
		return false
	case q.current != nil && q.below >= pressureMeasurements:
		q.current, q.spared = nil, nil
		return true
	case q.current == nil:
		q.current = &cluster.Pressure{Since: now.UTC()}
	}
	p := *q.current // a reported value never changes
	if why != "" {
		p.Message = "memory: " + why
	}
	stays := stillMovable(p.Victim, running)
	if stays && now.Sub(q.namedAt) >= victimInterval {
		if q.spared == nil {
			q.spared = map[string]bool{}
		}
		q.spared[p.Victim] = true
		stays = false
	}
	if !stays {
		p.Victim, p.Task, p.Why = victim(running, q.spared)
		if p.Victim == "" && len(q.spared) > 0 { // all victims had their turn: start again
			clear(q.spared)
			p.Victim, p.Task, p.Why = victim(running, nil)
		}
		q.namedAt = now
	}
	urgent := q.current.Message == "" || p.Victim != q.current.Victim
	q.current = &p
	return urgent
}

// movable reports whether an attempt may be a victim: one of a service that runs and has no stop.
func (m *measured) movable() bool {
	d := &m.view.Record.Desired
	return !d.Batch() && d.Stop == nil && m.view.Definition != nil && m.view.Record.IsUp()
}

// stillMovable reports whether the named attempt can still be moved. While it can, no other attempt is named.
func stillMovable(uuid string, running []measured) bool {
	for i := range running {
		if running[i].stats.UUID == uuid {
			return running[i].movable()
		}
	}
	return false
}

// victim chooses the attempt to move: of the lowest priority, the attempt with the largest excess over its reservation.
// If none of them exceeds its reservation, the attempt with the largest use is the victim. Spared attempts are left
// out.
func victim(running []measured, spared map[string]bool) (uuid string, id cluster.TaskID, why string) {
	var best *measured
	var excess cluster.Bytes
	for i := range running {
		m := &running[i]
		if !m.movable() || spared[m.stats.UUID] {
			continue
		}
		beyond := m.stats.Memory - m.view.ReservedMemory()
		if best == nil || worse(m, beyond, best, excess) {
			best, excess = m, beyond
		}
	}
	if best == nil {
		return "", "", ""
	}
	d := &best.view.Record.Desired
	why = fmt.Sprintf("priority %d, uses %v, ", d.Priority, best.stats.Memory)
	if excess > 0 {
		why += fmt.Sprintf("%v more than its request", excess)
	} else {
		why += fmt.Sprintf("the most, and no task uses more than its request; it requested %v",
			best.view.ReservedMemory())
	}
	if best.stats.Growth >= cluster.MiB {
		why += fmt.Sprintf(", and grows by %v a minute", best.stats.Growth)
	}
	return d.UUID, d.Task, why
}

// worse reports whether m, with beyond as its excess over the reservation, is a better victim than best.
func worse(m *measured, beyond cluster.Bytes, best *measured, excess cluster.Bytes) bool {
	p, q := m.view.Record.Desired.Priority, best.view.Record.Desired.Priority
	switch {
	case p != q:
		return p < q
	case beyond > 0 || excess > 0:
		return beyond > excess
	}
	return m.stats.Memory > best.stats.Memory
}
