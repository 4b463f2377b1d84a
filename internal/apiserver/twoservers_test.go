package apiserver

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
	"github.com/berthd/berth/internal/testkit"
)

// laggingEngine is a handle on an engine whose watches deliver nothing while it is held, so that the tables behind it
// lag.
type laggingEngine struct {
	store.Engine
	mu   sync.Mutex
	held chan struct{} // closed on release; nil while not held
}

func (e *laggingEngine) hold() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.held = make(chan struct{})
}

func (e *laggingEngine) release() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.held != nil {
		close(e.held)
		e.held = nil
	}
}

func (e *laggingEngine) Watch(ctx context.Context, prefix string, after uint64) store.Watch {
	return &lateWatch{e.Engine.Watch(ctx, prefix, after), e}
}

type lateWatch struct {
	store.Watch
	engine *laggingEngine
}

func (w *lateWatch) Next(ctx context.Context) (store.Batch, error) {
	b, err := w.Watch.Next(ctx)
	w.engine.mu.Lock()
	held := w.engine.held
	w.engine.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-ctx.Done():
			return store.Batch{}, ctx.Err()
		}
	}
	return b, err
}

// newFleet returns two servers over one engine. The tables of the second one lag while its handle is held.
func newFleet(t *testing.T) (a, b *world, lag *laggingEngine) {
	t.Helper()
	engine := memory.New(memory.Options{})
	a = newWorldOn(t, engine)
	lag = &laggingEngine{Engine: engine.Open(memory.Hooks{})}
	b = newWorldOver(t, engine, lag)
	t.Cleanup(lag.release)
	return a, b, lag
}

// same waits until both servers show the present writes.
func (w *world) same(other *world) {
	w.t.Helper()
	if _, err := other.tables.WaitFor(w.t.Context(), w.tables.Snapshot().Revision()); err != nil {
		w.t.Fatal(err)
	}
}

const webPath = "/v1/clusters/default/services/web"

func countOf(t *testing.T, r reply) int {
	t.Helper()
	return read[api.ServiceView](t, r).Count
}

// TestReadYourWrites reads writes of one server from that server, and with ?consistent from the other.
func TestReadYourWrites(t *testing.T) {
	a, b, lag := newFleet(t)
	a.web()
	a.same(b)
	for i := range 5 {
		b.want(200, "POST", webPath+"/scale", map[string]any{"count": 10 + i})
		if got := countOf(t, b.want(200, "GET", webPath, nil)); got != 10+i {
			t.Errorf("b reads %d of its own write of %d", got, 10+i)
		}
		if got := countOf(t, a.want(200, "GET", webPath+"?consistent", nil)); got != 10+i {
			t.Errorf("a reads %d consistently after b wrote %d", got, 10+i)
		}
	}
	lag.hold()
	a.want(200, "POST", webPath+"/scale", map[string]any{"count": 20})
	if got := countOf(t, b.want(200, "GET", webPath, nil)); got != 14 {
		t.Errorf("b lags and reads %d, want its own state of 14", got)
	}
	time.AfterFunc(50*time.Millisecond, lag.release)
	if got := countOf(t, b.want(200, "GET", webPath+"?consistent", nil)); got != 20 {
		t.Errorf("b reads %d consistently, want 20", got)
	}
}

