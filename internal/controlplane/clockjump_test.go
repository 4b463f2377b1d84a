package controlplane_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// timedJob writes a job of one task with a time limit or a deadline; 0 for none.
func (w *world) timedJob(name string, limit, deadline time.Duration) {
	w.t.Helper()
	w.put(p.Job("c", name), &cluster.Job{
		Cluster: "c", Name: name, Priority: 500, Submitted: w.wall(), Deadline: cluster.Duration(deadline),
		Lifespan: cluster.Lifespan{Generation: 1, Created: w.wall(), Updated: w.wall()},
		Steps: []cluster.Step{{
			Name: "work", Definition: cluster.Ref{Name: "d", Version: 1}, Count: 1,
			TimeLimit: cluster.Duration(limit),
		}},
	})
}

// jobStates returns, by name, whether a job runs, was cancelled or has ended.
func jobStates(s *store.Snapshot) map[string]string {
	states := map[string]string{}
	for e := range s.Jobs("c") {
		states[e.Value.Name] = "waits"
		for row := range s.Attempts(e.Value.Owner()) {
			states[e.Value.Name] = "runs"
			if row.Outcome != nil {
				states[e.Value.Name] = string(row.Outcome.State)
			}
		}
		if e.Value.Cancelled {
			states[e.Value.Name] = "cancelled"
		}
	}
	return states
}

// A leader's wall clock that is ahead for some time, and is set right again, ends no task and cancels no job: neither
// those of before nor those of later. That holds if decisions follow the wrong clock, too.
func TestClockAheadEndsNothing(t *testing.T) {
	for _, ahead := range []time.Duration{30 * time.Second, 9 * time.Minute} {
		t.Run(fmt.Sprint("for ", ahead), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.node("n1", func(a *agent) { a.endless = true })
				w.definition(1, 100)
				w.timedJob("limit", time.Hour, 0)
				w.timedJob("deadline", 0, 2*time.Hour)
				w.until(time.Minute, "both run", func(s *store.Snapshot) bool { return holding(s) == 2 })
				time.Sleep(time.Minute) // in-bubble: inWorld makes one
				w.setAhead(3 * time.Hour)
				time.Sleep(ahead) // in-bubble: inWorld makes one
				w.setAhead(0)
				time.Sleep(30 * time.Second) // in-bubble: inWorld makes one
				w.timedJob("later-limit", time.Hour, 0)
				w.timedJob("later-deadline", 0, 2*time.Hour)
				time.Sleep(30 * time.Minute) // in-bubble: inWorld makes one
				want := map[string]string{
					"limit": "runs", "deadline": "runs", "later-limit": "runs", "later-deadline": "runs",
				}
				if diff := cmp.Diff(want, jobStates(w.server.tables.Snapshot())); diff != "" {
					t.Errorf("half an hour later (-want +got):\n%s", diff)
				}
				time.Sleep(95 * time.Minute) // in-bubble: inWorld makes one
				want = map[string]string{
					"limit": "failed", "deadline": "cancelled", "later-limit": "failed", "later-deadline": "cancelled",
				}
				if diff := cmp.Diff(want, jobStates(w.server.tables.Snapshot())); diff != "" {
					t.Errorf("after their times (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// A wall clock that is days ahead deletes no ended job if it is set right again within the hold. One that stays there
// cannot be told from a time without servers.
func TestClockAheadAndTheRetentionOfJobs(t *testing.T) {
	for ahead, kept := range map[time.Duration]bool{
		30 * time.Second: true, 9 * time.Minute: true, 12 * time.Minute: false,
	} {
		t.Run(fmt.Sprint("for ", ahead), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.node("n1")
				w.definition(1, 100)
				w.put(p.Cluster("c"), &cluster.Cluster{Name: "c"})
				w.job(2, 0)
				w.until(time.Minute, "it has succeeded", func(s *store.Snapshot) bool { return succeeded(s) == 2 })
				time.Sleep(20 * time.Minute) // in-bubble: inWorld makes one
				w.setAhead(8 * 24 * time.Hour)
				time.Sleep(ahead) // in-bubble: inWorld makes one
				w.setAhead(0)
				time.Sleep(time.Hour) // in-bubble: inWorld makes one
				if _, there := w.server.tables.Snapshot().Job("c", "batch"); there != kept {
					t.Errorf("the job is there: %v, want %v", there, kept)
				}
			})
		})
	}
}

// A wall clock that is ahead for less than the settle time neither fires nor skips a moment of a cron. After a lasting
// change no moment counts as missed because the leader waited for the clock to settle.
func TestClockAheadAndCrons(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.putCron(func(c *cluster.Cron) { c.Missed = cluster.CronSkip })
		w.until(15*time.Minute, "a job has run", func(s *store.Snapshot) bool { return len(w.cronJobs(s)) == 1 })
		w.setAhead(3 * 24 * time.Hour)
		time.Sleep(40 * time.Second) // in-bubble: inWorld makes one
		w.setAhead(0)
		w.until(10*time.Minute, "the next moment has its job", func(s *store.Snapshot) bool {
			return cmp.Diff([]string{"10m0s succeeded", "20m0s succeeded"}, w.cronJobs(s)) == ""
		})
		// The clock was behind: 30m is due 5 s after it is set.
		w.setAhead(time.Until(w.began.Truncate(time.Minute).Add(30*time.Minute - 5*time.Second)))
		w.until(time.Minute, "the moment in the settle time has its job", func(s *store.Snapshot) bool {
			return cmp.Diff([]string{"10m0s succeeded", "20m0s succeeded", "30m0s succeeded"}, w.cronJobs(s)) == ""
		})
	})
}

