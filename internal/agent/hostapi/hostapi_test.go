package hostapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/agent"
	"github.com/berthd/berth/internal/agent/hostapi"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/internal/transport"
)

// fakeNode is an agent whose observation the test sets.
type fakeNode struct {
	mu      sync.Mutex
	now     agent.Observation
	changed chan struct{}
	times   int // how often it was observed
	// logs writes the output of an attempt; nil has none.
	logs func(ctx context.Context, r transport.StreamRequest, to io.Writer) error
}

func newNode() *fakeNode { return &fakeNode{changed: make(chan struct{})} }

func (n *fakeNode) Observe() agent.Observation {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.times++
	return n.now
}

// observed returns how often the node was observed.
func (n *fakeNode) observed() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.times
}

func (n *fakeNode) Changed() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.changed
}

func (n *fakeNode) WriteLogs(ctx context.Context, r transport.StreamRequest, to io.Writer) error {
	n.mu.Lock()
	logs := n.logs
	n.mu.Unlock()
	if logs == nil {
		return errors.New("the node has neither the task nor its output")
	}
	return logs(ctx, r, to)
}

// set makes a change that readers see.
func (n *fakeNode) set(change func(*agent.Observation)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change(&n.now)
	close(n.changed)
	n.changed = make(chan struct{})
}

// webTask is a running attempt of the service web.
func webTask(attempt int, state cluster.State) agent.LocalTask {
	return agent.LocalTask{
		Observed: cluster.Observed{
			Task: "default.web.1.0", Attempt: attempt, UUID: fmt.Sprintf("u%d", attempt), State: state,
			Health: cluster.HealthHealthy, Ports: map[string]int{"http": 30001}, Restarts: 2,
			Containers: []cluster.ContainerStatus{{Name: "main", State: cluster.ContainerRunning, OOMs: 3}},
		},
		Definition: &cluster.TaskDefinition{
			Name: "web", Version: 1, Containers: []cluster.Container{{
				Name: "main", Env: map[string]string{"TOKEN": "hidden-value"},
				Resources: cluster.Resources{CPU: 250, Memory: 64 * cluster.MiB},
			}},
		},
	}
}

// serve starts a server for a node.
func serve(t *testing.T, n *fakeNode, d hostapi.Driver) *httptest.Server {
	t.Helper()
	config := hostapi.Config{Name: "n1", Node: n}
	if d != nil {
		config.Driver = d
	}
	s := httptest.NewServer(hostapi.New(config))
	t.Cleanup(s.Close)
	return s
}

