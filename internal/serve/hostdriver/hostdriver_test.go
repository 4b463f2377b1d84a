package hostdriver_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/agent/hostapi"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/serve/hostdriver"
	"github.com/berthd/berth/internal/testkit"
)

// fakeServer keeps services as a server does. Deleted ones stay until the test removes them.
type fakeServer struct {
	mu       sync.Mutex
	services map[string]*api.ServiceView
	revision uint64
	changed  chan struct{}
	// writes are the requests that changed a service, in order.
	writes []string
	// refuse, unless nil, returns the answer to a write, or nil.
	refuse func(method, name string) *respond.Problem
	url    string
	lists  atomic.Int64 // requests for the list of services
	// onDefinition and onList, unless nil, run before a definition and before the list are read.
	onDefinition func(name string)
	onList       func()
}

func newServer(t *testing.T) *fakeServer {
	t.Helper()
	f := &fakeServer{services: map[string]*api.ServiceView{}, changed: make(chan struct{}), revision: 1}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/clusters/default/services", f.list)
	mux.HandleFunc("GET /v1/clusters/default/services/{name}", f.read)
	mux.HandleFunc("PUT /v1/clusters/default/services/{name}", f.put)
	mux.HandleFunc("DELETE /v1/clusters/default/services/{name}", f.remove)
	mux.HandleFunc("GET /v1/definitions/{name}/{version}", func(w http.ResponseWriter, r *http.Request) {
		if f.onDefinition != nil {
			f.onDefinition(r.PathValue("name"))
		}
		_ = respond.JSON(w, http.StatusOK, api.DefinitionView{TaskDefinition: cluster.TaskDefinition{
			Name: r.PathValue("name"), Version: 1, Ports: []cluster.Port{{Name: "http", Port: 8080}},
			Containers: []cluster.Container{{Name: "a", Resources: cluster.Resources{CPU: 100}}},
		}})
	})
	mux.HandleFunc("GET /v1/tasks", func(w http.ResponseWriter, _ *http.Request) {
		_ = respond.JSON(w, http.StatusOK, api.Page[api.TaskView]{Items: []api.TaskView{
			{ID: "default.web.1.0", Attempt: 1, UUID: "old", Placed: time.Unix(1, 0)},
			{ID: "default.web.1.0", Attempt: 2, UUID: "new", Placed: time.Unix(2, 0)},
		}})
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	f.url = s.URL
	return f
}

func (f *fakeServer) list(w http.ResponseWriter, r *http.Request) {
	f.lists.Add(1)
	f.mu.Lock()
	hook := f.onList
	f.mu.Unlock()
	if hook != nil {
		hook()
	}
	wait, _ := time.ParseDuration(r.URL.Query().Get("wait"))
	deadline := time.After(wait)
	for {
		f.mu.Lock()
		page, changed := api.Page[api.ServiceView]{Index: f.revision}, f.changed
		for _, name := range slices.Sorted(maps.Keys(f.services)) {
			page.Items = append(page.Items, *f.services[name])
		}
		f.mu.Unlock()
		if r.URL.Query().Get("index") == strconv.FormatUint(page.Index, 10) {
			select {
			case <-changed:
				continue
			case <-deadline:
			case <-r.Context().Done():
				return
			}
		}
		_ = respond.JSON(w, http.StatusOK, page)
		return
	}
}

func (f *fakeServer) read(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	svc := f.services[r.PathValue("name")]
	if svc == nil {
		answer(w, r, respond.NotFound("service", r.PathValue("name")))
		return
	}
	_ = respond.JSON(w, http.StatusOK, svc)
}

func answer(w http.ResponseWriter, r *http.Request, p *respond.Problem) {
	respond.WriteProblem(w, r, nil, p)
}

func (f *fakeServer) put(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := r.PathValue("name")
	if f.refuse != nil {
		if p := f.refuse(r.Method, name); p != nil {
			answer(w, r, p)
			return
		}
	}
	old := f.services[name]
	match := strings.Trim(r.Header.Get("If-Match"), `"`)
	if old != nil && r.Header.Get("If-None-Match") == "*" ||
		match != "" && (old == nil || match != strconv.FormatUint(old.Revision, 10)) {
		answer(w, r, respond.Problemf(http.StatusPreconditionFailed, "it has another revision"))
		return
	}
	var svc cluster.Service
	if err := json.NewDecoder(r.Body).Decode(&svc); err != nil {
		answer(w, r, respond.Problemf(http.StatusBadRequest, "%v", err))
		return
	}
	if svc.Template != nil {
		svc.Definition, svc.Template = cluster.Ref{Name: name, Version: 1}, nil
	}
	f.writes = append(f.writes, "put "+name)
	f.set(&api.ServiceView{Service: svc})
}

func (f *fakeServer) remove(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	svc := f.services[r.PathValue("name")]
	if svc == nil {
		answer(w, r, respond.NotFound("service", r.PathValue("name")))
		return
	}
	deleted := *svc
	deleted.Deleted = true
	f.writes = append(f.writes, "delete "+svc.Name)
	f.set(&deleted)
}

// set stores a service. f.mu is held.
func (f *fakeServer) set(svc *api.ServiceView) {
	f.revision++
	svc.Revision = f.revision
	f.services[svc.Name] = svc
	f.wake()
}

func (f *fakeServer) wake() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// becomes sets the status of a service, as its tasks make it.
func (f *fakeServer) becomes(name string, status api.ServiceStatus) {
	f.mu.Lock()
	defer f.mu.Unlock()
	svc := *f.services[name]
	svc.Status = status
	f.set(&svc)
}

// drop removes a service, as the control plane does once its tasks are gone.
func (f *fakeServer) drop(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.services, name)
	f.revision++
	f.wake()
}

func (f *fakeServer) service(name string) *api.ServiceView {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.services[name] == nil {
		return nil
	}
	svc := *f.services[name]
	return &svc
}

// driver returns a driver of the server. The clock is fixed.
func (f *fakeServer) driver(t *testing.T, now time.Time) *hostdriver.Driver {
	t.Helper()
	c, err := client.New(client.Config{Addr: f.url})
	if err != nil {
		t.Fatal(err)
	}
	return hostdriver.New(hostdriver.Config{
		Node: "n1", Client: c, Deadline: time.Minute, Now: func() time.Time { return now },
	})
}

// run runs a driver until the returned function is called, or the test ends.
func run(t *testing.T, d *hostdriver.Driver) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func creation(name, command, replace string) hostapi.Creation {
	return hostapi.Creation{
		Name: name, Replace: replace, Fits: func(*cluster.TaskDefinition) error { return nil },
		Definition: api.InlineDefinition{TaskDefinition: cluster.TaskDefinition{
			Containers: []cluster.Container{{Name: "a", Command: []string{command}}},
		}},
	}
}

// statusOf returns the status of the answer that an error becomes.
func statusOf(err error) int {
	if err == nil {
		return http.StatusOK
	}
	return respond.ProblemOf(err).Status
}

// states returns the tasks with their states.
func states(d *hostdriver.Driver) map[string]string {
	all := map[string]string{}
	for _, t := range d.Tasks() {
		all[t.Name] = t.State
	}
	return all
}

// TestLife follows a task from its creation to its deletion, with the refusals on the way.
func TestLife(t *testing.T) {
	f := newServer(t)
	d := f.driver(t, time.Unix(1000, 0))
	ctx := testkit.Context(t, 30*time.Second)
	want := func(what string, err error, status int) {
		t.Helper()
		if got := statusOf(err); got != status {
			t.Errorf("%s: %d (%v), want %d", what, got, err, status)
		}
	}
	created, err := d.Create(ctx, creation("web", "x", ""))
	if want("create", err, 200); !created {
		t.Error("nothing was created")
	}
	svc := f.service("web")
	if !svc.KeepRoom || !svc.Stopped || svc.Count != 1 || svc.BoundNode() != "n1" {
		t.Errorf("the service is %+v, want one stopped task that keeps its room on n1", svc.Service)
	}
	if err := svc.Validate(); err != nil {
		t.Errorf("the service is not valid: %v", err)
	}
	created, err = d.Create(ctx, creation("web", "x", ""))
	if want("create again", err, 200); created {
		t.Error("the same creation made something again")
	}
	_, err = d.Create(ctx, creation("web", "y", ""))
	want("create with another content", err, 409)
	full := creation("big", "x", "")
	full.Fits = func(*cluster.TaskDefinition) error { return respond.Problemf(409, "no room") }
	_, err = d.Create(ctx, full)
	want("create without room", err, 409)
	if f.service("big") != nil {
		t.Error("a task without room was created")
	}
	if diff := cmp.Diff(map[string]string{"web": "created"}, states(d)); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
	task := d.Tasks()[0]
	if task.Demand.CPU != 100 || task.Ports["http"] != 8080 || !task.HoldsRoom {
		t.Errorf("the created task is %+v, want its room and its port", task)
	}
	want("stop a created task", d.Stop(ctx, "web"), 409)
	want("start", d.Start(ctx, "web"), 200)
	want("start again", d.Start(ctx, "web"), 409)
	want("delete a running task", d.Delete(ctx, "web"), 409)
	if diff := cmp.Diff(map[string]string{"web": "waiting"}, states(d)); diff != "" {
		t.Errorf("states after the start (-want +got):\n%s", diff)
	}
	want("stop", d.Stop(ctx, "web"), 200)
	if task := d.Tasks()[0]; task.State != "stopped" || task.UUID != "new" || task.Attempt != 2 {
		t.Errorf("the stopped task is %+v, want its newest attempt", task)
	}
	f.becomes("web", api.ServiceStatus{State: cluster.ServiceStopping})
	want("delete a stopping task", d.Delete(ctx, "web"), 409)
	f.becomes("web", api.ServiceStatus{State: cluster.ServiceStopped})
	deleted := make(chan error, 1)
	go func() { deleted <- d.Delete(ctx, "web") }()
	testkit.Eventually(t, 10*time.Second, func() error {
		if svc := f.service("web"); !svc.Deleted {
			return errors.New("it is not being deleted")
		}
		return nil
	})
	select {
	case err := <-deleted:
		t.Errorf("the deletion ended before the room was free: %v", err)
	default:
	}
	stop := run(t, d)
	f.drop("web")
	want("delete", <-deleted, 200)
	stop()
	want("start a deleted task", d.Start(ctx, "web"), 404)
	f.mu.Lock()
	f.set(&api.ServiceView{Service: cluster.Service{Cluster: "default", Name: "theirs", Count: 1}})
	f.mu.Unlock()
	_, err = d.Create(ctx, creation("theirs", "x", ""))
	want("create under the name of a service of others", err, 409)
	want("stop a service of others", d.Stop(ctx, "theirs"), 404)
}

// TestFaultsOfTheServer checks that faults have the paths of the request, and that a server which does not answer is
// said to be unavailable.
func TestFaultsOfTheServer(t *testing.T) {
	f := newServer(t)
	d := f.driver(t, time.Unix(1000, 0))
	f.refuse = func(string, string) *respond.Problem {
		return respond.Invalid(cluster.Faults{{Path: "template.containers[0].command", Message: "is missing"}})
	}
	_, err := d.Create(testkit.Context(t, 10*time.Second), creation("web", "x", ""))
	p := respond.ProblemOf(err)
	want := []cluster.Fault{{Path: "containers[0].command", Message: "is missing"}}
	if diff := cmp.Diff(want, p.Faults); p.Status != http.StatusUnprocessableEntity || diff != "" {
		t.Errorf("%d (-want +got):\n%s", p.Status, diff)
	}
	c, err := client.New(client.Config{Addr: "unix://" + t.TempDir() + "/none.sock"})
	if err != nil {
		t.Fatal(err)
	}
	alone := hostdriver.New(hostdriver.Config{Node: "n1", Client: c})
	if got := statusOf(alone.Start(t.Context(), "web")); got != http.StatusServiceUnavailable {
		t.Errorf("without a server: %d, want 503", got)
	}
}

// replacing makes the task web run, and web2 replace it.
func replacing(t *testing.T, f *fakeServer, d *hostdriver.Driver) {
	t.Helper()
	ctx := testkit.Context(t, 30*time.Second)
	if _, err := d.Create(ctx, creation("web", "x", "")); err != nil {
		t.Fatal(err)
	}
	if err := d.Start(ctx, "web"); err != nil {
		t.Fatal(err)
	}
	_, err := d.Create(ctx, creation("web2", "y", "none"))
	if got := statusOf(err); got != http.StatusNotFound {
		t.Errorf("replace of a task that does not exist: %d, want 404", got)
	}
	for range 2 { // a repetition changes nothing
		if _, err := d.Create(ctx, creation("web2", "y", "web")); err != nil {
			t.Fatal(err)
		}
	}
	if svc := f.service("web2"); svc.Stopped {
		t.Error("the new task is not started")
	}
	_, err = d.Create(ctx, creation("web3", "y", "web"))
	if got := statusOf(err); got != http.StatusConflict {
		t.Errorf("a second replacement of the task: %d, want 409", got)
	}
}

// await waits until a condition of the server holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	testkit.Eventually(t, 20*time.Second, func() error {
		if !holds() {
			return fmt.Errorf("not yet: %s", what)
		}
		return nil
	})
}

