package e2e_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/berthd/berth/test/harness"
)

// asked is a service with a secret in its environment, and a job that fails immediately.
const asked = `
kind: TaskDefinition
name: asked
version: 1
containers:
  - name: main
    image: ` + harness.Image + `
    command: [sh, -c, 'exec sleep 100000']
    env: {DATABASE_PASSWORD: correct-horse-battery}
    resources: {cpu: 10m, memory: 16MiB}
min_healthy_time: 100ms
grace: 1s
---
kind: Service
name: asked
definition: asked@1
count: 2
`

const fails = `
kind: TaskDefinition
name: fails
version: 1
containers:
  - name: main
    image: ` + harness.Image + `
    command: [sh, -c, 'echo no such table; exit 3']
    resources: {cpu: 10m, memory: 16MiB}
---
kind: Job
name: fails
steps: [{name: all, definition: fails@1}]
`

// Real servers and agents answer the questions about a cluster: the events of an object, whether it is as requested,
// its description, and its differences from a file.
func TestAnswers(t *testing.T) {
	t.Parallel()
	s := harness.New(t, harness.Process)
	s.Server()
	s.Agent()
	v1 := s.Write("asked.yaml", asked)
	s.Berth("run", "--detach", v1, s.Write("fails.yaml", fails)).Want(t, 0)
	s.Berth("wait", "service/asked", "--timeout", "60s").Want(t, 0, "service/asked is healthy")
	s.Berth("wait", "--for", "running", "task/asked.1.0", "service/asked", "--timeout", "60s").Want(t, 0)
	s.Berth("wait", "job/fails", "--timeout", "60s").Want(t, 1, "job/fails failed", "exited with code 3",
		"no such table", "→ berth logs fails.1.all.0")

	// The events of one object.
	events := s.Berth("events", "--service", "asked", "--since", "1h")
	events.Want(t, 0, "task.assigned", "asked.1.0")
	if strings.Contains(events.Stdout, "fails") {
		t.Errorf("events of service asked contain job fails:\n%s", events.Stdout)
	}
	s.Berth("events", "--job", "fails", "--reason", "exit", "-o", "jsonpath=$[*].type").Want(t, 0, "task.failed")
	follow := s.Start("events", "--follow", "--tail", "1", "--service", "asked", "--type", "service")
	s.Eventually(soon, func() error {
		if !strings.Contains(follow.Output(), "service.rollout-complete") {
			return errors.New("the stream does not have the newest event")
		}
		return nil
	})
	s.Berth("scale", "--detach", "service/asked", "1").Want(t, 0)
	s.Eventually(soon, func() error {
		if !strings.Contains(follow.Output(), "service.updated") {
			return errors.New("the stream does not have the new count")
		}
		return nil
	})
	follow.Stop()
	if strings.Contains(follow.Output(), "task.") {
		t.Errorf("a stream of events of type service has those of tasks:\n%s", follow.Output())
	}

	// The description of an object. Its manifest equals the stored object.
	shown := s.Berth("inspect", "service/asked")
	shown.Want(t, 0, "definitions:", "DATABASE_PASSWORD: \"(removed)\"", "on_disconnect: keep", "events:")
	s.Berth("inspect", "service/asked", "--reveal").Want(t, 0, "correct-horse-battery")
	written := s.Berth("inspect", "service/asked", "--as-written", "--reveal")
	written.Want(t, 0)
	if strings.Contains(written.Stdout, "on_disconnect") || strings.Contains(shown.Stdout, "horse") {
		t.Errorf("written:\n%s\nshown:\n%s", written.Stdout, shown.Stdout)
	}
	again := s.Write("again.yaml", written.Stdout)
	s.Berth("plan", again).Want(t, 0, "Nothing to do")
	s.Berth("diff", again).Want(t, 0, "service/asked is the same as in the file")

	// The differences, also from a version that is not written yet.
	v2 := s.Write("v2.yaml", strings.NewReplacer("version: 1", "version: 2", "asked@1", "asked@2", "100000",
		"100001").Replace(asked))
	s.Berth("diff", v2).Want(t, 1, "service/asked differs", "count: 1 → 2", "asked@1 (1 task runs it) → asked@2",
		"containers[0].command[2]")
	s.Berth("run", v2).Want(t, 0)
	s.Berth("diff", "asked").Want(t, 1, "asked@1 → asked@2", "containers[0].command[2]")
	s.Berth("diff", "asked", "2", "2").Want(t, 0)

	s.Berth("delete", "service/asked").Want(t, 0)
	s.Berth("wait", "--for", "gone", "service/asked", "--timeout", "60s").Want(t, 0, "service/asked is gone")
}
