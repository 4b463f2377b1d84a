package agent

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

// maxTaskStats is how many attempts one report may hold statistics of; the next report holds the others.
const maxTaskStats = 200

// The growth of memory is computed from maxSamples samples, one each sampleInterval: ten minutes in all.
const (
	sampleInterval = 10 * time.Second
	maxSamples     = 60
	minTrendSpan   = time.Minute
)

// trend holds the memory of an attempt over the last ten minutes and its growth.
type trend struct {
	at     [maxSamples]time.Duration
	memory [maxSamples]cluster.Bytes
	n      int // number of samples so far
	growth cluster.Bytes
}

// add takes a sample if one is due, and returns the growth of memory in a minute. The growth is the slope of the
// least-squares line through the samples, 0 while they span less than minTrendSpan.
func (t *trend) add(now time.Duration, memory cluster.Bytes) cluster.Bytes {
	if t.n > 0 && now-t.at[(t.n-1)%maxSamples] < sampleInterval {
		return t.growth
	}
	t.at[t.n%maxSamples], t.memory[t.n%maxSamples] = now, memory
	t.n++
	count := min(t.n, maxSamples)
	first := t.at[(t.n-count)%maxSamples]
	if now-first < minTrendSpan {
		return 0
	}
	var meanX, meanY float64
	for i := range count {
		meanX += (t.at[i] - first).Minutes() / float64(count)
		meanY += float64(t.memory[i]) / float64(count)
	}
	var both, square float64
	for i := range count {
		x := (t.at[i] - first).Minutes() - meanX
		both += x * (float64(t.memory[i]) - meanY)
		square += x * x
	}
	if square > 0 {
		t.growth = cluster.Bytes(both / square)
	}
	return t.growth
}

// attemptUse is the newest measurement of one attempt.
type attemptUse struct {
	runs  map[executor.ID]time.Duration // CPU time of each run
	at    time.Duration
	trend trend
	stats cluster.TaskStats
	round uint64 // the newest round that saw it
	// cpu is the use of each container of several; detailed is measured less often.
	cpu      map[executor.ID]cluster.MilliCPU
	detailed detailed
	storage  *cluster.StorageUse
}

// taskUse measures attempts. It belongs to the goroutine that measures.
type taskUse struct {
	all   map[string]*attemptUse // by UUID
	round uint64
}

// measured is a running attempt with its use.
type measured struct {
	view  *view
	stats cluster.TaskStats
}

// measureTasks measures all running attempts, ordered by UUID.
func (a *Agent) measureTasks() []measured {
	if a.use.all == nil {
		a.use.all = map[string]*attemptUse{}
	}
	a.use.round++
	now := a.Boot()
	var found []measured
	running := map[string]map[executor.ID]executor.Process{} // by executor
	a.mu.Lock()
	for _, t := range a.tasks { // order-free: sorted below
		v := t.view.Load()
		if v == nil || !v.rec.MayRun() {
			continue
		}
		found = append(found, measured{view: v})
		for i := range v.rec.Containers {
			if c := &v.rec.Containers[i]; c.Progress == attempt.Running {
				if running[v.rec.Executor] == nil {
					running[v.rec.Executor] = map[executor.ID]executor.Process{}
				}
				running[v.rec.Executor][c.ID] = c.Process
			}
		}
	}
	a.mu.Unlock()
	slices.SortFunc(found, func(x, y measured) int {
		return cmp.Compare(x.view.rec.Desired.UUID, y.view.rec.Desired.UUID)
	})
	usage := map[executor.ID]executor.Usage{}
	for name, runs := range running { // order-free: ids are unique
		if e, ok := a.machine.executor(name); ok {
			if m, ok := e.(executor.Meter); ok {
				maps.Copy(usage, m.Usage(runs))
			}
		}
	}
	counts := a.readDetails(found, now)
	kept := found[:0]
	for i, f := range found {
		if s, ok := a.use.update(&f.view.rec, usage, now); ok {
			s.Requests = a.requests.rate(s.UUID)
			u := a.use.all[s.UUID]
			u.detailed.update(f.view, usage, u.cpu, counts, now, i)
			s.Detail = u.detailed.detail
			s.Storage = a.volumeUse(f.view, u.storage)
			u.storage = s.Storage
			kept = append(kept, measured{f.view, s})
		}
	}
	if a.Samples != nil {
		a.Samples(a.samples(kept, usage))
	}
	for uuid, u := range a.use.all { // order-free: attempts are independent
		if u.round != a.use.round {
			delete(a.use.all, uuid)
		}
	}
	return kept
}

// update sums the use of an attempt's containers; ok is false if none is known.
func (m *taskUse) update(
	r *attempt.Record, usage map[executor.ID]executor.Usage, now time.Duration,
) (s cluster.TaskStats, ok bool) {
	u := m.all[r.Desired.UUID]
	if u == nil {
		u = &attemptUse{runs: map[executor.ID]time.Duration{}}
		m.all[r.Desired.UUID] = u
	}
	u.round = m.round
	s = cluster.TaskStats{Task: r.Desired.Task, UUID: r.Desired.UUID}
	runs := make(map[executor.ID]time.Duration, len(r.Containers))
	var worked time.Duration
	anew, past := false, now-u.at
	u.cpu = nil
	for i := range r.Containers {
		id := r.Containers[i].ID
		now, known := usage[id]
		if !known {
			continue
		}
		ok = true
		runs[id] = now.CPU
		s.Memory += now.Memory
		before, was := u.runs[id]
		anew = anew || !was
		if !was {
			continue
		}
		worked += max(now.CPU-before, 0)
		if len(r.Containers) > 1 && past > 0 {
			if u.cpu == nil {
				u.cpu = make(map[executor.ID]cluster.MilliCPU, len(r.Containers))
			}
			u.cpu[id] = cluster.MilliCPU(max(now.CPU-before, 0) * 1000 / past)
		}
	}
	if !ok {
		return s, false
	}
	if anew || len(runs) != len(u.runs) {
		u.trend = trend{} // memory of another program
	}
	if u.at != 0 && past > 0 {
		s.CPU = cluster.MilliCPU(worked * 1000 / past)
	}
	s.Growth = u.trend.add(now, s.Memory)
	u.runs, u.at, u.stats = runs, now, s
	return s, true
}

// changedStats returns the statistics that differ notably from the reported ones, at most maxTaskStats. Those with the
// oldest report come first.
func changedStats(each []cluster.TaskStats, reported map[string]reportedStats) []cluster.TaskStats {
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

// reportedStats is the newest report about an attempt and the number of that report.
type reportedStats struct {
	stats cluster.TaskStats
	no    uint64
}

// A change of an attempt's use by at least these amounts, and by half, is reported at once, so that its service scales
// in time. Such reports are at least minJumpInterval apart.
const (
	jumpCPU         = cluster.MilliCPU(100)
	jumpMemory      = 64 * cluster.MiB
	minJumpInterval = 5 * time.Second
)

// hasJump reports whether the use of an attempt changed so much.
func hasJump(each []cluster.TaskStats, reported map[string]reportedStats) bool {
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
