package operator

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/hinted"
	"github.com/berthd/berth/internal/scheduling/schedulertest"
	"github.com/berthd/berth/internal/suite"
)

// testSchedulerCommand is `berth operator test-scheduler`.
type testSchedulerCommand struct {
	*session.Session
	only []string
	logs bool
}

func newTestSchedulerCommand(sess *session.Session) *cobra.Command {
	s := &testSchedulerCommand{Session: sess}
	cmd := &cobra.Command{
		Use: "test-scheduler -- COMMAND [ARGUMENTS]", Short: "Test an external scheduler of domains",
		Long: "Runs the conformance cases of external schedulers against a program. It needs no server: a model of\n" +
			"a domain answers the program on loopback. Each case starts the program again, with the flags\n" +
			"--server, --domain, --name, --token-file and --instance. Where the command contains one of {server},\n" +
			"{domain}, {name}, {token-file} and {instance}, these are replaced, and no flags are added.",
		Args: session.Arguments(1, -1, "the command of the scheduler, after --"), RunE: s.run,
	}
	cmd.Flags().StringSliceVar(&s.only, "case", nil, "run only these `cases`")
	cmd.Flags().BoolVar(&s.logs, "logs", false, "show what the program prints, also for cases that pass")
	return cmd
}

func (s *testSchedulerCommand) run(cmd *cobra.Command, args []string) error {
	cases := schedulertest.Cases()
	names := make([]string, len(cases))
	for i, c := range cases {
		names[i] = c.Name
	}
	for _, name := range s.only {
		if !slices.Contains(names, name) {
			return fmt.Errorf("--case %s: there is no such case; there are %s", name, strings.Join(names, ", "))
		}
	}
	if len(s.only) > 0 {
		cases = slices.DeleteFunc(cases, func(c suite.Case[schedulertest.Scheduler]) bool {
			return !slices.Contains(s.only, c.Name)
		})
	}
	if _, err := exec.LookPath(args[0]); err != nil {
		return fmt.Errorf("start the scheduler: %w", err)
	}
	failed := 0
	open := func(t suite.T) schedulertest.Scheduler { return s.program(t, args) }
	for r := range suite.Run(cmd.Context(), cases, open) {
		s.Printf("%-7s %-12s %5.1fs", r.Outcome, r.Name, r.Duration.Seconds())
		if r.Outcome == suite.Passed && !s.logs {
			continue
		}
		for _, m := range r.Messages {
			s.Printf("%s", "        "+strings.ReplaceAll(strings.TrimRight(m, "\n"), "\n", "\n        "))
		}
		if r.Outcome != suite.Passed {
			failed++
		}
	}
	if failed > 0 {
		return &hinted.Error{
			Err:  fmt.Errorf("%d of %d cases failed", failed, len(cases)),
			Hint: "The guide's page about schedulers says what a scheduler has to do. --case runs one case alone.",
		}
	}
	return nil
}

// program returns the scheduler of a case, which the command starts.
func (s *testSchedulerCommand) program(t suite.T, words []string) schedulertest.Scheduler {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(schedulertest.Token), 0o600); err != nil {
		t.Fatalf("write the access token: %v", err)
	}
	out := &boundedOutput{}
	t.Cleanup(func() {
		if text := out.String(); text != "" {
			t.Logf("the scheduler printed:\n%s", text)
		}
	})
	return schedulertest.Scheduler{Start: func(server, instance string) schedulertest.Instance {
		full := commandOf(words, [][2]string{
			{"server", server},
			{"domain", schedulertest.Domain},
			{"name", schedulertest.Name},
			{"token-file", token},
			{"instance", instance},
		})
		cmd := exec.CommandContext(t.Context(), full[0], full[1:]...)
		cmd.Stdout, cmd.Stderr, cmd.WaitDelay = out, out, time.Second
		ended := make(chan struct{})
		if err := cmd.Start(); err != nil {
			t.Errorf("start the scheduler: %v", err)
			close(ended)
			return schedulertest.Instance{Kill: func() {}, Ended: ended}
		}
		go func() {
			defer close(ended)
			_ = cmd.Wait() // it may end by itself
		}()
		return schedulertest.Instance{Ended: ended, Kill: func() {
			_ = cmd.Process.Kill() // it may have ended
			<-ended
		}}
	}}
}

// commandOf returns a command with the values in place of their names in braces. Where none is there, they are added as
// flags.
func commandOf(words []string, values [][2]string) []string {
	full := slices.Clone(words)
	for _, v := range values {
		for i := range full {
			full[i] = strings.ReplaceAll(full[i], "{"+v[0]+"}", v[1])
		}
	}
	if !slices.Equal(full, words) {
		return full
	}
	for _, v := range values {
		full = append(full, "--"+v[0], v[1])
	}
	return full
}

// boundedOutput keeps the first 64 KiB of what is written. It is safe for concurrent use.
type boundedOutput struct {
	mu   sync.Mutex
	text []byte
}

const maxOutput = 64 << 10

var _ io.Writer = (*boundedOutput)(nil)

// Write implements io.Writer. It never fails.
func (o *boundedOutput) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, b[:min(len(b), maxOutput-len(o.text))]...)
	return len(b), nil
}

// String returns what was written.
func (o *boundedOutput) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.text)
}
