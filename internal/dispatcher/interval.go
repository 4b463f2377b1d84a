package dispatcher

import (
	"slices"
	"sync"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/transport"
)

// The intervals between two reports of a node.
const (
	// IdleHeartbeat is that of an empty node at rest, Heartbeat of a busy one, and NearHeartbeat of one near a limit.
	IdleHeartbeat = 60 * time.Second
	NearHeartbeat = 1 * time.Second
	// LongestHeartbeat is that of an empty node at rest at a server with very many sessions.
	LongestHeartbeat = 120 * time.Second
)

// From how many sessions of a server on empty nodes report less often than each IdleHeartbeat, and from how many on
// each LongestHeartbeat: between the two the reports of all of them together stay at about 42 a second (ADR 0042).
const (
	manySessions = 2500
	mostSessions = 5000
)

// What makes a node busy: a share of its CPU in use, a share of a resource by which its use changed since the last
// report, or tasks.
const (
	busyCPU   = 0.5
	busyTasks = 10
)

// Longest returns the interval of an empty node at rest, at a server with so many sessions: IdleHeartbeat up to 2,500,
// and more with each further one, up to LongestHeartbeat from 5,000 on. So a server is asked for no more than 42
// reports a second by empty nodes, up to 5,000 of them. It costs that an agent that hangs on an empty node is noticed
// that much later; a machine that dies is noticed as soon as with any interval, as its streams end.
func Longest(sessions int) time.Duration {
	over := min(max(sessions-manySessions, 0), mostSessions-manySessions)
	return IdleHeartbeat + (LongestHeartbeat-IdleHeartbeat)*time.Duration(over)/(mostSessions-manySessions)
}

// Interval returns how long a node may be silent until its next report, from what it uses, what it used at the report
// before, what it has, and how many sessions the server serves. It lies between NearHeartbeat and IdleHeartbeat, or for
// an empty node Longest, in whole seconds:
//
//   - short of memory, or near the limit of memory or disk, where tasks will fail, NearHeartbeat;
//   - near the limit of the CPU only while its use changes: a full CPU is what batch is for;
//   - else from IdleHeartbeat, or Longest where no task runs, down to Heartbeat, by the largest of: CPU in use, memory
//     and disk on their way to the limit, how much any of them changed, and how many tasks run.
//
// A node that sends no statistics has Heartbeat, and so has one whose total is not known.
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

// usage is what a session's node reported that it uses. Its methods may be called concurrently.
type usage struct {
	mu            sync.Mutex
	total         cluster.Facts // only the amounts
	stats, before *cluster.NodeStats
}

// is notes what the node has.
func (u *usage) is(f *cluster.Facts) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.total = cluster.Facts{CPU: f.CPU, Memory: f.Memory, Disk: f.Disk}
}

// take keeps what a report says, nil for what hardly changed. Of the attempts that it does not name what was told
// earlier stands, as far as lives says that they are still there.
func (u *usage) take(s *cluster.NodeStats, lives func(uuid string) bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.before = u.stats
	if s != nil {
		u.stats = s.Merge(u.stats, lives)
	}
}

// ended drops what was told of an attempt that has ended.
func (u *usage) ended(uuid string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.stats == nil || !slices.ContainsFunc(u.stats.Each, func(t cluster.TaskStats) bool { return t.UUID == uuid }) {
		return
	}
	s := *u.stats // others read it
	s.Each = slices.DeleteFunc(slices.Clone(s.Each), func(t cluster.TaskStats) bool { return t.UUID == uuid })
	u.stats = &s
}

// alive returns a function that tells which of a node's attempts run, by the tables.
func alive(snap *store.Snapshot, node string) func(uuid string) bool {
	var all map[string]bool
	return func(uuid string) bool {
		if all == nil {
			all = map[string]bool{}
			for row := range snap.NodeAttempts(node) {
				if o := row.Observed; o != nil && !o.Gone && !o.State.Terminal() {
					all[o.UUID] = true
				}
			}
		}
		return all[uuid]
	}
}

func (u *usage) last() *cluster.NodeStats {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.stats
}

// interval returns how soon the node is asked to report again, at a server with so many sessions.
func (u *usage) interval(sessions int) time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	return Interval(u.stats, u.before, u.total, sessions)
}

// size returns how many sessions this server serves.
func (d *Dispatcher) size() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.sessions)
}
