package e2e_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthd/berth/test/harness"
)

// endless is a service that never becomes healthy and stops once the file RELEASE exists, a job that does not end, and
// a cron of such jobs.
const endless = `kind: Service
name: slow
count: 1
template:
  containers:
    - name: main
      command: [sh, -c, "trap '' TERM; echo begun; until [ -e RELEASE ]; do sleep 0.2; done"]
  checks: [{name: never, type: exec, command: ["false"], interval: 10s, fail_after: 100}]
  grace: 10m
update: {healthy_deadline: 10m}
---
kind: Job
name: long
steps:
  - name: all
    template:
      containers: [{name: main, command: [sleep, "600"]}]
---
kind: Cron
name: weekly
schedules: ["0 0 * * 0"]
job:
  steps:
    - name: all
      template:
        containers: [{name: main, command: [sleep, "600"]}]
`

// TestInterrupts ends commands as Ctrl-C does. Each exits with 130. A command that waits says what continues, and its
// work continues; a command that only shows something ends without a message.
func TestInterrupts(t *testing.T) {
	t.Parallel()
	s := harness.New(t, "process")
	s.Server()
	s.Agent()
	release := filepath.Join(s.Dir, "release")
	file := s.Write("endless.yaml", strings.ReplaceAll(endless, "RELEASE", release))
	for _, test := range []struct {
		args []string
		// shown is printed before the interrupt, and said after it.
		shown, said string
	}{
		{[]string{"run", file}, "slow", "Stopped waiting; the applied objects continue. See 'berth status'.\n"},
		{[]string{"wait", "slow"}, "slow", "berth: interrupted\n"},
		{[]string{"rollout", "status", "slow", "--watch"}, "slow", "Stopped waiting; the rollout continues."},
		{[]string{"scale", "slow", "2"}, "0/2 healthy", "Stopped waiting; the change continues."},
		{[]string{"restart", "slow"}, "slow", "Stopped waiting; the restart continues."},
		{[]string{"restart", "long"}, "long", "Stopped waiting; "},
		{[]string{"cron", "run", "weekly"}, "weekly", "Stopped waiting; the job continues."},
		{[]string{"stop", "slow"}, "slow", "Stopped waiting; "},
		{[]string{"start", "slow"}, "slow", "Stopped waiting; "},
		{[]string{"logs", "slow", "--follow"}, "begun", ""},
		{[]string{"events", "--follow"}, "slow", ""},
		{[]string{"ps", "--watch"}, "slow", ""},
		{[]string{"status", "--watch"}, "slow", ""},
		{[]string{"top", "--times", "1000"}, "slow", ""},
		{[]string{"node", "drain", harness.NodeName, "--wait"}, "left", "Stopped waiting; the drain continues."},
		{[]string{"delete", "slow"}, "slow", "Stopped waiting; the deletion continues."},
	} {
		d := s.Start(test.args...)
		s.Eventually(soon, func() error {
			if !strings.Contains(d.Output(), test.shown) {
				return fmt.Errorf("berth %s: no %q in\n%s", strings.Join(test.args, " "), test.shown, d.Output())
			}
			return nil
		})
		code := d.Stop()
		if code != 130 || !strings.Contains(d.Output(), test.said) ||
			test.said == "" && strings.Contains(d.Output(), "interrupted") {
			t.Errorf("berth %s: exit code %d, want 130 and %q:\n%s", strings.Join(test.args, " "), code, test.said,
				d.Output())
		}
	}
	s.Write(filepath.Base(release), "")
	s.Berth("wait", "slow", "--for", "gone").Want(t, 0)
}
