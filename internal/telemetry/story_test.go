package telemetry_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/berthd/berth/internal/agent"
	"github.com/berthd/berth/internal/agent/machine"
	"github.com/berthd/berth/internal/apiserver"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/controlplane"
	"github.com/berthd/berth/internal/dispatcher"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/executor/fake"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
	"github.com/berthd/berth/internal/telemetry"
	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/internal/transport"
)

const limit = 30 * time.Second

// start runs the real parts of a server and an agent with a tracer each, and returns the socket of the API.
func start(t *testing.T, server, node *telemetry.Tracer) (socket string, tables *store.Tables) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "api.sock")
	engine := memory.New(memory.Options{})
	tables = store.NewTables(store.TablesConfig{Engine: engine})
	began := time.Now()
	clock := func() time.Duration { return time.Hour + time.Since(began) }
	plane := controlplane.New(controlplane.Config{
		Engine: engine, Tables: tables, Domain: cluster.DefaultDomain, Server: "s1",
		Random: rand.New(rand.NewPCG(1, 2)),
		Logger: slog.New(slog.DiscardHandler), Now: time.Now, Clock: clock, Tracer: server,
	})
	dispatch := dispatcher.New(dispatcher.Config{
		Engine: engine, Tables: tables, Logger: slog.New(slog.DiscardHandler),
		Clock: clock, Tracer: server,
	})
	door := apiserver.New(apiserver.Config{
		Engine: engine, Tables: tables, Agents: transport.Handler(dispatch),
		Tracer: server, Permissions: cluster.Permissions(),
	})
	listener, err := apiserver.Listen("unix://" + socket)
	if err != nil {
		t.Fatal(err)
	}
	client, err := transport.NewClient(transport.ClientConfig{Addresses: []string{"unix://" + socket}})
	if err != nil {
		t.Fatal(err)
	}
	a, err := agent.New(agent.Config{
		Name: "n1", DataDir: t.TempDir(), Volatile: true, Source: agent.FromClient(client), Tracer: node,
		Executors: []executor.Executor{fake.New(fake.NewMachine())},
		Machine: machine.Config{Facts: func(string) (cluster.Facts, error) {
			return cluster.Facts{
				Hostname: "n1", BootID: "b", Address: "10.0.0.1", CPU: 4000, Memory: 8 * cluster.GiB,
				Disk: 8 * cluster.GiB,
			}, nil
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for _, run := range []func(context.Context) error{
		tables.Run, plane.Run, dispatch.Run, a.Run, func(ctx context.Context) error {
			return door.Serve(ctx, listener)
		},
	} {
		all.Go(func() { _ = run(ctx) })
	}
	t.Cleanup(func() {
		cancel()
		client.Close()
		all.Wait()
		_ = engine.Close()
	})
	return socket, tables
}

// put writes an object as a client that traces does.
func put(t *testing.T, socket, path, traceparent, body string) {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	defer c.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://berth"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Traceparent", traceparent)
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if answer, _ := io.ReadAll(resp.Body); resp.StatusCode >= 300 {
		t.Fatalf("PUT %s: %d %s", path, resp.StatusCode, answer)
	}
}

func deploy(t *testing.T, socket, traceparent string) {
	t.Helper()
	put(t, socket, "/v1/clusters/c", "", `{"name":"c"}`)
	put(t, socket, "/v1/definitions/app/1", "",
		`{"name":"app","version":1,"containers":[{"name":"main","command":["run"]}]}`)
	put(t, socket, "/v1/clusters/c/services/web", traceparent,
		`{"cluster":"c","name":"web","definition":"app@1","count":1}`)
}

// running demands that the service's task runs, and returns its desired record.
func running(t *testing.T, tables *store.Tables) *cluster.Desired {
	t.Helper()
	var d *cluster.Desired
	testkit.Eventually(t, limit, func() error {
		for row := range tables.Snapshot().AllAttempts() {
			if row.Observed != nil && row.Observed.State == cluster.StateRunning {
				d = row.Desired
				return nil
			}
		}
		return fmt.Errorf("the task does not run")
	})
	return d
}

func TestOneWriteIsOneTrace(t *testing.T) {
	to := tracetest.NewInMemoryExporter()
	server, node := telemetry.TracerTo("s1", to), telemetry.TracerTo("n1", to)
	socket, tables := start(t, server, node)
	deploy(t, socket, sent)
	running(t, tables)

	want := map[string]string{ // by name, its parent's
		"api.write": "", "api.commit": "api.write", "plane.decide": "api.write", "plane.commit": "plane.decide",
		"dispatcher.assign": "plane.commit", "agent.prepare": "dispatcher.assign", "agent.start": "dispatcher.assign",
		"agent.running": "dispatcher.assign",
	}
	testkit.Eventually(t, limit, func() error {
		for _, tracer := range []*telemetry.Tracer{server, node} {
			if err := tracer.Flush(t.Context()); err != nil {
				return err
			}
		}
		names, got := map[string]string{sent[36:52]: ""}, map[string]tracetest.SpanStub{}
		for _, s := range to.GetSpans() {
			if s.SpanContext.TraceID().String() == sent[3:35] {
				names[s.SpanContext.SpanID().String()], got[s.Name] = s.Name, s
			}
		}
		for name, parent := range want {
			s, ok := got[name]
			if !ok {
				return fmt.Errorf("there is no span %s of the request's trace", name)
			}
			if p, known := names[s.Parent.SpanID().String()]; !known || p != parent {
				return fmt.Errorf("%s hangs below %q, want %q", name, p, parent)
			}
		}
		if len(got) != len(want) {
			return fmt.Errorf("got %d kinds of spans, want %d", len(got), len(want))
		}
		return nil
	})
}

// A client that traces, without a server that does, still finds the agents' spans: the server passes its trace on.
func TestTraceIsHandedOn(t *testing.T) {
	to := tracetest.NewInMemoryExporter()
	node := telemetry.TracerTo("n1", to)
	socket, tables := start(t, nil, node)
	deploy(t, socket, sent)
	if d := running(t, tables); d.Trace != sent {
		t.Errorf("the desired record has %q, want %q", d.Trace, sent)
	}
	testkit.Eventually(t, limit, func() error {
		if err := node.Flush(t.Context()); err != nil {
			return err
		}
		for _, s := range to.GetSpans() {
			if s.Name == "agent.running" && s.SpanContext.TraceID().String() == sent[3:35] {
				return nil
			}
		}
		return fmt.Errorf("the agent's spans are not of the request's trace")
	})
}

func TestWithoutTracing(t *testing.T) {
	socket, tables := start(t, nil, nil)
	deploy(t, socket, "nonsense")
	if d := running(t, tables); d.Trace != "" {
		t.Errorf("the desired record has %q, want nothing", d.Trace)
	}
	e, _ := tables.Snapshot().Service("c", "web")
	if e.Value.Trace != "" {
		t.Errorf("the spec has %q, want nothing", e.Value.Trace)
	}
}
