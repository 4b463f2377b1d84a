package e2e_test

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/harness"
)

// hostSite is a site with the API of its node.
type hostSite struct {
	*harness.Site
	socket string
	node   *client.Host
	tb     testing.TB
}

// onHost returns a site and a client of the API of its node, which need not run yet.
func onHost(t *testing.T, s *harness.Site, dir string) *hostSite {
	t.Helper()
	h := &hostSite{Site: s, socket: filepath.Join(dir, "host.sock"), tb: t}
	var err error
	if h.node, err = client.NewHost(client.Config{Addr: "unix://" + h.socket}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.node.Close)
	return h
}

// host runs a command of `berth host`.
func (h *hostSite) host(args ...string) harness.Result {
	h.tb.Helper()
	return h.Berth(append([]string{"host", "--socket", h.socket}, args...)...)
}

// task returns a task of the node by its name, with an empty state if there is none.
func (h *hostSite) task(name string) (api.HostTask, error) {
	v, err := h.node.State(h.tb.Context())
	if err != nil {
		return api.HostTask{}, err
	}
	for _, t := range v.Tasks {
		if t.Name == name {
			return t, nil
		}
	}
	return api.HostTask{}, nil
}

// becomes waits until a task has a state, or is gone where the state is empty.
func (h *hostSite) becomes(name, state string) (t api.HostTask) {
	h.tb.Helper()
	h.Eventually(soon, func() (err error) {
		if t, err = h.task(name); err != nil {
			return err
		}
		if t.State != state {
			return fmt.Errorf("%s is %q (%s), want %q", name, t.State, t.Message, state)
		}
		return nil
	})
	return t
}

// definition writes a manifest of a task that runs a shell script, with a fixed port unless it is 0.
func (h *hostSite) definition(name, script string, port int) (file string) {
	text := fmt.Sprintf("kind: TaskDefinition\nname: %s\nversion: 1\ncontainers:\n"+
		"  - name: main\n    command: [/bin/sh, -c, %q]\n    resources: {cpu: 50m, memory: 16MiB}\n", name, script)
	if port != 0 {
		text += fmt.Sprintf("ports:\n  - {name: http, port: %d}\n", port)
	}
	return h.Write(name+".yaml", text)
}

// steady is a script that runs until TERM.
const steady = "echo began; trap 'exit 0' TERM; while :; do sleep 1; done"

