package lifecycle

import (
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// DefaultFailAfter is the number of consecutive failures that make a check failing if it sets no number.
const DefaultFailAfter = 3

// CheckState is the state of one check of a task. The zero value is a check without a result.
type CheckState struct {
	Health   cluster.Health `json:"health,omitempty"`
	Failures int            `json:"failures,omitempty"` // in a row
}

// NextHealth returns the state of a check after one more result. It is healthy after one success and warning after one
// failure. It is failing after failAfter consecutive failures (0 means DefaultFailAfter).
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

// Overall returns the health of a task from that of its checks: the worst one. A check without a result ranks between
// healthy and warning. Without checks the result is unknown. A task without checks becomes healthy after running for
// its minimum healthy time (P4.7), see HealthWithoutChecks.
func Overall(checks []CheckState) cluster.Health {
	if len(checks) == 0 {
		return cluster.HealthUnknown
	}
	worst := cluster.HealthHealthy
	for _, c := range checks {
		if severity(c.Health) > severity(worst) {
			worst = c.Health
		}
	}
	if worst == "" {
		return cluster.HealthUnknown
	}
	return worst
}

func severity(h cluster.Health) int {
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

// HealthWithoutChecks returns the health of a task without checks after it has run for ran. least is its minimum
// healthy time (P4.7). The duration is the time until the health changes, 0 if it will not.
func HealthWithoutChecks(least, ran time.Duration) (cluster.Health, time.Duration) {
	if rest := least - ran; rest > 0 {
		return cluster.HealthUnknown, rest
	}
	return cluster.HealthHealthy, 0
}
