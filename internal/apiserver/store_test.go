package apiserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
	"github.com/berthd/berth/internal/testkit"
)

func TestFullStore(t *testing.T) {
	w := newWorld(t)
	w.web()
	w.engine.Fill(true)
	got := w.want(507, "PUT", "/v1/clusters/blue", `{}`)
	if !strings.Contains(got.problem().Detail, "Free space") {
		t.Errorf("%s", got.body)
	}
	w.want(200, "GET", "/v1/services?consistent", nil)
	w.engine.Fill(false)
	w.want(201, "PUT", "/v1/clusters/blue", `{}`)
}

// TestQuotaIsReached reaches the quota with a write that was applied or refused. The answer says which.
func TestQuotaIsReached(t *testing.T) {
	w := newWorld(t)
	w.engine.ReachQuota()
	w.want(201, "PUT", "/v1/clusters/blue", `{}`)
	w.want(200, "GET", "/v1/clusters/blue?consistent", nil)
	w.want(507, "PUT", "/v1/clusters/red", `{}`)
	w.engine.Fill(false)
	w.want(404, "GET", "/v1/clusters/red?consistent", nil)
	w.want(201, "PUT", "/v1/clusters/red", `{}`)
}

// TestLostResults loses the engine's answers, before or after the write was applied.
func TestLostResults(t *testing.T) {
	var before, after atomic.Int32
	engine := memory.New(memory.Options{Hooks: memory.Hooks{
		Before: func(context.Context, []store.Group) error {
			if before.Add(-1) >= 0 {
				return store.ErrUnknown
			}
			return nil
		},
		After: func(context.Context, []store.Group, store.Result) error {
			if after.Add(-1) >= 0 {
				return store.ErrUnknown
			}
			return nil
		},
	}})
	w := newWorldOn(t, engine)
	w.web()
	const path = "/v1/clusters/default/services/web"
	generation := func() uint64 {
		return read[api.ServiceView](t, w.want(200, "GET", path, nil)).Generation
	}
	tests := []struct {
		name          string
		before, after int32
		status        int
		grows         uint64
	}{
		{"the first never happened", 1, 0, 200, 1},
		{"the first happened", 0, 1, 200, 1},
		{"two never happened", 2, 0, 200, 1},
		{"two were lost, the first happened", 0, 2, 200, 1},
		{"none happened, ever", 9, 0, 503, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			start := generation()
			before.Store(test.before)
			after.Store(test.after)
			got := w.want(test.status, "POST", path+"/restart", nil)
			before.Store(0)
			after.Store(0)
			if test.status == 503 && !strings.Contains(got.problem().Detail, "may have happened or not") {
				t.Errorf("%s", got.body)
			}
			if grown := generation() - start; grown != test.grows {
				t.Errorf("the generation grew by %d, want %d", grown, test.grows)
			}
		})
	}
	before.Store(1)
	w.want(201, "PUT", "/v1/clusters/blue", `{}`)
	after.Store(1)
	w.want(204, "DELETE", "/v1/clusters/blue", nil)
}

func TestReady(t *testing.T) {
	w := newWorld(t)
	r := read[api.Readiness](t, w.want(503, "GET", "/readyz", nil))
	if r.Ready || r.Parts["leader"] == "ok" || r.Parts["tables"] != "ok" || r.Parts["engine"] != "ok" {
		t.Errorf("%+v", r)
	}
	w.put(map[string]any{"leader/default": map[string]any{"epoch": 1, "holder": "s1"}})
	w.want(200, "GET", "/readyz", nil)
	w.engine.Fill(true)
	testkit.Eventually(t, 10*time.Second, func() error {
		got := w.call("GET", "/readyz", nil)
		if r := read[api.Readiness](t, got); got.status != 503 || !strings.Contains(r.Parts["engine"], "out of space") {
			return fmt.Errorf("ready with a full store: %+v", r)
		}
		return nil
	})
}

// TestReadyHidesTheCredentials checks that everyone may know that the store denies this server, and only users the name
// of the file with the credentials.
func TestReadyHidesTheCredentials(t *testing.T) {
	denied := &store.DeniedError{What: "unknown token", Remedy: "Check /etc/token", Err: errors.New("403")}
	w := newWorldOn(t, memory.New(memory.Options{}).Open(memory.Hooks{
		Before: func(context.Context, []store.Group) error { return denied },
	}))
	r := read[api.Readiness](t, w.want(503, "GET", "/readyz", nil))
	if text := r.Parts["engine"]; !strings.Contains(text, "denies this server") || strings.Contains(text, "token") {
		t.Errorf("/readyz says %q, want that the store denies the server, without its credentials", text)
	}
	detail := w.want(503, "PUT", "/v1/clusters/blue", `{}`).problem().Detail
	if !strings.Contains(detail, "unknown token. Check /etc/token") {
		t.Errorf("a write says %q, want the remedy", detail)
	}
}

func TestMetrics(t *testing.T) {
	w := newWorld(t)
	w.want(200, "GET", "/v1/version", nil)
	got := string(w.want(200, "GET", "/metrics", nil).body)
	if want := `berth_apiserver_requests_total{method="GET",route="/v1/version",status="200"} 1`; !strings.Contains(got,
		want) {
		t.Errorf("no %s in:\n%s", want, got)
	}
}

// TestSlowStore writes more slowly than a body may arrive. The body's deadline must not end the write.
func TestSlowStore(t *testing.T) {
	engine := memory.New(memory.Options{Hooks: memory.Hooks{
		Before: func(ctx context.Context, _ []store.Group) error {
			slow, cancel := context.WithTimeout(ctx, 1300*time.Millisecond)
			defer cancel()
			<-slow.Done()
			return ctx.Err()
		},
	}})
	w := newWorldOn(t, engine, impatient)
	w.want(201, "PUT", "/v1/clusters/blue", `{}`)
}

// TestEngineRestored restores the store during an event stream. The reader must start again.
func TestEngineRestored(t *testing.T) {
	w := newWorld(t)
	w.put(map[string]any{"event/b1": batch("b1", "task.failed")})
	var backup bytes.Buffer
	if err := w.engine.Snapshot(t.Context(), "", &backup); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		w.put(map[string]any{fmt.Sprintf("event/c%d", i): batch(fmt.Sprintf("c%d", i), "task.failed")})
	}
	s := w.stream("/v1/events?after=c3.0")
	s.until(t, "event")
	if err := w.engine.Restore(&backup); err != nil {
		t.Fatal(err)
	}
	s.until(t, "reset")
	w.want(410, "GET", "/v1/events?after=c4.0", nil)
	w.want(200, "GET", "/v1/events?after=b1.0", nil)
}
