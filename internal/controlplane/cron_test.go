package controlplane_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// putCron writes the cron "tick" as the API server would, and the cluster and the definition that it needs.
func (w *world) putCron(change func(*cluster.Cron)) {
	w.t.Helper()
	c := &cluster.Cron{
		Cluster: "c", Name: "tick", Schedules: []string{"*/10 * * * *"}, Concurrency: cluster.CronForbid,
		Missed:   cluster.CronOnce,
		Within:   cluster.DefaultCronWithin,
		Lifespan: cluster.Lifespan{Generation: 1, Created: time.Now(), Updated: time.Now()},
		Job:      cluster.CronJob{Steps: []cluster.Step{{Name: "work", Definition: cluster.Ref{Name: "d"}}}},
	}
	if change != nil {
		change(c)
	}
	w.put(p.Cluster("c"), &cluster.Cluster{
		Name: "c", Permissions: []cluster.Permission{cluster.PermitHostNetwork},
	})
	w.put(p.NewestDefinition("d"), &store.Newest{Name: "d", Version: 1})
	w.definition(1, 100)
	w.put(p.Cron("c", "tick"), c)
}

// cronJobs returns, by name, the minute of each of the cron's jobs, counted from the start of the bubble, and its
// state.
func (w *world) cronJobs(s *store.Snapshot) (out []string) {
	for e := range s.CronJobs("c", "tick") {
		j := e.Value
		state := "runs"
		for row := range s.Attempts(j.Owner()) {
			if row.Outcome != nil {
				state = string(row.Outcome.State)
			}
		}
		switch {
		case j.Deleted:
			state = "deleted"
		case j.Cancelled:
			state = "cancelled"
		}
		out = append(out, fmt.Sprintf("%v %s", j.At.Sub(w.began.UTC().Truncate(time.Minute)), state))
	}
	return out
}

func TestCronMakesJobs(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.putCron(nil)
		w.until(time.Hour, "three jobs have run", func(s *store.Snapshot) bool {
			return cmp.Diff([]string{"10m0s succeeded", "20m0s succeeded", "30m0s succeeded"}, w.cronJobs(s)) == ""
		})
		w.definition(2, 100)
		w.put(p.NewestDefinition("d"), &store.Newest{Name: "d", Version: 2})
		w.until(time.Hour, "the oldest is gone once a fourth has run", func(s *store.Snapshot) bool {
			return cmp.Diff([]string{"20m0s succeeded", "30m0s succeeded", "40m0s succeeded"}, w.cronJobs(s)) == ""
		})
		s := w.server.tables.Snapshot()
		var versions []int
		for e := range s.CronJobs("c", "tick") {
			j := e.Value
			versions = append(versions, j.Steps[0].Definition.Version)
			if j.Generation != 1 || j.Created.IsZero() || j.Updated.IsZero() || j.Priority != cluster.DefaultPriority ||
				j.Steps[0].Count != 1 ||
				j.Created.Sub(j.At).Abs() > time.Second {
				t.Errorf("made job %+v", j)
			}
		}
		if diff := cmp.Diff([]int{1, 1, 2}, versions); diff != "" {
			t.Errorf("versions that the jobs run (-want +got):\n%s", diff)
		}
		if n := eventCounts(s)["cron.fired"]; n != 4 {
			t.Errorf("%d events cron.fired, want 4", n)
		}
		w.remove(p.Cron("c", "tick"))
		time.Sleep(time.Hour) // in-bubble: inWorld makes one
		s = w.server.tables.Snapshot()
		if _, ok := s.Fired("c", "tick"); ok || len(w.cronJobs(s)) != 3 {
			t.Errorf("after the cron was deleted: its status exists (%v), and jobs %v", ok, w.cronJobs(s))
		}
	})
}

