package controlplane_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/election"
	"github.com/berthd/berth/internal/store/memory"
)

// putRolledService writes the service "web" with an update policy, as the API server would.
func (w *world) putRolledService(count, version int, generation uint64, u cluster.Update) {
	w.put(p.Service("c", "web"), &cluster.Service{
		Cluster: "c", Name: "web", Count: count, Definition: cluster.Ref{Name: "d", Version: version}, Priority: 500,
		OnDisconnect: cluster.DisconnectKeep, Update: u,
		Lifespan: cluster.Lifespan{Generation: generation, Created: time.Now(), Updated: time.Now()},
	})
}

// healthyOfVersion counts the healthy tasks of the service that run a version of its definition and are to stay.
func healthyOfVersion(s *store.Snapshot, version int) int {
	n := 0
	for row := range s.Attempts(cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: "web"}) {
		if d := row.Desired; d != nil && d.Definition.Version == version && d.Stop == nil && row.Outcome == nil &&
			row.Observed.Healthy() {
			n++
		}
	}
	return n
}

func rolloutOf(s *store.Snapshot) cluster.Rollout {
	if e, ok := s.Rollout("c", "web"); ok {
		return *e.Value
	}
	return cluster.Rollout{}
}

// A rollout has a record from its start to its end. The record is deleted with the service.
func TestRolloutHasARecord(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.node("n2")
		w.definition(1, 100)
		w.definition(2, 100)
		w.putRolledService(4, 1, 1, cluster.Update{})
		w.until(30*time.Second, "generation 1 is complete", func(s *store.Snapshot) bool {
			r := rolloutOf(s)
			return r.State == cluster.RolloutComplete && r.Generation == 1 && healthyOfVersion(s, 1) == 4
		})
		w.putRolledService(4, 2, 2, cluster.Update{})
		w.until(time.Minute, "generation 2 is complete", func(s *store.Snapshot) bool {
			r := rolloutOf(s)
			return r.State == cluster.RolloutComplete && r.Generation == 2 && healthyOfVersion(s, 2) == 4
		})
		if events := eventCounts(w.server.tables.Snapshot()); events["service.rollout-complete"] != 2 {
			t.Errorf("events of ended rollouts: got %d, want 2", events["service.rollout-complete"])
		}
		svc, _ := w.server.tables.Snapshot().Service("c", "web")
		gone := *svc.Value
		gone.Deleted = true
		w.put(p.Service("c", "web"), &gone)
		w.until(30*time.Second, "service and record are gone", func(s *store.Snapshot) bool {
			_, service := s.Service("c", "web")
			_, record := s.Rollout("c", "web")
			return !service && !record
		})
	})
}

// If a service's own record was deleted, the records beside it are removed, and none of another service.
func TestRecordsWithoutAServiceAreRemoved(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.definition(1, 100)
		w.putRolledService(1, 1, 1, cluster.Update{})
		w.put(p.Rollout("c", "other"), &cluster.Rollout{})
		w.put(p.Scale("c", "other"), &cluster.Scale{Count: 3})
		w.put(p.Fired("c", "other"), &cluster.CronStatus{})
		w.until(30*time.Second, "they are gone, and that of the service exists", func(s *store.Snapshot) bool {
			_, rollout := s.Rollout("c", "other")
			_, scale := s.Scale("c", "other")
			_, fired := s.Fired("c", "other")
			_, own := s.Rollout("c", "web")
			return !rollout && !scale && !fired && own
		})
	})
}

func secondVersionSick(a *agent) { a.sick = func(d cluster.Ref) bool { return d.Version == 2 } }

