package domains_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/controlplane"
	"github.com/berthd/berth/internal/serve/domains"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
)

// stuckEngine is the handle of a domain's plane. While it is stuck, no commit of it ends before its context.
type stuckEngine struct {
	store.Engine
	stuck atomic.Bool
}

// Commit commits, unless the engine is stuck.
func (e *stuckEngine) Commit(ctx context.Context, groups []store.Group) (store.Result, error) {
	for e.stuck.Load() {
		select {
		case <-ctx.Done():
			return store.Result{}, ctx.Err()
		case <-time.After(100 * time.Millisecond): // in-bubble: inFleet makes one
		}
	}
	return e.Engine.Commit(ctx, groups)
}

// fleet is the planes of one server.
type fleet struct {
	t      *testing.T
	engine *memory.Engine
	tables *store.Tables
	planes *domains.Planes
	ci     *stuckEngine
}

const prefix = store.Prefix(store.DefaultPrefix)

// inFleet runs a test with the planes of the domains default and ci.
func inFleet(t *testing.T, do func(f *fleet)) {
	synctest.Test(t, func(t *testing.T) {
		log, began := slog.New(slog.DiscardHandler), time.Now()
		f := &fleet{t: t, engine: memory.New(memory.Options{})}
		f.ci = &stuckEngine{Engine: f.engine}
		f.tables = store.NewTables(store.TablesConfig{Engine: f.engine, Logger: log})
		newPlane := func(domain string) *controlplane.Plane {
			c := controlplane.Config{
				Engine: f.engine, Tables: f.tables, Domain: domain, Server: "s1", Random: rand.New(rand.NewPCG(1, 1)),
				Logger: log, Now: time.Now, Clock: func() time.Duration { return time.Since(began) },
			}
			if domain == "ci" {
				c.Engine = f.ci
			}
			return controlplane.New(c)
		}
		f.planes = domains.New(domains.Config{Tables: f.tables, Log: log, NewPlane: newPlane})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = f.tables.Run(ctx) })
		running.Go(func() { _ = f.planes.Run(ctx) })
		f.put(prefix.Domain("ci"), &cluster.Domain{Name: "ci", Number: 1})
		f.put(prefix.Cluster("build"), &cluster.Cluster{Name: "build", Domain: "ci"})
		f.put(prefix.Definition(cluster.Ref{Name: "d", Version: 1}), &cluster.TaskDefinition{
			Name: "d", Version: 1, Containers: []cluster.Container{{Name: "main", Image: "i"}},
		})
		do(f)
		cancel()
		running.Wait()
	})
}

func (f *fleet) put(key string, record any) {
	f.t.Helper()
	value, err := store.Encode(record)
	if err != nil {
		f.t.Fatal(err)
	}
	f.raw(key, value)
}

func (f *fleet) raw(key string, value []byte) {
	f.t.Helper()
	group := store.Group{Ops: []store.Op{{Key: key, Value: value}}}
	if _, err := f.engine.Commit(f.t.Context(), []store.Group{group}); err != nil {
		f.t.Fatal(err)
	}
}

// decides waits until the plane of a domain has decided for a new service of a cluster.
func (f *fleet) decides(domain, in, name string) error {
	f.put(prefix.Service(in, name), &cluster.Service{
		Cluster: in, Name: name, Count: 1, Definition: cluster.Ref{Name: "d", Version: 1}, Priority: 500,
		Lifespan: cluster.Lifespan{Generation: 1, Created: time.Now()},
	})
	why := ""
	for range 200 {
		time.Sleep(50 * time.Millisecond) // in-bubble: inFleet makes one
		if p := f.planes.Of(domain); p != nil {
			w, _ := p.Waiting(cluster.ServiceTask(in, name, 1, 0))
			if why = w.Sentence; strings.Contains(why, "no node has joined yet") {
				return nil
			}
		}
	}
	return fmt.Errorf("no decision for %s/%s in 10 s: %q", in, name, why)
}

// TestStuckDomain has the writes of one domain hang, and one of its records be unreadable. The other domain decides as
// before, and the stuck one goes on once its writes end.
func TestStuckDomain(t *testing.T) {
	inFleet(t, func(f *fleet) {
		for _, d := range []struct{ domain, in string }{{"default", "main"}, {"ci", "build"}} {
			if err := f.decides(d.domain, d.in, "before"); err != nil {
				t.Fatal(err)
			}
		}
		f.ci.stuck.Store(true)
		f.raw(prefix.Service("build", "broken"), []byte("{"))
		for i := range 3 {
			if err := f.decides("default", "main", fmt.Sprint("beside-", i)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second) // in-bubble: inFleet makes one
		}
		if err := f.decides("ci", "build", "stuck"); err == nil {
			t.Error("the stuck domain decides")
		}
		f.ci.stuck.Store(false)
		if err := f.decides("ci", "build", "after"); err != nil {
			t.Error(err)
		}
	})
}
