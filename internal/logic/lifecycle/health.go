package lifecycle

import (
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// DefaultFailAfter is how many failures in a row make a check failing where it sets no number.
const DefaultFailAfter = 3

// CheckState is what one check of a task has shown so far. The zero value is a check without a result.
type CheckState struct {
	Health   cluster.Health `json:"health,omitempty"`
	Failures int            `json:"failures,omitempty"` // in a row
}

// NextHealth returns the state of a check after one more result: healthy after one success, warning after one
// failure, failing after failAfter of them in a row (0 stands for DefaultFailAfter).
func NextHealth(prev CheckState, ok bool, failAfter int) CheckState {
	if ok {
		return CheckState{Health: cluster.HealthHealthy}
	}
	if failAfter < 1 {
		failAfter = DefaultFailAfter
	}
	next := CheckState{cluster.HealthWarning, min(prev.Failures, failAfter) + 1}
	if next.Failures >= failAfter {
		next.Health = cluster.HealthFailing
	}
	return next
}

// Overall returns the health of a task from that of its checks: the worst, where a check without a result
// is worse than a healthy one. Without checks it is unknown; such a task becomes healthy
// after running for its minimum healthy time (P4.7), see HealthWithoutChecks.
func Overall(checks []CheckState) cluster.Health {
	if len(checks) == 0 {
		return cluster.HealthUnknown
	}
	worst := cluster.HealthHealthy
	for _, c := range checks {
		if badness(c.Health) > badness(worst) {
			worst = c.Health
		}
	}
	if worst == "" {
		return cluster.HealthUnknown
	}
	return worst
}

func badness(h cluster.Health) int {
	switch h {
	case cluster.HealthHealthy:
		return 0
	case cluster.HealthWarning:
		return 2
	case cluster.HealthFailing:
		return 3
	default:
		return 1
	}
}

// HealthWithoutChecks returns the health of a task without checks that has been running for so long, of its
// minimum healthy time (P4.7), and how long until it changes; 0 if it will not.
func HealthWithoutChecks(least, ran time.Duration) (cluster.Health, time.Duration) {
	if rest := least - ran; rest > 0 {
		return cluster.HealthUnknown, rest
	}
	return cluster.HealthHealthy, 0
}
