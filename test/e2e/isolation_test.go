package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor/process"
	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/harness"
)

// apart is a service whose program demands isolation, and prints its abilities.
const apart = `
kind: TaskDefinition
name: apart
version: 1
containers:
  - name: main
    command:
      - sh
      - -c
      - |
        echo "process $$ of user $(id -u)"
        for dir in / /usr /etc /var /proc/sys/kernel; do (echo x >$dir/berth-test-x) 2>/dev/null && echo "wrote to $dir"; done
        cat SRVFILE 2>/dev/null && echo "read what is the node's"
        ls SITEDIR/node/agent/agent.db 2>/dev/null && echo "saw what is the agent's"
        echo kept >/data/x && cat /data/x
        echo mine >note && cat "$BERTH_DIR/note"
        echo hidden >/tmp/berth-test-apart
        echo ready
        trap 'exit 0' TERM; while :; do sleep 0.1; done
    isolation: required
    resources: {cpu: 10m, memory: 32MiB, pids: 50}
    mounts: [{volume: data, path: /data}]
volumes: [{name: data}]
restart: {mode: never}
min_healthy_time: 100ms
grace: 1s
---
kind: Service
name: apart
definition: apart
count: 1
`

// A program that demands isolation sees only its own processes, writes only to its own folders, is not root, and
// outlives its agent. A command in its container has the same isolation.
func TestIsolation(t *testing.T) {
	t.Parallel()
	testkit.NeedRoot(t)
	s := harness.New(t, harness.Process)
	node := filepath.Join("/srv", "berth-test-"+filepath.Base(s.Dir)) // a folder that Landlock hides from programs
	if err := os.Mkdir(node, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(node); err != nil {
			t.Error(err)
		}
	})
	secret := filepath.Join(node, "file")
	if err := os.WriteFile(secret, []byte("of the node\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s.Server()
	agent := s.Agent()
	s.Berth("node", "status", harness.NodeName).Want(t, 0, "isolation", "by namespaces")
	s.Berth("run", s.Write("apart.yaml", strings.NewReplacer("SRVFILE", secret, "SITEDIR", s.Dir).Replace(apart))).Want(
		t, 0)
	task := running(t, s, "apart", 1)[0]
	want := "process 1 of user 65534\nkept\nmine\nready\n"
	if out := s.Berth("node", "status", harness.NodeName).Stdout; !strings.Contains(out, "landlock") {
		// mounts do not prevent reads
		want = strings.Replace(want, "kept\n", "of the node\nread what is the node's\nkept\n", 1)
	}
	s.Prints("ready", "logs", "apart.1.0")
	if r := s.Berth("logs", "apart.1.0"); r.Stdout != want {
		t.Errorf("it says\n%swant\n%s", r.Stdout, want)
	}
	if _, err := os.Stat("/tmp/berth-test-apart"); err == nil {
		t.Error("it wrote to the node's /tmp")
	}
	s.Berth("exec", string(task.ID), "--", "sh", "-c",
		`cat /tmp/berth-test-apart; ls -d /proc/1 && touch /usr/berth-test-x`).Want(t, 1, "hidden", "/proc/1")
	checkSupervisorFile(t, s)
	// The agent is killed. The next agent has the same program, and can run commands in it.
	agent.Kill()
	s.Agent()
	if again := running(t, s, "apart", 1)[0]; again.UUID != task.UUID ||
		again.Containers[0].Pid != task.Containers[0].Pid {
		t.Errorf("the task is %s, process %d; was %s, %d", again.UUID, again.Containers[0].Pid, task.UUID,
			task.Containers[0].Pid)
	}
	s.Prints("kept", "exec", string(task.ID), "--", "cat", "/data/x")
}

// checkSupervisorFile checks that the only supervisor runs the small program that the build embedded.
func checkSupervisorFile(t *testing.T, s *harness.Site) {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, line := range lines {
		words, err := os.ReadFile(line)
		if err != nil || !strings.Contains(string(words), "\x00"+process.Subcommand+"\x00run\x00"+s.Dir) {
			continue // it has ended, or is something else
		}
		file, err := os.Readlink(filepath.Join(filepath.Dir(line), "exe"))
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, file)
	}
	if len(found) != 1 || !strings.HasPrefix(found[0], "/memfd:berth-supervisor") {
		t.Errorf("supervisors run %q, want one that runs the program in memory", found)
	}
}

// An agent without root names the missing requirement and its remedy. It does not run tasks that demand isolation or
// another user.
func TestIsolationWithoutRoot(t *testing.T) {
	t.Parallel()
	testkit.NeedRoot(t) // to run as another user
	testkit.NeedCommand(t, "setpriv")
	s := harness.New(t, harness.Process)
	if err := exec.CommandContext(t.Context(), "chown", "-R", "65534:65534", s.Dir).Run(); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(s.Dir, "berth-copy")
	program, err := os.ReadFile(harness.Binary())
	if err == nil {
		err = os.WriteFile(binary, program, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.Server()
	if err := syscall.Chmod(s.Socket, 0o666); err != nil { // for the agent
		t.Fatal(err)
	}
	s.Program = filepath.Join(s.Dir, "berth-nobody")
	script := "#!/bin/sh\nexec setpriv --reuid 65534 --regid 65534 --clear-groups " + binary + " \"$@\"\n"
	if err := os.WriteFile(s.Program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	s.Agent()
	s.Program = ""
	s.Berth("node", "status", harness.NodeName).Want(t, 0, "isolation", "not available: the agent is not root")
	text := strings.NewReplacer("SRVFILE", "/dev/null", "SITEDIR", s.Dir).Replace(apart)
	s.Berth("run", "--detach", s.Write("apart.yaml", text)).Want(t, 0)
	s.Prints("cannot isolate programs", "explain", "service/apart")
	s.Prints("isolation: required", "status")
	s.Berth("run", "--detach", s.Write("root.yaml", `
kind: TaskDefinition
name: other
version: 1
containers:
  - {name: main, command: [id], user: "0", resources: {cpu: 10m, memory: 16MiB}}
---
kind: Job
name: other
steps: [{name: all, definition: other}]
`)).Want(t, 0)
	s.Prints("only an agent that is root can run programs as another user", "events", "--tail", "-1")
	for _, task := range s.Tasks(client.TaskFilter{}) {
		if task.State == cluster.StateRunning {
			t.Errorf("%s runs", task.ID)
		}
	}
	for _, name := range []string{"job/other", "service/apart"} {
		s.Berth("delete", name).Want(t, 0)
	}
}
