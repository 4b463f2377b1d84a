package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/apiserver"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
)

// newServer runs the real API server over an engine in memory and returns a client of it, and the engine.
func newServer(t *testing.T) (*client.Client, *memory.Engine) {
	t.Helper()
	const token = "a-token-of-tests-0123456789"
	engine := memory.New(memory.Options{})
	tables := store.NewTables(store.TablesConfig{Engine: engine, Logger: slog.New(slog.DiscardHandler)})
	server := apiserver.New(apiserver.Config{
		Engine: engine, Tables: tables, Trust: apiserver.Trust{Token: token},
		Permissions: cluster.Permissions(),
	})
	l, err := apiserver.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() { _ = tables.Run(ctx) })
	ended.Go(func() { _ = server.Serve(ctx, l) })
	t.Cleanup(func() {
		cancel()
		ended.Wait()
		_ = engine.Close()
	})
	<-tables.Synced()
	c, err := client.New(client.Config{Addr: l.URL(), Token: token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, engine
}

// TestAgainstServer checks that the server understands every call of the client.
func TestAgainstServer(t *testing.T) {
	ctx := t.Context()
	c, _ := newServer(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	object := func(kind cluster.Kind, v any) api.Object {
		spec, err := json.Marshal(v)
		must(err)
		return api.Object{Kind: kind, Spec: spec}
	}
	def := api.TaskDefinition{Name: "web", Version: 1, Containers: []cluster.Container{{
		Name: "app", Image: "web:1", Resources: cluster.Resources{CPU: 100, Memory: 32 * cluster.MiB},
	}}}
	set := api.ApplyRequest{Objects: []api.Object{
		object(cluster.KindTaskDefinition, def),
		object(cluster.KindService, api.Service{Name: "web", Definition: def.Ref(), Count: 2}),
		object(cluster.KindJob, api.Job{Name: "work", Steps: []cluster.Step{{Name: "all", Definition: def.Ref()}}}),
	}, DryRun: true}

	reply, err := c.Apply(ctx, set)
	must(err)
	if len(reply.Changes) != 3 || reply.Changes[0].Action != api.ActionCreate {
		t.Errorf("a dry run: got %+v, want three creations", reply)
	}
	set.DryRun = false
	_, err = c.Apply(ctx, set)
	must(err)

	services, index, err := client.All(ctx, client.ListOptions{Limit: 1},
		func(ctx context.Context, o client.ListOptions) (api.Page[api.ServiceView], error) {
			return c.Services(ctx, "", o)
		})
	must(err)
	if len(services) != 1 || services[0].Cluster != "default" || index == 0 {
		t.Errorf("services: got %+v at %d", services, index)
	}
	began := time.Now()
	_, err = c.Services(ctx, "default", client.ListOptions{Index: index, Wait: 50 * time.Millisecond})
	must(err)
	if waited := time.Since(began); waited < 40*time.Millisecond {
		t.Errorf("a list without a change came after %v, want it to wait", waited)
	}
	must(c.ScaleService(ctx, "default", "web", 3, client.Condition{}))
	v, err := c.Service(ctx, "default", "web")
	must(err)
	if v.Count != 3 || v.Revision <= services[0].Revision {
		t.Errorf("after scaling: got count %d at revision %d", v.Count, v.Revision)
	}
	stale := client.Condition{Revision: services[0].Revision}
	if err := c.ScaleService(ctx, "default", "web", 4, stale); client.StatusOf(err) != http.StatusPreconditionFailed {
		t.Errorf("a stale write: got %v, want 412", err)
	}
	if _, err := c.PutService(ctx, v.Service,
		client.Condition{Absent: true}); client.StatusOf(err) != http.StatusPreconditionFailed {
		t.Errorf("a write of what must be absent: got %v, want 412", err)
	}
	rev, err := c.PutService(ctx, v.Service, client.Condition{Revision: v.Revision})
	must(err)
	if rev != v.Revision {
		t.Errorf("the same written again: got revision %d, want %d", rev, v.Revision)
	}
	must(c.StopService(ctx, "default", "web"))
	must(c.StartService(ctx, "default", "web"))
	must(c.RestartService(ctx, "default", "web"))
	must(c.StopJob(ctx, "default", "work"))

	_, err = c.PutCluster(ctx, api.Cluster{Name: "prod"}, client.Condition{Absent: true})
	must(err)
	_, err = c.Cluster(ctx, "prod")
	must(err)
	must(c.DeleteCluster(ctx, "prod", client.Condition{}))
	clusters, err := c.Clusters(ctx, client.ListOptions{})
	must(err)
	for _, v := range clusters.Items {
		if v.Name == "prod" {
			t.Errorf("the deleted cluster is listed: %+v", v)
		}
	}

	got, err := c.Definition(ctx, def.Ref())
	must(err)
	versions, err := c.DefinitionVersions(ctx, "web", client.ListOptions{})
	must(err)
	if diff := cmp.Diff([]api.DefinitionView{got}, versions.Items); diff != "" {
		t.Errorf("versions of web (-want +got):\n%s", diff)
	}
	changed := def
	changed.Grace = cluster.Duration(time.Minute)
	if _, err := c.PutDefinition(ctx, changed); client.StatusOf(err) != http.StatusConflict {
		t.Errorf("another content of a version: got %v, want 409", err)
	}

	all := client.TaskFilter{Cluster: "default", Service: "web", Job: "", Node: "n1", State: "running", All: true}
	_, err = c.Tasks(ctx, all, client.ListOptions{})
	must(err)
	if _, err := c.Task(ctx, "default.web.9.0"); client.StatusOf(err) != http.StatusNotFound {
		t.Errorf("a task that is not there: got %v, want 404", err)
	}
	for _, err := range c.Logs(ctx, "default.web.9.0",
		client.LogOptions{Follow: true, Tail: 3, Since: time.Minute, Container: "app", Stream: "stdout", Attempt: 1}) {
		if client.StatusOf(err) != http.StatusNotFound {
			t.Errorf("logs of a task that is not there: got %v, want 404", err)
		}
	}
	if _, err := c.Exec(ctx, "default.web.9.0",
		client.ExecOptions{
			Command: []string{"ls"}, Container: "app",
			Stdin: strings.NewReader(""),
		}); client.StatusOf(err) != http.StatusNotFound {
		t.Errorf("a command in a task that is not there: got %v, want 404", err)
	}
	if _, err := c.Node(ctx, "n1"); client.StatusOf(err) != http.StatusNotFound {
		t.Errorf("a node that is not there: got %v, want 404", err)
	}
	_, err = c.Nodes(ctx, client.ListOptions{})
	must(err)
	_, err = c.Images(ctx, "")
	if err != nil && client.StatusOf(err) != http.StatusServiceUnavailable {
		t.Errorf("images without nodes: got %v", err)
	}
	_, err = c.Version(ctx)
	must(err)

	_, err = c.Apply(ctx, api.ApplyRequest{
		Objects: []api.Object{object(cluster.KindService,
			api.Service{Name: "No", Definition: cluster.Ref{Name: "none", Version: 1}, Count: -1})},
	})
	var refused *client.Error
	if !errors.As(err, &refused) || len(refused.Faults) < 2 ||
		!strings.HasPrefix(refused.Faults[0].Path, "objects[0].") {
		t.Errorf("a faulty object: got %v, want all faults with their paths", err)
	}
	must(c.DeleteService(ctx, "default", "web", client.Condition{}))
	must(c.DeleteJob(ctx, "default", "work", client.Condition{}))
}

// TestEventsAgainstServer lists events and follows them.
func TestEventsAgainstServer(t *testing.T) {
	ctx := t.Context()
	c, engine := newServer(t)
	happen := func(id, cause string) {
		t.Helper()
		value, err := store.Encode(cluster.EventBatch{ID: id, Incarnation: 1, Events: []cluster.Event{
			{Type: "task.failed", Cluster: "a", Message: cause}, {Type: "node.down", Node: "n1", Message: cause},
		}})
		if err != nil {
			t.Fatal(err)
		}
		group := store.Group{Ops: []store.Op{{Key: store.Prefix(store.DefaultPrefix).Event(id), Value: value}}}
		if _, err := engine.Commit(ctx, []store.Group{group}); err != nil {
			t.Fatal(err)
		}
	}
	happen("e1", "first")
	c = c.Consistent() // the tables follow what was written past the server
	page, err := c.Events(ctx, client.EventOptions{Types: []string{"task"}},
		client.ListOptions{Limit: 10, Wait: 10 * time.Second})
	if err != nil || len(page.Items) != 1 || page.Items[0].Message != "first" {
		t.Fatalf("events of tasks: got %+v, %v, want the first", page.Items, err)
	}
	happen("e2", "second")
	var got []string
	for e, err := range c.FollowEvents(ctx, client.EventOptions{After: page.Items[0].ID}) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, e.ID+" "+e.Type+" "+e.Message); len(got) == 3 {
			break
		}
	}
	want := []string{"e1.1 node.down first", "e2.0 task.failed second", "e2.1 node.down second"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events after the first (-want +got):\n%s", diff)
	}
	for _, err := range c.FollowEvents(ctx, client.EventOptions{After: "gone.0"}) {
		var refused *client.Error
		if !errors.As(err, &refused) || refused.Status != http.StatusGone || refused.Oldest != "e1.0" {
			t.Errorf("a cursor that is not kept: got %v, want 410 with the oldest id", err)
		}
		break
	}
}
