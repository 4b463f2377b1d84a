package usage

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

// maxTaskStats is how many attempts one report may hold statistics of; the next report holds the others.
const maxTaskStats = 200

// Statistics holds the newest measurement and decides which part of it the server does not know. All methods may be
// called concurrently.
type Statistics struct {
	Facts func() cluster.Facts

	mu         sync.Mutex
	newest     *cluster.NodeStats // the newest measurement
	reported   *cluster.NodeStats // the newest report
	knownSweep *cluster.DiskSweep // the newest sweep that a server knows
	// tasks holds the newest reported statistics of each attempt, by UUID. count counts the reports with statistics.
	tasks map[string]taskReport
	count uint64
	// jumpReportedAt is when an attempt's jump was last reported immediately (Boot).
	jumpReportedAt time.Duration
}

// Latest returns the newest measurement, nil before the first. Callers do not change it.
func (r *Statistics) Latest() *cluster.NodeStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.newest
}

// Sweep returns the newest sweep of a full disk that a server knows.
func (r *Statistics) Sweep() *cluster.DiskSweep {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.knownSweep
}

// maxStatsAge is the age at which almost unchanged statistics are reported again, for people who watch them.
const maxStatsAge = 5 * time.Minute

// Unreported returns the newest measurement with the changed attempts, nil if the server knows it well enough.
func (r *Statistics) Unreported() *cluster.NodeStats {
	known := r.Facts()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.newest == nil {
		return nil
	}
	each := changedStats(r.newest.Each, r.tasks)
	if r.reported != nil && len(each) == 0 && r.newest.At.Sub(r.reported.At) < maxStatsAge &&
		transport.Same(r.newest, r.reported, known) {
		return nil
	}
	s := *r.newest
	s.Each = each
	return &s
}

// NoteReported records that the server knows s, unless nil. With first, a new session has begun: the server knows
// nothing else.
func (r *Statistics) NoteReported(s *cluster.NodeStats, first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if first {
		r.reported, r.tasks = nil, nil
	}
	if s == nil {
		return
	}
	r.reported = s
	if s.Sweep != nil {
		r.knownSweep = s.Sweep
	}
	r.count++
	if len(s.Each) == 0 {
		return
	}
	each := make(map[string]taskReport, len(r.tasks)+len(s.Each))
	for _, t := range r.newest.Each { // forget attempts that are measured no more
		if before, known := r.tasks[t.UUID]; known {
			each[t.UUID] = before
		}
	}
	for _, t := range s.Each {
		each[t.UUID] = taskReport{t, r.count}
	}
	r.tasks = each
}

// measured takes a new measurement and reports whether the server needs a report now: if urgent is set, or if the use
// of the machine or of a task changed much. Nothing is urgent before the first report.
func (r *Statistics) measured(s *cluster.NodeStats, urgent bool, now time.Duration) bool {
	known := r.Facts()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.newest = s
	if r.reported == nil {
		return false
	}
	jump := now-r.jumpReportedAt >= minJumpInterval && hasJump(s.Each, r.tasks)
	if jump {
		r.jumpReportedAt = now
	}
	return urgent || jump || s.Sweep != nil && s.Sweep != r.knownSweep ||
		(s.DiskFull == nil) != (r.reported.DiskFull == nil) ||
		transport.Shares(s, known).NeedsReportNow(transport.Shares(r.reported, known))
}

// changedStats returns the statistics that differ notably from the reported ones, at most maxTaskStats. Those with the
// oldest report come first.
func changedStats(each []cluster.TaskStats, reported map[string]taskReport) []cluster.TaskStats {
	var out []cluster.TaskStats
	for _, s := range each {
		if before, known := reported[s.UUID]; !known || s.Notable(before.stats) {
			out = append(out, s)
		}
	}
	if len(out) > maxTaskStats {
		slices.SortStableFunc(out, func(x, y cluster.TaskStats) int {
			return cmp.Compare(reported[x.UUID].no, reported[y.UUID].no)
		})
		out = out[:maxTaskStats]
	}
	return out
}

// taskReport is the newest report about an attempt and the number of that report.
type taskReport struct {
	stats cluster.TaskStats
	no    uint64
}

// A change of an attempt's use by at least these amounts, and by half, is reported immediately, so that its service
// scales in time. Such reports are at least minJumpInterval apart.
const (
	jumpCPU         = cluster.MilliCPU(100)
	jumpMemory      = 64 * cluster.MiB
	minJumpInterval = 5 * time.Second
)

// hasJump reports whether the use of an attempt changed so much.
func hasJump(each []cluster.TaskStats, reported map[string]taskReport) bool {
	return slices.ContainsFunc(each, func(s cluster.TaskStats) bool {
		before, known := reported[s.UUID]
		b := before.stats
		return known && (isLargeChange(int64(s.CPU), int64(b.CPU), int64(jumpCPU)) ||
			isLargeChange(int64(s.Memory), int64(b.Memory), int64(jumpMemory)))
	})
}

func isLargeChange(now, reported, least int64) bool {
	change := max(now-reported, reported-now)
	return change >= least && change >= reported/2
}
