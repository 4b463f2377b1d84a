package lifecycle

import (
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// Restarts remembers the restarts in place of one attempt. The agent persists it. The zero value is an
// attempt that was never restarted.
type Restarts struct {
	// At are the restarts within the policy's window, oldest first.
	At []time.Time `json:"at,omitempty"`
	// Streak counts restarts since the task last ran for longer than the window.
	Streak int `json:"streak,omitempty"`
	// Total counts all restarts of the attempt.
	Total int `json:"total,omitempty"`
}

// RestartDecision is what an agent does after a task ended by itself.
type RestartDecision struct {
	// Again says that the task starts again, after Delay.
	Again bool
	Delay time.Duration
	// Limit says that the policy's limit of restarts is reached: the attempt has failed with ReasonRestartLimit.
	Limit bool
	// Next is the state to persist.
	Next Restarts
}

// NextRestart decides about a restart in place of a task that ended at now after it had run for ran. The policy's
// defaults must be filled in. NextRestart is not called for an explicit stop, which no policy undoes.
func NextRestart(p cluster.Restart, prev Restarts, success bool, ran time.Duration, now time.Time) RestartDecision {
	if p.Mode == cluster.RestartNever || p.Mode == "" || success && p.Mode == cluster.RestartOnFailure {
		return RestartDecision{Next: prev}
	}
	next := Restarts{Total: prev.Total, Streak: prev.Streak}
	window := time.Duration(p.Window)
	if ran > window {
		next.Streak = 0
	} else {
		for _, at := range prev.At {
			if now.Sub(at) < window {
				next.At = append(next.At, at)
			}
		}
	}
	if len(next.At) >= p.Limit {
		return RestartDecision{Limit: true, Next: prev}
	}
	delay := Backoff(time.Duration(p.Delay), time.Duration(p.MaxDelay), next.Streak)
	next.At = append(next.At, now)
	next.Streak++
	next.Total++
	return RestartDecision{Again: true, Delay: delay, Next: next}
}

// Backoff returns first doubled n times, at most limit. It never overflows.
func Backoff(first, limit time.Duration, n int) time.Duration {
	d := min(first, limit)
	for range n {
		if d >= limit-d {
			return limit
		}
		d *= 2
	}
	return d
}
