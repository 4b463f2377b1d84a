package scaler

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// metrics returns the count that the targets ask for, at most MaxCount and whatever the bounds are, and what was seen
// of the target that asks for the most. In a look in which a schedule sets the count they are not asked.
func (l *look) metrics() (want int, seen string) {
	if l.set != "" {
		return l.count, ""
	}
	want = -1
	var unknown []string
	for i := range l.scaling.Targets {
		t := &l.scaling.Targets[i]
		m, known := l.measured(i)
		if !known {
			unknown = append(unknown, string(t.Metric))
			continue
		}
		if n := asks(t, m, l.count); n > want {
			want, seen = n, told(t, m, l.count)
		}
	}
	if len(unknown) > 0 {
		want = max(want, l.count)
		seen = join(seen, "not known: "+strings.Join(unknown, ", "))
	}
	if want < 0 { // no targets
		want = l.count
	}
	return want, seen
}

// measured returns the value of a target's metric, and whether it is known.
func (l *look) measured(i int) (Measured, bool) {
	if i >= len(l.in.Measured) {
		return Measured{}, false
	}
	m, t := l.in.Measured[i], &l.scaling.Targets[i]
	known := m.Known && !math.IsNaN(m.Value) && !math.IsInf(m.Value, 0) && t.Target > 0 &&
		(m.At.IsZero() || l.in.Now.Sub(m.At) <= MaxAge) &&
		(t.Metric == cluster.ScalePrometheus || m.Tasks > 0)
	m.Value = max(m.Value, 0)
	return m, known
}

// asks returns how many tasks a target asks for. The load is counted in tasks that have just their target. Tasks that
// were not measured are idle for growth and busy for shrinking.
func asks(t *cluster.ScaleTarget, m Measured, count int) int {
	var load float64
	unseen, least := 0, 0
	switch {
	case t.Metric != cluster.ScalePrometheus:
		load = float64(m.Tasks) * (m.Value / t.Target)
		unseen = max(0, count-m.Tasks)
		least = 1 // a metric of tasks could not bring them back
	case t.Whole:
		load = float64(max(1, count)) * (m.Value / t.Target)
	default:
		load = m.Value / t.Target
	}
	switch now, busy := float64(count), load+float64(unseen); {
	case load > now*(1+Tolerance):
		return max(least, whole(load))
	case busy < now*(1-Tolerance):
		return max(least, whole(busy))
	}
	return count
}

// whole rounds a load up to tasks. What is a whole number but for the last digits of a calculation stays it.
func whole(load float64) int {
	return int(math.Ceil(min(load, cluster.MaxCount) - 1e-9))
}

// told says what was seen, such as "cpu 143% of the target of 70% for 4 tasks".
func told(t *cluster.ScaleTarget, m Measured, count int) string {
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