// ask sends a request and returns the status with the body.
func ask(t *testing.T, s *httptest.Server, method, path, body string) (int, string) {
	t.Helper()
	ctx := testkit.Context(t, 10*time.Second)
	r, err := http.NewRequestWithContext(ctx, method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	res, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// TestReads checks what a node shows of its tasks and resources, and that it shows no environment.
func TestReads(t *testing.T) {
	n := newNode()
	n.set(func(o *agent.Observation) {
		o.Tasks = []agent.LocalTask{webTask(1, cluster.StateRunning)}
		o.Facts = cluster.Facts{
			CPU: 2000, Memory: cluster.GiB, Disk: cluster.TiB, ReservedPorts: []int{22, 23},
			Folders: &cluster.FolderFacts{HostVolumes: []cluster.HostVolume{{Name: "media", ReadOnly: true}}},
		}
		o.Stats = &cluster.NodeStats{CPU: 700, Memory: 100 * cluster.MiB, Disk: cluster.GiB}
		o.Ownership = agent.Ownership{
			Domain: "prod", Servers: []string{"https://s1:7071"}, Token: cluster.Token{Generation: 4},
			Answered: time.Unix(5, 0).UTC(),
		}
	})
	s := serve(t, n, nil)
	status, text := ask(t, s, "GET", "/v1/tasks", "")
	var got api.HostState
	if err := json.Unmarshal([]byte(text), &got); err != nil || status != http.StatusOK {
		t.Fatalf("%d %s: %v", status, text, err)
	}
	owner := cluster.OwnerRef{Kind: cluster.KindService, Cluster: "default", Name: "web"}
	want := api.HostState{
		Node: "n1",
		Owner: api.HostOwner{
			Domain: "prod", Servers: []string{"https://s1:7071"}, Generation: 4, Answered: time.Unix(5, 0).UTC(),
		},
		Tasks: []api.HostTask{{
			Name: "default.web.1.0", State: "running", Health: cluster.HealthHealthy, Owner: owner,
			ID: "default.web.1.0", Attempt: 1, UUID: "u1", Demand: cluster.Demand{CPU: 250, Memory: 64 * cluster.MiB},
			Ports: map[string]int{"http": 30001}, Restarts: 2, OOMs: 3,
			Containers: []cluster.ContainerStatus{{Name: "main", State: cluster.ContainerRunning, OOMs: 3}},
		}},
		Resources: api.HostResources{
			CPU:    api.HostCPU{Total: 2000, Reserved: 250, Used: 700},
			Memory: api.HostBytes{Total: cluster.GiB, Reserved: 64 * cluster.MiB, Used: 100 * cluster.MiB},
			Disk:   api.HostBytes{Total: cluster.TiB, Used: cluster.GiB},
			Ports: api.HostPorts{
				First: cluster.FirstAutoPort, Last: cluster.LastAutoPort, Reserved: []api.PortRange{"22-23"},
				Taken: []int{30001},
			},
			Volumes: []api.HostVolume{{Name: "media", ReadOnly: true}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("state (-want +got):\n%s", diff)
	}
	if strings.Contains(text, "hidden-value") {
		t.Error("the answer holds a value of the environment")
	}
	for _, name := range []string{"default.web.1.0", "u1"} {
		if status, text := ask(t, s, "GET", "/v1/tasks/"+name, ""); status != http.StatusOK ||
			!strings.Contains(text, `"attempt":1`) {
			t.Errorf("GET %s: %d %s", name, status, text)
		}
	}
}

// TestRefusals checks the answers to requests that are wrong, and to writes on a node of a domain.
func TestRefusals(t *testing.T) {
	n := newNode()
	n.set(func(o *agent.Observation) {
		o.Tasks = []agent.LocalTask{webTask(1, cluster.StateRunning)}
		o.Ownership = agent.Ownership{
			Domain: "prod", Servers: []string{"https://s1:7071"}, Token: cluster.Token{Generation: 4},
		}
	})
	managed, own := serve(t, n, nil), serve(t, n, &fakeDriver{changed: make(chan struct{})})
	const owner = "the node n1 belongs to the domain prod, generation 4, with the servers https://s1:7071"
	for _, test := range []struct {
		name         string
		server       *httptest.Server
		method, path string
		body         string
		status       int
		want         string
	}{
		{"no such task", managed, "GET", "/v1/tasks/none", "", 404, "there is no task none on the node n1"},
		{"no such path", managed, "GET", "/v1/nodes", "", 404, "there is no path /v1/nodes"},
		{"a wrong method", managed, "PATCH", "/v1/tasks/web", "", 405, "the method PATCH is not allowed here"},
		{"a wrong name", managed, "GET", "/v1/tasks/We_b", "", 400, "is not a valid name_or_id"},
		{"an unknown parameter", managed, "GET", "/v1/tasks/web/logs?histroy=3", "", 400, `did you mean \"history\"?`},
		{"a wrong number", managed, "GET", "/v1/tasks/web/logs?history=x", "", 400, "want a whole number"},
		{"a wrong stream", managed, "GET", "/v1/tasks/default.web.1.0/logs?stream=x", "", 400, "want stdout or stderr"},
		{"no output", managed, "GET", "/v1/tasks/default.web.1.0/logs", "", 409, "neither the task nor its output"},
		{"create on a managed node", managed, "PUT", "/v1/tasks/web", "{}", 409, owner},
		{"start on a managed node", managed, "POST", "/v1/tasks/web/start", "", 409, owner},
		{"stop on a managed node", managed, "POST", "/v1/tasks/web/stop", "", 409, owner},
		{"delete on a managed node", managed, "DELETE", "/v1/tasks/web", "", 409, owner},
		{"a cut body", own, "PUT", "/v1/tasks/web", `{"containers": [`, 400, "it seems to be cut off"},
		{
			"all faults at once", own, "PUT", "/v1/tasks/web",
			`{"containers": [{"nam": "a", "command": 3}], "port": []}`, 400, "the request has 3 faults",
		},
		{"an id as a name", own, "PUT", "/v1/tasks/default.web.1.0", `{}`, 400, "cannot be the name of a task"},
		{"no body type", own, "PUT", "/v1/tasks/web", strings.Repeat("[", 100000), 400, ""},
		{
			"a task of others", own, "POST", "/v1/tasks/default.web.1.0/stop", "", 409,
			"the task default.web.1.0 belongs to the service default/web",
		},
		{"a refusal of the driver", own, "PUT", "/v1/tasks/taken", `{"containers": []}`, 409, "it is taken"},
		{"faults of the driver", own, "PUT", "/v1/tasks/faulty", `{"containers": [{"name": "a"}]}`, 400, "2 faults"},
	} {
		t.Run(test.name, func(t *testing.T) {
			status, text := ask(t, test.server, test.method, test.path, test.body)
			if status != test.status || !strings.Contains(text, test.want) {
				t.Errorf("%d %s, want %d with %q", status, text, test.status, test.want)
			}
		})
	}
}

// fakeDriver has the tasks that the test gives it.
type fakeDriver struct {
	tasks   []hostapi.OwnTask
	changed chan struct{}
	calls   []string
	exists  bool
}

func (d *fakeDriver) Tasks() []hostapi.OwnTask { return d.tasks }

func (d *fakeDriver) Changed() <-chan struct{} { return d.changed }

func (d *fakeDriver) Create(_ context.Context, c hostapi.Creation) (bool, error) {
	switch c.Name {
	case "taken":
		return false, respond.Problemf(http.StatusConflict, "it is taken")
	case "faulty":
		return false, respond.Invalid(cluster.Faults{{Path: "a"}, {Path: "b"}})
	}
	definition := c.Definition.TaskDefinition
	if err := c.Fits(&definition); err != nil {
		return false, err
	}
	d.calls = append(d.calls, "create "+c.Name+" "+c.Replace)
	return !d.exists, nil
}

func (d *fakeDriver) Start(_ context.Context, name string) error {
	d.calls = append(d.calls, "start "+name)
	return nil
}

func (d *fakeDriver) Stop(_ context.Context, name string) error {
	d.calls = append(d.calls, "stop "+name)
	return nil
}

func (d *fakeDriver) Delete(_ context.Context, name string) error {
	d.calls = append(d.calls, "delete "+name)
	return nil
}

// idle is a stopped task that keeps most of a node.
func idle() hostapi.OwnTask {
	return hostapi.OwnTask{HoldsRoom: true, HostTask: api.HostTask{
		Name: "idle", State: api.HostStopped, Own: true, Demand: cluster.Demand{CPU: 1500, Memory: cluster.MiB},
		Owner: cluster.OwnerRef{Kind: cluster.KindService, Cluster: "default", Name: "idle"},
		Ports: map[string]int{"http": 8080},
	}}
}

// TestWrites checks the statuses of the writes on a node that drives itself, and that room which is kept is not given
// to a new task.
func TestWrites(t *testing.T) {
	n := newNode()
	n.set(func(o *agent.Observation) {
		o.Facts = cluster.Facts{CPU: 2000, Memory: cluster.GiB, ReservedPorts: []int{22}}
	})
	d := &fakeDriver{tasks: []hostapi.OwnTask{idle()}, changed: make(chan struct{})}
	s := serve(t, n, d)
	small := `{"containers": [{"name": "a", "command": ["x"], "resources": {"cpu": "500m"}}]}`
	for _, test := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"PUT", "/v1/tasks/web", small, 201, ""},
		{"PUT", "/v1/tasks/web?replace=idle", small, 202, ""},
		{"POST", "/v1/tasks/idle/start", "", 202, ""},
		{"POST", "/v1/tasks/idle/stop", "", 202, ""},
		{"DELETE", "/v1/tasks/idle", "", 200, ""},
		{"POST", "/v1/tasks/none/start", "", 404, "there is no task none"},
		{
			"PUT", "/v1/tasks/big", strings.Replace(small, "500m", "600m", 1), 409,
			"it needs 600m CPU, and 500m is free",
		},
		{
			"PUT", "/v1/tasks/port", `{"containers": [{"name": "a"}], "ports": [{"name": "http", "port": 8080}]}`, 409,
			"the port 8080 is taken",
		},
		{
			"PUT", "/v1/tasks/port", `{"containers": [{"name": "a"}], "ports": [{"name": "ssh", "port": 22}]}`, 409,
			"the port 22 is kept from tasks",
		},
	} {
		if status, text := ask(t, s, test.method, test.path, test.body); status != test.status ||
			!strings.Contains(text, test.want) {
			t.Errorf("%s %s: %d %s, want %d with %q", test.method, test.path, status, text, test.status, test.want)
		}
	}
	d.exists = true
	if status, text := ask(t, s, "PUT", "/v1/tasks/web", small); status != http.StatusOK {
		t.Errorf("a repeated creation: %d %s, want 200", status, text)
	}
	want := []string{"create web ", "create web idle", "start idle", "stop idle", "delete idle", "create web "}
	if diff := cmp.Diff(want, d.calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// TestStreamsBeginWithWhatWasWritten checks that a task which a request has made is in the first event of a stream that
// is opened afterwards, although the request has read the state just before.
func TestStreamsBeginWithWhatWasWritten(t *testing.T) {
	d := &fakeDriver{changed: make(chan struct{})}
	s := serve(t, newNode(), d)
	if status, text := ask(t, s, "GET", "/v1/tasks", ""); status != http.StatusOK || strings.Contains(text, "idle") {
		t.Fatalf("before: %d %s", status, text)
	}
	d.tasks = []hostapi.OwnTask{idle()}
	close(d.changed)
	var state api.HostState
	stream(t, s)("state", &state)
	if len(state.Tasks) != 1 {
		t.Errorf("the first event has the tasks %+v, want the one that was made", state.Tasks)
	}
}

// TestKeptDevices checks that the resources show what tasks reserve of devices, also a stopped one, and that a new task
// that needs more is refused.
func TestKeptDevices(t *testing.T) {
	n := newNode()
	n.set(func(o *agent.Observation) {
		gpu := func(id string) cluster.Device { return cluster.Device{ID: id, Type: "gpu", Numa: -1} }
		o.Facts = cluster.Facts{
			CPU: 2000, Memory: cluster.GiB, Devices: []cluster.Device{gpu("gpu-0"), gpu("gpu-1"), gpu("gpu-2")},
		}
		web := webTask(1, cluster.StateRunning)
		web.Observed.Devices = []cluster.DeviceUse{{ID: "gpu-0", Share: 250, Memory: cluster.MiB}}
		o.Tasks = []agent.LocalTask{web}
	})
	stopped := idle()
	stopped.Content = &cluster.TaskDefinition{Containers: []cluster.Container{
		{Name: "main", Resources: cluster.Resources{Devices: []cluster.DeviceRequest{{Count: 1}}}},
	}}
	s := serve(t, n, &fakeDriver{tasks: []hostapi.OwnTask{stopped}, changed: make(chan struct{})})
	_, text := ask(t, s, "GET", "/v1/resources", "")
	var got api.HostResources
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	var reserved []int
	for _, d := range got.Devices {
		reserved = append(reserved, d.Reserved)
	}
	if diff := cmp.Diff([]int{250, 1000, 0}, reserved); diff != "" || got.Devices[0].ReservedMemory != cluster.MiB {
		t.Errorf("devices %+v, reserved (-want +got):\n%s", got.Devices, diff)
	}
	for count, want := range map[int]int{1: 201, 2: 409} {
		body := fmt.Sprintf(`{"containers": [{"name": "a", "command": ["x"],
			"resources": {"devices": [{"type": "gpu", "count": %d}]}}]}`, count)
		status, text := ask(t, s, "PUT", "/v1/tasks/more", body)
		if status != want || want == 409 && !strings.Contains(text, "too few gpu free, some are used in part") {
			t.Errorf("a task with %d devices: %d %s, want %d", count, status, text, want)
		}
	}
}

// stream opens the event stream and returns the function that reads its next event into v.
func stream(t *testing.T, s *httptest.Server) (next func(event string, v any)) {
	t.Helper()
	ctx := testkit.Context(t, 30*time.Second)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/v1/tasks", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	res, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	in := bufio.NewReader(res.Body)
	return func(event string, v any) {
		t.Helper()
		for kind := ""; ; {
			line, err := in.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if name, ok := strings.CutPrefix(line, "event: "); ok {
				kind = strings.TrimSpace(name)
			}
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				if kind != event {
					t.Fatalf("event %s, want %s: %s", kind, event, data)
				}
				if err := json.Unmarshal([]byte(data), v); err != nil {
					t.Fatal(err)
				}
				return
			}
		}
	}
}

// TestEvents checks that the first event has everything, and that each later one has what changed with the resources
// after the change.
func TestEvents(t *testing.T) {
	n := newNode()
	n.set(func(o *agent.Observation) { o.Tasks = []agent.LocalTask{webTask(1, cluster.StateStarting)} })
	next := stream(t, serve(t, n, nil))
	var state api.HostState
	if next("state", &state); len(state.Tasks) != 1 || state.Tasks[0].State != "starting" {
		t.Fatalf("the first event has %+v", state)
	}
	n.set(func(o *agent.Observation) { o.Ownership.Answered = time.Unix(5, 0) }) // is no event
	job := agent.LocalTask{
		Observed:   cluster.Observed{Task: "default.sums.1.work.3", Attempt: 1, UUID: "j", State: cluster.StateRunning},
		Definition: webTask(1, "").Definition,
	}
	n.set(func(o *agent.Observation) { o.Tasks = append(o.Tasks, job) })
	var change api.HostChange
	next("change", &change)
	if len(change.Tasks) != 1 || change.Tasks[0].Name != "default.sums.1.work.3" ||
		change.Tasks[0].Owner.Kind != cluster.KindJob || change.Resources.CPU.Reserved != 500 {
		t.Errorf("a new task: %+v", change)
	}
	n.set(func(o *agent.Observation) { o.Tasks = o.Tasks[1:] })
	change = api.HostChange{}
	next("change", &change)
	if diff := cmp.Diff([]string{"default.web.1.0"}, change.Removed); diff != "" || len(change.Tasks) != 0 ||
		change.Resources.CPU.Reserved != 250 {
		t.Errorf("a removed task: %+v\n%s", change, diff)
	}
	n.set(func(o *agent.Observation) { o.Ownership.Domain = "next" })
	change = api.HostChange{}
	if next("change", &change); change.Owner.Domain != "next" || len(change.Tasks)+len(change.Removed) != 0 {
		t.Errorf("a new owner: %+v", change)
	}
}

// TestEventsOfOwnTasks checks that stopped tasks are part of the stream with their names, states, room and counters.
func TestEventsOfOwnTasks(t *testing.T) {
	n := newNode()
	started := webTask(2, cluster.StateRunning)
	n.set(func(o *agent.Observation) {
		o.Tasks = []agent.LocalTask{webTask(1, cluster.StateFailed), started}
		o.Counts = map[string]agent.Counts{
			"default.web.0.0": {Restarts: 7, OOMs: 5}, "default.idle.0.0": {Restarts: 1, OOMs: 1},
		}
	})
	web := hostapi.OwnTask{HoldsRoom: true, HostTask: api.HostTask{
		Name: "web", State: api.HostWaiting, Own: true, Demand: cluster.Demand{CPU: 250},
		Owner: cluster.OwnerRef{Kind: cluster.KindService, Cluster: "default", Name: "web"}, Replaces: "idle",
	}}
	next := stream(t, serve(t, n, &fakeDriver{
		tasks: []hostapi.OwnTask{idle(), web}, changed: make(chan struct{}),
	}))
	var state api.HostState
	next("state", &state)
	type row struct {
		Name, State string
		Own         bool
		Attempt     int
		Replaces    string
		Counts      agent.Counts
	}
	var got []row
	for _, task := range state.Tasks {
		got = append(got, row{task.Name, task.State, task.Own, task.Attempt, task.Replaces, agent.Counts{
			Restarts: task.Restarts, OOMs: task.OOMs,
		}})
	}
	want := []row{
		{"default.web.1.0", "failed", false, 1, "", agent.Counts{Restarts: 7, OOMs: 5}},
		{"idle", "stopped", true, 0, "", agent.Counts{Restarts: 1, OOMs: 1}},
		{"web", "running", true, 2, "idle", agent.Counts{Restarts: 7, OOMs: 5}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tasks (-want +got):\n%s", diff)
	}
	if got := state.Resources.CPU.Reserved; got != 1500+250+250 {
		t.Errorf("%v CPU are reserved, want 2000m: of the stopped task, and of both attempts", got)
	}
	if diff := cmp.Diff([]int{8080, 30001}, state.Resources.Ports.Taken); diff != "" {
		t.Errorf("taken ports (-want +got):\n%s", diff)
	}
}

// TestLogs checks both forms of the output, what the node is asked for, and a line that counts lost lines.
func TestLogs(t *testing.T) {
	n := newNode()
	n.set(func(o *agent.Observation) { o.Tasks = []agent.LocalTask{webTask(1, cluster.StateRunning)} })
	var asked transport.StreamRequest
	n.logs = func(_ context.Context, r transport.StreamRequest, to io.Writer) error {
		asked = r
		enc := json.NewEncoder(to)
		return errors.Join(enc.Encode(api.LogLine{Text: "a"}), enc.Encode(api.LogLine{Lost: 7}))
	}
	s := serve(t, n, nil)
	status, text := ask(t, s, "GET", "/v1/tasks/default.web.1.0/logs?container=main&stream=stderr", "")
	if lines := strings.Split(strings.TrimSpace(text), "\n"); status != http.StatusOK || len(lines) != 2 ||
		!strings.Contains(lines[1], `"lost":7`) {
		t.Errorf("%d %s", status, text)
	}
	want := transport.StreamRequest{
		Kind: transport.StreamLogs, Task: "default.web.1.0", UUID: "u1", Container: "main",
		Logs: &transport.LogsRequest{Tail: 10, Stream: cluster.StreamStderr},
	}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/v1/tasks/u1/logs?history=3", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	res, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || strings.Count(string(body), "event: line\ndata: {") != 2 {
		t.Errorf("as events: %q, %v", body, err)
	}
	if !asked.Logs.Follow || asked.Logs.Tail != 3 {
		t.Errorf("events ask for %+v, want to follow from 3 lines", asked.Logs)
	}
	n.logs = func(context.Context, transport.StreamRequest, io.Writer) error { return nil }
	if status, text := ask(t, s, "GET", "/v1/tasks/u1/logs", ""); status != http.StatusOK || text != "" {
		t.Errorf("no lines: %d %q, want an empty 200", status, text)
	}
}