// TestWritesThroughALaggingServer checks the answers of a lagging server to writes. A stale refusal, or a stale
// "nothing to do", would contradict the history.
func TestWritesThroughALaggingServer(t *testing.T) {
	tests := []struct {
		name         string
		before       func(a *world) string // through the server that is ahead; returns an If-Match
		method, path string
		body         any
		status       int
		after        func(t *testing.T, a *world)
	}{
		{
			"a revision of a moment ago", func(a *world) string {
				return a.want(200, "POST", webPath+"/scale", map[string]any{"count": 4}).header.Get("ETag")
			}, "POST", webPath + "/scale",
			map[string]any{"count": 5},
			200,
			func(t *testing.T, a *world) {
				if got := countOf(t, a.want(200, "GET", webPath+"?consistent", nil)); got != 5 {
					t.Errorf("count %d, want 5", got)
				}
			},
		},
		{
			"what is there in its tables only", func(a *world) string {
				a.want(200, "POST", webPath+"/scale", map[string]any{"count": 4})
				return ""
			}, "POST", webPath + "/scale",
			map[string]any{"count": 3},
			200,
			func(t *testing.T, a *world) {
				if got := countOf(t, a.want(200, "GET", webPath+"?consistent", nil)); got != 3 {
					t.Errorf("count %d: the write was acknowledged and did nothing", got)
				}
			},
		},
		{
			"a service of a moment ago", func(a *world) string {
				a.want(201, "PUT", "/v1/clusters/default/services/api", service("api", "web@1", 1))
				return ""
			}, "POST", "/v1/clusters/default/services/api/scale", map[string]any{"count": 2}, 200, nil,
		},
		{
			"a definition of a moment ago", func(a *world) string {
				a.want(201, "PUT", "/v1/definitions/web/2", definition("web", 2))
				return ""
			}, "PUT", webPath, service("web", "web@2", 3), 200, nil,
		},
		{
			"a revision that is over", func(a *world) string {
				old := a.want(200, "GET", webPath, nil).header.Get("ETag")
				a.want(200, "POST", webPath+"/scale", map[string]any{"count": 4})
				return old
			}, "POST", webPath + "/scale", map[string]any{"count": 5}, 412, nil,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			a, b, lag := newFleet(t)
			a.web()
			a.same(b)
			lag.hold()
			var headers []string
			if match := test.before(a); match != "" {
				headers = []string{"If-Match", match}
			}
			time.AfterFunc(50*time.Millisecond, lag.release)
			b.want(test.status, test.method, test.path, test.body, headers...)
			if test.after != nil {
				test.after(t, a)
			}
		})
	}
}

// TestIndexOfAnotherServer waits at a lagging server for a change since an index of another server.
func TestIndexOfAnotherServer(t *testing.T) {
	a, b, lag := newFleet(t)
	a.web()
	a.same(b)
	lag.hold()
	a.want(200, "POST", webPath+"/scale", map[string]any{"count": 7})
	seen := read[api.Page[api.ServiceView]](t, a.want(200, "GET", "/v1/services", nil))
	path := fmt.Sprintf("/v1/services?index=%d&wait=", seen.Index)

	// The lagging server must not answer with a list older than the client's index.
	got := b.want(503, "GET", path+"200ms", nil)
	if !strings.Contains(got.problem().Detail, "this server is behind") || got.header.Get("Retry-After") == "" {
		t.Errorf("%s", got.body)
	}
	// Once it has caught up the list is unchanged, so it continues to wait.
	answered := make(chan reply, 1)
	go func() { answered <- b.call("GET", path+"10s", nil) }()
	testkit.Pause(t.Context(), 50*time.Millisecond)
	lag.release()
	testkit.Pause(t.Context(), 100*time.Millisecond)
	a.want(200, "POST", webPath+"/scale", map[string]any{"count": 8})
	page := read[api.Page[api.ServiceView]](t, <-answered)
	if page.Items[0].Count == 7 { // an answer that says nothing new is allowed, one from the past is not
		if page.Index < seen.Index {
			t.Fatalf("index %d after %d", page.Index, seen.Index)
		}
		page = read[api.Page[api.ServiceView]](t,
			b.want(200, "GET", fmt.Sprintf("/v1/services?index=%d&wait=10s", page.Index), nil))
	}
	if page.Items[0].Count != 8 || page.Index <= seen.Index {
		t.Errorf("count %d at %d, want 8 after %d", page.Items[0].Count, page.Index, seen.Index)
	}
}

// TestIndexOfALostStore sends an index from before a restore; the answer is the present list.
func TestIndexOfALostStore(t *testing.T) {
	w := newWorld(t)
	w.web()
	ahead := w.tables.Snapshot().Revision() + 1000
	page := read[api.Page[api.ServiceView]](t,
		w.want(200, "GET", fmt.Sprintf("/v1/services?index=%d&wait=100ms", ahead), nil))
	if len(page.Items) != 1 || page.Index >= ahead {
		t.Errorf("%+v", page)
	}
}

