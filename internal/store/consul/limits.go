package consul

import (
	"log/slog"
	"sync"
	"time"
)

const (
	// limitLogInterval is the shortest time between two log lines about refused calls.
	limitLogInterval = time.Minute
	// limitAlarmAge is how long the health of the store names the limit after the last refused call.
	limitAlarmAge = time.Minute
)

// limitNotices remembers the calls that Consul refused because of its limits on the rate of requests. Safe for
// concurrent use.
type limitNotices struct {
	mu           sync.Mutex
	last, logged time.Time
	refused      int // since the last log line
}

// note notes a refused call, and logs it unless another one was logged a short time before.
func (n *limitNotices) note(log *slog.Logger, now time.Time) {
	n.mu.Lock()
	n.last = now
	n.refused++
	refused, isDue := n.refused, n.logged.IsZero() || now.Sub(n.logged) >= limitLogInterval
	if isDue {
		n.refused, n.logged = 0, now
	}
	n.mu.Unlock()
	if isDue {
		log.Warn("consul limits the rate of requests: calls wait and are tried again, and all work is slower",
			"refused", refused, "setting", "limits.request_limits or limits.rpc_rate of consul")
	}
}

// isRecent reports whether a call was refused within limitAlarmAge.
func (n *limitNotices) isRecent(now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.last.IsZero() && now.Sub(n.last) < limitAlarmAge
}
