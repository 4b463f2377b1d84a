package scheduler_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// poolQueue is what is known of the queue of one pool.
type poolQueue struct {
	policy   cluster.QueuePolicy
	largest  int // CPUs of the largest node
	first    cluster.TaskID
	promised time.Time // to the first task
}

// TestPoolsKeepPromises draws queues of several pools with devices, ports and gangs, whose tasks end by their limits.
// The first task of each pool has a promise, which never becomes later and is kept.
func TestPoolsKeepPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, pools := newBatch(), map[string]*poolQueue{}
		for _, name := range []string{"o", "p", "q"} {
			pools[name] = b.drawPool(t, name)
		}
		for range rapid.IntRange(10, 40).Draw(t, "minutes") {
			for range rapid.IntRange(0, 4).Draw(t, "arrivals") {
				name := rapid.SampledFrom([]string{"o", "p", "q"}).Draw(t, "pool")
				b.submitTo(t, name, pools[name])
			}
			b.step()
			first := map[string]*cluster.Waiting{}
			of := map[cluster.TaskID]string{}
			for _, p := range b.waiting {
				of[p.Task] = p.Placement.Pool
			}
			for i := range b.last.Waiting {
				if w := &b.last.Waiting[i]; first[of[w.Task]] == nil {
					first[of[w.Task]] = w
				}
			}
			for name, q := range pools { // order-free: each by itself
				q.check(t, b.now, first[name])
			}
			b.now = b.now.Add(time.Minute)
		}
	})
}

// drawPool adds the nodes of a pool.
func (b *batch) drawPool(t *rapid.T, name string) *poolQueue {
	q := &poolQueue{
		policy: rapid.SampledFrom([]cluster.QueuePolicy{cluster.QueueEASY, cluster.QueueFIFO}).Draw(t, "policy"),
	}
	for range rapid.IntRange(1, 3).Draw(t, "nodes") {
		cpus := rapid.IntRange(2, 8).Draw(t, "cpus")
		q.largest = max(q.largest, cpus)
		b.fleet.SetNode(scheduler.Node{
			Name: fmt.Sprint("n", b.fleet.SlotCount()), State: cluster.NodeReady, Arch: "amd64", OS: "linux",
			Pool:      name,
			Executors: []string{"process"}, Capacity: cluster.Demand{CPU: cluster.MilliCPU(1000 * cpus)},
			Devices: []cluster.Device{{ID: "g0", Type: "gpu"}, {ID: "g1", Type: "gpu"}, {ID: "g2", Type: "gpu"}},
		})
	}
	return q
}

// submitTo adds a task or a gang of two tasks to a pool that can run it.
func (b *batch) submitTo(t *rapid.T, name string, q *poolQueue) {
	limit := time.Duration(rapid.IntRange(1, 30).Draw(t, "limit")) * time.Minute
	runs := limit - time.Duration(rapid.IntRange(0, int(limit/time.Minute)-1).Draw(t, "early"))*time.Minute
	id := b.submit(q.policy, cluster.DefaultPriority, rapid.IntRange(1, q.largest).Draw(t, "cpus"), runs, limit)
	p := &b.waiting[len(b.waiting)-1]
	p.Placement.Pool = name
	switch rapid.IntRange(0, 4).Draw(t, "demand") {
	case 0:
		p.Devices = []cluster.DeviceRequest{{Type: "gpu", Count: rapid.IntRange(1, 3).Draw(t, "devices")}}
	case 1:
		p.Devices = []cluster.DeviceRequest{{Type: "gpu", Share: 100 * rapid.IntRange(1, 9).Draw(t, "share")}}
	case 2:
		p.Ports = []cluster.Port{{Name: "a", Port: 80}}
	case 3:
		if q.largest < 4 {
			break
		}
		p.Demand.CPU = cluster.MilliCPU(1000 * rapid.IntRange(1, 2).Draw(t, "cpus"))
		p.Gang, p.GangSize = string(id), 2
		second := *p
		second.Task = cluster.JobTask("c", second.Owner.Name, 1, "s", 1)
		b.length[second.Task] = runs
		b.waiting = append(b.waiting, second)
	}
}

// check compares the first waiting task of the pool, or nil, with the promise that was given before.
func (q *poolQueue) check(t *rapid.T, now time.Time, w *cluster.Waiting) {
	if q.first != "" && (w == nil || w.Task != q.first) && now.After(q.promised) {
		t.Fatalf("%s: %s started after its promise of %s", now, q.first, q.promised)
	}
	was, promised := q.first, q.promised
	if q.first = ""; w == nil {
		return
	}
	switch {
	case w.Promise == nil:
		t.Fatalf("%s: the first task %s has no promise: %q", now, w.Task, w.Sentence)
	case w.Promise.At.Before(now):
		t.Fatalf("%s: %s should have started at %s", now, w.Task, w.Promise.At)
	}
	if w.Task == was && w.Promise.At.After(promised) {
		t.Fatalf("%s: the promise to %s became later: %s after %s", now, was, w.Promise.At, promised)
	}
	q.first, q.promised = w.Task, w.Promise.At
}
