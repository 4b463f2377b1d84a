package controlplane_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// reportsCPU makes an agent report that each of its tasks uses that much CPU; below 0 it reports nothing of them.
func reportsCPU(cpu *atomic.Int64) func(*agent) {
	return func(a *agent) {
		a.stats = func() *cluster.NodeStats {
			stats := &cluster.NodeStats{At: time.Now()}
			used := cluster.MilliCPU(cpu.Load())
			for id, o := range a.tasks { // order-free: sorted next
				if o.State == cluster.StateRunning && used >= 0 {
					stats.Each = append(stats.Each, cluster.TaskStats{Task: o.Task, UUID: id, CPU: used, Requests: -1})
				}
			}
			slices.SortFunc(stats.Each, func(a, b cluster.TaskStats) int { return strings.Compare(a.UUID, b.UUID) })
			return stats
		}
	}
}

func (w *world) putScaled(s cluster.Scaling, count int) { w.putScaledRecounted(s, count, 0) }

// putScaledRecounted is putScaled after the user has set the count that many times.
func (w *world) putScaledRecounted(s cluster.Scaling, count int, times uint64) {
	w.put(p.Service("c", "web"), &cluster.Service{
		Cluster: "c", Name: "web", Count: count, Definition: cluster.Ref{Name: "d", Version: 1}, Priority: 500,
		OnDisconnect: cluster.DisconnectKeep, Scaling: &s,
		Lifespan: cluster.Lifespan{Generation: 1, Recounted: times, Created: time.Now(), Updated: time.Now()},
	})
}

func scaleOf(s *store.Snapshot) cluster.Scale {
	if e, ok := s.Scale("c", "web"); ok {
		return *e.Value
	}
	return cluster.Scale{}
}

// A service grows with the use of its tasks, shrinks once a window has passed, and keeps its count while nothing is
// known. Its spec stays as the user wrote it.
func TestServiceIsScaledByCPU(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var cpu atomic.Int64
		cpu.Store(90)
		w.node("n1", reportsCPU(&cpu))
		w.definition(1, 100)
		w.putScaled(cluster.Scaling{
			Min: 1, Max: 6,
			Targets: []cluster.ScaleTarget{{Metric: cluster.ScaleCPU, Target: 50}},
		}, 2)
		w.until(time.Minute, "4 tasks run", func(s *store.Snapshot) bool {
			return scaleOf(s).Count >= 4 && healthy(s, 1) >= 4
		})
		w.until(time.Minute, "no more than allowed", func(s *store.Snapshot) bool {
			return scaleOf(s).Count == 6 && healthy(s, 1) == 6
		})
		cpu.Store(-1)
		time.Sleep(10 * time.Minute) // in-bubble: inWorld makes one
		if s := w.server.tables.Snapshot(); scaleOf(s).Count != 6 || healthy(s, 1) != 6 {
			t.Errorf("without measurements: %d tasks, want 6", healthy(s, 1))
		}
		cpu.Store(10)
		began := time.Now()
		w.until(15*time.Minute, "fewer are left", func(s *store.Snapshot) bool { return healthy(s, 1) <= 2 })
		if took := time.Since(began); took < 4*time.Minute {
			t.Errorf("it shrank after %v, before the window of five minutes", took)
		}
		s := w.server.tables.Snapshot()
		if svc, _ := s.Service("c", "web"); svc.Value.Count != 2 {
			t.Errorf("the spec's count: got %d, want the written 2", svc.Value.Count)
		}
		if eventCounts(s)["service.scaled"] < 2 {
			t.Errorf("events: %v, want each change", eventCounts(s))
		}
	})
}

