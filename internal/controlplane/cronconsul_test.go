package controlplane_test

import (
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// withLongLabel makes the jobs of a cron large.
func withLongLabel(bytes int) func(*cluster.Cron) {
	return func(c *cluster.Cron) { c.Job.Labels = map[string]string{"long": strings.Repeat("x", bytes)} }
}

// A cron with more jobs than one write of Consul can cancel, by number or by size, changes to replace. It cancels all
// of them and continues, and a new job is made only once all earlier ones are cancelled.
func TestCronReplacesManyJobsOnConsul(t *testing.T) {
	for name, test := range map[string]struct {
		moments int
		change  func(*cluster.Cron)
	}{
		"many":  {70, func(*cluster.Cron) {}},
		"large": {7, withLongLabel(90_000)},
	} {
		t.Run(name, func(t *testing.T) {
			onConsul(t, func(t *testing.T, w *world) {
				w.start()
				var spec cluster.Cron
				w.putCron(func(c *cluster.Cron) {
					c.Concurrency, c.Schedules = cluster.CronAllow, []string{"* * * * *"}
					test.change(c)
					spec = *c
				})
				w.until(2*time.Hour, "many jobs wait", func(s *store.Snapshot) bool {
					return len(w.cronJobs(s)) == test.moments
				})
				spec.Concurrency, spec.Updated = cluster.CronReplace, time.Now()
				w.put(p.Cron("c", "tick"), &spec)
				for n := range 3 {
					w.until(65*time.Second, "the next moment has the only job that runs", func(s *store.Snapshot) bool {
						running := 0
						for e := range s.CronJobs("c", "tick") {
							if !e.Value.Cancelled {
								running++
							}
						}
						fired := eventCounts(s)["cron.fired"]
						if fired > test.moments && running != 1 {
							t.Fatalf("%d jobs run after %d moments", running, fired)
						}
						return fired == test.moments+n+1
					})
				}
			})
		})
	}
}

// Missed moments that each get a job are made up for, even if the jobs are so large that one write has room for few.
func TestMissedMomentsOfLargeJobsOnConsul(t *testing.T) {
	onConsul(t, func(t *testing.T, w *world) {
		w.putCron(func(c *cluster.Cron) {
			c.Schedules, c.Missed, c.Concurrency = []string{"* * * * *"}, cluster.CronAll, cluster.CronAllow
			withLongLabel(90_000)(c)
		})
		w.put(p.Fired("c", "tick"), &cluster.CronStatus{Last: time.Now(), Schedule: "* * * * *;"})
		time.Sleep(10*time.Minute + 30*time.Second) // in-bubble: onConsul makes one
		w.start()
		w.until(25*time.Second, "10 jobs have been made", func(s *store.Snapshot) bool {
			return eventCounts(s)["cron.fired"] == 10
		})
	})
}
