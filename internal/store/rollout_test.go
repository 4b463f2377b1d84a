package store_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// Rollouts, scales and the progress of crons have tables of their own, and their changes count as changes of the owner.
func TestTablesOfRolloutsScalesAndCrons(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		web := cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: "web"}
		w.put(p.Service("c", "web"),
			&cluster.Service{Cluster: "c", Name: "web", Count: 2, Scaling: &cluster.Scaling{Min: 1, Max: 9}})
		f := w.tables.Follow()
		defer f.Close()
		f.Take()
		w.put(p.Rollout("c", "web"),
			&cluster.Rollout{Most: 2, Version: cluster.Version{Generation: 4, State: cluster.RolloutRolling}})
		if c := f.Take(); !c.Owners[web] {
			t.Errorf("a rollout changes %v, want %v", c.Owners, web)
		}
		s := w.put(p.Scale("c", "web"), &cluster.Scale{Count: 7, From: 2})
		if c := f.Take(); !c.Owners[web] {
			t.Errorf("a scale changes %v, want %v", c.Owners, web)
		}
		if e, ok := s.Wanted("c", "web"); !ok || e.Value.Count != 7 {
			t.Errorf("the count that is wanted: got %+v, want 7", e.Value)
		}
		if e, ok := s.Service("c", "web"); !ok || e.Value.Count != 2 {
			t.Errorf("the written count: got %+v, want 2", e.Value)
		}
		var keys []string
		for e := range s.Rollouts() {
			keys = append(keys, e.Key)
		}
		for e := range s.Scales() {
			keys = append(keys, e.Key)
		}
		if diff := cmp.Diff([]string{"berth/rollout/c/web", "berth/scale/c/web"}, keys); diff != "" {
			t.Errorf("keys (-want +got):\n%s", diff)
		}
		s = w.put(p.Service("c", "web"),
			&cluster.Service{Cluster: "c", Name: "web", Count: 3, Scaling: &cluster.Scaling{Min: 1, Max: 9}})
		if e, _ := s.Wanted("c", "web"); e.Value.Count != 3 {
			t.Errorf("a count that the user changed: got %d, want 3", e.Value.Count)
		}

		f.Take()
		w.put(p.Cron("c", "tick"), &cluster.Cron{Cluster: "c", Name: "tick"})
		s = w.put(p.Fired("c", "tick"), &cluster.CronStatus{Job: "tick-1"})
		if c := f.Take(); !c.Crons {
			t.Error("a cron and its status change no cron")
		}
		if _, ok := s.Cron("c", "tick"); !ok {
			t.Error("the cron is missing")
		}
		if e, ok := s.Fired("c", "tick"); !ok || e.Value.Job != "tick-1" {
			t.Errorf("how far it has come: got %v", e.Value)
		}
		var u store.Unit
		for _, key := range []string{
			p.Rollout("c", "web"), p.Scale("c", "web"), p.Cron("c", "tick"),
			p.Fired("c", "tick"),
		} {
			u.Delete(key)
		}
		s = w.commit([]bool{true}, u)
		_, rollout := s.Rollout("c", "web")
		_, scale := s.Scale("c", "web")
		_, cron := s.Cron("c", "tick")
		_, fired := s.Fired("c", "tick")
		if rollout || scale || cron || fired {
			t.Errorf("deleted records are left: rollout %v, scale %v, cron %v, fired %v", rollout, scale, cron, fired)
		}
	})
}

// CronJobs returns only jobs that the cron made, ordered by moment. Jobs of a cron with the same prefix, and other jobs
// with such a name, are left out.
func TestJobsOfACron(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		at := time.Date(2026, 11, 20, 12, 30, 0, 0, time.UTC)
		for _, cron := range []string{"tick", "tick-2"} {
			for _, later := range []time.Duration{time.Hour, 0, 24 * time.Hour} {
				c := cluster.Cron{Cluster: "c", Name: cron}
				name := c.JobName(at.Add(later))
				w.put(p.Job("c", name), &cluster.Job{Cluster: "c", Name: name, Cron: cron})
			}
		}
		w.put(p.Job("c", "tick-202601010000"), &cluster.Job{Cluster: "c", Name: "tick-202601010000"})
		s := w.put(p.Job("d", "tick-202611201230"), &cluster.Job{Cluster: "d", Name: "tick-202611201230", Cron: "tick"})
		var names []string
		for e := range s.CronJobs("c", "tick") {
			names = append(names, e.Value.Name)
		}
		if diff := cmp.Diff([]string{"tick-202611201230", "tick-202611201330", "tick-202611211230"},
			names); diff != "" {
			t.Errorf("jobs of the cron (-want +got):\n%s", diff)
		}
	})
}

// The next generation is above that of every record under the name.
func TestNextGeneration(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		web := cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: "web"}
		job := cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "c", Name: "batch"}
		want := func(o cluster.OwnerRef, s *store.Snapshot, generation uint64, what string) {
			t.Helper()
			if got := s.NextGeneration(o); got != generation {
				t.Errorf("%s: got %d, want %d", what, got, generation)
			}
		}
		want(web, w.now(), 1, "of what there is nothing of")
		s := w.put(p.Service("c", "web"),
			&cluster.Service{Cluster: "c", Name: "web", Lifespan: cluster.Lifespan{Generation: 3}})
		want(web, s, 4, "after a service's")
		s = w.put(p.Rollout("c", "web"), &cluster.Rollout{Version: cluster.Version{Generation: 5}})
		want(web, s, 6, "after its rollout's")
		task := cluster.ServiceTask("c", "web", 8, 0)
		s = w.put(p.Outcome(task, 1), &cluster.Outcome{Task: task, Attempt: 1, UUID: "u", Node: "n1", Owner: web})
		want(web, s, 9, "after an attempt's of a newer one")
		want(job, s, 1, "of another")
		s = w.put(p.Job("c", "batch"),
			&cluster.Job{Cluster: "c", Name: "batch", Lifespan: cluster.Lifespan{Generation: 2}})
		want(job, s, 3, "after a job's")
		s = w.put(p.Job("c", "web"),
			&cluster.Job{Cluster: "c", Name: "web", Lifespan: cluster.Lifespan{Generation: 99}})
		want(web, s, 9, "beside a job under the same name")
	})
}