// Scaling adds no tasks to a service while the cluster lacks a permission that its tasks need. It still removes some.
func TestServiceIsNotGrownWithoutItsPermission(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var cpu atomic.Int64
		cpu.Store(90)
		w.node("n1", reportsCPU(&cpu))
		w.put(p.Cluster("c"), &cluster.Cluster{Name: "c"})
		w.definition(1, 100)
		w.putScaled(cluster.Scaling{
			Min: 1, Max: 6,
			Targets: []cluster.ScaleTarget{{Metric: cluster.ScaleCPU, Target: 50}},
		}, 2)
		time.Sleep(10 * time.Minute) // in-bubble: inWorld makes one
		s := w.server.tables.Snapshot()
		if n := healthy(s, 1); n != 2 {
			t.Errorf("without the permission: %d tasks, want 2", n)
		}
		if got, want := scaleOf(s).Message, "needs the permission host-network"; !strings.Contains(got, want) {
			t.Errorf("the message of the count: got %q, want %q in it", got, want)
		}
		w.put(p.Cluster("c"), &cluster.Cluster{
			Name: "c", Permissions: []cluster.Permission{cluster.PermitHostNetwork},
		})
		w.until(2*time.Minute, "6 tasks run with the permission", func(s *store.Snapshot) bool {
			return healthy(s, 1) == 6
		})
		w.put(p.Cluster("c"), &cluster.Cluster{Name: "c"})
		cpu.Store(10)
		w.until(15*time.Minute, "fewer are left", func(s *store.Snapshot) bool { return healthy(s, 1) <= 2 })
	})
}

// A new leader remembers no earlier measurements: it shrinks nothing before a whole window has passed.
func TestNewLeaderShrinksOnlyAfterItsWindow(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var cpu atomic.Int64
		cpu.Store(45)
		w.node("n1", reportsCPU(&cpu))
		w.definition(1, 100)
		w.putScaled(cluster.Scaling{
			Min: 1, Max: 6,
			Targets: []cluster.ScaleTarget{{Metric: cluster.ScaleCPU, Target: 50}},
		}, 4)
		w.until(time.Minute, "4 tasks run", func(s *store.Snapshot) bool { return healthy(s, 1) == 4 })
		time.Sleep(time.Minute) // in-bubble: inWorld makes one
		cpu.Store(5)
		time.Sleep(4 * time.Minute) // in-bubble: inWorld makes one
		w.server.stop()
		w.start()
		<-w.server.tables.Synced()
		time.Sleep(4 * time.Minute) // in-bubble: inWorld makes one
		if n := healthy(w.server.tables.Snapshot(), 1); n != 4 {
			t.Errorf("four minutes after the leader changed there are %d tasks, want 4", n)
		}
		w.until(5*time.Minute, "it shrank", func(s *store.Snapshot) bool { return healthy(s, 1) < 4 })
	})
}

// A Prometheus query runs beside the loop. Its answer counts for the service as a whole, or for each task.
func TestServiceIsScaledByAQuery(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		o := &fakeMeasurer{takes: 4 * time.Second, value: 500}
		w.server.stop()
		w.measurer = o
		w.start()
		w.node("n1")
		w.definition(1, 100)
		w.putScaled(cluster.Scaling{Min: 1, Max: 10, Targets: []cluster.ScaleTarget{{
			Metric: cluster.ScalePrometheus, Target: 100, URL: "http://prometheus", Query: "sum(queue)",
		}}}, 1)
		w.until(2*time.Minute, "5 tasks run", func(s *store.Snapshot) bool { return healthy(s, 1) == 5 })
		o.set(func() { o.silent, o.value = true, 0 })
		time.Sleep(20 * time.Minute) // in-bubble: inWorld makes one
		if n := healthy(w.server.tables.Snapshot(), 1); n != 5 {
			t.Errorf("while no task answers there are %d tasks, want 5", n)
		}
	})
}

