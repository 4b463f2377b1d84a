package telemetry_test

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
	"github.com/berthd/berth/internal/telemetry"
)

func TestMetricsHaveNames(t *testing.T) {
	registry := prometheus.NewRegistry()
	telemetry.NewPlanes(registry).Of("default").Cycled(time.Millisecond, 3, 2)
	telemetry.NewDispatcher(registry).Reported(time.Millisecond, 2, 1)
	telemetry.NewAgent("n1", registry).ContainerCreated("process", nil)
	telemetry.NewPeers(registry).Digested(time.Millisecond, 3, true)
	telemetry.NewBackups(registry).Saved(time.Now(), 7, time.Millisecond)
	e := telemetry.NewEngine(memory.New(memory.Options{}), registry)
	if _, err := e.Commit(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`^berth_(agent|backup|controlplane|dispatcher|peers|store)_[a-z_]+$`)
	for _, f := range families {
		if !name.MatchString(f.GetName()) {
			t.Errorf("%s: want berth_<subsystem>_<name>_<unit>", f.GetName())
		}
	}
	if len(families) < 22 {
		t.Errorf("got %d metrics, want 22", len(families))
	}
}

// TestWaitingTasksOfALeader: each domain has its own gauge, and the tasks that wait are those of the present leader.
func TestWaitingTasksOfALeader(t *testing.T) {
	registry := prometheus.NewRegistry()
	planes := telemetry.NewPlanes(registry)
	planes.Of("default").Cycled(time.Millisecond, 0, 2)
	ci := planes.Of("ci")
	ci.Cycled(time.Millisecond, 1, 5)
	ci.Ended()
	const want = `# HELP berth_controlplane_waiting_tasks Tasks that wait to be placed.
# TYPE berth_controlplane_waiting_tasks gauge
berth_controlplane_waiting_tasks{domain="ci"} 0
berth_controlplane_waiting_tasks{domain="default"} 2
`
	const name = "berth_controlplane_waiting_tasks"
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), name); err != nil {
		t.Error(err)
	}
}

func TestCommitsAreCounted(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := memory.New(memory.Options{
		Hooks: memory.Hooks{After: func(_ context.Context, groups []store.Group, _ store.Result) error {
			if len(groups) == 3 {
				return store.ErrUnknown
			}
			return nil
		}},
	})
	e := telemetry.NewEngine(m, registry)
	put := func(key string, modified uint64) store.Group {
		return store.Group{
			Compares: []store.Compare{{Key: key, Modified: modified}},
			Ops:      []store.Op{{Key: key, Value: []byte("v")}},
		}
	}
	if _, err := e.Commit(t.Context(), []store.Group{put("a", 0), put("b", 99)}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Commit(t.Context(), []store.Group{put("c", 0), put("d", 0), put("e", 0)}); !errors.Is(err,
		store.ErrUnknown) {
		t.Fatalf("got %v, want ErrUnknown", err)
	}
	want := `
# HELP berth_store_groups_total Groups of writes, by whether their preconditions held.
# TYPE berth_store_groups_total counter
berth_store_groups_total{result="applied"} 1
berth_store_groups_total{result="refused"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "berth_store_groups_total"); err != nil {
		t.Error(err)
	}
	if n := testutil.CollectAndCount(registry, "berth_store_commit_duration_seconds"); n != 2 {
		t.Errorf("kinds of endings: got %d, want ok and unknown", n)
	}
}
