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

// mostEach is how many attempts a report tells the use of; the others follow in the next.
const mostEach = 200

// How closely the growth of memory is looked at: one sample each sampleEvery, as many as ten minutes hold.
const (
	sampleEvery = 10 * time.Second
	samples     = 60
	shortestFit = time.Minute
)

// trend is the memory of an attempt over the last ten minutes, and how fast it grows.
type trend struct {
	at     [samples]time.Duration
	memory [samples]cluster.Bytes
	n      int // how many were taken so far
	growth cluster.Bytes
}

// add takes a sample if one is due, and returns by how much memory grows in a minute: the slope of the line that fits
// the samples best, 0 while they span less than a minute.
func (t *trend) add(now time.Duration, memory cluster.Bytes) cluster.Bytes {
	if t.n > 0 && now-t.at[(t.n-1)%samples] < sampleEvery {
		return t.growth
	}
	t.at[t.n%samples], t.memory[t.n%samples] = now, memory
	t.n++
	count := min(t.n, samples)
	first := t.at[(t.n-count)%samples]
	if now-first < shortestFit {
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

// used is what was measured of one attempt last.
type used struct {
	runs  map[executor.ID]time.Duration // the CPU of each
	at    time.Duration
	trend trend
	stats cluster.TaskStats
	seen  uint64 // the look that saw it last
	// cpu is what each of several containers used, and detailed what is looked at less often.
	cpu      map[executor.ID]cluster.MilliCPU
	detailed detailed
	storage  *cluster.StorageUse
}

// taskUse measures attempts. It belongs to the goroutine that measures.
type taskUse struct {
	all  map[string]*used // by UUID
	look uint64
}

// measured is an attempt that runs, with what it uses.
type measured struct {
	view  *view
	stats cluster.TaskStats
}

// measureTasks measures all attempts that run, ordered by UUID.
func (a *Agent) measureTasks() []measured {
	if a.use.all == nil {
		a.use.all = map[string]*used{}
	}
	a.use.look++
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
	counts := a.details(found, now)
	kept := found[:0]
	for i, f := range found {
		if s, ok := a.use.take(&f.view.rec, usage, now); ok {
			s.Requests = a.requests.rate(s.UUID)
			u := a.use.all[s.UUID]
			u.detailed.take(f.view, usage, u.cpu, counts, now, i)
			s.Detail = u.detailed.detail
			s.Storage = a.storage(f.view, u.storage)
			u.storage = s.Storage
			kept = append(kept, measured{f.view, s})
		}
	}
	if a.Samples != nil {
		a.Samples(a.samples(kept, usage))
	}
	for uuid, u := range a.use.all { // order-free: each by itself
		if u.seen != a.use.look {
			delete(a.use.all, uuid)
		}
	}
	return kept
}

// take sums what the containers of an attempt use; ok is false where nothing is known of any.
func (m *taskUse) take(r *attempt.Record, usage map[executor.ID]executor.Usage, now time.Duration) (s cluster.TaskStats,
	ok bool,
) {
	u := m.all[r.Desired.UUID]
	if u == nil {
		u = &used{runs: map[executor.ID]time.Duration{}}
		m.all[r.Desired.UUID] = u
	}
	u.seen = m.look
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
		u.trend = trend{} // another program's memory
	}
	if u.at != 0 && past > 0 {
		s.CPU = cluster.MilliCPU(worked * 1000 / past)
	}
	s.Growth = u.trend.add(now, s.Memory)
	u.runs, u.at, u.stats = runs, now, s
	return s, true
}

// news returns those whose use differs notably from what was told, at most mostEach: those first that were told longest
// ago.
func news(each []cluster.TaskStats, told map[string]toldStats) []cluster.TaskStats {
	var out []cluster.TaskStats
	for _, s := range each {
		if before, known := told[s.UUID]; !known || s.Notable(before.stats) {
			out = append(out, s)
		}
	}
	if len(out) > mostEach {
		slices.SortStableFunc(out, func(x, y cluster.TaskStats) int {
			return cmp.Compare(told[x.UUID].no, told[y.UUID].no)
		})
		out = out[:mostEach]
	}
	return out
}

// toldStats is what the server was told of an attempt, and by which telling.
type toldStats struct {
	stats cluster.TaskStats
	no    uint64
}

// A change of one attempt's use by these, and by half, is told at once, so that its service is scaled in time; not more
// often than each jumpEvery.
const (
	jumpCPU    = cluster.MilliCPU(100)
	jumpMemory = 64 * cluster.MiB
	jumpEvery  = 5 * time.Second
)

// jumped reports whether the use of an attempt changed so much.
func jumped(each []cluster.TaskStats, told map[string]toldStats) bool {
	return slices.ContainsFunc(each, func(s cluster.TaskStats) bool {
		before, known := told[s.UUID]
		b := before.stats
		return known && (far(int64(s.CPU), int64(b.CPU), int64(jumpCPU)) ||
			far(int64(s.Memory), int64(b.Memory), int64(jumpMemory)))
	})
}

func far(now, told, least int64) bool {
	change := max(now-told, told-now)
	return change >= least && change >= told/2
}
