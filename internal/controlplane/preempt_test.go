package controlplane_test

import (
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

var urgent = cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "c", Name: "urgent"}

// putEndlessJob writes a job whose tasks run until they are stopped.
func (w *world) putEndlessJob(name string, priority, count, version int, is ...func(*cluster.Step)) {
	step := cluster.Step{
		Name: "work", Definition: cluster.Ref{Name: "d", Version: version}, Count: count,
		OnDisconnect: cluster.DisconnectWait,
	}
	for _, change := range is {
		change(&step)
	}
	w.put(p.Job("c", name), &cluster.Job{
		Cluster: "c", Name: name, Priority: cluster.Priority(priority),
		Lifespan: cluster.Lifespan{Generation: 1, Created: time.Now(), Updated: time.Now()},
		Steps:    []cluster.Step{step},
	})
}

// Tasks of lower priority end for a task that waits, as few as suffice. Tasks of a job end free of charge and wait for
// room. The freed room goes to the task that it was freed for, whatever other tasks of lower priority wait.
func TestPreemptionMakesRoom(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		n := w.node("n1", endless)
		n.lingers = func(cluster.TaskID) time.Duration { return time.Second }
		w.definition(1, 1000)
		w.definition(2, 3000)
		w.putEndlessJob("batch", 300, 4, 1)
		w.until(10*time.Second, "the node is full", func(s *store.Snapshot) bool {
			return countRunning(s, theJob, "n1") == 4
		})
		w.putEndlessJob("urgent", 350, 1, 2)
		time.Sleep(15 * time.Second) // in-bubble: inWorld makes one
		if s := w.server.tables.Snapshot(); countRunning(s, theJob, "n1") != 4 {
			t.Fatalf("%d run: tasks ended for one whose priority is little higher", countRunning(s, theJob, "n1"))
		}
		w.putEndlessJob("urgent", 900, 1, 2)
		sentence := ""
		w.until(20*time.Second, "the urgent task runs", func(s *store.Snapshot) bool {
			if why, ok := w.server.plane.Waiting(cluster.JobTask("c", "urgent", 1, "work", 0)); ok && sentence == "" &&
				why.Refusals[0].Code == cluster.ReasonPreempted {
				sentence = why.Sentence
			}
			return countRunning(s, urgent, "n1") == 1
		})
		if !strings.HasPrefix(sentence, "waits for 3 tasks of lower priority to leave node n1") {
			t.Errorf("its status says that it waits for %q", sentence)
		}
		s := w.server.tables.Snapshot()
		if got := outcomes(s, theJob); got["cancelled preempted free=true"] != 3 || len(got) != 1 ||
			countRunning(s, theJob, "n1") != 1 {
			t.Errorf("outcomes of the job: %v, %d of it run", got, countRunning(s, theJob, "n1"))
		}
		if n := eventCounts(s)["task.preempted"]; n != 3 {
			t.Errorf("%d such events, want 3", n)
		}
		time.Sleep(30 * time.Second) // in-bubble: inWorld makes one
		if s := w.server.tables.Snapshot(); outcomes(s, theJob)["cancelled preempted free=true"] != 3 {
			t.Errorf("more ended later: %v", outcomes(s, theJob))
		}
		w.node("n2", endless)
		w.until(20*time.Second, "what ended runs again", func(s *store.Snapshot) bool {
			return countRunning(s, theJob, "n2") == 3
		})
	})
}

// A service gives up as many tasks as its minimum allows and no more. If another task has to be healthy first, it gives
// them up one by one.
func TestPreemptionKeepsTheMinimum(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1", endless)
		w.definition(1, 1000)
		w.putChangedService(4, func(s *cluster.Service) { s.Update.MinHealthy = &cluster.Portion{N: 3} })
		w.until(10*time.Second, "the node is full", func(s *store.Snapshot) bool { return healthy(s, 1) == 4 })
		fewest := 4
		w.putEndlessJob("urgent", 900, 2, 1)
		w.until(20*time.Second, "one urgent task runs", trackLeast(w, &fewest, func(s *store.Snapshot) bool {
			return countRunning(s, urgent, "n1") == 1
		}))
		end := time.Now().Add(30 * time.Second)
		w.until(time.Minute, "time passes", trackLeast(w, &fewest, func(*store.Snapshot) bool {
			return time.Now().After(end)
		}))
		s := w.server.tables.Snapshot()
		if countRunning(s, urgent, "n1") != 1 || fewest != 3 || healthy(s, 1) != 3 {
			t.Errorf("%d urgent tasks run, at least %d of 4 were healthy and %d are, want 1, 3 and 3",
				countRunning(s, urgent, "n1"), fewest, healthy(s, 1))
		}
		w.putChangedService(4, func(s *cluster.Service) { s.Update.MinHealthy = &cluster.Portion{N: 1} })
		w.until(20*time.Second, "both run", func(s *store.Snapshot) bool {
			return countRunning(s, urgent, "n1") == 2 && healthy(s, 1) == 2
		})
	})
}

