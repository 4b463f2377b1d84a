package apiserver

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

func batch(id string, types ...string) cluster.EventBatch {
	b := cluster.EventBatch{ID: id, Incarnation: 1}
	for _, t := range types {
		b.Events = append(b.Events, cluster.Event{Type: t, Cluster: "default", Message: id})
	}
	return b
}

func commitRaw(t *testing.T, w *world, key, value string) {
	t.Helper()
	if _, err := w.engine.Commit(t.Context(),
		[]store.Group{{Ops: []store.Op{{Key: key, Value: []byte(value)}}}}); err != nil {
		t.Fatal(err)
	}
}

func ids(page api.Page[api.EventView]) string {
	text := ""
	for _, e := range page.Items {
		text += e.ID + " "
	}
	return text
}

func TestEvents(t *testing.T) {
	w := newWorld(t)
	type events = api.Page[api.EventView]
	if p := read[events](t, w.want(200, "GET", "/v1/events", nil)); len(p.Items) != 0 {
		t.Errorf("%v", p)
	}
	// The order of the ids is not the order of the batches.
	w.put(map[string]any{"event/z1": batch("z1", "task.failed", "task.lost")})
	w.put(map[string]any{"event/a2": batch("a2", "node.ready", "tasks.odd")})
	w.put(map[string]any{"event/m3": batch("m3", "task.failed")})
	tests := []struct{ query, want string }{
		{"", "z1.0 z1.1 a2.0 a2.1 m3.0 "},
		{"?after=z1.0", "z1.1 a2.0 a2.1 m3.0 "},
		{"?after=z1.1", "a2.0 a2.1 m3.0 "},
		{"?after=z1.99", "a2.0 a2.1 m3.0 "},
		{"?after=m3.0", ""},
		{"?after=now", ""},
		{"?types=task", "z1.0 z1.1 m3.0 "},
		{"?types=task.lost,node", "z1.1 a2.0 "},
		{"?types=task.failed&after=z1.0", "m3.0 "},
		{"?limit=2", "z1.0 z1.1 "},
		{"?after=m3.0&wait=10ms", ""},
	}
	for _, test := range tests {
		p := read[events](t, w.want(200, "GET", "/v1/events"+test.query, nil))
		if got := ids(p); got != test.want {
			t.Errorf("%s: got %s, want %s", test.query, got, test.want)
		}
		if test.query == "?limit=2" && p.Next != "z1.1" {
			t.Errorf("next is %q", p.Next)
		}
	}
	if p := read[events](t, w.want(200, "GET", "/v1/events",
		nil)); p.Items[0].RoutingKey != "task.failed.default._._._" {
		t.Errorf("routing key %s", p.Items[0].RoutingKey)
	}
	w.want(400, "GET", "/v1/events?after=z1", nil)
	w.want(400, "GET", "/v1/events?after=z1.-1", nil)
	w.want(400, "GET", "/v1/events?after=.0", nil)

	w.put(map[string]any{"event/z1": nil})
	got := w.want(410, "GET", "/v1/events?after=z1.1", nil)
	if p := got.problem(); p.Oldest != "a2.0" {
		t.Errorf("the oldest is %q, want a2.0", p.Oldest)
	}
	w.want(410, "GET", "/v1/events", nil, "Last-Event-ID", "of-another-life.3", "Accept", "text/event-stream")
}

func TestEventStream(t *testing.T) {
	w := newWorld(t)
	w.put(map[string]any{"event/b1": batch("b1", "task.failed", "task.lost")})
	s := w.stream("/v1/events")
	if got := append(s.until(t, "event"), s.until(t, "event")...); got[0].id != "b1.0" || got[1].id != "b1.1" {
		t.Errorf("%v", got)
	}
	w.put(map[string]any{"event/b2": batch("b2", "task.running")})
	if got := s.until(t, "event"); got[0].id != "b2.0" {
		t.Errorf("%v", got)
	}
	s.cancel()
	w.put(map[string]any{"event/b3": batch("b3", "task.running", "node.down")})
	s = w.stream("/v1/events?types=task,node", "Last-Event-ID", "b1.1")
	var got string
	for range 3 {
		e := s.until(t, "event")
		got += e[0].id + " "
	}
	if got != "b2.0 b3.0 b3.1 " {
		t.Errorf("resumed with %s", got)
	}
	s = w.stream("/v1/events?after=now&types=node")
	w.put(map[string]any{"event/b4": batch("b4", "task.running"), "event/b5": batch("b5", "node.down")})
	if e := s.until(t, "event"); e[0].id != "b5.0" {
		t.Errorf("%v", e)
	}
	var v api.EventView
	w.put(map[string]any{"event/b6": batch("b6", "node.up")})
	if err := json.Unmarshal([]byte(s.until(t, "event")[0].data), &v); err != nil || v.Type != "node.up" ||
		v.Message != "b6" {
		t.Errorf("%+v, %v", v, err)
	}
}

// TestEventGap checks the place of a gap in the stream.
func TestEventGap(t *testing.T) {
	w := newWorld(t)
	w.server.events.Buffer = 1
	s := w.stream("/v1/events?after=now")
	// Present events bypass the queue, so the stream has started once the first one arrives.
	w.put(map[string]any{"event/b0": batch("b0", "node.up")})
	s.until(t, "event")
	var many []string
	for range 500 {
		many = append(many, "task.running")
	}
	w.put(map[string]any{"event/b1": batch("b1", many...)})
	got := s.until(t, "gap")
	var gap api.EventGap
	if err := json.Unmarshal([]byte(got[len(got)-1].data), &gap); err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("b1.%d", len(got)-1); gap.First != want {
		t.Errorf("%d events, then %+v", len(got)-1, gap)
	}
	// A reader that continues after the gap's id gets no event twice.
	next := w.stream("/v1/events", "Last-Event-ID", gap.Last)
	w.put(map[string]any{"event/b2": batch("b2", "node.up")})
	for {
		e := next.until(t, "event")
		if e[0].id == "b2.0" {
			break
		}
	}
}