// TestStreamsMove continues streams at a server that lags behind the first one.
func TestStreamsMove(t *testing.T) {
	a, b, lag := newFleet(t)
	a.web()
	a.same(b)
	lag.hold()
	a.put(map[string]any{"event/e7": batch("e7", "task.failed")})
	a.want(200, "POST", webPath+"/scale", map[string]any{"count": 7})

	list := a.stream("/v1/services")
	list.until(t, "synced")
	list.cancel()
	events := a.stream("/v1/events?types=task")
	cursor := lastID(events.until(t, "event"))
	events.cancel()
	if cursor != "e7.0" {
		t.Fatalf("cursor %q", cursor)
	}

	time.AfterFunc(100*time.Millisecond, lag.release)
	page := read[api.Page[api.EventView]](t, b.want(200, "GET", "/v1/events?after="+cursor, nil))
	if len(page.Items) != 1 || page.Items[0].Type != "service.updated" {
		t.Errorf("events after %s at the other server: %+v", cursor, page.Items)
	}

	lag.hold()
	a.want(200, "POST", webPath+"/scale", map[string]any{"count": 8})
	list = a.stream("/v1/services")
	mark := lastID(list.until(t, "synced"))
	list.cancel()
	time.AfterFunc(100*time.Millisecond, lag.release)
	moved := b.stream("/v1/services", "Last-Event-ID", mark)
	defer moved.cancel()
	if got := lastID(moved.until(t, "synced")); got < mark && len(got) <= len(mark) {
		t.Errorf("the list at the other server begins at %s, which lies before %s", got, mark)
	}
	w := read[api.ServiceView](t, b.want(200, "GET", webPath, nil))
	if w.Count != 8 {
		t.Errorf("count %d", w.Count)
	}
	b.want(410, "GET", "/v1/events?after=never.0", nil)
}

func lastID(events []sseEvent) string { return events[len(events)-1].id }

// TestLeaderOfAnotherServer reads the status from a server that does not lead.
func TestLeaderOfAnotherServer(t *testing.T) {
	a, b, _ := newFleet(t)
	a.put(map[string]any{
		"leader/default": cluster.Leader{Epoch: 1, Holder: "s1"}, "server/s1": cluster.Server{ID: "s1", Name: "one"},
	})
	v := read[api.Status](t, b.want(200, "GET", "/v1/status?consistent", nil))
	if v.Leader == nil || v.Leader.Name != "one" {
		t.Errorf("%+v", v.Leader)
	}
}

// TestOvertaken overwrites an object through another server before the first answer. The first answer must carry its
// own write's revision, so that an If-Match cannot overwrite a state that the client never saw.
func TestOvertaken(t *testing.T) {
	var other func()
	var once sync.Once
	engine := memory.New(memory.Options{Hooks: memory.Hooks{
		After: func(_ context.Context, groups []store.Group, _ store.Result) error {
			if other != nil && strings.HasSuffix(groups[0].Ops[0].Key, "/web") {
				once.Do(other)
			}
			return nil
		},
	}})
	a := newWorldOn(t, engine)
	b := newWorldOver(t, engine, engine.Open(memory.Hooks{}))
	a.web()
	a.same(b)
	other = func() {
		b.want(200, "POST", webPath+"/scale", map[string]any{"count": 9})
		b.same(a)
	}
	got := a.want(200, "POST", webPath+"/scale", map[string]any{"count": 7})
	if v := read[api.ServiceView](t, got); v.Count != 7 || respond.ETag(v.Revision) != got.header.Get("ETag") {
		t.Errorf("got %d at %d with ETag %s, want the requested count", v.Count, v.Revision, got.header.Get("ETag"))
	}
	a.want(412, "POST", webPath+"/scale", map[string]any{"count": 8}, "If-Match", got.header.Get("ETag"))
	if got := countOf(t, a.want(200, "GET", webPath, nil)); got != 9 {
		t.Errorf("count %d, want the other's 9", got)
	}
}