// Tasks of a gang end together. Tasks of daemons do not end, nor those of a cluster that never preempts. A leader that
// takes over while tasks are leaving makes no others end.
func TestPreemptionOfGangsAndByNewLeaders(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1", endless)
		w.node("n2", endless)
		w.definition(1, 2000)
		w.definition(2, 1500)
		w.put(p.Cluster("c"), &cluster.Cluster{Name: "c", Preemption: cluster.PreemptNever})
		w.putEndlessJob("batch", 300, 4, 1, func(s *cluster.Step) { s.Gang = &cluster.Gang{} })
		w.until(10*time.Second, "the nodes are full", func(s *store.Snapshot) bool {
			return countRunning(s, theJob, "") == 4
		})
		w.putEndlessJob("urgent", 900, 1, 2)
		time.Sleep(15 * time.Second) // in-bubble: inWorld makes one
		if s := w.server.tables.Snapshot(); countRunning(s, theJob, "") != 4 {
			t.Fatalf("%d run: tasks ended for a cluster that has none end", countRunning(s, theJob, ""))
		}
		w.put(p.Cluster("c"), &cluster.Cluster{Name: "c"})
		w.until(20*time.Second, "the gang gets a stop", func(s *store.Snapshot) bool {
			return eventCounts(s)["task.preempted"] == 4
		})
		w.server.stop()
		w.start()
		w.until(30*time.Second, "the urgent task runs", func(s *store.Snapshot) bool {
			return countRunning(s, urgent, "") == 1
		})
		time.Sleep(20 * time.Second) // in-bubble: inWorld makes one
		s := w.server.tables.Snapshot()
		if got := outcomes(s, theJob); got["cancelled preempted free=true"] != 4 || len(got) != 1 {
			t.Errorf("outcomes of the gang: %v", got)
		}
		if n := eventCounts(s)["task.preempted"]; n != 4 || countRunning(s, theJob, "") != 0 {
			t.Errorf("%d ends were published and %d of the gang run, want 4 and none: it has no room as a whole", n,
				countRunning(s, theJob, ""))
		}
	})
}

// preemptSlowly fills the node n1 with four tasks that end one after the other once they are stopped. An urgent task
// waits for the room of all four. It returns the owner of tasks of lower priority, each of which would fit in after the
// first stop.
func (w *world) preemptSlowly() (small cluster.OwnerRef) {
	w.t.Helper()
	n := w.node("n1", endless)
	n.lingers = func(task cluster.TaskID) time.Duration { // each takes longer to end than the one before
		parts, _ := task.Parts()
		return time.Duration(parts.Index) * 3 * time.Second
	}
	w.definition(1, 1000)
	w.definition(2, 4000)
	w.putEndlessJob("batch", 300, 4, 1)
	w.until(10*time.Second, "the node is full", func(s *store.Snapshot) bool {
		return countRunning(s, theJob, "n1") == 4
	})
	w.putEndlessJob("small", 400, 3, 1)
	w.putEndlessJob("urgent", 900, 1, 2)
	return cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "c", Name: "small"}
}

// Room that comes free bit by bit is kept for the task that it was freed for. Tasks of lower priority that would fit
// into a part of it do not get it.
func TestPreemptedRoomIsKept(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		small := w.preemptSlowly()
		w.until(40*time.Second, "the urgent task runs", func(s *store.Snapshot) bool {
			if n := countRunning(s, small, ""); n > 0 {
				t.Fatalf("%d tasks of lower priority got in between", n)
			}
			return countRunning(s, urgent, "n1") == 1
		})
	})
}

// A leader that takes over while room comes free bit by bit keeps it for the task that the former leader freed it for.
func TestNewLeaderKeepsPreemptedRoom(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		small := w.preemptSlowly()
		w.until(40*time.Second, "the first victim has ended", func(s *store.Snapshot) bool {
			return outcomes(s, theJob)["cancelled preempted free=true"] == 1
		})
		w.server.stop()
		w.start()
		w.until(2*time.Minute, "the urgent task runs", func(s *store.Snapshot) bool {
			for row := range s.Attempts(small) {
				t.Fatalf("%s of lower priority was placed in between", row.Task)
			}
			return countRunning(s, urgent, "n1") == 1
		})
	})
}

// The tasks of a gang wait for a common placement no longer than their limit, whoever leads; then the job has failed.
func TestGangDeadline(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1", endless)
		w.definition(1, 1500)
		began := time.Now()
		w.putEndlessJob("batch", 500, 4, 1, func(s *cluster.Step) {
			s.Gang, s.Retries = &cluster.Gang{Deadline: cluster.Duration(5 * time.Minute)}, 3
		})
		time.Sleep(4 * time.Minute) // in-bubble: inWorld makes one
		if s := w.server.tables.Snapshot(); countRecords(s) != 0 || len(outcomes(s, theJob)) != 0 {
			t.Fatalf("%d attempts are left, outcomes %v, before the deadline", countRecords(s), outcomes(s, theJob))
		}
		w.server.stop()
		w.start()
		w.until(2*time.Minute, "the job has failed", func(s *store.Snapshot) bool {
			return eventCounts(s)["job.failed"] == 1
		})
		if took := time.Since(began); took < 5*time.Minute || took > 5*time.Minute+10*time.Second {
			t.Errorf("it failed after %v, want 5m", took)
		}
		w.node("n2", endless)
		time.Sleep(10 * time.Second) // in-bubble: inWorld makes one
		s := w.server.tables.Snapshot()
		if got := outcomes(s, theJob); got["failed gang free=false"] != 1 || len(got) != 1 || countRecords(s) != 0 {
			t.Errorf("outcomes: %v, %d attempts are left; want one failure and nothing begun", got, countRecords(s))
		}
	})
}
