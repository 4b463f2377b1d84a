package controlplane_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// placedByRecords gives the default domain a scheduler of the type kv.
func (w *world) placedByRecords() {
	w.t.Helper()
	w.putScheduler(&cluster.DomainScheduler{Type: cluster.SchedulerKV})
}

func (w *world) putScheduler(d *cluster.DomainScheduler) {
	w.t.Helper()
	w.put(p.Domain(cluster.DefaultDomain), &cluster.Domain{Name: cluster.DefaultDomain, Scheduler: d})
	w.until(10*time.Second, "the scheduler", func(s *store.Snapshot) bool {
		e, ok := s.Domain(cluster.DefaultDomain)
		return ok && e.Value.HasKVScheduler() == (d.Type == cluster.SchedulerKV)
	})
}

// refusals returns the messages of refused records, the newest last.
func refusals(s *store.Snapshot) (messages []string) {
	for e := range s.EventBatches() {
		for _, ev := range e.Value.Events {
			if ev.Type == "task.record-refused" {
				messages = append(messages, string(ev.Task)+" on "+ev.Node+": "+ev.Message)
			}
		}
	}
	return messages
}

// runsOn reports whether an attempt of a task of the service is healthy on a node, and its record is Berth's.
func runsOn(s *store.Snapshot, node string, index, attempt int) bool {
	row, ok := s.Attempt(web(index), attempt)
	return ok && row.Node == node && row.Observed.Healthy() && row.DesiredRev != 0 && !row.IsUnreadable() &&
		row.Outcome == nil
}

// web returns a task of the service.
func web(index int) cluster.TaskID { return cluster.ServiceTask("c", "web", 1, index) }

// A program starts tasks by records in the store: an empty value, one without fields, and one that names the attempt.
// Nothing starts without a record (P3.9).
func TestRecordsStartTasks(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.node("n2")
		w.definition(1, 500)
		w.placedByRecords()
		w.service(4, 1, 1)
		time.Sleep(time.Minute) // in-bubble: a task that started by itself would show
		if reason, _ := w.server.plane.Waiting(web(0)); !strings.Contains(reason.Sentence, "state/<node>/<task>") {
			t.Errorf("the reason is %q", reason.Sentence)
		}
		w.raw(p.Desired("n2", web(0)), nil)
		w.raw(p.Desired("n2", web(1)), []byte(`{}`))
		w.raw(p.Desired("n1", web(2)), []byte(`{"node":"n1","attempt":1,"reason":"quiet","extra":[1]}`))
		w.until(30*time.Second, "three tasks run", func(s *store.Snapshot) bool {
			return runsOn(s, "n2", 0, 1) && runsOn(s, "n2", 1, 1) && runsOn(s, "n1", 2, 1)
		})
		s := w.server.tables.Snapshot()
		if n := healthy(s, 1); n != 3 || len(refusals(s)) != 0 || eventCounts(s)["task.record-restored"] != 0 {
			t.Errorf("%d tasks are healthy, refused: %v, events: %v", n, refusals(s), eventCounts(s))
		}
	})
}

