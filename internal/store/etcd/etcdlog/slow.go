package etcdlog

import (
	"strings"
	"sync"
	"time"
)

// slowInterval is the least time between two warnings about a slow store.
const slowInterval = time.Minute

// slowText is the warning that stands for all messages of etcd about a slow disk or machine.
const slowText = "the store is slow: its disk or the machine is overloaded"

// isSlow reports whether a message says that the disk or the machine delays the store.
func isSlow(message string) bool {
	switch message {
	case "slow fdatasync",
		"leader failed to send out heartbeat on time; took too long, leader is overloaded likely from slow disk":
		return true
	}
	return strings.HasSuffix(message, "A tick missed to fire. Node blocks too long!")
}

// isDelay reports whether a message is about a single request or step that takes long and that etcd, or the caller,
// tries again. On a slow machine there are many.
func isDelay(message string) bool {
	switch message {
	case "apply request took too long",
		"waiting for ReadIndex response took too long, retrying",
		"timed out waiting for read index response (local node might have slow network)",
		"ignored out-of-date read index response; local node read indexes queueing up and waiting to be in sync " +
			"with leader",
		"failed to get read index from Raft",
		"failed to publish local member to cluster through raft",
		"failed to revoke lease":
		return true
	}
	return false
}

// slowLimiter limits the warnings about a slow store. Safe for concurrent use.
type slowLimiter struct {
	mu   sync.Mutex
	last time.Time
}

// due reports whether the warning is due, and notes that it is given.
func (s *slowLimiter) due(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.last.IsZero() && now.Sub(s.last) < slowInterval {
		return false
	}
	s.last = now
	return true
}

// tookOf returns how long a slow step took by the fields of a message, 0 if they do not say.
func tookOf(fields map[string]any) time.Duration {
	for _, key := range []string{"took", "exceeded-duration"} {
		if d, ok := fields[key].(time.Duration); ok {
			return d
		}
	}
	return 0
}
