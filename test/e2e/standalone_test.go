package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthd/berth/test/harness"
)

// A standalone node keeps its containers when its process is stopped and when it is killed: each task has the same
// attempt and the same process afterwards, and the node takes new work.
func TestStandaloneNodeSurvives(t *testing.T) {
	t.Parallel()
	harness.Either(t, harness.Process, func(t *testing.T, executor string) {
		s := harness.New(t, executor)
		node := s.Standalone()
		s.Berth("run", s.Write("hello.yaml", fmt.Sprintf(hello, 1, 2))).Want(t, 0, "2/2")
		before := running(t, s, "hello", 2)
		for _, end := range []struct {
			name string
			do   func()
		}{
			{"stop", func() {
				if code := node.Terminate(); code != 0 {
					t.Errorf("exit code %d after SIGTERM, want 0:\n%s", code, node.Output())
				}
			}},
			{"kill", func() { node.Kill() }},
		} {
			end.do()
			if out := node.Output(); strings.Contains(out, "continue") || strings.Contains(out, "context") {
				t.Errorf("%s: the node prints what is for trials:\n%s", end.name, out)
			}
			node = s.Standalone()
			after := running(t, s, "hello", 2)
			samePids(t, before, after)
			for i := range before {
				if after[i].UUID != before[i].UUID || after[i].Attempt != before[i].Attempt {
					t.Errorf("%s: attempt %d of %s is now attempt %d", end.name, before[i].Attempt, before[i].ID,
						after[i].Attempt)
				}
			}
		}
		s.Berth("scale", "hello", "3").Want(t, 0, "3/3")
		samePids(t, before, running(t, s, "hello", 3)[:2])
	})
}

// A standalone node permits by default no more than a server with an agent: one socket for its user, and clusters
// without permissions.
func TestStandaloneNodeIsClosedByDefault(t *testing.T) {
	t.Parallel()
	s := harness.New(t, harness.Process)
	s.Strict = true
	node := s.Standalone("--process-isolation", "none")
	if url := node.URL(); url != "unix://"+s.Socket {
		t.Errorf("it serves %s, want only the socket", url)
	}
	info, err := os.Stat(s.Socket)
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); mode != 0o600 {
		t.Errorf("the socket has the mode %v, want 0600", mode)
	}
	if _, err := os.Stat(filepath.Join(s.Dir, "home", ".config", "berth")); !os.IsNotExist(err) {
		t.Errorf("the node wrote into the home of its user: %v", err)
	}
	r := s.Berth("run", s.Write("hello.yaml", fmt.Sprintf(hello, 1, 1)))
	r.Want(t, 2, "needs the permission host-network", "cluster default does not have it")
}

// Wrong flags of a standalone node are reported together.
func TestStandaloneNodeFlags(t *testing.T) {
	t.Parallel()
	s := harness.New(t, harness.Process)
	r := s.Berth("standalone", "--name", "Not a name", "--executor", "docker", "--snapshot-keep", "0", "--socket", "")
	r.Want(t, 2, `--name "Not a name"`, `--executor "docker": want auto, containerd or process`, "--snapshot-keep 0",
		"--socket is empty", "See 'berth standalone --help'.")
	s.Berth("standalone", "--data-dir", s.AgentDir, "--socket", s.Socket, "--http", "0.0.0.0:7373", "--executor",
		"process").Want(t, 2, "0.0.0.0:7373", "loopback")
}
