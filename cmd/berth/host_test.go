package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/agent"
	"github.com/berthd/berth/internal/agent/hostapi"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

// serveHost serves the state in a file as the API of a node, on the unix socket host.sock of the script's folder. A
// domain drives the node, so all changes are refused.
func serveHost(ts *testscript.TestScript, _ bool, args []string) {
	var state api.HostState
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &state))
	answer := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/tasks", func(w http.ResponseWriter, _ *http.Request) { answer(w, state) })
	mux.HandleFunc("GET /v1/resources", func(w http.ResponseWriter, _ *http.Request) { answer(w, state.Resources) })
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusConflict)
		_ = json.NewEncoder(w).Encode(api.Problem{
			Title: "Conflict", Status: http.StatusConflict,
			Detail: fmt.Sprintf("the domain %s drives this node (generation %d)", state.Owner.Domain,
				state.Owner.Generation),
		})
	})
	l, err := net.Listen("unix", ts.MkAbs("host.sock"))
	ts.Check(err)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	ts.Defer(func() { _ = server.Close() })
}

// drivenNode is a node that drives itself. It answers with the real API of a node, and keeps its tasks in memory.
type drivenNode struct {
	mu      sync.Mutex
	tasks   map[string]*hostapi.OwnTask
	changed chan struct{}
}

// serveOwnHost serves a node that drives itself on the unix socket host.sock of the script's folder. A stream of events
// ends after its first event.
func serveOwnHost(ts *testscript.TestScript, _ bool, _ []string) {
	n := &drivenNode{tasks: map[string]*hostapi.OwnTask{}, changed: make(chan struct{})}
	served := hostapi.New(hostapi.Config{Name: "n1", Node: n, Driver: n})
	l, err := net.Listen("unix", ts.MkAbs("host.sock"))
	ts.Check(err)
	server := &http.Server{ReadHeaderTimeout: time.Minute}
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		if r.Header.Get("Accept") == "text/event-stream" && r.URL.Path == "/v1/tasks" {
			w = &firstEvent{ResponseWriter: w, end: cancel}
		}
		served.ServeHTTP(w, r.WithContext(ctx))
	})
	go func() { _ = server.Serve(l) }()
	ts.Defer(func() { _ = server.Close() })
}

// firstEvent ends a stream once its first event was sent.
type firstEvent struct {
	http.ResponseWriter
	seen bool
	end  func()
}

func (f *firstEvent) Write(b []byte) (int, error) {
	f.seen = f.seen || strings.HasPrefix(string(b), "event: ")
	return f.ResponseWriter.Write(b)
}

func (f *firstEvent) FlushError() error {
	if f.seen {
		defer f.end()
	}
	return http.NewResponseController(f.ResponseWriter).Flush()
}

func (n *drivenNode) Observe() agent.Observation {
	n.mu.Lock()
	defer n.mu.Unlock()
	o := agent.Observation{Facts: cluster.Facts{
		CPU: 2000, Memory: 4 * cluster.GiB, Disk: 10 * cluster.GiB, Folders: &cluster.FolderFacts{},
	}}
	for name, t := range n.tasks {
		if t.State == string(cluster.StateRunning) {
			o.Tasks = append(o.Tasks, agent.LocalTask{
				Definition: t.Content, Observed: cluster.Observed{
					Task: cluster.ServiceTask("default", name, 1, 0), Attempt: 1, UUID: "u-" + name,
					State: cluster.StateRunning, Health: cluster.HealthHealthy, Ports: t.Ports,
				},
			})
		}
	}
	return o
}

func (n *drivenNode) Changed() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.changed
}

func (n *drivenNode) WriteLogs(_ context.Context, r transport.StreamRequest, to io.Writer) error {
	enc := json.NewEncoder(to)
	for i := max(0, 3-r.Logs.Tail); i < 3; i++ {
		line := api.LogLine{Text: fmt.Sprintf("line %d", i+1), Stream: cluster.StreamStdout}
		if err := enc.Encode(line); err != nil {
			return err
		}
	}
	return nil
}

func (n *drivenNode) Tasks() (all []hostapi.OwnTask) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(n.tasks)) {
		all = append(all, *n.tasks[name])
	}
	return all
}

func (n *drivenNode) Create(_ context.Context, c hostapi.Creation) (bool, error) {
	definition := c.Definition.TaskDefinition
	definition.Name, definition.Version = c.Name, 1
	definition.SetDefaults()
	if err := definition.Validate(); err != nil {
		faults, _ := errors.AsType[cluster.Faults](err)
		return false, respond.Invalid(faults)
	}
	if err := c.Fits(&definition); err != nil {
		return false, err
	}
	t := &hostapi.OwnTask{Content: &definition, HoldsRoom: true, HostTask: api.HostTask{
		Name: c.Name, State: api.HostCreated, Own: true, Demand: definition.Demand(),
		Owner: cluster.OwnerRef{Kind: cluster.KindService, Cluster: "default", Name: c.Name},
	}}
	for i := range definition.Ports {
		t.Ports = map[string]int{definition.Ports[i].Name: definition.Ports[i].Port}
	}
	n.set(c.Name, t)
	return true, nil
}

// set stores a task, or removes it with nil.
func (n *drivenNode) set(name string, t *hostapi.OwnTask) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.tasks[name] = t; t == nil {
		delete(n.tasks, name)
	}
	close(n.changed)
	n.changed = make(chan struct{})
}

// become changes the state of a task.
func (n *drivenNode) become(name, state string) error {
	n.mu.Lock()
	t := *n.tasks[name]
	n.mu.Unlock()
	if t.State == state {
		return respond.Problemf(http.StatusConflict, "the task %s is %s already", name, state)
	}
	t.State = state
	n.set(name, &t)
	return nil
}

func (n *drivenNode) Start(_ context.Context, name string) error {
	return n.become(name, string(cluster.StateRunning))
}

func (n *drivenNode) Stop(_ context.Context, name string) error {
	return n.become(name, api.HostStopped)
}

func (n *drivenNode) Delete(_ context.Context, name string) error {
	n.set(name, nil)
	return nil
}