// fixedPort returns a free port that no node assigns or keeps from tasks.
func fixedPort(t *testing.T) int {
	t.Helper()
	_, text, err := net.SplitHostPort(testkit.FreeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// TestHostTasks follows a task that is made over the API of the node: it has its room from its creation to its
// deletion, also while it is stopped, and survives the end of the program that runs the node.
func TestHostTasks(t *testing.T) {
	t.Parallel()
	s := harness.New(t, harness.Process)
	flags := []string{"--process-isolation", "none", "--device", "type=licence,count=2"}
	d := s.Dev(flags...)
	h := onHost(t, s, s.ServerDir)
	port := fixedPort(t)
	web := h.Write("web.yaml", fmt.Sprintf("kind: TaskDefinition\nname: web\nversion: 1\ncontainers:\n"+
		"  - name: main\n    command: [/bin/sh, -c, %q]\n    resources: {cpu: 50m, memory: 16MiB, "+
		"devices: [{type: licence}]}\nports: [{name: http, port: %d}]\n", steady, port))
	h.host("create", "web", "-f", web).Want(t, 0, "Created web")
	h.host("create", "web", "-f", web).Want(t, 0, "Created web")
	h.host("create", "web", "-f", h.definition("changed", steady, 0)).Want(t, 2, "with another content")
	h.host("ps").Want(t, 0, "web", "created", "yes", fmt.Sprintf("http:%d", port))

	other := s.Write("other.yaml", fmt.Sprintf("kind: Service\nname: other\ncount: 1\ntemplate:\n  containers:\n"+
		"    - name: main\n      command: [/bin/sh, -c, %q]\n  ports:\n    - {name: http, port: %d}\n", steady, port))
	s.Berth("run", other, "--detach").Want(t, 0)
	kept := fmt.Sprintf("port %d kept for the service default/web, which keeps its room", port)
	h.Prints(kept, "explain", "other")
	licensed := s.Write("licensed.yaml", fmt.Sprintf("kind: Service\nname: licensed\ncount: 1\ntemplate:\n"+
		"  containers:\n    - name: main\n      command: [/bin/sh, -c, %q]\n      resources: {devices: [{type: licence, count: 2}]}\n",
		steady))
	s.Berth("run", licensed, "--detach").Want(t, 0)
	keptDevice := "too few licence free (some of them kept for the service default/web, which keeps its room)"
	h.Prints(keptDevice, "explain", "licensed")
	if r := h.host("resources"); !strings.Contains(strings.Join(strings.Fields(r.Stdout), " "), "licence 2 1 ports") {
		t.Errorf("want one of two licences reserved: %v", r)
	}

	h.host("start", "web").Want(t, 0, "Starting web")
	started := h.becomes("web", "running")
	h.host("start", "web").Want(t, 2, "runs already")
	h.host("rm", "web").Want(t, 2, "stop it first")
	h.Eventually(soon, func() error {
		if r := h.host("logs", "web"); !strings.Contains(r.Stdout, "began") {
			return fmt.Errorf("no output yet: %v", r)
		}
		return nil
	})

	d.Kill()
	h.host("ps").Want(t, 2, "nothing listens on the socket")
	s.Dev(flags...)
	if again := h.becomes("web", "running"); again.UUID != started.UUID ||
		again.Containers[0].Pid != started.Containers[0].Pid {
		t.Errorf("after the restart web is %+v, want the same process as in %+v", again, started)
	}

	h.host("stop", "web").Want(t, 0, "Stopping web")
	stopped := h.becomes("web", "stopped")
	if stopped.Demand.CPU != 50 || stopped.Ports["http"] != port {
		t.Errorf("the stopped task is %+v, want its room and its port", stopped)
	}
	h.host("stop", "web").Want(t, 2, "is stopped already")
	h.host("logs", "web").Want(t, 0, "began")
	h.Prints(kept, "explain", "other")
	h.Prints(keptDevice, "explain", "licensed")
	h.host("create", "second", "-f", web).Want(t, 2, "is taken")
	h.host("resources").Want(t, 0, "0.05", fmt.Sprint("taken: ", port))
	h.host("stop", "other").Want(t, 2, "there is no task other")

	h.host("rm", "web").Want(t, 0, "Removed web")
	h.host("start", "web").Want(t, 2, "there is no task web", "berth host ps")
	s.Berth("wait", "other", "--timeout", "1m").Want(t, 0)
	s.Berth("wait", "licensed", "--timeout", "1m").Want(t, 0)
	own := h.becomes("default.other.1.0", "running")
	if own.Own {
		t.Errorf("a task of a service is shown as made over the API: %+v", own)
	}
	h.host("stop", "default.other.1.0").Want(t, 2, "belongs to the service default/other", "berth stop")
}

// TestHostReplace kills the program that runs the node in the middle of replacements: what remains to be done follows
// from the records.
func TestHostReplace(t *testing.T) {
	t.Parallel()
	s := harness.New(t, harness.Process)
	d := s.Dev("--process-isolation", "none")
	h := onHost(t, s, s.ServerDir)
	file := h.definition("web", steady, 0)
	h.host("create", "web", "-f", file).Want(t, 0)
	h.host("start", "web").Want(t, 0)
	old := h.becomes("web", "running")

	// The new task fails: it is stopped, and the old one runs on as it was.
	h.host("replace", "web", "bad", "-f", h.definition("bad", "exit 3", 0)).Want(t, 0, "which replaces web")
	d.Kill()
	d = s.Dev("--process-isolation", "none")
	bad := h.becomes("bad", "failed")
	if !strings.Contains(bad.Message, "it did not replace web") || bad.Replaces != "" {
		t.Errorf("the failed task is %+v", bad)
	}
	if now := h.becomes("web", "running"); now.UUID != old.UUID || now.Restarts != old.Restarts {
		t.Errorf("the old task is %+v, want it as it was: %+v", now, old)
	}

	// The new task becomes healthy: the old one goes.
	h.host("replace", "web", "web-2", "-f", file).Want(t, 0)
	d.Kill()
	s.Dev("--process-isolation", "none")
	h.becomes("web", "")
	h.Eventually(soon, func() error {
		now, err := h.task("web-2")
		if err == nil && (now.State != "running" || now.Replaces != "") {
			err = fmt.Errorf("web-2 is %+v", now)
		}
		return err
	})
	h.host("rm", "bad").Want(t, 0)
}

// TestHostEvents checks that the first event has everything, and that later ones have what changed with the resources
// after it.
func TestHostEvents(t *testing.T) {
	t.Parallel()
	s := harness.New(t, harness.Process)
	s.Dev("--process-isolation", "none")
	h := onHost(t, s, s.ServerDir)
	h.host("create", "one", "-f", h.definition("one", steady, 0)).Want(t, 0)
	ctx, cancel := context.WithCancel(testkit.Context(t, 2*time.Minute))
	defer cancel()
	begun := false
	for e, err := range h.node.Events(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if !begun {
			if e.State == nil || len(e.State.Tasks) != 1 || e.State.Resources.CPU.Reserved != 50 {
				t.Fatalf("the first event is %+v, want all that is there", e.State)
			}
			begun = true
			h.host("create", "two", "-f", h.definition("two", steady, 0)).Want(t, 0)
			continue
		}
		if e.Change == nil {
			t.Fatalf("a later event has a whole state: %+v", e.State)
		}
		if len(e.Change.Tasks) == 0 {
			continue // the session of the agent changed
		}
		if got := e.Change; len(got.Tasks) != 1 || got.Tasks[0].Name != "two" || got.Tasks[0].State != "created" ||
			got.Resources.CPU.Reserved != 100 {
			t.Errorf("the change is %+v, want the task two and what both reserve", got)
		}
		return
	}
}

// TestHostOfADomain checks that a node which a server drives shows its tasks, also without the server, and refuses
// changes with the name of its owner.
func TestHostOfADomain(t *testing.T) {
	t.Parallel()
	s := harness.New(t, harness.Process)
	server := s.Server()
	s.Agent()
	h := onHost(t, s, s.AgentDir)
	file := s.Write("web.yaml", fmt.Sprintf("kind: Service\nname: web\ncount: 1\ntemplate:\n  containers:\n"+
		"    - name: main\n      command: [/bin/sh, -c, %q]\n", steady))
	s.Berth("run", file).Want(t, 0)
	running := h.becomes("default.web.1.0", "running")
	const owner = "belongs to the domain default, generation 1"
	h.host("create", "own", "-f", h.definition("own", steady, 0)).Want(t, 2, owner, "berth run")
	h.host("stop", "default.web.1.0").Want(t, 2, owner, "berth stop")
	h.host("rm", "default.web.1.0").Want(t, 2, owner)
	server.Kill()
	h.host("stop", "default.web.1.0").Want(t, 2, owner)
	if now := h.becomes("default.web.1.0", "running"); now.UUID != running.UUID {
		t.Errorf("without the server the task is %+v, want %+v", now, running)
	}
	h.Eventually(soon, func() error {
		if r := h.host("logs", "default.web.1.0", "--history", "5"); !strings.Contains(r.Stdout, "began") {
			return fmt.Errorf("no output: %v", r)
		}
		return nil
	})
	s.Server() // the site is taken down with a server
}
