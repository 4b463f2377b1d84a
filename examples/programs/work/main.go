// Command work is the example of a batch program: one of BERTH_COUNT equal tasks, it works
// on its share and ends.
//
// The share of task BERTH_INDEX is a sum of squares. The result is printed as one line,
// "result index=3 attempt=1 sum=…". These variables make it do more:
//
//	FAIL_FIRST_INDEX  the task of this index fails on its first attempt
//	FAIL_FIRST_CODE   the first attempt of the task fails with this exit code; 0 for none
//	MEET              a file in which the tasks of the step meet: each waits until all of them run
//	EFFECTS           a file to which each attempt appends one line, "task attempt"
//	RESULTS           a file to which the result is appended, as it is printed
//	WORK_TIME         how long to work, such as "2s"
//
// The line in EFFECTS is written once, in one piece, before the work: a test that counts
// lines sees every attempt whose code ran.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	err := run(ctx, os.Getenv, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "work:", err)
		os.Exit(exitCode(err))
	}
}

// plannedError is the failure of a first attempt that FAIL_FIRST_INDEX or FAIL_FIRST_CODE requests.
type plannedError struct{ code int }

func (e plannedError) Error() string {
	return fmt.Sprintf("the first attempt fails with exit code %d, as requested", e.code)
}

// exitCode returns the code of a planned failure, and 1 for all others.
func exitCode(err error) int {
	if planned, ok := errors.AsType[plannedError](err); ok {
		return planned.code
	}
	return 1
}

// numbers is how many numbers each task squares.
const numbers = 1000

func run(ctx context.Context, env func(string) string, out io.Writer) error {
	index, err := number(env, "BERTH_INDEX", 0)
	if err != nil {
		return err
	}
	count, err := number(env, "BERTH_COUNT", 1)
	if err != nil {
		return err
	}
	attempt, err := number(env, "BERTH_ATTEMPT", 1)
	if err != nil {
		return err
	}
	code, err := number(env, "FAIL_FIRST_CODE", 0)
	if err != nil {
		return err
	}
	if env("FAIL_FIRST_INDEX") == strconv.Itoa(index) {
		code = 1
	}
	fmt.Fprintf(out, "task %d of %d, attempt %d\n", index, count, attempt)
	if name := env("EFFECTS"); name != "" {
		if err := appendLine(name, fmt.Sprintf("%s %d\n", env("BERTH_TASK"), attempt)); err != nil {
			return err
		}
	}
	if name := env("MEET"); name != "" {
		if err := meet(ctx, name, env("BERTH_TASK"), count); err != nil {
			return err
		}
		fmt.Fprintf(out, "all %d tasks run\n", count)
	}
	if err := work(ctx, env("WORK_TIME")); err != nil {
		return err
	}
	if code != 0 && attempt == 1 {
		return plannedError{code}
	}
	result := fmt.Sprintf("result index=%d attempt=%d sum=%d\n", index, attempt, share(index))
	if name := env("RESULTS"); name != "" {
		if err := appendLine(name, result); err != nil {
			return err
		}
	}
	_, err = io.WriteString(out, result)
	return err
}

// share returns the result of a task: the sum of the squares of its numbers.
func share(index int) (sum uint64) {
	for i := range uint64(numbers) {
		n := uint64(index)*numbers + i
		sum += n * n
	}
	return sum
}

// number reads a variable; an empty one has the default.
func number(env func(string) string, name string, otherwise int) (int, error) {
	text := env(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%s is %q, want a number from 0 up", name, text)
	}
	return n, nil
}

// appendLine adds a line to a file that other tasks append to as well.
func appendLine(name, line string) error {
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open a file to append to: %w", err)
	}
	if _, err := f.WriteString(line); err != nil {
		_ = f.Close() // the error of the write is more precise
		return fmt.Errorf("append a line: %w", err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("keep a line: %w", err)
	}
	return nil
}

// meetInterval is the time between two readings of the file in which tasks meet.
const meetInterval = 50 * time.Millisecond

// meet adds the task to the file, and waits until the file has count tasks of the same step and run.
func meet(ctx context.Context, name, task string, count int) error {
	if err := appendLine(name, task+"\n"); err != nil {
		return err
	}
	step := task[:strings.LastIndex(task, ".")+1] // the task's id without its index
	for {
		text, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("read who is there: %w", err)
		}
		there := map[string]bool{}
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, step) {
				there[line] = true
			}
		}
		if len(there) >= count {
			return nil
		}
		select {
		case <-time.After(meetInterval):
		case <-ctx.Done():
			return fmt.Errorf("stopped with %d of %d tasks there", len(there), count)
		}
	}
}

// work waits for its work time, or until TERM.
func work(ctx context.Context, limit string) error {
	if limit == "" {
		return nil
	}
	d, err := time.ParseDuration(limit)
	if err != nil {
		return fmt.Errorf("read WORK_TIME: %w", err)
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return errors.New("stopped before the work was done")
	}
}
