package apiserver

import (
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// filtered returns a world with events of two clusters during one hour. The newest batch has the server's present time.
func filtered(t *testing.T) *world {
	t.Helper()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	w := newWorld(t, func(c *Config) { c.Now = func() time.Time { return now } })
	service := func(in, name string) *cluster.OwnerRef {
		return &cluster.OwnerRef{Kind: cluster.KindService, Cluster: in, Name: name}
	}
	at := func(id string, ago time.Duration, events ...cluster.Event) {
		w.put(map[string]any{"event/" +
			id: cluster.EventBatch{ID: id, Incarnation: 1, At: now.Add(-ago), Events: events}})
	}
	at("a", time.Hour,
		cluster.Event{Type: "service.created", Cluster: "default", Owner: service("default", "web")},
		cluster.Event{Type: "service.created", Cluster: "prod", Owner: service("prod", "web")},
		cluster.Event{Type: "node.ready", Node: "n1"})
	at("b", 10*time.Minute,
		cluster.Event{
			Type: "task.failed", Cluster: "default", Owner: service("default", "web"),
			Task: "default.web.1.0", Node: "n1", Reason: cluster.ReasonOOM,
		},
		cluster.Event{
			Type: "task.failed", Cluster: "default",
			Owner: &cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "default", Name: "web"}, Task: "default.web.1.a.0",
			Node: "n2", Reason: cluster.ReasonExit,
		},
		// of a removed owner
		cluster.Event{Type: "task.lost", Task: "prod.web.1.0", Node: "n2", Reason: cluster.ReasonNodeDown})
	at("c", 0,
		cluster.Event{
			Type: "cron.fired", Cluster: "default",
			Owner: &cluster.OwnerRef{Kind: cluster.KindCron, Cluster: "default", Name: "web"},
		},
		cluster.Event{Type: "node.down", Node: "n2", Reason: cluster.ReasonNodeDown})
	return w
}

// TestEventFilters selects events by each field, and by several fields together.
func TestEventFilters(t *testing.T) {
	w := filtered(t)
	for _, test := range []struct{ query, want string }{
		{"", "a.0 a.1 a.2 b.0 b.1 b.2 c.0 c.1 "},
		{"?service=web", "a.0 a.1 b.0 b.2 "},
		{"?service=web&cluster=prod", "a.1 b.2 "},
		{"?service=we", ""},
		{"?job=web", "b.1 "},
		{"?cron=web", "c.0 "},
		{"?cluster=default", "a.0 b.0 b.1 c.0 "},
		{"?node=n2", "b.1 b.2 c.1 "},
		{"?task=default.web.1.0", "b.0 "},
		{"?reasons=oom,exit", "b.0 b.1 "},
		{"?reasons=node-down&types=node", "c.1 "},
		{"?since=10m", "b.0 b.1 b.2 c.0 c.1 "},
		{"?since=9m59s", "c.0 c.1 "},
		{"?since=30m&service=web&types=task.failed", "b.0 "},
		{"?service=web&after=a.1", "b.0 b.2 "},
		{"?service=web&limit=1", "a.0 "},
	} {
		if got := ids(read[api.Page[api.EventView]](t,
			w.want(200, "GET", "/v1/events"+test.query, nil))); got != test.want {
			t.Errorf("%s: got %s, want %s", test.query, got, test.want)
		}
	}
	got := w.want(400, "GET", "/v1/events?service=We.b&job=x&node=.&task=web&since=soon&cron=y", nil)
	want := "?node: is \".\", which is not a valid name of a node; ?service: is \"We.b\", which is not a " +
		"valid name of a service; " +
		"?job: cannot be given beside another owner: name one service, job or cron at a time; " +
		"?cron: cannot be given beside another owner: name one service, job or cron at a time; " +
		"?task: is \"web\", which is not a valid name of a task; ?since: is \"soon\", want a duration such " +
		"as \"30s\" or \"5m\""
	if got.faults() != want {
		t.Errorf("faults:\n got %s\nwant %s", got.faults(), want)
	}
}

// TestFilteredEventStream follows one service while others have events, too.
func TestFilteredEventStream(t *testing.T) {
	w := filtered(t)
	s := w.stream("/v1/events?service=web&cluster=default&since=30m")
	if e := s.until(t, "event"); e[0].id != "b.0" {
		t.Errorf("began with %v, want b.0", e[0].id)
	}
	event := cluster.Event{
		Type: "service.updated", Cluster: "default",
		Owner: &cluster.OwnerRef{Kind: cluster.KindService, Cluster: "default", Name: "web"},
	}
	w.put(map[string]any{"event/d": cluster.EventBatch{
		ID: "d", At: w.server.cfg.Now(),
		Events: []cluster.Event{{Type: "node.up", Node: "n1"}, event},
	}})
	if e := s.until(t, "event"); e[0].id != "d.1" {
		t.Errorf("went on with %v, want d.1", e[0].id)
	}
}