// A command that cannot be carried out is refused: its record is deleted, and an event says why. The others are carried
// out.
func TestRecordsAreRefused(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.node("n2")
		w.definition(1, 1500) // two of them fill a node
		w.placedByRecords()
		w.service(5, 1, 1)
		w.until(10*time.Second, "the tasks wait", func(*store.Snapshot) bool {
			_, waits := w.server.plane.Waiting(web(4))
			return waits
		})
		w.raw(p.Desired("n1", web(0)), []byte(`{}`))
		w.raw(p.Desired("n1", web(1)), []byte(`{}`))
		w.until(30*time.Second, "the node is full", func(s *store.Snapshot) bool { return healthy(s, 1) == 2 })
		wrong := []struct{ node, task, value, want string }{
			{"n2", "c.web.1.2", `{`, "the record is no command"},
			{"n2", "c.web.1.2", `{"task":"c.web.1.3","node":"n1"}`, `node: is "n1", and the key says n2`},
			{"n2", "c.web.1.2", `{"attempt":2}`, "attempt 1 of the task waits, not attempt 2"},
			{"n2", "c.web.1.2", `{"stop":true}`, "no attempt of the task is on the node"},
			{"n9", "c.web.1.2", `{}`, "the domain has no node n9"},
			{"n1", "c.web.1.2", `{}`, "CPU short"},
			{"n2", "c.web.1.9", `{}`, "no service or job needs the task"},
			{"n2", "c.web.2.0", `{}`, "no service or job needs the task"},
			{"n2", "c.other.1.0", `{}`, "no service or job needs the task"},
			{"n2", "other.web.1.0", `{}`, "no service or job needs the task"},
		}
		for i, r := range wrong {
			w.raw(p.Desired(r.node, cluster.TaskID(r.task)), []byte(r.value))
			w.until(30*time.Second, "refused: "+r.want, func(s *store.Snapshot) bool {
				got := refusals(s)
				if len(got) <= i {
					return false
				}
				if last := got[i]; !strings.HasPrefix(last, r.task+" on "+r.node) || !strings.Contains(last, r.want) {
					t.Errorf("the refusal is %q, want %q", last, r.want)
				}
				_, ok := s.ForeignRow(r.node, cluster.TaskID(r.task))
				return !ok
			})
		}
		w.raw(p.Desired("n2", web(2)), []byte(`{}`))
		w.until(30*time.Second, "the next one runs", func(s *store.Snapshot) bool { return runsOn(s, "n2", 2, 1) })
		if n := healthy(w.server.tables.Snapshot(), 1); n != 3 {
			t.Errorf("%d tasks are healthy, want 3", n)
		}
	})
}

// Two records start one task on two nodes: the first counts, and the other is refused. Both are gone afterwards, also
// when the next leader reads the store.
func TestTwoRecordsOfOneTask(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.node("n1"), w.node("n2")
		w.definition(1, 500)
		w.placedByRecords()
		w.service(1, 1, 1)
		w.server.stop()
		w.raw(p.Desired("n2", web(0)), []byte(`{}`))
		w.raw(p.Desired("n1", web(0)), []byte(`{}`))
		w.start()
		w.until(time.Minute, "it runs, and the other record is refused", func(s *store.Snapshot) bool {
			_, other := s.ForeignRow("n1", web(0))
			return runsOn(s, "n2", 0, 1) && !other && len(refusals(s)) == 1
		})
		if len(a.effects) != 0 || len(b.effects) != 1 {
			t.Errorf("%d tasks were started on n1 and %d on n2", len(a.effects), len(b.effects))
		}
	})
}

