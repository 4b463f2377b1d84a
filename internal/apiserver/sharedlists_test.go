package apiserver

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/apiserver/views"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/testkit"
)

// rarely disables the computation of whole lists, so that a test sees the effect of changes alone.
func (w *world) rarely() {
	w.server.lists.Views.Whole.Least, w.server.lists.Views.Whole.Most = time.Hour, time.Hour
}

// computed returns how often a list was computed for waiting requests.
func (w *world) computed(list string) (times int) {
	w.t.Helper()
	for in := bufio.NewScanner(strings.NewReader(string(w.want(200, "GET", "/metrics", nil).body))); in.Scan(); {
		if !strings.HasPrefix(in.Text(), `berth_apiserver_computed_lists_total{list="`+list+`"`) {
			continue
		}
		n, err := strconv.ParseFloat(in.Text()[strings.LastIndexByte(in.Text(), ' ')+1:], 64)
		if err != nil {
			w.t.Fatal(err)
		}
		times += int(n)
	}
	return times
}

// TestOneComputationForAll changes a list that many requests wait for. It is computed once, and all get the change.
func TestOneComputationForAll(t *testing.T) {
	w := newWorld(t)
	w.rarely()
	w.web()
	const many = 20
	var streams []*sseStream
	for range many {
		s := w.stream("/v1/services")
		s.until(t, "synced")
		streams = append(streams, s)
	}
	if n := w.computed("services"); n != 1 {
		t.Errorf("computed %d times for %d streams, want once", n, many)
	}
	index := read[api.Page[api.ServiceView]](t, w.want(200, "GET", "/v1/services", nil)).Index
	answered := make(chan reply, many)
	for range many {
		go func() { answered <- w.call("GET", fmt.Sprintf("/v1/services?index=%d&wait=1m", index), nil) }()
	}
	testkit.Eventually(t, 10*time.Second, func() error {
		if n := w.server.lists.Waiters.Count(); n != 2*many {
			return fmt.Errorf("%d wait", n)
		}
		return nil
	})
	w.want(200, "POST", "/v1/clusters/default/services/web/scale", `{"count": 9}`)
	for _, s := range streams {
		if got := s.until(t, "synced"); kinds(got) != "put synced" || !strings.Contains(got[0].data, `"count":9`) {
			t.Errorf("%v", got)
		}
	}
	for range many {
		if p := read[api.Page[api.ServiceView]](t, <-answered); len(p.Items) != 1 || p.Items[0].Count != 9 ||
			p.Index <= index {
			t.Errorf("%+v", p)
		}
	}
	if n := w.computed("services"); n != 2 {
		t.Errorf("computed %d times, want twice: at the begin and once for the change", n)
	}
	if n := w.server.lists.Views.Views(); n != 1 {
		t.Errorf("%d views are kept for one list", n)
	}
}

// TestOtherTopicsDoNotWake changes records that lists do not read: no list is computed.
func TestOtherTopicsDoNotWake(t *testing.T) {
	w := busy(t)
	w.rarely()
	w.want(201, "PUT", "/v1/clusters/blue", `{}`)
	for _, path := range []string{
		"/v1/nodes", "/v1/clusters/blue/services", "/v1/tasks?cluster=blue", "/v1/clusters",
		"/v1/definitions", "/v1/clusters/default/services/web/addresses",
	} {
		w.stream(path).until(t, "synced")
	}
	lists := []string{"nodes", "services", "tasks", "clusters", "definitions", "addresses"}
	before := map[string]int{}
	for _, list := range lists {
		before[list] = w.computed(list)
	}
	d := desired("default.sum.1.add.2", 2, cluster.KindJob, cluster.Ref{Name: "work", Version: 1})
	for i := range 20 {
		o := observed(d, cluster.StateRunning, cluster.HealthHealthy)
		o.Message = fmt.Sprint(i)
		w.put(map[string]any{
			// of cluster default; the node's tasks are as many as before, but it may not know
			"status/n1/default.sum.1.add.2": o,
			fmt.Sprintf("event/e%d", i):     batch(fmt.Sprintf("e%d", i), "task.running"),
			"pool/p":                        cluster.Pool{Name: "p"},
			"reservation/r":                 cluster.Reservation{Name: "r", Domain: "default"},
		})
	}
	// All readers see this last change, so they have also seen the earlier ones.
	s := w.stream("/v1/clusters/blue/services")
	s.until(t, "synced")
	w.want(201, "PUT", "/v1/clusters/blue/services/api", service("api", "web@1", 1))
	s.until(t, "synced")
	for _, list := range []string{"clusters", "definitions", "addresses"} {
		if n := w.computed(list); n != before[list] {
			t.Errorf("%s: computed %d times by changes that it does not read", list, n-before[list])
		}
	}
	if n := w.computed("services") - before["services"]; n != 1 {
		t.Errorf("services of cluster blue: computed %d times, want once, for the service of that cluster", n)
	}
	if n := w.computed("tasks") - before["tasks"]; n > 1 {
		t.Errorf("tasks of cluster blue: computed %d times by changes in another cluster", n)
	}
}

