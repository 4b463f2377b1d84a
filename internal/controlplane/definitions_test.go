package controlplane_test

import (
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// The newest ten unused versions stay, and all that are used, even if only an attempt uses them. A mark that another
// server left is carried out, or removed if the version is used.
func TestUnusedDefinitionsAreRemoved(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.definition(2, 100)
		w.service(1, 2, 1)
		// the leader has scanned, too
		w.until(time.Minute, "1 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 1 })
		for version := range 15 {
			if version+1 != 2 {
				w.definition(version+1, 100)
			}
		}
		w.put(p.NewestDefinition("d"), store.Newest{Name: "d", Version: 15})
		left := func(s *store.Snapshot) (versions []int) {
			for e := range s.Definitions("d") {
				if !e.Value.Deleted {
					versions = append(versions, e.Value.Version)
				}
			}
			return versions
		}
		w.until(time.Minute, "15 versions", func(s *store.Snapshot) bool { return len(left(s)) == 15 })
		// 2 is used and 15 the newest: of the 13 others 1, 3 and 4 are too many.
		w.until(2*time.Hour, "12 versions", func(s *store.Snapshot) bool { return len(left(s)) == 12 })
		for i, want := range []int{2, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15} {
			if got := left(w.server.tables.Snapshot()); got[i] != want {
				t.Fatalf("versions %v", got)
			}
		}
		mark := func(version int) {
			e, _ := w.server.tables.Snapshot().Definition(cluster.Ref{Name: "d", Version: version})
			marked := *e.Value
			marked.Deleted = true
			w.put(p.Definition(marked.Ref()), &marked)
		}
		mark(2)
		mark(15)
		w.until(2*time.Hour, "the marks are carried out", func(s *store.Snapshot) bool {
			_, exists := s.Definition(cluster.Ref{Name: "d", Version: 15})
			e, _ := s.Definition(cluster.Ref{Name: "d", Version: 2})
			newest, _, _ := s.NewestDefinition("d")
			return !exists && e.Value != nil && !e.Value.Deleted && newest.Version == 14
		})
		events := eventCounts(w.server.tables.Snapshot())
		if events["definition.removed"] != 4 || events["definition.updated"] != 1 {
			t.Errorf("events: %v, want the removal of 1, 3, 4 and 15 and that 2 stays", events)
		}
	})
}

// The versions that came from templates go once nothing uses them, the newest too, unless a user wrote one of them.
func TestDefinitionsOfTemplatesGoWithTheirJob(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		time.Sleep(time.Minute) // in-bubble: the leader has swept once, and does so again in an hour
		define := func(name string, version int, inline bool) {
			ref := cluster.Ref{Name: name, Version: version}
			w.put(p.Definition(ref), &cluster.TaskDefinition{
				Name: name, Version: version, Inline: inline, Containers: []cluster.Container{
					{Name: "main", Image: "i", Resources: cluster.Resources{CPU: 100}},
				},
			})
			w.put(p.NewestDefinition(name), store.Newest{Name: name, Version: version})
		}
		define("d", 1, true)
		define("d", 2, true)
		define("own", 1, true)
		define("own", 2, false)
		w.job(1, 0)
		left := func(s *store.Snapshot, name string) (n int) {
			for range s.Definitions(name) {
				n++
			}
			return n
		}
		w.until(time.Minute, "the job has succeeded", func(s *store.Snapshot) bool { return succeeded(s) == 1 })
		time.Sleep(3 * time.Hour) // in-bubble: inWorld makes one
		if s := w.server.tables.Snapshot(); left(s, "d") != 2 || left(s, "own") != 2 {
			t.Errorf("%d and %d versions are left while the job is there, want all", left(s, "d"), left(s, "own"))
		}
		e, _ := w.server.tables.Snapshot().Job("c", "batch")
		gone := *e.Value
		gone.Deleted = true
		w.put(p.Job("c", "batch"), &gone)
		w.until(3*time.Hour, "the definitions of the job are gone", func(s *store.Snapshot) bool {
			_, _, ok := s.NewestDefinition("d")
			return left(s, "d") == 0 && !ok
		})
		if n := left(w.server.tables.Snapshot(), "own"); n != 2 {
			t.Errorf("%d versions of a name are left that a user wrote, want 2", n)
		}
	})
}
