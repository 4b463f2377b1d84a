package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/views"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
	"github.com/berthd/berth/internal/transport"
)

const token = "a-token-of-tests-0123456789"

// world is a server on loopback over an engine in memory.
type world struct {
	t      *testing.T
	engine *memory.Engine
	tables *store.Tables
	server *Server
	url    string
	nodes  *fakeNodes
	why    *fakeReasons
}

// fakeNodes answers streams with the function of a test.
type fakeNodes struct {
	mu   sync.Mutex
	open func(node string, req transport.StreamRequest) (io.ReadWriteCloser, error)
}

func (f *fakeNodes) OpenStream(_ context.Context, node string, req transport.StreamRequest) (io.ReadWriteCloser,
	error,
) {
	f.mu.Lock()
	open := f.open
	f.mu.Unlock()
	if open == nil {
		return nil, errors.New("the node has no session")
	}
	return open(node, req)
}

func (f *fakeNodes) set(open func(string, transport.StreamRequest) (io.ReadWriteCloser, error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open = open
}

type fakeReasons struct {
	mu      sync.Mutex
	all     map[cluster.TaskID]cluster.Waiting
	victims []cluster.Victim
}

func (f *fakeReasons) Victims(string) []cluster.Victim {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.victims
}

func (f *fakeReasons) Waiting(_ string, task cluster.TaskID) (cluster.Waiting, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w, ok := f.all[task]
	return w, ok
}

func newWorld(t *testing.T, options ...func(*Config)) *world {
	t.Helper()
	return newWorldOn(t, memory.New(memory.Options{}), options...)
}

func newWorldOn(t *testing.T, engine *memory.Engine, options ...func(*Config)) *world {
	t.Helper()
	return newWorldOver(t, engine, engine, options...)
}

// impatient lets the server wait only a second for headers and bodies.
func impatient(c *Config) { c.headerWait, c.bodyWait = time.Second, time.Second }

// newWorldOver returns a world whose server reaches the engine through another handle.
func newWorldOver(t *testing.T, engine *memory.Engine, via store.Engine, options ...func(*Config)) *world {
	t.Helper()
	w := &world{t: t, engine: engine, nodes: &fakeNodes{}, why: &fakeReasons{all: map[cluster.TaskID]cluster.Waiting{}}}
	w.tables = store.NewTables(store.TablesConfig{Engine: via, Logger: slog.New(slog.DiscardHandler)})
	cfg := Config{
		Engine: via, Tables: w.tables, Nodes: w.nodes, Leader: views.Leader{Reasons: w.why}, Trust: Trust{Token: token},
		Permissions: cluster.Permissions(),
	}
	for _, o := range options {
		o(&cfg)
	}
	w.server = New(cfg)
	w.server.lists.Views.Whole.Least, w.server.lists.Views.Changes.Least = 20*time.Millisecond, time.Millisecond
	w.server.lists.Views.Whole.Share, w.server.lists.Views.Changes.Share = 1,
		1 // tests on a slow machine must not wait for the pace
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.url = l.URL()
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() { _ = w.tables.Run(ctx) })
	ended.Go(func() {
		if err := w.server.Serve(ctx, l); err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		ended.Wait()
		_ = via.Close()
	})
	<-w.tables.Synced()
	return w
}

// reply is a complete answer.
type reply struct {
	status int
	header http.Header
	body   []byte
}

func (r reply) problem() api.Problem {
	var p api.Problem
	_ = json.Unmarshal(r.body, &p)
	return p
}

// faults joins the faults of a problem, for comparison.
func (r reply) faults() string {
	return cluster.Faults(r.problem().Faults).Error()
}

func read[T any](t *testing.T, r reply) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(r.body, &v); err != nil {
		t.Fatalf("status %d, decode %T: %v: %s", r.status, v, err, r.body)
	}
	return v
}

// call sends a request with the token; headers come in pairs.
func (w *world) call(method, path string, body any, headers ...string) reply {
	w.t.Helper()
	var in io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		in = strings.NewReader(b)
	case io.Reader:
		in = b
	default:
		text, err := json.Marshal(b)
		if err != nil {
			w.t.Fatal(err)
		}
		in = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, in)
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return w.do(r)
}

func (w *world) do(r *http.Request) reply {
	w.t.Helper()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, text}
}

// want sends a request and requires a status.
func (w *world) want(status int, method, path string, body any, headers ...string) reply {
	w.t.Helper()
	r := w.call(method, path, body, headers...)
	if r.status != status {
		w.t.Fatalf("%s %s: status %d, want %d: %s", method, path, r.status, status, r.body)
	}
	return r
}

// put writes records, as another writer would, and waits until the tables show them. A json.RawMessage is written as it
// is.
func (w *world) put(records map[string]any) {
	w.t.Helper()
	var g store.Group
	for key, record := range records {
		op := store.Op{Key: store.DefaultPrefix + key, Delete: record == nil}
		if raw, isRaw := record.(json.RawMessage); isRaw {
			op.Value = raw
		} else if record != nil {
			value, err := store.Encode(record)
			if err != nil {
				w.t.Fatal(err)
			}
			op.Value = value
		}
		g.Ops = append(g.Ops, op)
	}
	result, err := w.engine.Commit(w.t.Context(), []store.Group{g})
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.tables.WaitFor(w.t.Context(), result.Revision); err != nil {
		w.t.Fatal(err)
	}
}

func definition(name string, version int) map[string]any {
	return map[string]any{
		"name": name, "version": version,
		"containers": []any{map[string]any{
			"name":  "main",
			"image": fmt.Sprintf("registry.example/%s:%d", name, version),
		}},
	}
}

// sized returns a definition that reserves resources, which scaling by usage needs.
func sized(name string, version int) map[string]any {
	d := definition(name, version)
	d["containers"].([]any)[0].(map[string]any)["resources"] = map[string]any{"cpu": "500m", "memory": "64MiB"}
	return d
}

func service(name, ref string, count int) map[string]any {
	return map[string]any{"name": name, "definition": ref, "count": count}
}

func job(name, ref string, count int) map[string]any {
	return map[string]any{
		"name":  name,
		"steps": []any{map[string]any{"name": "work", "definition": ref, "count": count}},
	}
}

// manifestsOf pairs kinds with specs.
func manifestsOf(pairs ...any) map[string]any {
	var objects []any
	for i := 0; i < len(pairs); i += 2 {
		objects = append(objects, map[string]any{"kind": pairs[i], "spec": pairs[i+1]})
	}
	return map[string]any{"objects": objects}
}

// web writes the definition web@1 and a service web of three tasks.
func (w *world) web() {
	w.t.Helper()
	w.want(200, "POST", "/v1/apply",
		manifestsOf("TaskDefinition", definition("web", 1), "Service", service("web", "web@1", 3)))
}