// TestTooManyWaiters checks that requests above the limit get 429, and that the end of one admits another.
func TestTooManyWaiters(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Limits.MaxWaiters, c.Limits.MaxClientWaiters = 3, 2 })
	w.web()
	first, second := w.stream("/v1/services"), w.stream("/v1/events")
	first.until(t, "synced")
	second.until(t, "event")
	refused := func(path string, want string, headers ...string) {
		t.Helper()
		got := w.want(429, "GET", path, nil, headers...)
		if p := got.problem(); !strings.Contains(p.Detail, want) || got.header.Get("Retry-After") == "" {
			t.Errorf("%s: %q, Retry-After %q", path, p.Detail, got.header.Get("Retry-After"))
		}
	}
	for _, path := range []string{"/v1/tasks", "/v1/events"} {
		refused(path, "token-file has 2 requests of this server open that wait for changes, the most for one client",
			"Accept", route.MediaEventStream)
	}
	refused("/v1/services?index=1&wait=1m", "one client")
	refused("/v1/events?after=now&wait=1m", "one client")
	w.want(200, "GET", "/v1/services", nil) // a plain read is not limited

	viewer := func(name string) string {
		return read[api.TokenReply](t,
			w.want(201, "POST", "/v1/tokens", map[string]any{"name": name, "role": "viewer"})).Token
	}
	one, two := "Bearer "+viewer("one"), "Bearer "+viewer("two")
	third := w.stream("/v1/services", "Authorization", one)
	third.until(t, "synced")
	refused("/v1/services", "3 requests wait for changes at this server", "Authorization", two, "Accept",
		route.MediaEventStream)
	third.cancel()
	testkit.Eventually(t, 10*time.Second, func() error {
		if w.server.lists.Waiters.Count() > 2 {
			return errors.New("the place is still taken")
		}
		return nil
	})
	w.stream("/v1/services", "Authorization", two).until(t, "synced")
}

// TestScopesAreNotShared checks that a viewer of one cluster gets nothing of a list that another caller reads, in
// either order.
func TestScopesAreNotShared(t *testing.T) {
	w := busy(t)
	w.rarely()
	w.want(201, "PUT", "/v1/clusters/blue", `{}`)
	w.want(201, "PUT", "/v1/clusters/blue/services/api", service("api", "web@1", 1))
	limited := "Bearer " + read[api.TokenReply](t,
		w.want(201, "POST", "/v1/tokens",
			map[string]any{"name": "blue", "role": "viewer", "clusters": []string{"blue"}})).Token
	for _, path := range []string{
		"/v1/services", "/v1/tasks", "/v1/clusters", "/v1/jobs", "/v1/definitions",
		"/v1/nodes",
	} {
		whole := w.stream(path)
		whole.until(t, "synced")
		part := w.stream(path, "Authorization", limited)
		for _, e := range part.until(t, "synced") {
			if strings.Contains(e.data, "default.") || strings.Contains(e.data, `"cluster":"default"`) ||
				strings.Contains(e.data, `"work`) {
				t.Errorf("%s: a viewer of cluster blue is sent %s", path, e.data)
			}
		}
		index := read[api.Page[json.RawMessage]](t, w.want(200, "GET", path, nil)).Index
		got := w.want(200, "GET", fmt.Sprintf("%s?index=%d&wait=1ms", path, index), nil, "Authorization", limited)
		if strings.Contains(string(got.body), "default.") || strings.Contains(string(got.body), `"cluster":"default"`) {
			t.Errorf("%s: a viewer of cluster blue waits and gets %s", path, got.body)
		}
	}
	// A change of one cluster does not reach the reader of the other.
	all, part := w.stream("/v1/services"), w.stream("/v1/services", "Authorization", limited)
	all.until(t, "synced")
	part.until(t, "synced")
	w.want(200, "POST", "/v1/clusters/default/services/web/scale", `{"count": 4}`)
	all.until(t, "synced")
	w.want(200, "POST", "/v1/clusters/blue/services/api/scale", `{"count": 7}`)
	if got := part.until(t, "synced"); kinds(got) != "put synced" || !strings.Contains(got[0].data, `"count":7`) {
		t.Errorf("%v", got)
	}
	if a, b := (&access.Caller{Role: cluster.RoleViewer}).Scope(),
		(&access.Caller{Role: cluster.RoleViewer, Clusters: []string{}}).Scope(); a == b {
		t.Errorf("who sees all and who sees nothing share %q", a)
	}
	if a, b := (&access.Caller{Role: cluster.RoleViewer}).Scope(),
		(&access.Caller{Role: cluster.RoleSubmitter}).Scope(); a == b {
		t.Errorf("who may read values and who may not share %q", a)
	}
}

