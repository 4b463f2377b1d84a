package starts

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/forecast"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
)

func noon() time.Time { return time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC) }

// yard is two nodes with four processors and two GPUs each, without a history.
type yard struct {
	Forecaster
	in      Input
	fleet   *scheduler.Fleet
	pending []cluster.Pending
	waits   map[cluster.TaskID]cluster.ReasonCode
	asked   int // how often the queue was read
}

func newYard() *yard {
	y := &yard{fleet: scheduler.NewFleet(), waits: map[cluster.TaskID]cluster.ReasonCode{}}
	for _, name := range []string{"n1", "n2"} {
		y.fleet.SetNode(scheduler.Node{
			Name: name, State: cluster.NodeReady, Capacity: cluster.Demand{CPU: 4000}, Executors: []string{"process"},
			Devices: []cluster.Device{{ID: "g0", Type: "gpu", Numa: -1}, {ID: "g1", Type: "gpu", Numa: -1}},
		})
	}
	tables := store.NewTables(store.TablesConfig{
		Engine: memory.New(memory.Options{}), Logger: slog.New(slog.DiscardHandler),
	})
	y.in = Input{
		Domain: cluster.DefaultDomain, Snapshot: tables.Snapshot(), Now: noon(),
		Fleet: func() *scheduler.Fleet { return y.fleet },
		Pending: func(yield func(*cluster.Pending) bool) {
			y.asked++
			for i := range y.pending {
				if !yield(&y.pending[i]) {
					return
				}
			}
		},
		Unfinished: func(cluster.OwnerRef) int { return 0 },
		Waits: func(task cluster.TaskID) (cluster.Waiting, bool) {
			code, known := y.waits[task]
			return cluster.Waiting{Refusals: []cluster.RefusalCount{{Refusal: cluster.Refusal{Code: code}}}}, known
		},
	}
	return y
}

// gpus requests devices.
func gpus(count int) []cluster.DeviceRequest {
	return []cluster.DeviceRequest{{Type: "gpu", Count: count}}
}

// run adds a task that has run for half of its limit.
func (y *yard) run(job, node string, cpu cluster.MilliCPU, count int, limit time.Duration) {
	r := scheduler.Reservation{
		UUID: job, Task: cluster.JobTask("c", job, 1, "s", 0), Node: node, Demand: cluster.Demand{CPU: cpu},
		Requests: gpus(count), Batch: true, Started: noon().Add(-limit / 2), Limit: limit,
	}
	for i := range count {
		r.Devices = append(r.Devices, cluster.DeviceUse{ID: []string{"g0", "g1"}[i], Share: cluster.WholeDevice})
	}
	y.fleet.Reserve(r)
}

// wait adds a waiting task of a job.
func (y *yard) wait(job string, index int, cpu cluster.MilliCPU, count int) *cluster.Pending {
	p := cluster.Pending{
		Task: cluster.JobTask("c", job, 1, "s", index), Attempt: 1, Priority: 500, Demand: cluster.Demand{CPU: cpu},
		Owner: cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "c", Name: job}, Queue: cluster.QueueEASY,
		TimeLimit: cluster.Duration(time.Hour), Since: noon(), Plain: true,
	}
	if count > 0 {
		p.Devices = gpus(count)
	}
	y.pending = append(y.pending, p)
	return &y.pending[len(y.pending)-1]
}

func (y *yard) start(job string, index int) (s Start, known bool) {
	s, known = y.Starts(&y.in)[cluster.JobTask("c", job, 1, "s", index)]
	return s, known
}

// between checks that the median start of a job is in a range of time from now.
func (y *yard) between(t *testing.T, job string, index int, low, high time.Duration) {
	t.Helper()
	s, known := y.start(job, index)
	if at := s.First.Median.Sub(noon()); !known || at < low || at > high {
		t.Errorf("%s.%d starts after %s (%t), want %s to %s", job, index, at, known, low, high)
	}
}