// A stop is a record that says so. A deletion, and a record that says something else, are undone. The stop keeps the
// service's minimum.
func TestRecordStopsATask(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.node("n1"), w.node("n2")
		w.definition(1, 500)
		w.placedByRecords()
		w.service(2, 1, 1)
		w.raw(p.Desired("n1", web(0)), []byte(`{}`))
		w.raw(p.Desired("n1", web(1)), []byte(`{}`))
		w.until(time.Minute, "both run, and the rollout has ended", func(s *store.Snapshot) bool {
			r, ok := s.Rollout("c", "web")
			return runsOn(s, "n1", 0, 1) && runsOn(s, "n1", 1, 1) && ok && r.Value.State.Ended()
		})
		restored := func(what string, change func()) {
			t.Helper()
			row, _ := w.server.tables.Snapshot().Attempt(web(0), 1)
			change()
			w.until(time.Minute, what, func(s *store.Snapshot) bool {
				now, _ := s.Attempt(web(0), 1)
				return runsOn(s, "n1", 0, 1) && now.DesiredRev > row.DesiredRev && now.Desired.Stop == nil &&
					now.Desired.UUID == row.Desired.UUID
			})
		}
		key := p.Desired("n1", web(0))
		restored("the deletion is undone", func() { w.remove(key) })
		restored("another content is undone", func() { w.raw(key, []byte(`{"definition":"d@7"}`)) })
		restored("the stop is refused", func() { w.raw(key, []byte(`{"stop":true}`)) })
		if got := refusals(w.server.tables.Snapshot()); len(got) != 1 || !strings.Contains(got[0], "min_healthy") {
			t.Errorf("refused: %q", got)
		}
		spec, _ := w.server.tables.Snapshot().Service("c", "web")
		lower := *spec.Value
		lower.Update.MinHealthy = &cluster.Portion{N: 1}
		w.put(p.Service("c", "web"), &lower)
		restored("a stop of another attempt is refused", func() { w.raw(key, []byte(`{"stop":true,"attempt":2}`)) })
		w.raw(key, []byte(`{"stop":{"reason":"other"},"reason":"too warm"}`))
		w.until(time.Minute, "it stopped, and nothing is left", func(s *store.Snapshot) bool {
			row, ok := s.Attempt(web(0), 1)
			return ok && row.Outcome != nil && !row.Standing() && strings.Contains(row.Outcome.Message, "too warm")
		})
		time.Sleep(time.Minute) // in-bubble: a task that started by itself would show
		w.raw(p.Desired("n2", web(0)), []byte(`{}`))
		w.until(time.Minute, "its next attempt runs", func(s *store.Snapshot) bool { return runsOn(s, "n2", 0, 2) })
		if len(a.effects) != 2 || len(b.effects) != 1 {
			t.Errorf("%d tasks were started on n1 and %d on n2", len(a.effects), len(b.effects))
		}
	})
}

// A record for a running task moves it: the service keeps its minimum, and the record waits for the task.
func TestRecordMovesATask(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.node("n2")
		w.definition(1, 500)
		w.placedByRecords()
		w.service(2, 1, 1)
		w.raw(p.Desired("n1", web(0)), []byte(`{}`))
		w.raw(p.Desired("n1", web(1)), []byte(`{}`))
		w.until(time.Minute, "both run, and the rollout has ended", func(s *store.Snapshot) bool {
			r, ok := s.Rollout("c", "web")
			return runsOn(s, "n1", 0, 1) && runsOn(s, "n1", 1, 1) && ok && r.Value.State.Ended()
		})
		w.raw(p.Desired("n2", web(0)), []byte(`{}`))
		w.until(time.Minute, "it moved", func(s *store.Snapshot) bool {
			return runsOn(s, "n2", 0, 2) && runsOn(s, "n1", 1, 1)
		})
		if got := refusals(w.server.tables.Snapshot()); len(got) != 0 {
			t.Errorf("refused: %q", got)
		}
	})
}

// Records are commands also for the next leader: they were written while no server ran.
func TestRecordsWaitForALeader(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.node("n1"), w.node("n2")
		w.definition(1, 500)
		w.placedByRecords()
		w.put(p.Service("c", "web"), &cluster.Service{
			Cluster: "c", Name: "web", Count: 2, Definition: cluster.Ref{Name: "d", Version: 1}, Priority: 500,
			OnDisconnect: cluster.DisconnectKeep, Lifespan: cluster.Lifespan{Generation: 1, Created: time.Now()},
			Update: cluster.Update{MinHealthy: &cluster.Portion{N: 1}},
		})
		w.server.stop()
		w.raw(p.Desired("n1", web(0)), []byte(`{}`))
		w.raw(p.Desired("n1", web(1)), []byte(`{}`))
		w.start()
		w.until(time.Minute, "both run, and the rollout has ended", func(s *store.Snapshot) bool {
			r, ok := s.Rollout("c", "web")
			return runsOn(s, "n1", 0, 1) && runsOn(s, "n1", 1, 1) && ok && r.Value.State.Ended()
		})
		w.server.stop()
		w.raw(p.Desired("n1", web(0)), []byte(`{"stop":true}`))
		w.raw(p.Desired("n1", web(1)), []byte(`not a command`))
		w.raw(p.Desired("n2", web(0)), []byte(`{}`))
		w.start()
		w.until(2*time.Minute, "one has moved, and the other has stayed", func(s *store.Snapshot) bool {
			first, ok := s.Attempt(web(0), 1)
			return ok && first.Outcome != nil && runsOn(s, "n2", 0, 2) && runsOn(s, "n1", 1, 1)
		})
		if len(a.effects) != 2 || len(b.effects) != 1 {
			t.Errorf("%d tasks were started on n1 and %d on n2", len(a.effects), len(b.effects))
		}
	})
}

