package controlplane_test

import (
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/observe"
	"github.com/berthd/berth/internal/store"
)

// packed counts the packed tasks of the job, and the records that hold them.
func packed(s *store.Snapshot) (tasks, records int) {
	for e := range s.PackedTasks(theJob) {
		tasks += e.Value.Count()
		records++
	}
	return tasks, records
}

// The outcomes of a large step are packed while the job runs, also by leaders that are killed meanwhile. Each task runs
// once. A task that needed two attempts keeps its outcomes. Another run replaces the records, and the deletion of the
// job removes them.
func TestLargeStepsArePacked(t *testing.T) {
	const count = cluster.PackAbove + 1
	inWorld(t, func(t *testing.T, w *world) {
		failing := func(a *agent) {
			a.fails = func(task cluster.TaskID, attempt int) bool {
				parts, _ := task.Parts()
				return parts.Index == 777 && attempt == 1
			}
		}
		for _, name := range []string{"n1", "n2", "n3"} {
			w.node(name, failing)
		}
		w.definition(1, 100)
		w.job(count, 1)
		for _, share := range []int{2, 3} {
			w.until(10*time.Minute, "a part is packed", func(s *store.Snapshot) bool {
				n, _ := packed(s)
				return n >= count*(share-1)/4
			})
			w.server.stop()
			w.start()
		}
		status := func(s *store.Snapshot) reconciler.JobStatus {
			e, _ := s.Job("c", "batch")
			in := reconciler.JobInput{Owner: theJob, Spec: e.Value, Packed: observe.Packed(s, theJob)}
			for _, row := range snapshotRows(s) {
				in.Tasks = append(in.Tasks, reconciler.Task{Attempt: row.Attempt})
			}
			return reconciler.StatusOfJob(in)
		}
		w.until(30*time.Minute, "the job has succeeded", func(s *store.Snapshot) bool {
			n, _ := packed(s)
			return n == count-1
		})
		snap := w.server.tables.Snapshot()
		if st := status(snap); st.State != cluster.JobSucceeded || st.Succeeded != count {
			t.Errorf("the job is %s with %d tasks that succeeded", st.State, st.Succeeded)
		}
		_, records := packed(snap)
		if left := len(snapshotRows(snap)); records != (count+cluster.PackedPart-1)/cluster.PackedPart || left != 2 {
			t.Errorf("%d records, and %d outcomes beside them", records, left)
		}
		for index := range count {
			id := cluster.JobTask("c", "batch", 1, "work", index)
			rows := 0
			for row := range snap.TaskAttempts(id) {
				rows++
				if row.Outcome == nil || row.Outcome.Task != id || row.Node == "" || row.Outcome.Ended.IsZero() {
					t.Fatalf("%s: %+v", id, row)
				}
			}
			if (index == 777) != (rows == 2) || rows == 0 {
				t.Fatalf("%s has %d attempts", id, rows)
			}
		}
		for _, a := range w.agents {
			for uuid, n := range a.effects { // order-free: each by itself
				if n != 1 {
					t.Errorf("%s ran %d times", uuid, n)
				}
			}
		}
		e, _ := snap.Job("c", "batch")
		next := *e.Value
		next.Generation = snap.NextGeneration(theJob)
		w.put(p.Job("c", "batch"), &next)
		w.until(time.Minute, "the records are gone", func(s *store.Snapshot) bool {
			for e := range s.PackedTasks(theJob) {
				if e.Value.Generation == 1 {
					return false
				}
			}
			return true
		})
		w.until(30*time.Minute, "the second run has records", func(s *store.Snapshot) bool {
			n, _ := packed(s)
			return n >= 100
		})
		e, _ = w.server.tables.Snapshot().Job("c", "batch")
		gone := *e.Value
		gone.Deleted = true
		w.put(p.Job("c", "batch"), &gone)
		w.until(10*time.Minute, "nothing is left", func(s *store.Snapshot) bool {
			n, _ := packed(s)
			_, ok := s.Job("c", "batch")
			return n == 0 && !ok && len(snapshotRows(s)) == 0
		})
	})
}

// snapshotRows returns the attempts of the job that are not packed.
func snapshotRows(s *store.Snapshot) (rows []*store.AttemptRow) {
	for row := range s.Attempts(theJob) {
		rows = append(rows, row)
	}
	return rows
}
