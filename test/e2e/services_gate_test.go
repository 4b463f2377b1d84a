package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/test/harness"
	"github.com/berthd/berth/test/load"
)

// complaints answers with how many errors there are: at /errors as JSON, and to queries as Prometheus does.
func complaints(errors *atomic.Int64) http.Handler {
	mux := queries("sum(errors)", errors)
	mux.HandleFunc("GET /errors", func(out http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(out, `{"web": {"errors": %d}}`, errors.Load())
	})
	return mux
}

// TestGates runs rollouts with gates of both kinds. A version without errors is rolled out. A version with healthy
// checks and errors is rolled back after its first tasks, and no request is lost.
func TestGates(t *testing.T) {
	t.Parallel()
	w := newServiceFleet(t, harness.Process, 1, 2)
	var errors atomic.Int64
	url := pages(t, w, complaints(&errors))
	second := cluster.Duration(time.Second)
	byPage := cluster.Gate{
		Name: "page", HTTP: url + "/errors", Pass: "status == 200 && json.web.errors < 5",
		Interval: second, Passes: 2,
	}
	byQuery := cluster.Gate{
		Name: "query", Prometheus: url, Query: "sum(errors)", Pass: "value < 5", Interval: second,
		Failures: 2,
	}
	version := func(n int, gates ...cluster.Gate) served {
		return served{name: "web", version: n, count: 3, more: func(_ *api.TaskDefinition, s *api.Service) {
			s.Update = cluster.Update{MaxSurge: portion(1), Parallelism: portion(1), Gates: gates}
		}}
	}
	w.put(version(1, byPage, byQuery))
	w.completes("web", 1)
	stop := w.sendRequests("web", 3, nil)
	w.put(version(2, byPage, byQuery))
	w.completes("web", 2)

	errors.Store(7)
	for i, gate := range []cluster.Gate{byPage, byQuery} {
		n := 3 + i
		w.put(version(n, gate))
		w.awaitEvent("service.rolled-back", fmt.Sprintf("web@%d", n), gate.Name, "7")
		v := w.completes("web", 2)
		w.t.Logf("version %d: %s", n, v.Message)
		w.Eventually(soon, func() error { return w.wasRolledBack("web", n) })
		began := 0
		for _, r := range w.recorder.All() {
			if r.Version == fmt.Sprint(n) && r.What == load.Up {
				began++
			}
		}
		if began != 1 {
			t.Errorf("%d tasks of version %d were begun, want the one whose gate did not pass", began, n)
		}
	}
	stop()
}

// kept is a service of one task with a volume. Its version 2 and later need what version 1 wrote there. Its check has a
// timeout of two seconds, because on a busy machine a healthy task would fail a shorter one.
const kept = `
kind: TaskDefinition
name: kept
version: %[1]d
containers:
  - name: main
    image: ` + harness.Image + `
    command: [sh, -c, 'echo v%[1]d >> /data/log; while :; do sleep 0.2; done']
    mounts:
      - {volume: data, path: /data}
    resources: {cpu: 10m, memory: 16MiB}
volumes:
  - name: data
checks:
  - name: reads
    type: exec
    command: [sh, -c, '%[2]s']
    interval: scaled(2s)
    timeout: scaled(2s)
grace: 1s
---
kind: Service
name: kept
definition: kept@%[1]d
count: 1
update: {order: start-first, healthy_deadline: scaled(8s)}
`

// TestVolumeNewFirst replaces a task with a volume: the new one begins beside the old one on its data. If it becomes
// healthy the old one ends. If not, the old one continues undisturbed.
func TestVolumeNewFirst(t *testing.T) {
	t.Parallel()
	s := harness.New(t, harness.Containerd)
	s.Dev()
	run := func(version int, check string, flags ...string) harness.Result {
		t.Helper()
		file := s.Write(fmt.Sprintf("v%d.yaml", version), fmt.Sprintf(kept, version, check))
		return s.Berth(append([]string{"run", file}, flags...)...)
	}
	run(1, "[ -s /data/log ]").Want(t, 0, "1/1")
	first := running(t, s, "kept", 1)
	run(2, "{ read a && read b; } < /data/log && [ $a$b = v1v2 ]").Want(t, 0, "1/1")
	s.Eventually(soon, func() error { return replaced(first, alive(s, "kept")) })
	second := running(t, s, "kept", 1)

	r := run(3, "exit 1")
	if r.Code == 0 || !strings.Contains(r.Stdout+r.Stderr, "kept@2") {
		t.Errorf("a version that never is healthy: want an error that names the version that stays:\n%v", r)
	}
	s.Eventually(soon, func() error {
		for _, task := range alive(s, "kept") {
			if task.Definition.Version != 2 {
				return fmt.Errorf("%s of version %d still is %s", task.ID, task.Definition.Version, task.State)
			}
		}
		return nil
	})
	samePids(t, second, running(t, s, "kept", 1))
	s.Berth("exec", "kept.2.0", "--", "sh", "-c", "while read line; do echo $line; done < /data/log").Want(t, 0,
		"v1\nv2\nv3\n")
}
