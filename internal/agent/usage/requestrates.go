package usage

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/agent/node"
	"github.com/berthd/berth/internal/cluster"
)

// requestCountInterval is how often the agent reads the request counters of tasks whose service scales by requests.
// maxConcurrentCounts limits how many it reads concurrently.
const (
	requestCountInterval = 5 * time.Second
	maxConcurrentCounts  = 16
)

// RequestRates holds the rate of answered requests of each task, from the tasks' own counters.
type RequestRates struct {
	Node     *node.Node
	Attempts func() []attempt.Status
	// Count returns the number of requests that the program at a port of this node has answered so far.
	Count func(ctx context.Context, port int, m cluster.RequestCounter) (float64, error)

	mu  sync.Mutex
	all map[string]requestCount // by UUID
}

// requestCount is the newest reading of a task's request counter.
type requestCount struct {
	total float64
	at    time.Duration
	rate  float64 // requests per second, -1 if unknown
}

// rate returns the requests per second of an attempt, -1 if unknown.
func (r *RequestRates) rate(uuid string) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c, ok := r.all[uuid]; ok {
		return c.rate
	}
	return -1
}

// add takes a reading. A reading below the one before comes from a new program, whose counter began at 0.
func (r *RequestRates) add(uuid string, total float64, now time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, known := r.all[uuid]
	next := requestCount{total: total, at: now, rate: -1}
	if past := (now - before.at).Seconds(); known && past > 0 {
		next.rate = (total - before.total) / past
		if total < before.total {
			next.rate = total / past
		}
	}
	if r.all == nil {
		r.all = map[string]requestCount{}
	}
	r.all[uuid] = next
}

// retain forgets all attempts except the given ones.
func (r *RequestRates) retain(uuids map[string]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for uuid := range r.all { // order-free: entries are independent
		if !uuids[uuid] {
			delete(r.all, uuid)
		}
	}
}

// Watch reads the request counters of tasks until ctx ends.
func (r *RequestRates) Watch(ctx context.Context) {
	tick := time.NewTicker(requestCountInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		r.read(ctx)
	}
}

// read reads each counter once. It forgets the rate of a task that does not answer.
func (r *RequestRates) read(ctx context.Context) {
	var views []*attempt.View
	for _, a := range r.Attempts() {
		v := a.View
		if v != nil && v.Record.Desired.RequestCounter != nil && v.Definition != nil && v.Record.IsUp() {
			views = append(views, v)
		}
	}
	answered := make(map[string]bool, len(views))
	var mu sync.Mutex
	var all sync.WaitGroup
	slots := make(chan struct{}, maxConcurrentCounts)
	for _, v := range views {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			d := &v.Record.Desired
			total, err := r.Count(ctx, requestCounterPort(v), *d.RequestCounter)
			if err != nil {
				r.Node.Logger.Debug("the request counter of a task cannot be read",
					"task", d.Task, "attempt", d.Attempt, "error", err)
				return
			}
			r.add(d.UUID, total, r.Node.Boot())
			mu.Lock()
			defer mu.Unlock()
			answered[d.UUID] = true
		})
	}
	all.Wait()
	r.retain(answered)
}

// requestCounterPort returns the number of the port that the request counter source names; the default is the
// definition's first port.
func requestCounterPort(v *attempt.View) int {
	name := v.Record.Desired.RequestCounter.Port
	i := slices.IndexFunc(v.Definition.Ports, func(p cluster.Port) bool { return p.Name == name || name == "" })
	if i < 0 {
		return 0
	}
	return v.Record.Desired.Ports[v.Definition.Ports[i].Name]
}
