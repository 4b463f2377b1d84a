package controlplane_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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

// Versions that nothing names are removed by age, whoever leads then. Their age begins again when they were used
// meanwhile. The newest version of a name stays as long as another one is used.
func TestUnusedDefinitionsAreRemovedByAge(t *testing.T) {
	for name, tt := range map[string]struct {
		keep time.Duration
		left []string // after six hours, and after ten
		last []string
	}{
		"for ever": {
			0,
			[]string{"d@1", "d@2", "d@3", "old@1", "old@2", "once@1"},
			[]string{"d@1", "d@2", "d@3", "old@1", "old@2", "once@1"},
		},
		"for four hours": {4 * time.Hour, []string{"d@1", "d@3", "once@1"}, []string{"d@1", "d@3"}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.server.stop()
				w.keepDefinitions = tt.keep
				w.start()
				w.node("n1")
				define := func(refs ...cluster.Ref) {
					for _, ref := range refs {
						w.put(p.Definition(ref), &cluster.TaskDefinition{
							Name: ref.Name, Version: ref.Version, Containers: []cluster.Container{
								{Name: "main", Image: "i", Resources: cluster.Resources{CPU: 100}},
							},
						})
						w.put(p.NewestDefinition(ref.Name), store.Newest{Name: ref.Name, Version: ref.Version})
					}
				}
				define(cluster.Ref{Name: "d", Version: 1}, cluster.Ref{Name: "d", Version: 2},
					cluster.Ref{Name: "d", Version: 3}, cluster.Ref{Name: "old", Version: 1},
					cluster.Ref{Name: "old", Version: 2}, cluster.Ref{Name: "once", Version: 1})
				w.service(1, 1, 1)
				left := func() (refs []string) {
					for e := range w.server.tables.Snapshot().Definitions("") {
						refs = append(refs, e.Value.Ref().String())
					}
					return refs
				}
				time.Sleep(2 * time.Hour) // in-bubble: inWorld makes one
				job := &cluster.Job{
					Cluster: "c", Name: "once", Priority: 500, Lifespan: cluster.Lifespan{Generation: 1},
					Steps: []cluster.Step{{Name: "all", Definition: cluster.Ref{Name: "once", Version: 1}, Count: 1}},
				}
				w.put(p.Job("c", "once"), job)
				time.Sleep(90 * time.Minute) // in-bubble: inWorld makes one
				gone := *job
				gone.Deleted = true
				w.put(p.Job("c", "once"), &gone)
				w.server.stop()
				w.start()
				time.Sleep(150 * time.Minute) // in-bubble: inWorld makes one
				if diff := cmp.Diff(tt.left, left()); diff != "" {
					t.Errorf("after six hours (-want +got):\n%s", diff)
				}
				time.Sleep(4 * time.Hour) // in-bubble: inWorld makes one
				if diff := cmp.Diff(tt.last, left()); diff != "" {
					t.Errorf("after ten hours (-want +got):\n%s", diff)
				}
				n := eventCounts(w.server.tables.Snapshot())["definition.removed"]
				if want := 6 - len(tt.last); n != want {
					t.Errorf("%d events definition.removed, want %d", n, want)
				}
			})
		})
	}
}
