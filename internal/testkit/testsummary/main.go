// Command testsummary runs `go test`, shows packages as they finish and the output of
// what failed, and ends with the tests that were left out, each with its reason, and a
// line of counts:
//
//	testsummary [-left-out TEXT]… -- go test [FLAGS] [PACKAGES]
//
// Each -left-out names something that the caller left out before any test ran; it is
// listed with the skipped tests. The exit code is that of go test, or 1 where
// BERTH_TEST_NO_SKIP is set and anything was left out.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/berthd/berth/internal/testkit"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		os.Exit(exit.ExitCode())
	case errors.Is(err, errFailed):
		os.Exit(1)
	case err != nil:
		fmt.Fprintln(os.Stderr, "testsummary:", err)
		os.Exit(2)
	}
}

// errFailed says that the summary, already printed, contains a failure.
var errFailed = errors.New("tests failed")

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("testsummary", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var sum summary
	flags.Func("left-out", "something that is not tested at all, with the reason", func(text string) error {
		sum.leftOut = append(sum.leftOut, text)
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("parse flags: %w", err)
	}
	command := flags.Args()
	if len(command) < 2 || !slices.Contains(command, "test") {
		return fmt.Errorf("want -- go test …, got %q", strings.Join(command, " "))
	}
	at := slices.Index(command, "test") + 1
	cmd := exec.CommandContext(ctx, command[0], slices.Insert(slices.Clone(command[1:]), at-1, "-json")...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stderr = stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("pipe: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	readErr := sum.read(pipe, stdout)
	waitErr := cmd.Wait()
	if waitErr != nil && sum.failed == 0 {
		sum.failed++ // go test itself: a bad flag, no such package
	}
	strict := os.Getenv(testkit.NoSkip) != "" && sum.skippedCount() > 0
	sum.print(stdout, strict)
	switch {
	case waitErr != nil:
		return fmt.Errorf("go test: %w", waitErr)
	case readErr != nil:
		return readErr
	case strict || sum.failed > 0:
		return errFailed
	}
	return nil
}