// Records for the tasks of a new version wait until the rollout comes to them. Records of a held job wait until it is
// released.
func TestRecordsWaitForTheirTasks(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.node("n2")
		w.definition(1, 100)
		w.definition(2, 100)
		w.placedByRecords()
		w.service(4, 1, 1)
		for i := range 4 {
			w.raw(p.Desired("n1", web(i)), []byte(`{}`))
		}
		w.until(time.Minute, "all run, and the rollout has ended", func(s *store.Snapshot) bool {
			r, ok := s.Rollout("c", "web")
			return healthy(s, 1) == 4 && ok && r.Value.State.Ended()
		})
		w.service(4, 2, 2)
		for i := range 4 {
			w.raw(p.Desired("n2", cluster.ServiceTask("c", "web", 2, i)), []byte(`{}`))
		}
		least := 4
		w.until(5*time.Minute, "the new version runs", func(s *store.Snapshot) bool {
			least = min(least, healthy(s, 1)+healthy(s, 2))
			return healthy(s, 2) == 4 && healthy(s, 1) == 0
		})
		if got := refusals(w.server.tables.Snapshot()); len(got) != 0 || least < 3 {
			t.Errorf("refused: %q; %d tasks were healthy at least", got, least)
		}
		held := &cluster.Job{
			Cluster: "c", Name: "held", Priority: 500, Hold: true,
			Lifespan: cluster.Lifespan{Generation: 1, Created: time.Now()},
			Steps:    []cluster.Step{{Name: "work", Definition: cluster.Ref{Name: "d", Version: 1}, Count: 1}},
		}
		w.put(p.Job("c", "held"), held)
		task := cluster.JobTask("c", "held", 1, "work", 0)
		w.raw(p.Desired("n2", task), []byte(`{}`))
		time.Sleep(time.Minute) // in-bubble: a task that started too early would show
		if _, waits := w.server.tables.Snapshot().ForeignRow("n2", task); !waits {
			t.Error("the record did not wait for the held job")
		}
		released := *held
		released.Hold = false
		w.put(p.Job("c", "held"), &released)
		w.until(time.Minute, "the job's task ended", func(s *store.Snapshot) bool {
			row, ok := s.Attempt(task, 1)
			return ok && row.Outcome != nil && row.Outcome.State == cluster.StateSucceeded
		})
	})
}

// A record for a silent node of a new leader waits until the node has reported.
func TestRecordWaitsForItsNode(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.node("n1")
		w.definition(1, 500)
		w.placedByRecords()
		w.service(1, 1, 1)
		w.until(10*time.Second, "the node is ready", func(s *store.Snapshot) bool {
			n, ok := s.Node("n1")
			return ok && n.Value.State == cluster.NodeReady
		})
		a.kill()
		w.server.stop()
		w.raw(p.Desired("n1", web(0)), []byte(`{}`))
		w.start()
		time.Sleep(5 * time.Second) // in-bubble: a refusal would show
		a.run()
		w.until(time.Minute, "it runs", func(s *store.Snapshot) bool { return runsOn(s, "n1", 0, 1) })
		if got := refusals(w.server.tables.Snapshot()); len(got) != 0 {
			t.Errorf("refused: %q", got)
		}
	})
}