// TestDevices checks that a task waits for a device and not for a free processor.
func TestDevices(t *testing.T) {
	y := newYard()
	y.run("a", "n1", 1000, 2, 2*time.Hour)
	y.run("b", "n2", 1000, 1, 20*time.Hour)
	y.wait("two", 0, 1000, 2)
	y.wait("one", 0, 1000, 1)
	y.wait("none", 0, 1000, 0)
	y.between(t, "two", 0, time.Minute, time.Hour) // the devices of n1 become free
	y.between(t, "one", 0, 0, 0)                   // n2 has one
	y.between(t, "none", 0, 0, 0)
}

// TestGang checks that all members of a gang have the start of the gang, which needs both nodes.
func TestGang(t *testing.T) {
	y := newYard()
	y.run("a", "n1", 1000, 0, 2*time.Hour)
	for i := range 2 {
		p := y.wait("gang", i, 4000, 0)
		p.Gang, p.GangSize = "gang", 2
	}
	y.wait("short", 0, 4000, 0)
	y.wait("long", 0, 4000, 0).TimeLimit = cluster.Duration(2 * time.Hour)
	y.between(t, "gang", 0, time.Minute, time.Hour)
	y.between(t, "gang", 1, time.Minute, time.Hour)
	y.between(t, "short", 0, 0, 0) // it ends before the running task must
	y.between(t, "long", 0, time.Minute, 3*time.Hour)
}

// TestOnlyTasksThatWaitForRoom checks which tasks have no forecast.
func TestOnlyTasksThatWaitForRoom(t *testing.T) {
	y := newYard()
	y.wait("volume", 0, 1000, 0)
	y.wait("large", 0, 5000, 0)
	y.wait("service", 0, 1000, 0).Owner.Kind = cluster.KindService
	y.wait("excess", 0, 1000, 0).Owner.Cluster = "small"
	y.wait("fair", 0, 1000, 0).Queue = cluster.QueueFair
	y.wait("sjbf", 0, 1000, 0).Queue = cluster.QueueSJBF
	y.wait("short", 0, 1000, 0)
	y.fleet.Limits.SetQuota("small", &cluster.Quota{CPU: 500})
	y.waits[y.pending[0].Task] = cluster.ReasonVolume
	y.waits[y.pending[3].Task] = cluster.ReasonQuota
	y.waits[y.pending[6].Task] = cluster.ReasonShortCPU
	for i, job := range []string{"volume", "large", "service", "excess", "fair", "sjbf", "short"} {
		if _, known := y.start(job, 0); known != (i >= 4) {
			t.Errorf("%s: a forecast is there: %t", job, known)
		}
	}
}

// TestQuota checks that a task beyond the quota of its cluster is expected when a task of the cluster ends, and one
// that may borrow when another cluster leaves enough of its quota.
func TestQuota(t *testing.T) {
	y := newYard()
	y.run("a", "n1", 1000, 0, 2*time.Hour)
	y.wait("next", 0, 1000, 0)
	y.fleet.Limits.SetQuota("c", &cluster.Quota{CPU: 1000})
	y.waits[y.pending[0].Task] = cluster.ReasonQuota
	y.between(t, "next", 0, time.Minute, time.Hour)

	y.Forecaster = Forecaster{}
	y.fleet.Limits.SetQuota("c", &cluster.Quota{CPU: 1000, Borrow: &cluster.QuotaBorrow{CPU: 1000}})
	y.fleet.Limits.SetQuota("lender", &cluster.Quota{CPU: 1000})
	y.between(t, "next", 0, 0, 0)
}

// TestConcurrency checks that a task of a full concurrency group is expected when a task of the group ends.
func TestConcurrency(t *testing.T) {
	y := newYard()
	y.run("a", "n1", 1000, 0, 2*time.Hour)
	y.fleet.Release("a")
	r := scheduler.Reservation{
		UUID: "a", Task: cluster.JobTask("c", "a", 1, "s", 0), Node: "n1", Demand: cluster.Demand{CPU: 1000},
		Batch: true, Started: noon().Add(-time.Hour), Limit: 2 * time.Hour, Group: "g",
	}
	y.fleet.Reserve(r)
	y.wait("next", 0, 1000, 0).Concurrency = &cluster.Concurrency{Group: "g", Limit: 1}
	y.waits[y.pending[0].Task] = cluster.ReasonConcurrency
	y.between(t, "next", 0, time.Minute, time.Hour)
}