// TestPartsEqualTheWholeList changes records of all kinds at random. Readers of streams, which get parts only, must end
// with the same elements as a computed whole list.
func TestPartsEqualTheWholeList(t *testing.T) {
	w := newWorld(t)
	w.rarely()
	w.web()
	w.want(200, "POST", "/v1/apply", manifestsOf(
		"TaskDefinition", definition("work", 1), "Job", job("sum", "work@1", 3),
		"Service", map[string]any{"name": "mon", "mode": "daemon", "definition": "web@1"}))
	paths := []string{
		"/v1/services", "/v1/jobs", "/v1/tasks", "/v1/nodes", "/v1/tasks?node=n1",
		"/v1/tasks?service=web&cluster=default", "/v1/tasks?all&state=failed",
		"/v1/services?selector=app=a", "/v1/tasks?selector=app=a", "/v1/tasks?selector=app!=a&all",
		"/v1/nodes?selector=half=0",
		"/v1/clusters/default/services/web/addresses",
	}
	readers := map[string]*mirror{}
	for _, path := range paths {
		readers[path] = &mirror{stream: w.stream(path), has: map[string]string{}}
		readers[path].sync(t)
	}
	random := rand.New(rand.NewPCG(7, 7))
	for i := range 150 {
		w.put(change(random, i))
		if i%3 == 0 { // several changes together, but not so many that one hides the fault of another
			w.mirrored(paths, readers)
		}
	}
}

// mirrored waits until readers of streams have the elements of the lists.
func (w *world) mirrored(paths []string, readers map[string]*mirror) {
	t := w.t
	t.Helper()
	for _, path := range paths {
		testkit.Eventually(t, 20*time.Second, func() error {
			readers[path].drain()
			want := map[string]string{}
			for _, raw := range read[api.Page[json.RawMessage]](t, w.want(200, "GET", path, nil)).Items {
				want[nameOf(raw)] = plainItem(raw)
			}
			if diff := cmp.Diff(want, readers[path].has); diff != "" {
				return fmt.Errorf("%s: %s", path, diff)
			}
			return nil
		})
	}
}

