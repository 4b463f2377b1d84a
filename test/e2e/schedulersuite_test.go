package e2e_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berthd/berth/internal/scheduling/schedulertest"
	"github.com/berthd/berth/internal/suite"
	"github.com/berthd/berth/internal/suite/suitetest"
	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/harness"
)

// schedulerOf returns a scheduler program for the suite, which gets flags for its server, domain, name, token and
// instance.
func schedulerOf(t *testing.T, env []string, command ...string) schedulertest.Scheduler {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(schedulertest.Token), 0o600); err != nil {
		t.Fatal(err)
	}
	return schedulertest.Scheduler{Start: func(server, instance string) schedulertest.Instance {
		var out harness.Output
		args := append(slices.Clone(command[1:]), "--server", server, "--domain", schedulertest.Domain, "--name",
			schedulertest.Name, "--token-file", token, "--instance", instance)
		cmd := exec.Command(command[0], args...) // the returned function ends it
		cmd.Stdout, cmd.Stderr, cmd.Env = &out, &out, append(os.Environ(), env...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = cmd.Wait() // it may end by itself
		}()
		return schedulertest.Instance{Ended: ended, Kill: func() {
			_ = cmd.Process.Kill() // it may have ended
			<-ended
			if t.Failed() {
				t.Logf("the scheduler printed:\n%s", out.String())
			}
		}}
	}}
}

// TestSchedulersConform runs the suite of schedulers against both examples.
func TestSchedulersConform(t *testing.T) {
	t.Parallel()
	python := testkit.NeedPython(t)
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	for name, command := range map[string][]string{
		"python": {python, filepath.Join(root, "examples", "schedulers", "spread.py"), "--beat", "1"},
		"go":     {harness.Program(t, t.TempDir(), binpack), "-beat", "1s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			suitetest.Run(t, schedulertest.Cases(), func(t *testing.T) schedulertest.Scheduler {
				return schedulerOf(t, nil, command...)
			})
		})
	}
}

// TestWrongSchedulersAreFound runs cases of the suite against schedulers with one fault each. The case for the fault
// fails.
func TestWrongSchedulersAreFound(t *testing.T) {
	t.Parallel()
	python := testkit.NeedPython(t)
	for fault, want := range map[string]struct{ name, message string }{
		"greedy":      {"fenced", "claims the domain again"},
		"blind":       {"unready", "does not accept tasks"},
		"stubborn":    {"refused", "it repeats the placement"},
		"nostalgic":   {"reset", "it proposes n1"},
		"upside-down": {"order", "tasks of the higher priority wait"},
		"mute":        {"beats", "was silent for"},
		"busy":        {"full", "proposals came in"},
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			cases := slices.DeleteFunc(schedulertest.Cases(), func(c suite.Case[schedulertest.Scheduler]) bool {
				return c.Name != want.name
			})
			wrong := schedulerOf(t, []string{"FAULT=" + fault}, python, "testdata/wrongscheduler.py")
			open := func(suite.T) schedulertest.Scheduler { return wrong }
			for r := range suite.Run(context.Background(), cases, open) {
				if text := strings.Join(r.Messages, "\n"); r.Outcome != suite.Failed ||
					!strings.Contains(text, want.message) {
					t.Errorf("the case %s: %s, want it failed with %q:\n%s", r.Name, r.Outcome, want.message, text)
				}
			}
		})
	}
}

// TestTestScheduler runs the command that tests schedulers: against an example, and against a program that does
// nothing.
func TestTestScheduler(t *testing.T) {
	t.Parallel()
	python := testkit.NeedPython(t)
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	s := harness.New(t, harness.Process)
	script := filepath.Join(root, "examples", "schedulers", "spread.py")
	s.Berth("operator", "test-scheduler", "--case", "place,order", "--", script, "--beat", "1").
		Want(t, 0, "passed  place", "passed  order")
	s.Berth("operator", "test-scheduler", "--case", "order", "--logs", "--", python, script, "--server={server}",
		"--domain={domain}", "--name={name}", "--token-file={token-file}").
		Want(t, 0, "passed  order", "claimed the domain")
	s.Berth("operator", "test-scheduler", "--case", "place", "--", python, script, "--beat=wrong").
		Want(t, 2, "failed  place", "the scheduler ended by itself", "invalid float value", "1 of 1 cases failed")
	s.Berth("operator", "test-scheduler", "--case", "no", "--", script).Want(t, 2, "there are claim, place")
	s.Berth("operator", "test-scheduler", "--", "./no-such-program").Want(t, 2, "no-such-program")
}
