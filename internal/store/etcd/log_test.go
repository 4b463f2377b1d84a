package etcd

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
)

// dies is set in the process that TestFullDiskIsSaid starts.
const dies = "BERTH_TEST_ETCD_DIES"

// A disk that is full ends the process with a sentence, and not with the traces of a fault in the program.
func TestFullDiskIsSaid(t *testing.T) {
	if os.Getenv(dies) != "" {
		cause := fmt.Errorf("write snap: %w", syscall.ENOSPC)
		bridge(slog.New(slog.DiscardHandler)).Panic("failed to save snapshot", zap.Error(cause))
		return
	}
	t.Parallel()
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFullDiskIsSaid$")
	c.Env = append(os.Environ(), dies+"=1")
	out, err := c.CombinedOutput()
	if c.ProcessState.ExitCode() != 1 {
		t.Errorf("ended with %v, want code 1", err)
	}
	if said := string(out); !strings.Contains(said, "the disk of the data directory is full") ||
		strings.Contains(said, "goroutine") {
		t.Errorf("said:\n%s", said)
	}
}

// What etcd says over and over is said some times a second, and how often it was not said.
func TestEchoes(t *testing.T) {
	var said strings.Builder
	log := bridge(slog.New(slog.NewTextHandler(&said, nil)))
	for range 1000 {
		log.Warn("failed to publish")
	}
	log.Warn("something else")
	if n := strings.Count(said.String(), "failed to publish"); n < mostSaid || n > 2*mostSaid {
		t.Errorf("said %d times, want %d", n, mostSaid)
	}
	if !strings.Contains(said.String(), "something else") {
		t.Error("another message was kept back")
	}
	var e echoes
	now := time.Unix(1, 0)
	for range mostSaid + 7 {
		e.again("x", now)
	}
	if enough, kept := e.again("x", now.Add(time.Second)); enough || kept != 7 {
		t.Errorf("a second later: got %v and %d kept back, want it said, and 7", enough, kept)
	}
}
