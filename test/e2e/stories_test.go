// Package e2e_test runs the real berth binary through what its users do and what befalls them.
package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/test/harness"
)

func TestMain(m *testing.M) {
	harness.CommandLine = func(ctx context.Context, c harness.Command) int {
		s := session.New(c.Stdin, c.Stdout, c.Stderr)
		s.Env = c.Env
		return cli.Run(ctx, s, c.Args)
	}
	harness.Main(m)
}

// soon limits the time of an immediate reaction on a busy machine.
const soon = 30 * time.Second

// hello is a service whose tasks print their version and a counter. Each line costs a process, and many tests run some
// of these tasks at the same time.
const hello = `
kind: TaskDefinition
name: hello
version: %[1]d
containers:
  - name: main
    image: ` + harness.Image + `
    command: [sh, -c, 'n=0; while :; do n=$((n+1)); echo "v%[1]d line $n"; sleep 0.5; done']
    resources: {cpu: 10m, memory: 16MiB}
min_healthy_time: 100ms
grace: 1s
---
kind: Service
name: hello
definition: hello@%[1]d
count: %[2]d
`

func TestServiceStory(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, executor string) {
		s := harness.New(t, executor)
		s.Server()
		agent := s.Agent()
		s.Berth("status").Want(t, 0, "Nothing runs here yet. Start something with 'berth run FILE'.", "1 node: 1 ready")

		// Run. A plan exits with 1 before and 0 after.
		v1 := s.Write("v1.yaml", fmt.Sprintf(hello, 1, 2))
		s.Berth("validate", v1).Want(t, 0)
		s.Berth("plan", v1).Want(t, 1, "hello")
		s.Berth("run", v1).Want(t, 0, "created", "service/hello", "healthy", "2/2")
		s.Berth("plan", v1).Want(t, 0)
		s.Berth("run", v1).Want(t, 0, "unchanged")
		s.Berth("status").Want(t, 0, "hello", "healthy", "2/2", "hello@1")
		s.Berth("ps").Want(t, 0, "hello.1.0", "hello.1.1")
		first := running(t, s, "hello", 2)

		// Scale.
		s.Berth("scale", "--detach", "service/hello", "3").Want(t, 0)
		three := running(t, s, "hello", 3)
		if three[0].UUID != first[0].UUID || three[1].UUID != first[1].UUID {
			t.Error("scaling up touched the tasks that were there")
		}

		// Logs continue across a restart of the agent, and the task is not disturbed.
		follow := s.Start("logs", "-f", "hello.1.0")
		lines := func() int { return strings.Count(follow.Output(), "v1 line ") }
		s.Eventually(soon, more(lines, 3))
		agent.Kill()
		s.Agent()
		after := lines()
		s.Eventually(soon, more(lines, after+5))
		follow.Stop()
		consecutive(t, follow.Output())
		samePids(t, three, running(t, s, "hello", 3))

		// Exec passes the exit code on.
		if r := s.Berth("exec", "hello.1.0", "--", "sh", "-c", "echo out; echo err >&2; exit 7"); r.Code != 7 ||
			r.Stdout != "out\n" || r.Stderr != "err\n" {
			t.Errorf("exec: %v", r)
		}
		if r := s.BerthWith(strings.NewReader("from here"), "exec", "-i", "hello.1.0", "--", "cat"); r.Code != 0 ||
			r.Stdout != "from here" {
			t.Errorf("exec -i: %v", r)
		}
		s.Berth("exec", "hello.1.0", "--", "no-such-program").Want(t, 125, "no-such-program")

		// Roll to the next version: all tasks are new ones of it.
		s.Berth("run", s.Write("v2.yaml", fmt.Sprintf(hello, 2, 3))).Want(t, 0, "updated", "hello@2", "3/3")
		for _, task := range running(t, s, "hello", 3) {
			if task.Definition.Version != 2 {
				t.Errorf("%s runs %s after the rollout", task.ID, task.Definition)
			}
		}
		s.Berth("logs", "service/hello", "--tail", "1").Want(t, 0, "v2 line")

		// Stop, start, restart, delete.
		s.Berth("stop", "--detach", "service/hello").Want(t, 0)
		running(t, s, "hello", 0)
		s.Eventually(soon, func() error { // the last task has ended before its outcome is written
			if out := s.Berth("status", "service/hello").Stdout; !strings.Contains(out, "stopped") {
				return errors.New(out)
			}
			return nil
		})
		s.Berth("start", "--detach", "service/hello").Want(t, 0)
		before := running(t, s, "hello", 3)
		s.Berth("restart", "service/hello").Want(t, 0)
		s.Eventually(soon, func() error { return replaced(before, alive(s, "hello")) })
		s.Berth("delete", "service/hello").Want(t, 0, "service/hello is deleted")
		s.Berth("status", "service/hello").Want(t, 2, "there is no service")
		s.Berth("events", "--tail", "-1").Want(t, 0, "task.healthy", "node.ready")
	})
}

