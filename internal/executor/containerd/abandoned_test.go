package containerd_test

import (
	"syscall"
	"testing"

	"github.com/berthd/berth/internal/executor/executortest"
	"github.com/berthd/berth/internal/testkit"
)

// TestAbandonedCommand: a process that is killed while it begins a command leaves a shim that waits for the pipes of
// it, and answers nothing else. The next life finds that out and frees the container: its program can be ended, and its
// end is known.
func TestAbandonedCommand(t *testing.T) {
	n := newNode(t)
	ex := n.life(t)
	s := n.make(t, ex, "held", shell("exec sleep 1000000"))
	start(t, ex, s.ID)
	if err := ex.Abandon(t.Context(), s.ID, "/bin/busybox", "true"); err != nil {
		t.Fatal(err)
	}
	next := n.life(t)
	ctx, cancel := testkit.WithLimit(t.Context(), executortest.Limit)
	defer cancel()
	if _, err := next.List(ctx); err != nil {
		t.Fatal(err)
	}
	if err := next.Signal(ctx, s.ID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if exit, err := next.Wait(ctx, s.ID); err != nil || exit.Signal != int(syscall.SIGKILL) {
		t.Errorf("%+v %v", exit, err)
	}
}
