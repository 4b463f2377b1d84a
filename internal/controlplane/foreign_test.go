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
		return ok && r.DesiredRev > before.DesiredRev && !r.IsUnreadable()
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

// A foreign record on a node that does not exist pins nothing: it is removed, and the task runs.
func TestForeignRecordOnAnUnknownNode(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.definition(1, 500)
		task := cluster.ServiceTask("c", "web", 1, 0)
		w.raw(p.Desired("n9", task), []byte(`neither`))
		w.service(1, 1, 1)
		w.until(time.Minute, "it runs, and the record is gone", func(s *store.Snapshot) bool {
			_, foreign := s.ForeignRow("n9", task)
			return healthy(s, 1) == 1 && !foreign
		})
	})
}