// A task that failed while the clock was ahead is tried again within its delay after the clock was set right, and not
// only when the clock has passed that time. A new leader continues with the right time, too.
func TestRetryAfterAClockThatWasAhead(t *testing.T) {
	for _, restart := range []bool{false, true} {
		inWorld(t, func(t *testing.T, w *world) {
			fails := true
			w.node("n1", func(a *agent) { a.fails = func(cluster.TaskID, int) bool { return fails } })
			w.definition(1, 100)
			w.setAhead(3 * time.Hour)
			w.server.stop()
			w.start()
			w.job(1, 9)
			w.until(time.Minute, "an attempt has failed", func(s *store.Snapshot) bool {
				for row := range s.AllAttempts() {
					if row.Outcome != nil {
						return true
					}
				}
				return false
			})
			fails = false
			w.setAhead(0)
			if restart {
				w.server.stop()
				w.start()
			}
			w.until(2*time.Minute, "it has succeeded", func(s *store.Snapshot) bool { return succeeded(s) == 1 })
			if since, _ := w.server.plane.Since(); since.After(time.Now()) {
				t.Errorf("deadlines count from %v, which is in the future", time.Until(since))
			}
		})
	}
}

// The clock of a node that is behind has none of its tasks stopped. A task whose agent does not keep the time limit is
// stopped by the leader, which counts for itself.
func TestTimeLimitWithTheClockOfANodeBehind(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1", func(a *agent) { a.endless, a.behind = true, 3*time.Hour })
		w.definition(1, 100)
		w.timedJob("limit", time.Hour, 0)
		w.until(time.Minute, "it runs", func(s *store.Snapshot) bool { return holding(s) == 1 })
		time.Sleep(59 * time.Minute) // in-bubble: inWorld makes one
		if states := jobStates(w.server.tables.Snapshot()); states["limit"] != "runs" {
			t.Errorf("the job within its time limit: %s", states["limit"])
		}
		w.until(5*time.Minute, "it was stopped", func(s *store.Snapshot) bool {
			return jobStates(s)["limit"] == "failed"
		})
	})
}

// A wall clock that is ahead for a while removes no unused version of a task definition by its age.
func TestClockAheadAndUnusedDefinitions(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.server.stop()
		w.keepDefinitions = 4 * time.Hour
		w.start()
		w.definition(1, 100)
		w.until(2*time.Hour, "the version has an age", func(s *store.Snapshot) bool {
			e, ok := s.Definition(cluster.Ref{Name: "d", Version: 1})
			return ok && !e.Value.Unused.IsZero()
		})
		for range 7 { // scans come within an hour, and ten minutes after a change of the clock
			w.setAhead(5 * time.Hour)
			time.Sleep(9 * time.Minute) // in-bubble: inWorld makes one
			w.setAhead(0)
			time.Sleep(time.Minute) // in-bubble: inWorld makes one
		}
		if _, there := w.server.tables.Snapshot().Definition(cluster.Ref{Name: "d", Version: 1}); !there {
			t.Error("the version is gone")
		}
		time.Sleep(5 * time.Hour) // in-bubble: inWorld makes one
		if _, there := w.server.tables.Snapshot().Definition(cluster.Ref{Name: "d", Version: 1}); there {
			t.Error("the version is there after its age")
		}
	})
}
