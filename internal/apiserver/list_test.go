package apiserver

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/testkit"
)

func TestPages(t *testing.T) {
	w := newWorld(t)
	w.want(201, "PUT", "/v1/definitions/web/1", definition("web", 1))
	var want []string
	for i := range 7 {
		name := fmt.Sprintf("s%d", i)
		want = append(want, name)
		w.want(201, "PUT", "/v1/clusters/default/services/"+name, service(name, "web@1", 1))
	}
	for _, limit := range []int{1, 3, 7, 100} {
		var got []string
		cursor := ""
		for pages := 0; ; pages++ {
			p := read[api.Page[api.ServiceView]](t,
				w.want(200, "GET", fmt.Sprintf("/v1/services?limit=%d&cursor=%s", limit, cursor), nil))
			for _, s := range p.Items {
				got = append(got, s.Name)
			}
			if len(p.Items) > limit || pages > 10 {
				t.Fatalf("limit %d: page %d has %d", limit, pages, len(p.Items))
			}
			if cursor = p.Next; cursor == "" {
				break
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("limit %d: %s", limit, diff)
		}
	}
	// The element of a cursor may have been deleted.
	p := read[api.Page[api.ServiceView]](t, w.want(200, "GET", "/v1/services?limit=3", nil))
	w.put(map[string]any{"service/default/s2": nil})
	p = read[api.Page[api.ServiceView]](t, w.want(200, "GET", "/v1/services?limit=3&cursor="+p.Next, nil))
	if len(p.Items) != 3 || p.Items[0].Name != "s3" {
		t.Errorf("after a removal: %d items, first %s", len(p.Items), p.Items[0].Name)
	}
}

// TestPagesOfTasks checks that the pages of tasks are the parts of the whole list: of owners whose names begin with
// each other, and of owners that are gone; with attempts, pending tasks and ranges.
func TestPagesOfTasks(t *testing.T) {
	w := newWorld(t)
	w.want(201, "PUT", "/v1/definitions/web/1", definition("web", 1))
	for name, count := range map[string]int{"web": 3, "web-2": 2, "a": 2} { // order-free: each by itself
		w.want(201, "PUT", "/v1/clusters/default/services/"+name, service(name, "web@1", count))
	}
	for name, count := range map[string]int{"webs": 3, "sum": 150, "z": 1} { // order-free: each by itself
		w.want(201, "PUT", "/v1/clusters/default/jobs/"+name, job(name, "web@1", count))
	}
	records := map[string]any{}
	for _, task := range []cluster.TaskID{
		"default.web.1.1", "default.gone.1.0", "default.webs.1.work.2", "default.zzz.1.0", "default.a.1.0",
	} {
		owner, _ := task.Owner()
		d := desired(task, 1, owner.Kind, cluster.Ref{Name: "web", Version: 1})
		records["state/"+d.Node+"/"+string(task)] = d
	}
	w.put(records)
	pages := func(query string, limit int) (ids []string) {
		for cursor, n := "", 0; ; n++ {
			p := read[api.Page[api.TaskView]](t,
				w.want(200, "GET", fmt.Sprintf("/v1/tasks?limit=%d&cursor=%s%s", limit, cursor, query), nil))
			for i := range p.Items {
				ids = append(ids, fmt.Sprintf("%s/%d+%d", p.Items[i].ID, p.Items[i].Attempt, p.Items[i].Further))
			}
			if limit > 0 && len(p.Items) > limit || n > 50 {
				t.Fatalf("limit %d: page %d has %d", limit, n, len(p.Items))
			}
			if cursor = p.Next; cursor == "" {
				return ids
			}
		}
	}
	for query, want := range map[string]int{ // order-free: each by itself
		"": 5 + 2 + 1 + 2 + 2 + 2 + 1, "&state=pending": 10, "&cluster=default&job=webs": 3, "&service=web": 3,
	} {
		whole := pages(query, 0)
		if len(whole) != want {
			t.Fatalf("%q: %d tasks, want %d: %v", query, len(whole), want, whole)
		}
		for limit := range 20 {
			if diff := cmp.Diff(whole, pages(query, limit)); diff != "" {
				t.Errorf("%q, limit %d (-whole +pages):\n%s", query, limit, diff)
			}
		}
	}
}

func TestBlockingList(t *testing.T) {
	w := newWorld(t)
	w.web()
	type services = api.Page[api.ServiceView]
	first := read[services](t, w.want(200, "GET", "/v1/services", nil))
	began := time.Now()
	same := read[services](t, w.want(200, "GET", fmt.Sprintf("/v1/services?index=%d&wait=200ms", first.Index), nil))
	if took := time.Since(began); took < 200*time.Millisecond || len(same.Items) != 1 {
		t.Errorf("a list that did not change was answered after %v", took)
	}
	// An older index is answered immediately.
	if p := read[services](t, w.want(200, "GET", "/v1/services?index=1&wait=1m", nil)); len(p.Items) != 1 {
		t.Errorf("%d services", len(p.Items))
	}
	answered := make(chan services, 1)
	go func() {
		answered <- read[services](t, w.call("GET", fmt.Sprintf("/v1/services?index=%d&wait=1m", first.Index), nil))
	}()
	// A change of another list does not end the wait; a change of this list does.
	for i := range 5 {
		w.want(201, "PUT", fmt.Sprintf("/v1/clusters/c%d", i), `{}`)
	}
	select {
	case p := <-answered:
		t.Errorf("answered by a change elsewhere, at index %d", p.Index)
	default:
	}
	w.want(200, "POST", "/v1/clusters/default/services/web/scale", `{"count": 9}`)
	if p := <-answered; len(p.Items) != 1 || p.Items[0].Count != 9 {
		t.Errorf("got %+v", p)
	}
}

// TestBlockingListKnowsItsIndex checks that changes of other lists between two requests do not wake the second one.
func TestBlockingListKnowsItsIndex(t *testing.T) {
	w := newWorld(t)
	w.web()
	type services = api.Page[api.ServiceView]
	first := read[services](t, w.want(200, "GET", "/v1/services", nil))
	w.want(201, "PUT", "/v1/clusters/blue", `{}`)
	began := time.Now()
	w.want(200, "GET", fmt.Sprintf("/v1/services?index=%d&wait=150ms", first.Index), nil)
	if took := time.Since(began); took < 150*time.Millisecond {
		t.Errorf("answered after %v", took)
	}
}

func TestWaitIsWokenByReasons(t *testing.T) {
	w := newWorld(t)
	w.web()
	type tasks = api.Page[api.TaskView]
	first := read[tasks](t, w.want(200, "GET", "/v1/tasks", nil))
	answered := make(chan tasks, 1)
	go func() {
		answered <- read[tasks](t, w.call("GET", fmt.Sprintf("/v1/tasks?index=%d&wait=1m", first.Index), nil))
	}()
	w.why.mu.Lock()
	w.why.all["default.web.1.1"] = cluster.Waiting{
		Sentence: "no node",
		Refusals: []cluster.RefusalCount{{Refusal: cluster.Refusal{Code: cluster.ReasonNoNodes}}},
	}
	w.why.mu.Unlock()
	var p tasks
	select {
	case p = <-answered:
	case <-testkit.Context(t, 20*time.Second).Done():
		t.Fatal("the list slept on")
	}
	if p.Items[1].Message != "no node" || p.Items[1].Reason != cluster.ReasonNoNodes {
		t.Errorf("%+v", p.Items[1])
	}
}

// TestReasonsBetweenTwoWaits changes a task's reason between two waits. The next wait is answered immediately, although
// the index is the same.
func TestReasonsBetweenTwoWaits(t *testing.T) {
	w := newWorld(t)
	w.rarely()
	w.web()
	type tasks = api.Page[api.TaskView]
	first := read[tasks](t, w.want(200, "GET", "/v1/tasks", nil))
	w.why.mu.Lock()
	w.why.all["default.web.1.1"] = cluster.Waiting{
		Sentence: "no node",
		Refusals: []cluster.RefusalCount{{Refusal: cluster.Refusal{Code: cluster.ReasonNoNodes}}},
	}
	w.why.mu.Unlock()
	watch := testkit.NewStopwatch()
	p := read[tasks](t, w.want(200, "GET", fmt.Sprintf("/v1/tasks?index=%d&wait=20s", first.Index), nil))
	if took := watch.Elapsed(); took > 10*time.Second {
		t.Errorf("answered after %v", took)
	}
	if p.Index != first.Index || p.Items[1].Message != "no node" {
		t.Errorf("%+v", p)
	}
}

func TestConsistentRead(t *testing.T) {
	w := newWorld(t)
	w.web()
	for i := range 20 {
		count := i + 1
		value := fmt.Sprintf(`{"v":1,"cluster":"default","name":"web","definition":"web@1","count":%d,"generation":1}`,
			count)
		commitRaw(t, w, "berth/service/default/web", value)
		v := read[api.ServiceView](t, w.want(200, "GET", "/v1/clusters/default/services/web?consistent", nil))
		if v.Count != count {
			t.Fatalf("a consistent read shows count %d, written was %d", v.Count, count)
		}
	}
}

// sseEvent is one event of a stream.
type sseEvent struct{ kind, id, data string }

// sseStream reads a stream in the background.
type sseStream struct {
	events chan sseEvent
	cancel context.CancelFunc
}

func (w *world) stream(path string, headers ...string) *sseStream {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Accept", "text/event-stream")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(r) //nolint:bodyclose // closed by its reader below
	if err != nil {
		w.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		w.t.Fatalf("status %d, %s", resp.StatusCode, resp.Header.Get("Content-Type"))
	}
	s := &sseStream{events: make(chan sseEvent, 10_000), cancel: cancel}
	w.t.Cleanup(cancel)
	go func() {
		defer resp.Body.Close()
		defer close(s.events)
		var e sseEvent
		for in := bufio.NewScanner(resp.Body); in.Scan(); {
			key, value, _ := strings.Cut(in.Text(), ": ")
			switch key {
			case "event":
				e.kind = value
			case "id":
				e.id = value
			case "data":
				e.data = value
			case "":
				if e.kind != "" {
					s.events <- e
				}
				e = sseEvent{}
			}
		}
	}()
	return s
}

// until reads events up to one of a kind.
func (s *sseStream) until(t *testing.T, kind string) (all []sseEvent) {
	t.Helper()
	deadline := testkit.Context(t, 20*time.Second).Done()
	for {
		select {
		case e, ok := <-s.events:
			if !ok {
				t.Fatalf("the stream ended before %q, after %v", kind, all)
			}
			all = append(all, e)
			if e.kind == kind {
				return all
			}
		case <-deadline:
			t.Fatalf("no %q, only %v", kind, all)
		}
	}
}

func kinds(events []sseEvent) string {
	var all []string
	for _, e := range events {
		all = append(all, e.kind)
	}
	return strings.Join(all, " ")
}

func TestListStream(t *testing.T) {
	w := newWorld(t)
	w.web()
	s := w.stream("/v1/services")
	got := s.until(t, "synced")
	if kinds(got) != "reset put synced" {
		t.Errorf("begins with %s", kinds(got))
	}
	w.want(201, "PUT", "/v1/clusters/default/services/api", service("api", "web@1", 1))
	got = s.until(t, "synced")
	var v api.ServiceView
	if err := json.Unmarshal([]byte(got[0].data), &v); err != nil || kinds(got) != "put synced" || v.Name != "api" {
		t.Errorf("%v, %v", got, err)
	}
	w.put(map[string]any{"service/default/api": nil})
	got = s.until(t, "synced")
	if kinds(got) != "remove synced" || got[0].data != `{"name":"default/api"}` {
		t.Errorf("%v", got)
	}
	last := got[1].id
	s.cancel()

	// The list has not changed, so the stream continues.
	w.want(201, "PUT", "/v1/clusters/blue", `{}`)
	s = w.stream("/v1/services", "Last-Event-ID", last)
	if got = s.until(t, "synced"); kinds(got) != "synced" {
		t.Errorf("resumed with %s", kinds(got))
	}
	w.want(200, "POST", "/v1/clusters/default/services/web/scale", `{"count": 1}`)
	if got = s.until(t, "synced"); kinds(got) != "put synced" {
		t.Errorf("after resuming: %s", kinds(got))
	}
	s.cancel()

	// The list has changed, so the stream starts again.
	s = w.stream("/v1/services", "Last-Event-ID", last)
	if got = s.until(t, "synced"); kinds(got) != "reset put synced" {
		t.Errorf("resumed late with %s", kinds(got))
	}
	for _, path := range []string{"/v1/jobs", "/v1/tasks", "/v1/nodes"} {
		w.stream(path).until(t, "synced")
	}
}