// TestPlacesOfJobs checks that jobs of a full concurrency group of jobs are expected one after the other, and not at
// all behind a job of which more is to come than what runs and waits.
func TestPlacesOfJobs(t *testing.T) {
	for unfinished, known := range map[int]bool{1: true, 2: false} {
		y := newYard()
		y.in.Unfinished = func(o cluster.OwnerRef) int {
			if o.Name == "a" {
				return unfinished
			}
			return 1
		}
		y.fleet.Reserve(scheduler.Reservation{
			UUID: "a", Task: cluster.JobTask("c", "a", 1, "s", 0), Node: "n1", Demand: cluster.Demand{CPU: 1000},
			Batch: true, Started: noon().Add(-time.Hour), Limit: 2 * time.Hour, JobGroup: "g",
		})
		y.fleet.Reserve(scheduler.Reservation{ // a lost attempt of the same task
			UUID: "a0", Task: cluster.JobTask("c", "a", 1, "s", 0), Node: "n2", Demand: cluster.Demand{CPU: 1000},
			Batch: true, Started: noon().Add(-time.Hour), Limit: 2 * time.Hour, JobGroup: "g",
		})
		y.fleet.Limits.SetBegun("c", "a", 1, "g")
		for i, job := range []string{"next", "last"} {
			p := y.wait(job, 0, 1000, 0)
			p.JobConcurrency = &cluster.Concurrency{Group: "g", Limit: 1}
			p.Since = noon().Add([]time.Duration{-20 * time.Minute, -10 * time.Minute}[i])
			y.waits[y.pending[i].Task] = cluster.ReasonConcurrency
		}
		next, _ := y.start("next", 0)
		last, _ := y.start("last", 0)
		if got := !next.First.Median.IsZero(); got != known {
			t.Errorf("%d tasks are left of the job that runs: the next one is expected at %v", unfinished, next.First)
		}
		if known && !last.First.Median.After(next.First.Median) {
			t.Errorf("the last job is expected at %v, the one before it at %v", last.First, next.First)
		}
	}
}

// TestGangsOfAFullGroup checks that each gang that waits for a place in a group is forecast whole or not at all.
func TestGangsOfAFullGroup(t *testing.T) {
	y := newYard()
	y.fleet.Limits.SetBegun("c", "a", 1, "g")
	for job := range maxOfGroup + 2 {
		for i := range 2 {
			p := y.wait(fmt.Sprint("gang", job), i, 4000, 0)
			p.Gang, p.GangSize = fmt.Sprint("gang", job), 2
			p.JobConcurrency = &cluster.Concurrency{Group: "g", Limit: 1}
			p.Since = noon().Add(time.Duration(job) * time.Second)
		}
	}
	b := &builder{Input: &y.in, dims: map[string]int{}, fleet: y.fleet}
	b.choose(y.in.Pending)
	if len(b.members) != maxOfGroup {
		t.Errorf("%d gangs are chosen, want %d", len(b.members), maxOfGroup)
	}
	for i, members := range b.members {
		if len(members) != 2 {
			t.Errorf("gang %d has %d members, want 2", i, len(members))
		}
	}
}

