package dispatcher

import (
	"slices"
	"sync"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

// The intervals between two reports of a node.
const (
	// IdleHeartbeat is the interval of an idle node without tasks, and NearHeartbeat that of a node near a limit. A
	// busy node has Heartbeat.
	IdleHeartbeat = 60 * time.Second
	NearHeartbeat = 1 * time.Second
	// LongestHeartbeat is the interval of an idle node without tasks at a server with very many sessions.
	LongestHeartbeat = 120 * time.Second
)

// Above stretchFromSessions a server's empty nodes report less often than every IdleHeartbeat, and from
// stretchToSessions on every LongestHeartbeat. Between the two numbers, their reports add up to about 42 a second (ADR
// 0035).
const (
	stretchFromSessions = 2500
	stretchToSessions   = 5000
)

// busyCPU, a share of the CPU in use, and busyTasks, a number of tasks, make a node busy.
const (
	busyCPU   = 0.5
	busyTasks = 10
)

// Longest returns the interval of an idle node without tasks, at a server with the given number of sessions. It is
// IdleHeartbeat up to 2,500 sessions, and grows to LongestHeartbeat at 5,000. Up to 5,000 empty nodes therefore send a
// server at most 42 reports a second. A hanging agent on an empty node is noticed later in return. A dead machine is
// noticed equally soon with any interval, since its streams end.
func Longest(sessions int) time.Duration {
	over := min(max(sessions-stretchFromSessions, 0), stretchToSessions-stretchFromSessions)
	return IdleHeartbeat + (LongestHeartbeat-IdleHeartbeat)*time.Duration(over)/(stretchToSessions-stretchFromSessions)
}

// Interval returns how long a node may be silent until its next report. It depends on the node's present and previous
// use, its totals, and the number of sessions of the server. It lies between NearHeartbeat and IdleHeartbeat, or
// Longest for a node without tasks, in whole seconds:
//
//   - A node short of memory, or near the limit of memory or disk, where tasks will fail, has NearHeartbeat.
//   - A node near the limit of the CPU has NearHeartbeat only while its use changes: batch work is meant to fill a CPU.
//   - Otherwise the interval goes from IdleHeartbeat, or Longest without tasks, down to Heartbeat. It follows the
//     largest of: the CPU in use, memory and disk on their way to the limit, the change of any of them, and the number
//     of tasks.
//
// A node that sends no statistics, or whose totals are unknown, has Heartbeat.
func Interval(now, before *cluster.NodeStats, total cluster.Facts, sessions int) time.Duration {
	if now == nil || total.CPU <= 0 || total.Memory <= 0 {
		return Heartbeat
	}
	if now.Pressure != nil {
		return NearHeartbeat
	}
	use := transport.Shares(now, total)
	change := 0.0
	if before != nil {
		change = use.Change(transport.Shares(before, total))
	}
	if use.Memory >= transport.NearMemory || use.Disk >= transport.NearDisk ||
		use.CPU >= transport.NearCPU && change >= transport.Jump {
		return NearHeartbeat
	}
	activity := max(
		use.CPU/busyCPU,
		(use.Memory-0.5)/(transport.NearMemory-0.5),
		(use.Disk-0.8)/(transport.NearDisk-0.8),
		change/transport.Jump,
		float64(now.Tasks)/busyTasks,
	)
	spare := 1 - min(max(activity, 0), 1)
	most := IdleHeartbeat
	if now.Tasks == 0 {
		most = Longest(sessions)
	}
	between := Heartbeat + time.Duration(spare*float64(most-Heartbeat))
	return between.Round(time.Second)
}

// usage is the resource use that a session's node reported. Its methods may be called concurrently.
type usage struct {
	mu            sync.Mutex
	total         cluster.Facts // only the amounts
	stats, before *cluster.NodeStats
}

// setTotals notes the node's totals.
func (u *usage) setTotals(f *cluster.Facts) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.total = cluster.Facts{CPU: f.CPU, Memory: f.Memory, Disk: f.Disk}
}

// addReport merges the statistics of a report. Nil means that they hardly changed. An attempt that the report does not
// name keeps its earlier statistics while lives returns true for it.
func (u *usage) addReport(s *cluster.NodeStats, lives func(uuid string) bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.before = u.stats
	if s != nil {
		u.stats = s.Merge(u.stats, lives)
	}
}

// ended drops the statistics of an attempt that has ended.
func (u *usage) ended(uuid string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.stats == nil || !slices.ContainsFunc(u.stats.Each, func(t cluster.TaskStats) bool { return t.UUID == uuid }) {
		return
	}
	s := *u.stats // a copy, since others read it
	s.Each = slices.DeleteFunc(slices.Clone(s.Each), func(t cluster.TaskStats) bool { return t.UUID == uuid })
	u.stats = &s
}

func (u *usage) latest() *cluster.NodeStats {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.stats
}

// interval returns the time until the node's next report, at a server with the given number of sessions.
func (u *usage) interval(sessions int) time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	return Interval(u.stats, u.before, u.total, sessions)
}