func more(count func() int, want int) func() error {
	return func() error {
		if n := count(); n < want {
			return fmt.Errorf("%d lines, want %d", n, want)
		}
		return nil
	}
}

var lineNumber = regexp.MustCompile(`line (\d+)`)

// consecutive demands that no line is missing or repeated.
func consecutive(t *testing.T, text string) {
	t.Helper()
	last := 0
	for _, m := range lineNumber.FindAllStringSubmatch(text, -1) {
		var n int
		fmt.Sscan(m[1], &n)
		if last != 0 && n != last+1 {
			t.Errorf("line %d follows line %d", n, last)
		}
		last = n
	}
}

// alive returns the tasks of a service that have not ended.
func alive(s *harness.Site, service string) []api.TaskView {
	var live []api.TaskView
	for _, task := range s.Tasks(client.TaskFilter{Service: service}) {
		if !task.State.Terminal() {
			live = append(live, task)
		}
	}
	return live
}

// running waits until exactly that many tasks of a service run and are healthy.
func running(t *testing.T, s *harness.Site, service string, count int) []api.TaskView {
	t.Helper()
	var live []api.TaskView
	s.Eventually(soon, func() error {
		live = alive(s, service)
		for _, task := range live {
			if task.State != cluster.StateRunning || task.Health != cluster.HealthHealthy {
				return fmt.Errorf("%s is %s, %s: %s", task.ID, task.State, task.Health, task.Message)
			}
		}
		if len(live) != count {
			return fmt.Errorf("%d tasks run, want %d", len(live), count)
		}
		return nil
	})
	return live
}

// replaced returns nil once as many new tasks are healthy as there were old ones, and no old one runs.
func replaced(before, now []api.TaskView) error {
	old := map[string]bool{}
	for _, task := range before {
		old[task.UUID] = true
	}
	well := 0
	for _, task := range now {
		if old[task.UUID] {
			return fmt.Errorf("%s is still there", task.ID)
		}
		if task.Health == cluster.HealthHealthy {
			well++
		}
	}
	if well != len(before) {
		return fmt.Errorf("%d of %d tasks are replaced", well, len(before))
	}
	return nil
}

// samePids demands that the same processes run.
func samePids(t *testing.T, before, now []api.TaskView) {
	t.Helper()
	pids := func(tasks []api.TaskView) map[string]string {
		m := map[string]string{}
		for _, task := range tasks {
			for _, c := range task.Containers {
				m[task.UUID+"/"+c.Name] = fmt.Sprintf("pid %d started at %d, lives: %v", c.Pid, c.PidStart,
					harness.StartOf(c.Pid) == c.PidStart)
			}
		}
		return m
	}
	was, is := pids(before), pids(now)
	for key, pid := range was {
		if is[key] != pid || !strings.HasSuffix(pid, "true") {
			t.Errorf("%s was %s, is %s", key, pid, is[key])
		}
	}
}

func TestJobThatFails(t *testing.T) {
	t.Parallel()
	harness.Either(t, harness.Process, func(t *testing.T, executor string) {
		s := harness.New(t, executor)
		s.Dev()
		job := s.Write("job.yaml", `
kind: TaskDefinition
name: work
version: 1
containers:
  - name: main
    image: `+harness.Image+`
    command: [sh, -c, 'echo "working on $BERTH_INDEX"; if [ $BERTH_INDEX = 1 ]; then echo "cannot find the input" >&2; exit 3; fi']
    resources: {cpu: 10m, memory: 16MiB}
---
kind: Job
name: work
steps:
  - {name: all, definition: work@1, count: 3}
`)
		s.Berth("run", job).Want(t, 1, "work.1.all.1", "exited with code 3", "cannot find the input", "2/3",
			"berth logs work.1.all.1")
		s.Berth("status", "job/work").Want(t, 0, "failed", "exited with code 3", "cannot find the input")
		s.Berth("logs", "work.1.all.2").Want(t, 0, "working on 2")

		// Healthy again: a new version of the definition, and a new run of the job.
		text := strings.NewReplacer("version: 1", "version: 2", "work@1", "work@2", "= 1 ]", "= 9 ]")
		s.Berth("run", s.Write("job2.yaml", text.Replace(readFile(t, job)))).Want(t, 0, "succeeded", "3/3")
		s.Berth("delete", "job/work").Want(t, 0)
	})
}

func TestTaskThatCannotFit(t *testing.T) {
	t.Parallel()
	s := harness.New(t, harness.Process)
	s.Dev()
	big := s.Write("big.yaml", `
kind: TaskDefinition
name: big
version: 1
containers:
  - name: main
    command: [sleep, "1000"]
    resources: {cpu: 100m, memory: 900TiB}
---
kind: Service
name: big
definition: big@1
count: 2
`)
	s.Berth("run", big, "--timeout", "1s").Want(t, 1, "is not healthy after 1s", "1 node: memory short by", "TiB")
	s.Berth("status").Want(t, 0, "Trouble:", "service/big", "1 node: memory short by", "TiB")
	s.Berth("ps").Want(t, 0, "pending", "1 node: memory short by")
	s.Berth("scale", "--detach", "service/big", "0").Want(t, 0)
	s.Eventually(soon, func() error {
		if r := s.Berth("status"); strings.Contains(r.Stdout, "Trouble") {
			return fmt.Errorf("still trouble:\n%v", r)
		}
		return nil
	})
}