// A deleted cron is removed with its status. Its jobs stay for as long as the cluster keeps jobs, whoever leads then.
func TestJobsOfADeletedCronExpire(t *testing.T) {
	for _, restart := range []bool{false, true} {
		inWorld(t, func(t *testing.T, w *world) {
			w.node("n1")
			w.putCron(nil)
			w.put(p.Cluster("c"), &cluster.Cluster{
				Name: "c", Permissions: []cluster.Permission{cluster.PermitHostNetwork},
				KeepJobs: cluster.Duration(time.Hour),
			})
			w.until(15*time.Minute, "a job has run", func(s *store.Snapshot) bool { return len(w.cronJobs(s)) == 1 })
			time.Sleep(2*time.Hour + 25*time.Minute) // in-bubble: inWorld makes one
			if jobs := w.cronJobs(w.server.tables.Snapshot()); len(jobs) != 3 {
				t.Fatalf("jobs of the cron: %v, want the last three", jobs)
			}
			e, _ := w.server.tables.Snapshot().Cron("c", "tick")
			gone := *e.Value
			gone.Deleted = true
			w.put(p.Cron("c", "tick"), &gone)
			w.until(time.Minute, "it is gone", func(s *store.Snapshot) bool {
				_, cron := s.Cron("c", "tick")
				_, fired := s.Fired("c", "tick")
				return !cron && !fired && len(w.cronJobs(s)) == 3
			})
			if restart {
				w.server.stop()
				w.start()
			}
			w.until(50*time.Minute, "the first job expires", func(s *store.Snapshot) bool {
				return len(w.cronJobs(s)) == 2
			})
			w.until(time.Hour, "no job is left", func(s *store.Snapshot) bool { return len(w.cronJobs(s)) == 0 })
			if n := eventCounts(w.server.tables.Snapshot())["job.expired"]; n != 3 {
				t.Errorf("%d events job.expired, want 3", n)
			}
		})
	}
}

// Moments without a leader are missed: the policy says what happens to them.
func TestMomentsWithoutALeader(t *testing.T) {
	for missed, want := range map[cluster.CronMissed][]string{
		cluster.CronSkip: {"10m0s succeeded", "1h0m0s succeeded"},
		cluster.CronOnce: {"10m0s succeeded", "50m0s succeeded", "1h0m0s succeeded"},
		cluster.CronAll: {
			"10m0s succeeded", "20m0s succeeded", "30m0s succeeded", "40m0s succeeded", "50m0s succeeded",
			"1h0m0s succeeded",
		},
	} {
		t.Run(string(missed), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.node("n1")
				keep := 10
				w.putCron(func(c *cluster.Cron) { c.Missed, c.KeepSucceeded = missed, &keep })
				w.until(15*time.Minute, "a job has run", func(s *store.Snapshot) bool {
					return len(w.cronJobs(s)) == 1
				})
				time.Sleep(time.Minute) // in-bubble: inWorld makes one
				w.server.stop()
				time.Sleep(44 * time.Minute) // in-bubble: inWorld makes one
				w.start()
				w.until(30*time.Minute, fmt.Sprint(want), func(s *store.Snapshot) bool {
					return cmp.Diff(want, w.cronJobs(s)) == ""
				})
			})
		})
	}
}

// If each missed moment gets a job at the same time, several transactions make them, within an engine's limits.
func TestManyMissedMoments(t *testing.T) {
	onConsul(t, func(t *testing.T, w *world) {
		keep := 100
		w.putCron(func(c *cluster.Cron) {
			c.Schedules, c.Missed, c.Concurrency, c.KeepSucceeded = []string{"* * * * *"}, cluster.CronAll,
				cluster.CronAllow, &keep
		})
		w.put(p.Fired("c", "tick"), &cluster.CronStatus{Last: time.Now(), Schedule: "* * * * *;"})
		time.Sleep(50*time.Minute + 30*time.Second) // in-bubble: onConsul makes one
		w.start()
		w.node("n1")
		w.until(time.Minute, "50 jobs have been made", func(s *store.Snapshot) bool { return len(w.cronJobs(s)) >= 50 })
		if n := eventCounts(w.server.tables.Snapshot())["cron.fired"]; n < 50 || n > 51 {
			t.Errorf("%d events cron.fired, want 50", n)
		}
	})
}

// A leader that is killed around any of its commits makes each job once: job and status are in one transaction.
func TestLeaderKilledBetweenCommitsOfACron(t *testing.T) {
	for _, after := range []bool{false, true} {
		for nth := 1; nth <= 24; nth++ {
			inWorld(t, func(t *testing.T, w *world) {
				w.restartKilledAt(nth, after)
				a := w.node("n1")
				w.putCron(func(c *cluster.Cron) { c.Schedules = []string{"* * * * *"} })
				want := []string{"1m0s succeeded", "2m0s succeeded", "3m0s succeeded"}
				w.until(10*time.Minute, "three jobs have run", func(s *store.Snapshot) bool {
					return cmp.Diff(want, w.cronJobs(s)) == ""
				})
				if nth <= 15 && w.meanwhile != nil {
					t.Fatalf("there were fewer than %d commits", nth)
				}
				if n := eventCounts(w.server.tables.Snapshot())["cron.fired"]; n != 3 || len(a.effects) != 3 {
					t.Errorf("killed at commit %d (after it: %v): %d events, %d programs; want 3", nth, after, n,
						len(a.effects))
				}
			})
		}
	}
}

