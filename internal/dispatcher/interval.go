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
)

// What makes a node busy: a share of its CPU in use, a share of a resource by which its use changed since the last
// report, or tasks.
const (
	busyCPU   = 0.5
	busyTasks = 10
)

// Interval returns how long a node may be silent until its next report, from what it uses, what it used at the report
// before, and what it has. It lies between NearHeartbeat and IdleHeartbeat, in whole seconds:
//
//   - short of memory, or near the limit of memory or disk, where tasks will fail, NearHeartbeat;
//   - near the limit of the CPU only while its use changes: a full CPU is what batch is for;
//   - else from IdleHeartbeat down to Heartbeat, by the largest of: CPU in use, memory and disk on their way to the limit, how much
//     any of them changed, and how many tasks run.
//
// A node that sends no statistics has Heartbeat, and so has one whose total is not known.
func Interval(now, before *cluster.NodeStats, total cluster.Facts) time.Duration {
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
	between := Heartbeat + time.Duration(spare*float64(IdleHeartbeat-Heartbeat))
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

// take keeps what a report says, nil for what hardly changed. Of the attempts that it does not name what was told earlier
// stands, as far as lives says that they are still there.
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

func (u *usage) interval() time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	return Interval(u.stats, u.before, u.total)
}