// rollOutBadBuild rolls out a version that never becomes healthy. It returns the least number of healthy tasks until
// the last version is back.
func (w *world) rollOutBadBuild() (least int) {
	w.t.Helper()
	w.putRolledService(3, 1, 1, cluster.Update{})
	w.until(2*time.Minute, "3 healthy", func(s *store.Snapshot) bool {
		return healthyOfVersion(s, 1) == 3 && rolloutOf(s).State == cluster.RolloutComplete
	})
	least = 3
	w.putRolledService(3, 2, 2, cluster.Update{HealthyDeadline: cluster.Duration(10 * time.Second)})
	w.until(5*time.Minute, "the last healthy version is back", func(s *store.Snapshot) bool {
		least = min(least, healthyOfVersion(s, 1))
		svc, ok := s.Service("c", "web")
		r := rolloutOf(s)
		return ok && svc.Value.Generation == 3 && svc.Value.Definition.Version == 1 &&
			svc.Value.Rollout.Reverted == 2 &&
			r.Generation == 3 && r.State == cluster.RolloutComplete && healthyOfVersion(s, 1) == 3 &&
			countRecords(s) == 3
	})
	return least
}

// A version that never becomes healthy is reverted: one transaction writes the former spec and the rollout's record.
// The tasks of the last healthy version continue.
func TestBadVersionIsTakenBack(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1", secondVersionSick)
		w.definition(1, 100)
		w.definition(2, 100)
		if least := w.rollOutBadBuild(); least < 3 {
			t.Errorf("healthy tasks: at least %d, want 3", least)
		}
		s := w.server.tables.Snapshot()
		events := eventCounts(s)
		if events["service.rolled-back"] != 1 || events["service.rollout-failed"] != 1 {
			t.Errorf("events: %v, want one failure and one rollback", events)
		}
		svc, _ := s.Service("c", "web")
		if svc.Value.Updated.IsZero() || svc.Value.Count != 3 {
			t.Errorf("the spec that was written: %+v", svc.Value)
		}
		for row := range s.Attempts(cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: "web"}) {
			if parts, _ := row.Task.Parts(); parts.Generation == 3 {
				t.Errorf("%s was begun, though the tasks of generation 1 stood", row.Task)
			}
		}
	})
}

// errKilled is the engine's error for a server that is being killed.
var errKilled = errors.New("killed")

// restartKilledAt restarts the server over an engine that kills it at its nth commit, before or after the write.
// Nothing that it does from then on arrives.
func (w *world) restartKilledAt(nth int, after bool) {
	w.server.stop()
	var left atomic.Int64
	left.Store(int64(nth))
	strike := func(groups []store.Group) error {
		if isBeat(groups) || left.Add(-1) > 0 {
			return nil
		}
		return errKilled
	}
	dead := func(_ context.Context, groups []store.Group) error {
		if left.Load() <= 0 {
			return errKilled
		}
		if after {
			return nil
		}
		return strike(groups)
	}
	hooks := memory.Hooks{Before: dead}
	if after {
		hooks.After = func(_ context.Context, groups []store.Group, _ store.Result) error { return strike(groups) }
	}
	w.faulty = w.engine.Open(hooks)
	w.start()
	w.meanwhile = func() {
		if left.Load() <= 0 {
			w.meanwhile = nil
			w.server.stop()
			w.faulty = nil
			w.start()
			<-w.server.tables.Synced()
		}
	}
}

func isBeat(groups []store.Group) bool {
	return len(groups) == 1 && len(groups[0].Ops) == 1 &&
		groups[0].Ops[0].Key == election.BeatKey(p, cluster.DefaultDomain)
}

// A leader that is killed around any of its commits, before or after the write, leaves records from which the next one
// continues: the failed version is reverted once, and the last healthy one stays all the time.
func TestLeaderKilledBetweenCommitsOfARollout(t *testing.T) {
	for _, after := range []bool{false, true} {
		for nth := 1; nth <= 40; nth++ {
			inWorld(t, func(t *testing.T, w *world) {
				w.restartKilledAt(nth, after)
				w.node("n1", secondVersionSick)
				w.definition(1, 100)
				w.definition(2, 100)
				least := w.rollOutBadBuild()
				if nth <= 20 && w.meanwhile != nil {
					t.Fatalf("there were fewer than %d commits", nth)
				}
				if least < 3 {
					t.Errorf("killed at commit %d (after it: %v): at least %d healthy, want 3", nth, after, least)
				}
				events := eventCounts(w.server.tables.Snapshot())
				if events["service.rolled-back"] != 1 || events["service.rollout-failed"] != 1 {
					t.Errorf("killed at commit %d (after it: %v): events %v", nth, after, events)
				}
			})
		}
	}
}
