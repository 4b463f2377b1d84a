package usage

import (
	"fmt"
	"testing"
	"time"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/agent/node"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

func TestGrowthIsTheSlopeOfTenMinutes(t *testing.T) {
	const start = time.Hour
	for name, test := range map[string]struct {
		memory  func(minutes float64) float64 // in MiB
		minutes int
		want    float64
	}{
		"steady":              {func(float64) float64 { return 100 }, 20, 0},
		"a leak":              {func(m float64) float64 { return 100 + 5*m }, 20, 5},
		"too short":           {func(m float64) float64 { return 100 + 5*m }, 0, 0},
		"it shrinks":          {func(m float64) float64 { return 500 - 3*m }, 20, -3},
		"a leak that stopped": {func(m float64) float64 { return 100 + 50*min(m, 5) }, 20, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var tr trend
			var got cluster.Bytes
			for at := time.Duration(0); at <= time.Duration(
				test.minutes)*time.Minute+30*time.Second; at += measureInterval {
				got = tr.add(start+at, cluster.Bytes(test.memory(at.Minutes())*float64(cluster.MiB)))
			}
			if off := float64(got)/float64(cluster.MiB) - test.want; off > 0.05 || off < -0.05 {
				t.Errorf("grows by %v a minute, want %v MiB", got, test.want)
			}
		})
	}
}

// The use of a program before its restart does not count for the next program.
func TestRestartResetsTheMeasurement(t *testing.T) {
	var m TaskMeter
	m.begin()
	r := attempt.New(cluster.Desired{UUID: "u"}, 1, "b")
	r.Containers = []attempt.Container{{ID: "u-0-1"}}
	now := time.Hour
	take := func(id executor.ID, u executor.Usage) cluster.TaskStats {
		now += measureInterval
		r.Containers[0].ID = id
		s, _ := m.update(r, map[executor.ID]executor.Usage{id: u}, now)
		return s
	}
	for i := range 100 {
		take("u-0-1", executor.Usage{CPU: time.Duration(i) * time.Second, Memory: cluster.Bytes(i) * cluster.MiB})
	}
	if s := take("u-0-1", executor.Usage{CPU: 101 * time.Second, Memory: 100 * cluster.MiB}); s.CPU != 1000 ||
		s.Growth < 29*cluster.MiB {
		t.Errorf("before: %+v", s)
	}
	if s := take("u-0-2", executor.Usage{CPU: 500 * time.Second, Memory: cluster.MiB}); s.CPU != 0 || s.Growth != 0 {
		t.Errorf("after a restart: %+v", s)
	}
	if s := take("u-0-2", executor.Usage{CPU: 499 * time.Second, Memory: cluster.MiB}); s.CPU != 0 {
		t.Errorf("a count that fell: %+v", s)
	}
}

// A report has statistics of 200 attempts; the next reports have the others.
func TestChangesAreBoundedAndFair(t *testing.T) {
	m := Statistics{Facts: func() cluster.Facts { return cluster.Facts{} }}
	times := map[string]int{}
	for round := range 10 {
		s := &cluster.NodeStats{At: time.Unix(int64(round), 0)}
		for i := range 500 {
			s.Each = append(s.Each, cluster.TaskStats{
				UUID:   fmt.Sprintf("u%03d", i),
				Memory: cluster.Bytes(1+round) * cluster.GiB,
			})
		}
		m.newest = s
		n := m.Unreported()
		if len(n.Each) != maxTaskStats {
			t.Fatalf("%d in a report, want %d", len(n.Each), maxTaskStats)
		}
		for _, e := range n.Each {
			times[e.UUID]++
		}
		m.NoteReported(n, false)
	}
	for uuid, n := range times {
		if n < 3 || n > 5 {
			t.Errorf("%s was reported %d times of 10, want 4", uuid, n)
		}
	}
	if len(times) != 500 {
		t.Errorf("reported %d, want all 500", len(times))
	}
}

// The cost of one measurement of 200 tasks, without the executor's.
func BenchmarkMeasureTasks(b *testing.B) {
	now := time.Hour
	n := &node.Node{Boot: func() time.Duration { now += measureInterval; return now }}
	var all []attempt.Status
	usage := map[executor.ID]executor.Usage{}
	for i := range 200 {
		uuid := fmt.Sprintf("u%03d", i)
		rec := attempt.New(cluster.Desired{Task: cluster.TaskID(uuid), UUID: uuid}, 1, "b")
		rec.Executor = "box"
		rec.Containers = []attempt.Container{{ID: executor.ID(uuid), Progress: attempt.Running}}
		all = append(all, attempt.Status{
			ID: attempt.ID{UUID: uuid}, View: &attempt.View{Record: *rec, Definition: defined("app")},
		})
		usage[executor.ID(uuid)] = executor.Usage{Memory: cluster.MiB}
	}
	m := measuring(n, fixed{usage: usage}, func() []attempt.Status { return all })
	b.ReportAllocs()
	for b.Loop() {
		if got := m.measure(); len(got) != 200 {
			b.Fatal(len(got))
		}
	}
}

// measuring returns a meter of attempts on one executor.
func measuring(n *node.Node, box executor.Executor, attempts func() []attempt.Status) *TaskMeter {
	m := &TaskMeter{
		Node: n, Executors: only{box}, Attempts: attempts, Requests: &RequestRates{}, Storage: noVolumes{},
	}
	m.begin()
	return m
}

// only finds one executor, whatever its name.
type only struct{ executor.Executor }

func (o only) ByName(string) (executor.Executor, error) { return o.Executor, nil }

// noVolumes says that no attempt has volumes.
type noVolumes struct{}

func (noVolumes) Use(*attempt.View, *cluster.StorageUse) *cluster.StorageUse { return nil }

type fixed struct {
	executor.Executor
	usage map[executor.ID]executor.Usage
}

func (f fixed) Usage(map[executor.ID]executor.Process) map[executor.ID]executor.Usage { return f.usage }

// defined returns a definition with the named containers.
func defined(containers ...string) *cluster.TaskDefinition {
	d := &cluster.TaskDefinition{Name: "web", Version: 1}
	for _, c := range containers {
		d.Containers = append(d.Containers, cluster.Container{Name: c, Command: []string{"run"}})
	}
	return d
}