func TestImageThatDoesNotExist(t *testing.T) {
	t.Parallel()
	harness.Need(t, harness.Containerd)
	s := harness.New(t, harness.Containerd)
	s.Dev()
	file := s.Write("no.yaml", `
kind: TaskDefinition
name: nothing
version: 1
containers:
  - name: main
    image: 127.0.0.1:1/no/such:1
    resources: {cpu: 10m, memory: 16MiB}
---
kind: Job
name: nothing
steps:
  - {name: all, definition: nothing@1}
`)
	s.Berth("run", file, "--timeout", "6s").Want(t, 1, "is not done after 6s", "pulling 127.0.0.1:1/no/such:1",
		"connection refused")
	s.Berth("status").Want(t, 0, "Trouble:", "job/nothing", "127.0.0.1:1/no/such:1")
}

func TestWrongCommandLines(t *testing.T) {
	t.Parallel()
	s := harness.New(t, harness.Process)
	for _, tc := range []struct {
		name  string
		args  []string
		words []string
	}{
		{"no server", []string{"status"}, []string{"no server at unix://", "Start a server with 'berth dev'"}},
		{"unknown command", []string{"stauts"}, []string{`did you mean "berth status"`}},
		{"unknown flag", []string{"ps", "--nod", "x"}, []string{"unknown flag: --nod", "berth ps --help"}},
		{"unknown output", []string{"ps", "-o", "xml"}, []string{"table, wide, json, yaml"}},
		{"no file", []string{"run", "no-such.yaml"}, []string{"no-such.yaml", "no such file"}},
		{"no argument", []string{"run"}, []string{"berth run needs a manifest"}},
		{"count that is no number", []string{"scale", "service/x", "many"}, []string{"many"}},
		{"open address", []string{"dev", "--data-dir", s.ServerDir, "--http", "0.0.0.0:7373"}, []string{"loopback"}},
		{"unknown executor", []string{
			"dev", "--data-dir", s.ServerDir, "--http", "127.0.0.1:0", "--executor",
			"docker",
		}, []string{"docker", "containerd or process"}},
		{
			"unknown log level",
			[]string{"server", "--data-dir", s.ServerDir, "--log-level", "loud"},
			[]string{"loud", "debug, info, warn or error"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) { s.Berth(tc.args...).Want(t, 2, tc.words...) })
	}
	// The harness has nothing to clear: what must not start has not started.
}

func TestTwoOnOneDataDirectory(t *testing.T) {
	t.Parallel()
	s := harness.New(t, harness.Process)
	first := s.Dev()
	second := s.Start("dev", "--data-dir", s.ServerDir, "--socket", s.Dir+"/second.sock", "--http", "127.0.0.1:0",
		"--executor", "process")
	if code := second.Exit(soon); code != 2 {
		t.Errorf("the second ends with exit code %d, want 2", code)
	}
	if out := second.Output(); !strings.Contains(out, s.ServerDir) ||
		!strings.Contains(out, "in use by another process") {
		t.Errorf("the second says:\n%s", out)
	}
	third := s.Start("dev", "--data-dir", s.Dir+"/other", "--socket", s.Dir+"/third.sock", "--http",
		strings.TrimPrefix(first.URL(), "http://"), "--executor", "process")
	if code := third.Exit(soon); code != 2 {
		t.Errorf("one with a port that is taken ends with exit code %d, want 2", code)
	}
	if out := third.Output(); !strings.Contains(out, "address already in use") ||
		!strings.Contains(out, first.URL()[len("http://"):]) {
		t.Errorf("one with a port that is taken says:\n%s", out)
	}
	fourth := s.Start("dev", "--data-dir", s.Dir+"/other", "--socket", s.Socket, "--http", "127.0.0.1:0", "--executor",
		"process")
	if code := fourth.Exit(soon); code != 2 || !strings.Contains(fourth.Output(), "address already in use") {
		t.Errorf("one with a socket that is taken ends with %d and says:\n%s", code, fourth.Output())
	}
	s.Berth("status").Want(t, 0)
	if !first.Alive() {
		t.Error("the first has ended")
	}
}

func TestRelativeDataDirectories(t *testing.T) {
	t.Parallel()
	s := harness.New(t, harness.Process)
	s.ServerDir, s.AgentDir = "data", "node" // processes start in s.Dir
	s.Server()
	s.Agent()
	s.ServerDir, s.AgentDir = s.Dir+"/data", s.Dir+"/node"
	s.Berth("run", s.Write("v1.yaml", fmt.Sprintf(hello, 1, 1))).Want(t, 0, "1/1")
	s.Prints("v1 line 1", "logs", "hello.1.0")
}
