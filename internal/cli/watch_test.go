package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cli/clitest"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/testkit"
)

// sharedBuffer is the output of a command that still runs.
type sharedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *sharedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *sharedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// watched is a command that prints a list again after each change.
type watched struct {
	t              *testing.T
	fake           *clitest.Fake
	stdout, stderr sharedBuffer
	ended          chan int
}

// startWatch runs a command with --watch. The ages of its objects grow with each reading.
func startWatch(t *testing.T, before clitest.State, args ...string) *watched {
	t.Helper()
	w := &watched{t: t, fake: clitest.NewFakeAt(nil, before), ended: make(chan int, 1)}
	t.Cleanup(w.fake.Close)
	sess := session.New(strings.NewReader(""), &w.stdout, &w.stderr)
	sess.Env = func(string) string { return "" }
	now := clitest.Start()
	sess.Now = func() time.Time {
		now = now.Add(time.Second)
		return now
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { w.ended <- Run(ctx, sess, append(args, "--addr", w.fake.URL, "--watch")) }()
	t.Cleanup(func() {
		cancel()
		if code := <-w.ended; code != session.ExitInterrupted {
			t.Errorf("an interrupt ended with code %d: %s", code, w.stderr.String())
		}
	})
	return w
}

// wait waits until the output satisfies a condition.
func (w *watched) wait(what string, done func(string) bool) {
	w.t.Helper()
	ctx, cancel := testkit.WithLimit(w.t.Context(), 20*time.Second)
	defer cancel()
	err := testkit.Poll(ctx, func() error {
		if text := w.stdout.String(); !done(text) {
			return fmt.Errorf("no %s in\n%s%s", what, text, w.stderr.String())
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// change shows another state, and lets the server report a change.
func (w *watched) change(after clitest.State) {
	w.t.Helper()
	w.fake.Mutex.Lock()
	w.fake.States = []clitest.State{after, after}
	w.fake.Mutex.Unlock()
	res, err := http.Get(w.fake.URL + "/v1/clusters/default/jobs/none")
	if err != nil {
		w.t.Fatal(err)
	}
	_ = res.Body.Close()
}

func tasks(states ...cluster.State) (all clitest.State) {
	for i, s := range states {
		all.Tasks = append(all.Tasks, api.TaskView{
			ID: cluster.TaskID(fmt.Sprintf("default.web.1.%d", i)), Attempt: 1, Node: "n1", State: s, Generation: 1,
			Started: clitest.Start(),
			Owner:   cluster.OwnerRef{Kind: cluster.KindService, Cluster: "default", Name: "web"},
		})
	}
	return all
}

// TestWatchedTable checks that a list is printed again after a change, and not because it is older.
func TestWatchedTable(t *testing.T) {
	t.Parallel()
	w := startWatch(t, tasks(cluster.StateStarting), "ps")
	w.wait("first list", func(s string) bool { return strings.Contains(s, "starting") })
	w.change(tasks(cluster.StateStarting)) // the same
	w.change(tasks(cluster.StateRunning))
	w.wait("second list", func(s string) bool { return strings.Contains(s, "running") })
	text := w.stdout.String()
	if lists := strings.Count(text, "TASK"); lists != 2 || !strings.Contains(text, "\n\nTASK") {
		t.Errorf("got %d lists, want 2 with an empty line between:\n%s", lists, text)
	}
}

// TestWatchedData checks that each state of a list is one line of JSON, and that names and columns follow, too.
func TestWatchedData(t *testing.T) {
	t.Parallel()
	w := startWatch(t, tasks(cluster.StateStarting), "ps", "-o", "json")
	w.wait("first list", func(s string) bool { return strings.Contains(s, "starting") })
	w.change(tasks(cluster.StateRunning, cluster.StateRunning))
	w.wait("second list", func(s string) bool { return strings.Count(s, "running") == 2 })
	lines := strings.Split(strings.TrimSpace(w.stdout.String()), "\n")
	if len(lines) != 2 {
		t.Fatalf("got %d lines, want 2:\n%s", len(lines), w.stdout.String())
	}
	for i, line := range lines {
		var all []api.TaskView
		if err := json.Unmarshal([]byte(line), &all); err != nil || len(all) != i+1 {
			t.Errorf("line %d has %d tasks: %v", i+1, len(all), err)
		}
	}
	names := startWatch(t, tasks(cluster.StateStarting), "ps", "-o", "custom-columns=ID:.id")
	names.wait("first list", func(s string) bool { return s == "ID\ndefault.web.1.0\n" })
	names.change(tasks(cluster.StateRunning, cluster.StateRunning))
	names.wait("second list", func(s string) bool {
		return s == "ID\ndefault.web.1.0\n\nID\ndefault.web.1.0\ndefault.web.1.1\n"
	})
}

// TestWatchedOverview checks that the overview follows as well, and that a list without an object says so again.
func TestWatchedOverview(t *testing.T) {
	t.Parallel()
	w := startWatch(t, clitest.State{}, "status")
	w.wait("empty overview", func(s string) bool { return strings.Contains(s, "Nothing runs here yet") })
	w.change(clitest.State{Services: []api.ServiceView{{
		Service: api.Service{Cluster: "default", Name: "web"}, Status: api.ServiceStatus{State: cluster.ServiceHealthy},
	}}})
	w.wait("a service", func(s string) bool { return strings.Contains(s, "web") })
}
