package controlplane_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// A foreign writer changes a record, and all fields are valid. Its seal does not match: no part obeys it, and it is
// written back (P3.9).
func TestForeignRecordWithAWrongSealIsRepaired(t *testing.T) {
	changes := map[string]func(record map[string]any){
		"stop": func(r map[string]any) {
			r["stop"] = map[string]any{"class": "mandatory", "reason": "cancelled", "ended": true}
		},
		"definition":     func(r map[string]any) { r["definition"] = "d@2" },
		"attempt number": func(r map[string]any) { r["attempt"] = 7 },
		"identity":       func(r map[string]any) { r["uuid"] = "another" },
		"no seal":        func(r map[string]any) { delete(r, "seal") },
	}
	for name, change := range changes {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, restart=%v", name, restart), func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) { testForeignWrite(t, w, change, restart) })
			})
		}
	}
}

// Records without a seal are obeyed while a server of an older build is a member. They are also obeyed if such a server
// has led since the last seal. A record with a wrong seal is never obeyed.
func TestRecordsOfAFormerBuild(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.definition(1, 500)
		w.service(1, 1, 1)
		task := cluster.ServiceTask("c", "web", 1, 0)
		row := func(s *store.Snapshot) store.AttemptRow {
			r, ok := s.Attempt(task, 1)
			if !ok {
				return store.AttemptRow{}
			}
			return *r
		}
		w.until(time.Minute, "healthy and projected", func(s *store.Snapshot) bool {
			return healthy(s, 1) == 1 && row(s).PlanRev == 0 && row(s).DesiredRev != 0
		})
		unsealed := func(r map[string]any) { delete(r, "seal") }
		believed := func(what string) {
			t.Helper()
			before := row(w.server.tables.Snapshot()).DesiredRev
			w.tamper("n1", task, unsealed)
			var after uint64
			w.until(time.Minute, what, func(s *store.Snapshot) bool {
				after = row(s).DesiredRev
				return after > before
			})
			time.Sleep(time.Minute) // in-bubble: a repaired record is written again
			if now := row(w.server.tables.Snapshot()); now.Unreadable || now.DesiredRev != after {
				t.Errorf("%s: the record was not believed: %+v", what, now)
			}
		}
		repaired := func(what string, change func(map[string]any)) {
			t.Helper()
			before := eventCounts(w.server.tables.Snapshot())["task.record-restored"]
			w.tamper("n1", task, change)
			w.until(time.Minute, what, func(s *store.Snapshot) bool {
				return eventCounts(s)["task.record-restored"] == before+1 && !row(s).Unreadable
			})
		}
		seals := func(want bool) {
			t.Helper()
			w.until(time.Minute, fmt.Sprintf("seals are demanded: %v", want), func(s *store.Snapshot) bool {
				e, ok := s.Seals(cluster.DefaultDomain)
				l, _ := s.Leader(cluster.DefaultDomain)
				return ok == want && (!ok || e.Value.WrittenBy(l.Value))
			})
		}
		seals(true)
		repaired("a record without a seal", unsealed)
		w.put(p.Server("old"), &cluster.Server{ID: "old", Name: "old", Records: cluster.RecordsSealed - 1})
		seals(false)
		believed("a record of a former build")
		repaired("a record with another's seal", func(r map[string]any) { r["seal"] = "0123456789abcdef" })
		w.put(p.Server("old"), &cluster.Server{ID: "old", Name: "old", Records: cluster.RecordsSealed})
		seals(true)
		repaired("a record without a seal, later", unsealed)
		// Servers of a former build replace the servers, and one of them leads. Servers of this build then replace
		// those.
		w.server.stop()
		l, _ := w.server.tables.Snapshot().Leader(cluster.DefaultDomain)
		led := *l.Value
		led.Epoch++
		w.put(p.Leader(cluster.DefaultDomain), &led)
		w.tamper("n1", task, unsealed)
		r, err := w.engine.Read(t.Context(), p.Desired("n1", task))
		if err != nil {
			t.Fatal(err)
		}
		w.start()
		seals(true)
		if now := row(w.server.tables.Snapshot()); now.Unreadable || now.DesiredRev != r.Modified {
			t.Errorf("what a leader of a former build wrote is not believed: %+v", now)
		}
		repaired("a record without a seal, at last", unsealed)
	})
}

// tamper rewrites the desired record of a task on a node.
func (w *world) tamper(node string, task cluster.TaskID, change func(record map[string]any)) {
	w.t.Helper()
	key := p.Desired(node, task)
	r, err := w.engine.Read(w.t.Context(), key)
	if err != nil {
		w.t.Fatal(err)
	}
	record := map[string]any{}
	if err := json.Unmarshal(r.Value, &record); err != nil {
		w.t.Fatal(err)
	}
	change(record)
	value, err := json.Marshal(record)
	if err != nil {
		w.t.Fatal(err)
	}
	w.raw(key, value)
}

func testForeignWrite(t *testing.T, w *world, change func(map[string]any), restart bool) {
	t.Helper()
	a, b := w.node("n1"), w.node("n2")
	w.definition(1, 500)
	w.definition(2, 500)
	w.service(1, 1, 1)
	task := cluster.ServiceTask("c", "web", 1, 0)
	var before store.AttemptRow
	w.until(time.Minute, "healthy and projected", func(s *store.Snapshot) bool {
		r, ok := s.Attempt(task, 1)
		if ok {
			before = *r
		}
		return ok && healthy(s, 1) == 1 && r.DesiredRev != 0 && r.PlanRev == 0
	})
	if restart {
		w.server.stop()
	}
	w.tamper(before.Node, task, change)
	if restart {
		w.start()
	}
	w.until(time.Minute, "the record is back", func(s *store.Snapshot) bool {
		r, ok := s.Attempt(task, 1)
		return ok && r.DesiredRev > before.DesiredRev && !r.Unreadable
	})
	time.Sleep(time.Minute) // in-bubble: what was obeyed would show
	s := w.server.tables.Snapshot()
	now, ok := s.Attempt(task, 1)
	switch {
	case !ok || now.Desired == nil || now.Outcome != nil:
		t.Fatalf("the attempt is %+v, want it unchanged", now)
	case now.Desired.Stop != nil || now.Desired.Definition != before.Desired.Definition ||
		now.Desired.UUID != before.Desired.UUID:
		t.Errorf("got %+v, want what was there: %+v", now.Desired, before.Desired)
	case !now.Observed.Healthy():
		t.Errorf("it is %+v, want it running", now.Observed)
	}
	if _, other := s.Attempt(task, 7); other {
		t.Error("the foreign attempt number was believed")
	}
	if n := len(a.effects) + len(b.effects); n != 1 {
		t.Errorf("programs were started %d times, want once", n)
	}
}