// change returns one random write of records.
func change(random *rand.Rand, i int) map[string]any {
	node := fmt.Sprintf("n%d", random.IntN(3))
	task, ref, kind := cluster.ServiceTask("default", "web", 1, random.IntN(4)), cluster.Ref{Name: "web", Version: 1},
		cluster.KindService
	if random.IntN(3) == 0 {
		task, ref, kind = cluster.JobTask("default", "sum", 1, "work", random.IntN(3)),
			cluster.Ref{Name: "work", Version: 1}, cluster.KindJob
	}
	d := desired(task, 1+random.IntN(2), kind, ref)
	d.Node = node
	states := []cluster.State{cluster.StateRunning, cluster.StateStarting, cluster.StateFailed, cluster.StateSucceeded}
	o := observed(d, states[random.IntN(len(states))], cluster.HealthHealthy)
	place, seen := "state/"+node+"/"+string(task), "status/"+node+"/"+string(task)
	switch random.IntN(9) {
	case 0:
		return map[string]any{place: nil, seen: nil}
	case 1:
		return map[string]any{
			place: nil, seen: nil,
			fmt.Sprintf("attempt/%s/%d", task, d.Attempt): outcome(d, cluster.StateFailed, fmt.Sprint("end ", i)),
		}
	case 2:
		return map[string]any{"node/" +
			node: cluster.Node{
			Name: node, Domain: "default",
			State: []cluster.NodeState{cluster.NodeReady, cluster.NodeDown, cluster.NodeSuspect}[random.IntN(3)],
			Since: noon, Session: 1,
		}}
	case 3:
		return map[string]any{"status/" +
			node: cluster.NodeStatus{
			Name: node, Session: 1, Registered: noon,
			Facts: cluster.Facts{Hostname: node, Address: fmt.Sprintf("192.0.2.%d", i), CPU: 4000},
		}}
	case 4:
		return map[string]any{"host/" +
			node: cluster.Host{
			Name: node, Domain: "default", Cordon: random.IntN(2) == 0,
			Labels: cluster.Labels{"i": fmt.Sprint(i), "half": fmt.Sprint(random.IntN(2))},
		}}
	case 5:
		return map[string]any{fmt.Sprintf("attempt/%s/%d", task, d.Attempt): nil}
	case 6:
		return map[string]any{"service/default/web": cluster.Service{
			Cluster: "default", Name: "web", Definition: cluster.Ref{Name: "web", Version: 1}, Count: random.IntN(6),
			Labels:   cluster.Labels{"app": []string{"a", "b"}[random.IntN(2)]},
			Lifespan: cluster.Lifespan{Generation: 1},
			Placement: cluster.Placement{
				Constraints: []cluster.Constraint{{Attribute: "label.i", Value: fmt.Sprint(i)}},
			},
		}}
	}
	return map[string]any{place: d, seen: o}
}

// mirror holds the elements that a reader of a stream has.
type mirror struct {
	stream *sseStream
	has    map[string]string
}

func (m *mirror) take(e sseEvent) {
	switch e.kind {
	case "put":
		m.has[nameOf([]byte(e.data))] = plainItem([]byte(e.data))
	case "remove":
		var gone api.ListRemoval
		_ = json.Unmarshal([]byte(e.data), &gone) // a name that is not read is not removed, which shows
		delete(m.has, gone.Name)
	}
}

func (m *mirror) sync(t *testing.T) {
	t.Helper()
	for _, e := range m.stream.until(t, "synced") {
		m.take(e)
	}
}

// drain applies the events that have arrived.
func (m *mirror) drain() {
	for {
		select {
		case e := <-m.stream.events:
			m.take(e)
		default:
			return
		}
	}
}

// nameOf returns the key of an element of a list of any kind.
func nameOf(raw []byte) string {
	var e struct {
		ID            cluster.TaskID
		Task          cluster.TaskID
		Cluster, Name string
		Attempt       int
	}
	_ = json.Unmarshal(raw, &e) // an empty name shows
	switch {
	case e.ID != "":
		return views.TaskKey(e.ID, e.Attempt)
	case e.Task != "":
		return views.TaskKey(e.Task, e.Attempt)
	case e.Cluster != "":
		return e.Cluster + "/" + e.Name
	}
	return e.Name
}

// plainItem returns an element without the fields that change all the time.
func plainItem(raw []byte) string {
	var all map[string]any
	_ = json.Unmarshal(raw, &all) // an empty element shows
	delete(all, "used")
	delete(all, "heartbeat")
	text, _ := json.Marshal(all) // was JSON before
	return string(text)
}

// TestSlowReaderBlocksNoOther has one reader that reads nothing while others get every change.
func TestSlowReaderBlocksNoOther(t *testing.T) {
	w := newWorld(t)
	w.rarely()
	w.web()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+"/v1/services", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Accept", route.MediaEventStream)
	slow, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Body.Close()
	quick := w.stream("/v1/services")
	quick.until(t, "synced")
	const rounds = 40
	for i := range rounds {
		svc := service("web", "web@1", 1+i)
		svc["labels"] = map[string]string{"filler": strings.Repeat("x", 60)}
		w.want(200, "PUT", "/v1/clusters/default/services/web", svc)
		if got := quick.until(t, "synced"); !strings.Contains(got[0].data, fmt.Sprintf(`"count":%d`, 1+i)) {
			t.Fatalf("round %d: %v", i, got)
		}
	}
	in := bufio.NewScanner(slow.Body) // the slow one gets to the newest state all the same
	for in.Scan() && !strings.Contains(in.Text(), fmt.Sprintf(`"count":%d`, rounds)) {
	}
	if in.Err() != nil {
		t.Error(in.Err())
	}
}
