package scaler

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// evaluateTargets returns the count that the targets need, up to MaxCount and without the bounds. It also describes
// the target that needs the most. If a schedule sets the count, the targets are not evaluated.
func (e *evaluation) evaluateTargets() (want int, seen string) {
	if e.setBySchedule != "" {
		return e.count, ""
	}
	want = -1
	var unknown []string
	for i := range e.scaling.Targets {
		t := &e.scaling.Targets[i]
		m, known := e.measured(i)
		if !known {
			unknown = append(unknown, string(t.Metric))
			continue
		}
		if n := tasksFor(t, m, e.count); n > want {
			want, seen = n, describeTarget(t, m, e.count)
		}
	}
	if len(unknown) > 0 {
		want = max(want, e.count)
		seen = join(seen, "not known: "+strings.Join(unknown, ", "))
	}
	if want < 0 { // no targets
		want = e.count
	}
	return want, seen
}

// measured returns the value of a target's metric, and whether it is known.
func (e *evaluation) measured(i int) (Measured, bool) {
	if i >= len(e.in.Measured) {
		return Measured{}, false
	}
	m, t := e.in.Measured[i], &e.scaling.Targets[i]
	known := m.Known && !math.IsNaN(m.Value) && !math.IsInf(m.Value, 0) && t.Target > 0 &&
		(m.At.IsZero() || e.in.Now.Sub(m.At) <= MaxAge) &&
		(t.Metric == cluster.ScalePrometheus || m.Tasks > 0)
	m.Value = max(m.Value, 0)
	return m, known
}

// tasksFor returns how many tasks a target needs. The load is counted in tasks that are exactly at their target. Tasks
// without a measurement are idle for growth and busy for shrinking.
func tasksFor(t *cluster.ScaleTarget, m Measured, count int) int {
	var load float64
	unseen, least := 0, 0
	switch {
	case t.Metric != cluster.ScalePrometheus:
		load = float64(m.Tasks) * (m.Value / t.Target)
		unseen = max(0, count-m.Tasks)
		least = 1 // with 0 tasks a metric of tasks could never grow the count
	case t.Whole:
		load = float64(max(1, count)) * (m.Value / t.Target)
	default:
		load = m.Value / t.Target
	}
	switch now, busy := float64(count), load+float64(unseen); {
	case load > now*(1+Tolerance):
		return max(least, roundUp(load))
	case busy < now*(1-Tolerance):
		return max(least, roundUp(busy))
	}
	return count
}

// roundUp rounds a load up to tasks. It ignores rounding errors of the calculation above a whole number.
func roundUp(load float64) int {
	return int(math.Ceil(min(load, cluster.MaxCount) - 1e-9))
}

// describeTarget describes the measurement, such as "cpu 143% of the target of 70% for 4 tasks".
func describeTarget(t *cluster.ScaleTarget, m Measured, count int) string {
	tasks, share := m.Tasks, m.Value/t.Target
	if t.Metric == cluster.ScalePrometheus {
		tasks = count
		if !t.Whole {
			share /= float64(max(1, count))
		}
	}
	target := strconv.FormatFloat(t.Target, 'g', 6, 64)
	switch t.Metric {
	case cluster.ScaleCPU, cluster.ScaleMemory:
		target += "%"
	case cluster.ScaleRequests:
		target += "/s"
	case cluster.ScalePrometheus:
	}
	noun := "tasks"
	if tasks == 1 {
		noun = "task"
	}
	return fmt.Sprintf("%s %.0f%% of the target of %s for %d %s", t.Metric, 100*share, target, tasks, noun)
}