// An obstacle to a cron's jobs, such as a missing definition or a taken name, is published, and there is no busy loop.
func TestCronThatCannotMakeItsJob(t *testing.T) {
	for name, hinder := range map[string]func(w *world){
		"no definition": func(w *world) {
			w.remove(p.NewestDefinition("d"))
			w.remove(p.Definition(cluster.Ref{Name: "d", Version: 1}))
		},
		"the cluster goes": func(w *world) { w.put(p.Cluster("c"), &cluster.Cluster{Name: "c", Deleted: true}) },
		"the name is a job's": func(w *world) {
			at := w.began.UTC().Add(10 * time.Minute)
			name := (&cluster.Cron{Name: "tick"}).JobName(at)
			w.put(p.Job("c", name), &cluster.Job{Cluster: "c", Name: name, Lifespan: cluster.Lifespan{Generation: 1}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.putCron(nil)
				w.until(time.Minute, "it is known", func(s *store.Snapshot) bool {
					_, ok := s.Fired("c", "tick")
					return ok
				})
				hinder(w)
				w.until(11*time.Minute, "the moment is skipped", func(s *store.Snapshot) bool {
					f, ok := s.Fired("c", "tick")
					return ok && f.Value.Message != "" && eventCounts(s)["cron.skipped"] == 1
				})
				before := w.server.tables.Snapshot().Revision()
				time.Sleep(time.Minute) // in-bubble: inWorld makes one
				if n := len(w.cronJobs(w.server.tables.Snapshot())); n != 0 {
					t.Errorf("%d jobs were made", n)
				}
				if n := w.server.tables.Snapshot().Revision() - before; n > 245 { // the beats of its leader are 240
					t.Errorf("%d commits in a minute in which nothing happens", n)
				}
			})
		})
	}
}

// A moment of a cron gets no job while the cluster lacks a permission that its tasks need. The reason is published.
// With the permission the next moment has a job again.
func TestCronWithoutItsPermission(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.putCron(nil)
		w.until(15*time.Minute, "the first moment has its job", func(s *store.Snapshot) bool {
			return cmp.Diff([]string{"10m0s succeeded"}, w.cronJobs(s)) == ""
		})
		w.put(p.Cluster("c"), &cluster.Cluster{Name: "c"})
		w.until(15*time.Minute, "the second moment is skipped", func(s *store.Snapshot) bool {
			return eventCounts(s)["cron.skipped"] == 1
		})
		s := w.server.tables.Snapshot()
		const want = "needs the permission host-network, and cluster c does not have it"
		if f, _ := s.Fired("c", "tick"); !strings.Contains(f.Value.Message, want) {
			t.Errorf("the cron's message: got %q, want %q in it", f.Value.Message, want)
		}
		for b := range s.EventBatches() {
			for _, e := range b.Value.Events {
				if e.Type == "cron.skipped" &&
					(e.Reason != cluster.ReasonPermission || !strings.Contains(e.Message, want)) {
					t.Errorf("the event: got %s %q, want %s with %q", e.Reason, e.Message,
						cluster.ReasonPermission, want)
				}
			}
		}
		w.put(p.Cluster("c"), &cluster.Cluster{
			Name: "c", Permissions: []cluster.Permission{cluster.PermitHostNetwork},
		})
		w.until(15*time.Minute, "the third moment has its job", func(s *store.Snapshot) bool {
			return cmp.Diff([]string{"10m0s succeeded", "30m0s succeeded"}, w.cronJobs(s)) == ""
		})
	})
}

// A moment that comes while the last job runs waits for its end, and the job that is replaced is cancelled.
func TestCronAndItsRunningJob(t *testing.T) {
	for policy, want := range map[cluster.CronConcurrency][]string{
		cluster.CronForbid:  {"10m0s runs"},
		cluster.CronAllow:   {"10m0s runs", "20m0s runs", "30m0s runs"},
		cluster.CronReplace: {"10m0s cancelled", "20m0s cancelled", "30m0s runs"},
	} {
		t.Run(string(policy), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.putCron(func(c *cluster.Cron) { c.Concurrency = policy })
				time.Sleep(35 * time.Minute) // in-bubble: inWorld makes one
				if diff := cmp.Diff(want, w.cronJobs(w.server.tables.Snapshot())); diff != "" {
					t.Errorf("jobs that cannot be placed (-want +got):\n%s", diff)
				}
				if policy == cluster.CronForbid {
					w.node("n1")
					w.until(time.Minute, "the moment that waited has its job", func(s *store.Snapshot) bool {
						return cmp.Diff([]string{"10m0s succeeded", "30m0s succeeded"}, w.cronJobs(s)) == ""
					})
				}
			})
		})
	}
}
