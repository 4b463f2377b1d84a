package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/internal/suite"
	"github.com/berthd/berth/internal/suite/suitetest"
	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/internal/transport/workertest"
	"github.com/berthd/berth/test/harness"
)

// program starts a worker program, and returns the function that ends it as kill -9 does.
func program(t suite.T, out *harness.Output, words ...string) (kill func()) {
	cmd := exec.Command(words[0], words[1:]...) // kill ends it
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = out, out, time.Second
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", words[0], err)
	}
	return func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // as above
	}
}

// pythonSubject is a worker in Python, for the suite.
func pythonSubject(t suite.T, python, script string) workertest.Worker {
	state, out := filepath.Join(t.TempDir(), "state"), &harness.Output{}
	t.Cleanup(func() { t.Logf("the worker printed:\n%s", out) })
	return workertest.Worker{Node: "w1", Start: func(url string) func() {
		return program(t, out, python, script, "--node", "w1", "--state", state, "--server", url)
	}}
}

// workerScript returns the interpreter and the script of the example.
func workerScript(t *testing.T) (python, script string) {
	t.Helper()
	python = testkit.NeedPython(t)
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	return python, filepath.Join(root, "examples/worker/worker.py")
}

// TestWorkerConforms runs the suite of the worker protocol against the example and against the agent.
func TestWorkerConforms(t *testing.T) {
	t.Parallel()
	t.Run("python", func(t *testing.T) {
		t.Parallel()
		python, script := workerScript(t)
		suitetest.Run(t, workertest.Cases(), func(t *testing.T) workertest.Worker {
			return pythonSubject(t, python, script)
		})
	})
	t.Run("agent", func(t *testing.T) {
		t.Parallel()
		suitetest.Run(t, workertest.Cases(), func(t *testing.T) workertest.Worker {
			dir, out := t.TempDir(), &harness.Output{}
			t.Cleanup(func() { t.Logf("the agent printed:\n%s", out.String()) })
			return workertest.Worker{Node: "w1", Start: func(url string) func() {
				return program(t, out, harness.Binary(), "agent", "--data-dir", dir, "--name", "w1", "--server", url,
					"--executor", "process", "--process-isolation", "none", "--host-path", "/", "--dns-listen", "off")
			}}
		})
	})
}

// TestBrokenWorkersFail shows that the suite notices workers that break a promise.
func TestBrokenWorkersFail(t *testing.T) {
	t.Parallel()
	python, example := workerScript(t)
	text, err := os.ReadFile(example)
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]struct{ from, to, fails string }{
		"starts before the answer": {
			"            seq, asked = seq + 1, boot()\n",
			"            seq, asked = seq + 1, boot()\n" +
				"            [self.start(t) for t in self.attempts.values() if t['report']['state'] == 'starting']\n",
			"barrier",
		},
		"forgets its attempts": {
			`self.kept = json.loads(self.saved or`, `self.kept = json.loads(None or`, "restart",
		},
		"ignores the order of assignments": {
			`if age(a) > age(t["assignment"]):`, `if True:`, "older messages",
		},
		"ignores refusals": {
			`refused = self.attempts[uuid], reply.get("refused", {}).get(uuid)`, `refused = self.attempts[uuid], None`,
			"barrier refused",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			broken := strings.Replace(string(text), m.from, m.to, 1)
			if broken == string(text) {
				t.Fatalf("the worker has no line %q", m.from)
			}
			script := filepath.Join(t.TempDir(), "worker.py")
			if err := os.WriteFile(script, []byte(broken), 0o600); err != nil {
				t.Fatal(err)
			}
			cases := slices.DeleteFunc(workertest.Cases(), func(c suite.Case[workertest.Worker]) bool {
				return c.Name != m.fails
			})
			for r := range suite.Run(t.Context(), cases, func(t suite.T) workertest.Worker {
				return pythonSubject(t, python, script)
			}) {
				if r.Outcome != suite.Failed {
					t.Errorf("the case %q %s, want failed: %v", r.Name, r.Outcome, r.Messages)
				}
			}
		})
	}
}