// A domain gets the built-in scheduler back while records wait: they mean nothing any more. The other way around, a
// record that hid its node is a command.
func TestSchedulerChangesWhileRecordsWait(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.node("n1")
		w.node("n2")
		w.definition(1, 500)
		w.placedByRecords()
		w.until(10*time.Second, "the nodes are ready", func(s *store.Snapshot) bool {
			n, _ := s.Node("n1")
			m, ok := s.Node("n2")
			return ok && n.Value.State == cluster.NodeReady && m.Value.State == cluster.NodeReady
		})
		a.kill()
		w.server.stop()
		w.service(1, 1, 1)
		w.raw(p.Desired("n1", web(0)), []byte(`{}`))
		w.start()
		w.putScheduler(&cluster.DomainScheduler{Type: cluster.SchedulerBuiltin})
		a.run()
		w.until(2*time.Minute, "the record is gone, and the task runs", func(s *store.Snapshot) bool {
			_, waits := s.ForeignRow("n1", web(0))
			return !waits && healthy(s, 1) == 1
		})
		a.kill()
		w.server.stop()
		w.raw(p.Desired("n1", web(1)), []byte(`{}`))
		w.service(2, 1, 1)
		w.start()
		w.putScheduler(&cluster.DomainScheduler{Type: cluster.SchedulerKV})
		a.run()
		w.until(2*time.Minute, "it runs by its record", func(s *store.Snapshot) bool { return runsOn(s, "n1", 1, 1) })
	})
}

// A job's tasks start by records as well, and a failed one waits for the next record.
func TestRecordsStartTasksOfAJob(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1", func(a *agent) { a.fails = func(_ cluster.TaskID, attempt int) bool { return attempt == 1 } })
		w.definition(1, 500)
		w.placedByRecords()
		w.job(3, 1)
		task := func(i int) cluster.TaskID { return cluster.JobTask("c", "batch", 1, "work", i) }
		for i := range 3 {
			w.raw(p.Desired("n1", task(i)), []byte(`{}`))
		}
		ended := func(s *store.Snapshot, attempt int, state cluster.State) bool {
			for i := range 3 {
				row, ok := s.Attempt(task(i), attempt)
				if !ok || row.Outcome == nil || row.Outcome.State != state || row.Standing() {
					return false
				}
			}
			return true
		}
		w.until(time.Minute, "all failed", func(s *store.Snapshot) bool { return ended(s, 1, cluster.StateFailed) })
		next := map[cluster.TaskID]bool{}
		w.until(5*time.Minute, "all succeeded", func(s *store.Snapshot) bool {
			for i := range 3 {
				if _, waits := w.server.plane.Waiting(task(i)); waits && !next[task(i)] {
					w.raw(p.Desired("n1", task(i)), []byte(`{"attempt":2}`))
					next[task(i)] = true
				}
			}
			return ended(s, 2, cluster.StateSucceeded)
		})
		if len(next) != 3 {
			t.Errorf("records of second attempts: %v", slices.Sorted(maps.Keys(next)))
		}
	})
}

// A foreign record whose key names no task is removed in every domain, and its node takes tasks again.
func TestStrayRecordsAreRemoved(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.definition(1, 500)
		w.raw(p.Desired("n1", "no-task"), []byte(`{}`))
		w.raw(p.Observed("n1", "no-task"), []byte(`{}`))
		w.raw(p.Desired("n9", "another"), []byte(`{}`))
		w.service(1, 1, 1)
		w.until(time.Minute, "the task runs", func(s *store.Snapshot) bool {
			_, first := s.ForeignRow("n1", "no-task")
			_, second := s.ForeignRow("n9", "another")
			return healthy(s, 1) == 1 && !first && !second
		})
	})
}
