package agent

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// askEvery is how often the tasks whose service is scaled by requests are asked for them, and mostAsked how many at
// once.
const (
	askEvery  = 5 * time.Second
	mostAsked = 16
)

// requestRates is how many requests a second tasks answer, as they count them themselves.
type requestRates struct {
	mu  sync.Mutex
	all map[string]counted // by UUID
}

// counted is what a task counted when it was asked last.
type counted struct {
	total float64
	at    time.Duration
	rate  float64 // -1 while it is not known
}

// rate returns the requests a second, -1 where nobody counts them.
func (r *requestRates) rate(uuid string) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c, ok := r.all[uuid]; ok {
		return c.rate
	}
	return -1
}

// take takes a count; a smaller one than before is that of another program, which began at 0.
func (r *requestRates) take(uuid string, total float64, now time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, known := r.all[uuid]
	next := counted{total: total, at: now, rate: -1}
	if past := (now - before.at).Seconds(); known && past > 0 {
		next.rate = (total - before.total) / past
		if total < before.total {
			next.rate = total / past
		}
	}
	if r.all == nil {
		r.all = map[string]counted{}
	}
	r.all[uuid] = next
}

// keep forgets all attempts but these.
func (r *requestRates) keep(uuids map[string]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for uuid := range r.all { // order-free: each by itself
		if !uuids[uuid] {
			delete(r.all, uuid)
		}
	}
}

// watchRequests asks the tasks that count their requests, until ctx ends.
func (a *Agent) watchRequests(ctx context.Context) {
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		a.askTasks(ctx)
	}
}

// askTasks asks each once. One that does not answer is not known of any more.
func (a *Agent) askTasks(ctx context.Context) {
	var asked []*view
	a.mu.Lock()
	for _, t := range a.tasks { // order-free: each is asked by itself
		if v := t.view.Load(); v != nil && v.rec.Desired.Meter != nil && v.def != nil && v.rec.IsUp() {
			asked = append(asked, v)
		}
	}
	a.mu.Unlock()
	answered := make(map[string]bool, len(asked))
	var mu sync.Mutex
	var all sync.WaitGroup
	turns := make(chan struct{}, mostAsked)
	for _, v := range asked {
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			d := &v.rec.Desired
			total, err := a.Requests(ctx, meteredPort(v), *d.Meter)
			if err != nil {
				a.Logger.Debug("a task's requests are not known", "task", d.Task, "attempt", d.Attempt, "error", err)
				return
			}
			a.requests.take(d.UUID, total, a.Boot())
			mu.Lock()
			defer mu.Unlock()
			answered[d.UUID] = true
		})
	}
	all.Wait()
	a.requests.keep(answered)
}

// meteredPort returns the number of the port that the meter names, by default of the definition's first.
func meteredPort(v *view) int {
	name := v.rec.Desired.Meter.Port
	i := slices.IndexFunc(v.def.Ports, func(p cluster.Port) bool { return p.Name == name || name == "" })
	if i < 0 {
		return 0
	}
	return v.rec.Desired.Ports[v.def.Ports[i].Name]
}
