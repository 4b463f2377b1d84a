package e2e_test

import (
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/berthd/berth/test/harness"
)

// insides are words of the parts below Berth that mean nothing to users.
var insides = regexp.MustCompile(
	`OCI runtime|runc create|shim task|rpc error|dial tcp|listen tcp|: unknown\b|ended 0 times`)

// TestMessagesOfFailingTasks runs services that cannot begin, for different reasons, and checks the messages to users.
func TestMessagesOfFailingTasks(t *testing.T) {
	t.Parallel()
	harness.Need(t, harness.Containerd)
	s := harness.New(t, harness.Containerd)
	s.Dev()
	taken, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	container := func(more string) string { return "image: " + harness.Image + ", " + more }
	faults := []struct{ name, container, task, words string }{
		{
			"path", container(`command: [nosuch]`), "",
			`the image has no program "nosuch" in its PATH: correct the command`,
		},
		{
			"file", container(`command: [/bin/nosuch]`), "",
			"the image has no file /bin/nosuch to run: correct the command",
		},
		{"folder", container(`command: [/tmp]`), "", "/tmp of the image cannot be run"},
		{"user", container(`command: [sleep, "1000"], user: nosuch`), "", `the image has no user "nosuch"`},
		{
			"port", container(`command: [sleep, "1000"]`), fmt.Sprintf("ports: [{name: http, port: %d}]", port),
			fmt.Sprintf("port %d is used by pid %d (", port, os.Getpid()),
		},
		{
			"check", container(`command: [sleep, "1000"]`),
			"ports: [{name: http}]\nchecks: [{name: up, type: tcp, port: http, interval: 1s}]",
			"readiness check up: nothing listens at",
		},
		{
			"folderless", container(`command: [sleep, "1000"], mounts: [{volume: data, path: /data}]`),
			"volumes: [{name: data, host: /nowhere/at/all}]", "volume data: the node has no directory /nowhere/at/all",
		},
	}
	for _, f := range faults {
		manifest := fmt.Sprintf("kind: TaskDefinition\nname: %[1]s\nversion: 1\ncontainers: [{name: main, "+
			"resources: {cpu: 10m, memory: 16MiB}, %[2]s}]\n%[3]s\n---\nkind: Service\nname: "+
			"%[1]s\ndefinition: %[1]s@1\ncount: 1\n",
			f.name, f.container, f.task)
		s.Berth("run", "-d", s.Write(f.name+".yaml", manifest)).Want(t, 0)
	}
	for _, f := range faults {
		s.Eventually(soon, func() error {
			if r := s.Berth("status", "service/"+f.name); !strings.Contains(r.Stdout, f.words) {
				return fmt.Errorf("%s: want %q in:\n%v", f.name, f.words, r)
			}
			return nil
		})
	}
	for _, words := range [][]string{
		{"status"},
		{"ps", "--all"},
		{"events", "--tail", "-1"},
		{"explain", "path"},
		{"logs", "file.1.0"},
	} {
		if r := s.Berth(words...); insides.MatchString(r.Stdout + r.Stderr) {
			t.Errorf("berth %s says %q:\n%v", strings.Join(words, " "), insides.FindString(r.Stdout+r.Stderr), r)
		}
	}
}

// TestProgramThatDoesNotExist runs a job with retries, and a service, whose program does not exist. The job is placed
// twice and fails for good; the service fails its rollout at once. Both say which program is missing, and where.
func TestProgramThatDoesNotExist(t *testing.T) {
	harness.Each(t, func(t *testing.T, executor string) {
		s := harness.New(t, executor)
		s.Dev()
		const template = "\n  containers:\n  - name: main\n    image: " + harness.Image + "\n" +
			"    command: [no-such-program]\n    resources: {cpu: 10m, memory: 16MiB}\n"
		job := "kind: Job\nname: typo\nsteps:\n- name: main\n  retries: 5\n  idempotent: true\n  template:" +
			strings.ReplaceAll(template, "\n  ", "\n    ")
		service := "kind: Service\nname: mistyped\ncount: 1\ntemplate:" + template
		if executor == harness.Process {
			job = strings.ReplaceAll(job, "image: "+harness.Image, "# no image")
		}
		s.Berth("run", s.Write("job.yaml", job)).Want(t, 1, `"no-such-program"`, "PATH", "not tried again")
		placed := s.Berth("events", "--job", "typo", "--type", "task.assigned", "--no-headers")
		if n := strings.Count(placed.Stdout, "\n"); placed.Code != 0 || n != 2 {
			t.Errorf("the task of the job was placed %d times, want twice:\n%v", n, placed)
		}
		s.Berth("events", "--job", "typo", "--reason", "program-not-found").Want(t, 0, "task.failed")
		s.Berth("run", s.Write("service.yaml", service)).
			Want(t, 1, "service/mistyped: its rollout of mistyped@1 failed", `"no-such-program"`)
	})
}