// A schedule sets the count at its moment. If the user changes the count, that count stays until the next moment.
func TestServiceIsScaledByTheClock(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.definition(1, 100)
		four := 4
		s := cluster.Scaling{Min: 1, Max: 10, Schedules: []cluster.ScaleSchedule{{Cron: "30 * * * *", Count: &four}}}
		w.putScaled(s, 2) // the bubble's clock begins at a full hour
		w.until(time.Minute, "2 tasks run", func(s *store.Snapshot) bool { return healthy(s, 1) == 2 })
		time.Sleep(25 * time.Minute) // in-bubble: inWorld makes one
		if n := healthy(w.server.tables.Snapshot(), 1); n != 2 {
			t.Errorf("before the moment: %d tasks, want 2", n)
		}
		w.until(6*time.Minute, "4 tasks run", func(s *store.Snapshot) bool { return healthy(s, 1) == 4 })
		w.putScaled(s, 3)
		w.until(time.Minute, "3 tasks run, as the user said", func(s *store.Snapshot) bool {
			return healthy(s, 1) == 3 && countRecords(s) == 3
		})
		w.until(time.Hour, "4 tasks run again", func(s *store.Snapshot) bool { return healthy(s, 1) == 4 })
	})
}

// A user sets the count to the number that the spec has already, or to an earlier one: scaling starts again from it.
func TestScalingRestartsFromTheSameCount(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var cpu atomic.Int64
		cpu.Store(90)
		w.node("n1", reportsCPU(&cpu))
		w.definition(1, 100)
		s := cluster.Scaling{Min: 1, Max: 6, Targets: []cluster.ScaleTarget{{Metric: cluster.ScaleCPU, Target: 50}}}
		w.putScaled(s, 3)
		w.until(2*time.Minute, "6 tasks run", func(s *store.Snapshot) bool {
			return scaleOf(s).Count == 6 && healthy(s, 1) == 6
		})
		cpu.Store(50)                // the target: the count does not change any more
		time.Sleep(30 * time.Second) // in-bubble: inWorld makes one
		w.putScaledRecounted(s, 3, 1)
		w.until(5*time.Minute, "3 tasks run, as the user said", func(s *store.Snapshot) bool {
			return healthy(s, 1) == 3 && scaleOf(s).Count == 3 && scaleOf(s).Recounted == 1
		})
		w.putScaledRecounted(s, 4, 2)
		w.until(5*time.Minute, "4 tasks run", func(s *store.Snapshot) bool { return healthy(s, 1) == 4 })
		w.putScaledRecounted(s, 3, 3)
		w.until(5*time.Minute, "3 tasks run again", func(s *store.Snapshot) bool {
			return healthy(s, 1) == 3 && scaleOf(s).Recounted == 3
		})
		time.Sleep(2 * time.Minute) // in-bubble: inWorld makes one
		if n := healthy(w.server.tables.Snapshot(), 1); n != 3 {
			t.Errorf("later there are %d tasks, want 3", n)
		}
	})
}

// The request counter source is in the records of all tasks, also of those placed before it was set.
func TestTasksGetTheirRequestCounter(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.definition(1, 100)
		w.putScaled(cluster.Scaling{Min: 1, Max: 3}, 2)
		w.until(time.Minute, "2 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 2 && isSettled(s) })
		meters := func(want string, n int) func(s *store.Snapshot) bool {
			return func(s *store.Snapshot) bool {
				for row := range s.AllAttempts() {
					got := "none"
					if row.Desired != nil && row.Desired.RequestCounter != nil {
						got = row.Desired.RequestCounter.Series
					}
					if got != want || !row.Observed.Healthy() {
						return false
					}
				}
				return healthy(s, 1) == n
			}
		}
		requests := []cluster.ScaleTarget{{Metric: cluster.ScaleRequests, Target: 10, Series: "hits"}}
		w.putScaled(cluster.Scaling{Min: 3, Max: 3, Targets: requests}, 3)
		w.until(time.Minute, "all three are measured", meters("hits", 3))
		w.service(3, 1, 1)
		w.until(time.Minute, "and the end of the metering", meters("none", 3))
	})
}
