package controlplane_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// Somebody changes a record in which all fields look right. It is recognised by its seal, obeyed by nobody, and written back (P3.9).
func TestForeignRecordThatLooksRightIsMended(t *testing.T) {
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
				inWorld(t, func(t *testing.T, w *world) { foreign(t, w, change, restart) })
			})
		}
	}
}

func foreign(t *testing.T, w *world, change func(map[string]any), restart bool) {
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
	node := before.Node
	r, err := w.engine.Read(t.Context(), p.Desired(node, task))
	if err != nil {
		t.Fatal(err)
	}
	record := map[string]any{}
	if err := json.Unmarshal(r.Value, &record); err != nil {
		t.Fatal(err)
	}
	change(record)
	value, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	if restart {
		w.server.stop()
	}
	w.raw(p.Desired(node, task), value)
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
		t.Fatalf("the attempt is %+v, want it as it was", now)
	case now.Desired.Stop != nil || now.Desired.Definition != before.Desired.Definition || now.Desired.UUID != before.Desired.UUID:
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