// TestFairQueue checks that the user whose jobs hold less is expected first, though the other one waits for longer.
func TestFairQueue(t *testing.T) {
	y := newYard()
	for i, user := range []string{"ann", "bob"} {
		r := scheduler.Reservation{
			UUID: user, Task: cluster.JobTask("c", user, 1, "s", 0), Node: []string{"n1", "n2"}[i],
			Demand: cluster.Demand{CPU: 4000}, User: "ann", Batch: true, Started: noon().Add(-time.Hour),
			Limit: []time.Duration{2 * time.Hour, 20 * time.Hour}[i],
		}
		y.fleet.Reserve(r)
	}
	for i, user := range []string{"ann", "bob"} { // in the order of turns, bob's task comes first
		p := y.wait(user+"s", 0, 4000, 0)
		p.User, p.Queue, p.Weight = user, cluster.QueueFair, 1
		p.Since = noon().Add([]time.Duration{-20 * time.Minute, -10 * time.Minute}[i])
	}
	y.pending[0], y.pending[1] = y.pending[1], y.pending[0]
	y.between(t, "bobs", 0, time.Minute, time.Hour)
	bob, _ := y.start("bobs", 0)
	if ann, known := y.start("anns", 0); !known || !ann.First.From.After(bob.First.From) {
		t.Errorf("ann's task starts at %v (%t), bob's at %v", ann.First, known, bob.First)
	}
}

// TestOrderOfSJBF checks that a task with a short limit is expected before one with a long limit that came first.
func TestOrderOfSJBF(t *testing.T) {
	y := newYard()
	y.run("a", "n1", 4000, 0, 2*time.Hour)
	y.run("b", "n2", 4000, 0, 20*time.Hour)
	for i, job := range []string{"long", "short"} {
		p := y.wait(job, 0, 4000, 0)
		p.Queue, p.TimeLimit = cluster.QueueSJBF, cluster.Duration([]time.Duration{2 * time.Hour, 2 * time.Minute}[i])
		p.Since = noon().Add([]time.Duration{-20 * time.Minute, -10 * time.Minute}[i])
	}
	l, _ := y.start("long", 0)
	s, known := y.start("short", 0)
	if !known || !s.First.To.Before(l.First.To) || s.First.Median.After(l.First.Median) {
		t.Errorf("short is expected at %v, long at %v", s.First, l.First)
	}
}

// TestStartsAreKept checks that a forecast is computed again after some seconds.
func TestStartsAreKept(t *testing.T) {
	y := newYard()
	y.wait("a", 0, 1000, 0)
	for _, c := range []struct {
		after time.Duration
		want  int
	}{{0, 1}, {time.Second, 1}, {2 * time.Second, 2}, {time.Second, 3}} { // the clock went back at last
		y.in.Now = noon().Add(c.after)
		if _, known := y.start("a", 0); !known || y.asked != c.want {
			t.Errorf("after %s: a forecast is there: %t, computed %d times, want %d", c.after, known, y.asked, c.want)
		}
	}
}

// TestRepeatedArrivals checks that the newest jobs are repeated, as many as have maxArrivals steps together, and none
// that would be most of the record alone.
func TestRepeatedArrivals(t *testing.T) {
	var jobs []*cluster.Job
	add := func(name string, steps int) {
		at := noon().Add(time.Duration(len(jobs)) * time.Second)
		jobs = append(jobs, &cluster.Job{
			Cluster: "c", Name: name, Lifespan: cluster.Lifespan{Created: at, Updated: at},
			Steps: make([]cluster.Step, steps),
		})
	}
	for i := range maxArrivals {
		add(fmt.Sprint("small", i), 2)
	}
	add("large", maxJobArrivals)
	add("flow", maxJobArrivals+1)
	add("newest", 2)
	slices.Reverse(jobs)
	got := repeated(jobs)
	steps := 0
	for _, j := range got {
		steps += len(j.Steps)
	}
	last := got[len(got)-2:]
	if steps != maxArrivals || last[0].Name != "large" || last[1].Name != "newest" {
		t.Errorf("jobs of %d steps, at last %s and %s; want %d, large and newest", steps, last[0].Name, last[1].Name,
			maxArrivals)
	}
}

func TestKindOf(t *testing.T) {
	for _, c := range []struct{ job, want string }{
		{"tests", "tests"},
		{"tests-41", "tests"},
		{"nightly-20261128-0300", "nightly"},
		{"2026", "2026"},
		{"t5x", "t5x"},
	} {
		if got := kindOf("c", c.job, "s"); got != (forecast.Kind{Cluster: "c", Job: c.want, Step: "s"}) {
			t.Errorf("%s is of %+v, want %s", c.job, got, c.want)
		}
	}
}