// TestReplaceSucceeds kills the driver after each step of a replacement. Each next driver continues from the records:
// it has never seen the request.
func TestReplaceSucceeds(t *testing.T) {
	f := newServer(t)
	replacing(t, f, f.driver(t, time.Unix(1000, 0)))

	first := f.driver(t, time.Unix(1001, 0))
	stop := run(t, first)
	f.becomes("web2", api.ServiceStatus{State: cluster.ServiceStarting, Message: "it starts"})
	await(t, "the driver has seen it", func() bool { return states(first)["web2"] == "waiting" })
	stop()
	if f.service("web").Deleted {
		t.Fatal("the old task was deleted before the new one was healthy")
	}

	f.becomes("web2", api.ServiceStatus{State: cluster.ServiceHealthy, Healthy: 1})
	stop = run(t, f.driver(t, time.Unix(1002, 0)))
	await(t, "the old task is deleted", func() bool { return f.service("web").Deleted })
	stop()
	if f.service("web2").Labels["host-api/replaces"] != "web" {
		t.Error("the replacement was finished before the old task was gone")
	}

	// From here on the replacement goes forward, although the new task fails and the deadline has passed.
	f.becomes("web2", api.ServiceStatus{State: cluster.ServiceCrashLooping, GivenUp: []api.TaskID{"default.web2.1.0"}})
	run(t, f.driver(t, time.Unix(5000, 0)))
	f.drop("web")
	await(t, "the replacement is finished", func() bool { return f.service("web2").Labels["host-api/replaces"] == "" })
	if svc := f.service("web2"); svc.Stopped || svc.Labels["host-api/failed"] != "" {
		t.Errorf("the new task is %+v, want it to run on", svc.Service)
	}
	want := []string{"put web", "put web", "put web2", "delete web", "put web2"}
	f.mu.Lock()
	defer f.mu.Unlock()
	if diff := cmp.Diff(want, f.writes); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

// TestReplaceFails checks each cause of a failure: the new task is stopped and says why, and the old one is untouched.
func TestReplaceFails(t *testing.T) {
	for _, test := range []struct {
		name   string
		now    time.Time // of the driver that goes on
		status api.ServiceStatus
		want   string
	}{
		{
			"it is given up", time.Unix(1001, 0),
			api.ServiceStatus{State: cluster.ServiceFailing, Message: "exit code 3", GivenUp: []api.TaskID{"t"}},
			"it did not replace web: exit code 3",
		},
		{
			"it ends again and again", time.Unix(1001, 0),
			api.ServiceStatus{State: cluster.ServiceCrashLooping},
			"it did not replace web: it ends again and again",
		},
		{
			"the deadline passes", time.Unix(1061, 0),
			api.ServiceStatus{State: cluster.ServiceStarting, Message: "its check fails"},
			"it did not replace web: it was not healthy within 1m: its check fails",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newServer(t)
			replacing(t, f, f.driver(t, time.Unix(1000, 0)))
			before := f.service("web")
			f.becomes("web2", test.status)
			d := f.driver(t, test.now)
			run(t, d)
			await(t, "the new task is stopped", func() bool { return f.service("web2").Stopped })
			await(t, "the driver shows it", func() bool { return states(d)["web2"] == "failed" })
			for _, task := range d.Tasks() {
				if task.Name == "web2" && (task.Message != test.want || !task.HoldsRoom || task.Replaces != "") {
					t.Errorf("the new task is %+v, want the message %q", task, test.want)
				}
			}
			if diff := cmp.Diff(before, f.service("web")); diff != "" {
				t.Errorf("the old task changed (-before +after):\n%s", diff)
			}
			if err := d.Start(testkit.Context(t, 10*time.Second), "web2"); err != nil {
				t.Fatal(err)
			}
			if svc := f.service("web2"); svc.Labels["host-api/failed"] != "" || svc.Labels["host-api/replaces"] != "" {
				t.Errorf("a failed task that is started again has the labels %v", svc.Labels)
			}
		})
	}
}

// TestStopEndsAReplacement checks that the old task stays if the user stops the new one.
func TestStopEndsAReplacement(t *testing.T) {
	f := newServer(t)
	d := f.driver(t, time.Unix(1000, 0))
	replacing(t, f, d)
	if err := d.Stop(testkit.Context(t, 10*time.Second), "web2"); err != nil {
		t.Fatal(err)
	}
	f.becomes("web2", api.ServiceStatus{State: cluster.ServiceHealthy, Healthy: 1})
	run(t, d)
	await(t, "the driver has seen it", func() bool { return states(d)["web2"] == "stopped" })
	if f.service("web").Deleted || f.service("web").Stopped {
		t.Error("the old task was changed")
	}
}
