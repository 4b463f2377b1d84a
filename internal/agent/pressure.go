package agent

import (
	"fmt"
	"strings"
	"time"

	"github.com/berthd/berth/internal/agent/facts"
	"github.com/berthd/berth/internal/cluster"
)

// Defaults of Config: the share of time that programs wait for memory, and the share of it that is free, in percent.
const (
	DefaultPressureStall = 10.0
	DefaultPressureFree  = 5.0
)

// squeezeLooks is how many measurements in a row begin or end a pressure. It ends well away from where it began: at
// half of the stall, and at one and a half of what is to be free.
const squeezeLooks = 3

// squeeze is whether the machine is short of memory. It belongs to the goroutine that measures.
type squeeze struct {
	high, low int
	now       *cluster.Pressure // nil while it is not
	// named is when the victim was named, and spared are those before it that nobody moved: a daemon's task belongs on
	// its node, and another may have no place elsewhere.
	named  time.Time
	spared map[string]bool
}

// victimPatience is for how long a victim is named before another one is.
const victimPatience = 30 * time.Second

// over says what is short by the thresholds, nothing if nothing is; factor is 1 to begin and wider to end. A kernel
// that tells how long programs wait knows better than the share that is free, unless the operator chose one.
func (c *Config) over(s *facts.Scarcity, factor float64) string {
	stall, free := c.PressureStall, c.PressureFree
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
		out = append(out, fmt.Sprintf("the tasks use %.0f%% of the %v that they may", share, s.Limit))
	}
	return strings.Join(out, ", ")
}

// take takes a measurement and the attempts that run; it reports whether the server should know at once.
func (q *squeeze) take(c *Config, s *facts.Scarcity, running []measured, now time.Time) bool {
	const hysteresis = 1.5
	why := c.over(s, 1)
	if why != "" {
		q.high, q.low = q.high+1, 0
	} else if q.high = 0; c.over(s, hysteresis) == "" {
		q.low++
	} else {
		q.low = 0
	}
	switch {
	case q.now == nil && q.high < squeezeLooks:
		return false
	case q.now != nil && q.low >= squeezeLooks:
		q.now, q.spared = nil, nil
		return true
	case q.now == nil:
		q.now = &cluster.Pressure{Since: now.UTC()}
	}
	p := *q.now // what was told stays as it is
	if why != "" {
		p.Message = "memory: " + why
	}
	stays := stands(p.Victim, running)
	if stays && now.Sub(q.named) >= victimPatience {
		if q.spared == nil {
			q.spared = map[string]bool{}
		}
		q.spared[p.Victim] = true
		stays = false
	}
	if !stays {
		p.Victim, p.Task, p.Why = victim(running, q.spared)
		if p.Victim == "" && len(q.spared) > 0 { // all had their turn: it begins anew
			clear(q.spared)
			p.Victim, p.Task, p.Why = victim(running, nil)
		}
		q.named = now
	}
	tell := q.now.Message == "" || p.Victim != q.now.Victim
	q.now = &p
	return tell
}

// movable reports whether an attempt may be named: a service's that runs and was not told to stop.
func (m *measured) movable() bool {
	d := &m.view.rec.Desired
	return !d.Batch() && d.Stop == nil && m.view.def != nil && m.view.rec.IsUp()
}

// stands reports whether the attempt that was named still is one to move: another one is named only when it is gone.
func stands(uuid string, running []measured) bool {
	for i := range running {
		if running[i].stats.UUID == uuid {
			return running[i].movable()
		}
	}
	return false
}

// victim names the attempt to move: of the lowest priority, and of those the one that uses the most beyond what it
// reserved. Where none does, it is the largest of them. It is none of the spared ones.
func victim(running []measured, spared map[string]bool) (uuid string, id cluster.TaskID, why string) {
	var best *measured
	var excess cluster.Bytes
	for i := range running {
		m := &running[i]
		if !m.movable() || spared[m.stats.UUID] {
			continue
		}
		beyond := m.stats.Memory - m.view.reserved()
		if best == nil || worse(m, beyond, best, excess) {
			best, excess = m, beyond
		}
	}
	if best == nil {
		return "", "", ""
	}
	d := &best.view.rec.Desired
	why = fmt.Sprintf("priority %d, uses %v, ", d.Priority, best.stats.Memory)
	if excess > 0 {
		why += fmt.Sprintf("%v more than it reserved", excess)
	} else {
		why += fmt.Sprintf("the most of those, none of which uses more than it reserved; it reserved %v",
			best.view.reserved())
	}
	if best.stats.Growth >= cluster.MiB {
		why += fmt.Sprintf(", and grows by %v a minute", best.stats.Growth)
	}
	return d.UUID, d.Task, why
}

// worse reports whether m, which uses so much beyond its reservation, is rather to be moved than the best so far.
func worse(m *measured, beyond cluster.Bytes, best *measured, excess cluster.Bytes) bool {
	p, q := m.view.rec.Desired.Priority, best.view.rec.Desired.Priority
	switch {
	case p != q:
		return p < q
	case beyond > 0 || excess > 0:
		return beyond > excess
	}
	return m.stats.Memory > best.stats.Memory
}

// reserved is the memory that the scheduler counts for the attempt.
func (v *view) reserved() (sum cluster.Bytes) {
	for i := range v.def.Containers {
		sum += v.def.Containers[i].Resources.Memory
	}
	return sum
}
