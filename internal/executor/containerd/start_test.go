package containerd_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/executor/executortest"
	"github.com/berthd/berth/internal/testkit"
)

// inDoubt is the argument by which programs of TestStartInDoubt are found.
const inDoubt = "1000031"

// failStarts makes every start fail in daemons that are launched later. Their runc starts the program of the container
// "begun" before it fails, and returns once the program runs.
func failStarts(t *testing.T) {
	t.Helper()
	runc, err := exec.LookPath("runc")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	script := fmt.Sprintf(`#!/bin/busybox sh
for word in "$@"; do
	[ "$word" = start ] || continue
	case "$*" in
	*begun)
		%[1]s "$@"
		until grep -qs %[2]q /proc/[0-9]*/cmdline; do usleep 10000; done
		;;
	esac
	echo "the runtime lost the answer" >&2
	exit 1
done
exec %[1]s "$@"
`, runc, "["+inDoubt[:1]+"]"+inDoubt[1:])
	if err := os.WriteFile(filepath.Join(dir, "runc"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// TestStartInDoubt: when the runtime fails to start a program, the program may run all the same. The error promises
// neither that the program never ran nor that a repeated call will know. The program is ended, its end is unknown, and
// it is not started again, by this agent or the next one.
func TestStartInDoubt(t *testing.T) {
	need(t)
	failStarts(t)
	n := newNode(t)
	for _, id := range []executor.ID{"begun", "refused"} {
		t.Run(string(id), func(t *testing.T) {
			ex := n.life(t)
			s := n.make(t, ex, id, shell("exec sleep "+inDoubt))
			ctx, cancel := testkit.WithLimit(t.Context(), executortest.Limit)
			defer cancel()
			_, err := ex.Start(ctx, s.ID)
			if err == nil || !strings.Contains(err.Error(), "the runtime lost the answer") {
				t.Fatalf("start: %v, want the message of the runtime", err)
			}
			for _, promise := range []error{executor.ErrNotStarted, executor.ErrUnavailable, executor.ErrStarted} {
				if errors.Is(err, promise) {
					t.Errorf("start: %v is also: %v", err, promise)
				}
			}
			if left := pids(inDoubt); len(left) > 0 {
				t.Errorf("the program runs after the failure of its start: %v", left)
			}
			for _, ex := range []executor.Executor{ex, n.life(t)} {
				if exit, err := ex.Wait(ctx, s.ID); err != nil || !exit.Unknown {
					t.Errorf("wait: %+v %v, want an unknown end", exit, err)
				}
				if _, err := ex.Start(ctx, s.ID); !errors.Is(err, executor.ErrStarted) {
					t.Errorf("second start: %v, want %v", err, executor.ErrStarted)
				}
			}
		})
	}
}
