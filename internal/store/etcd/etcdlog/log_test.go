package etcdlog

import (
	"errors"
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
		New(slog.New(slog.DiscardHandler)).Panic("failed to save snapshot", zap.Error(cause))
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

// A write of etcd's own that the end of the server interrupts is no fault.
func TestCancelledWriteIsNoWarning(t *testing.T) {
	var out strings.Builder
	log := New(slog.New(slog.NewTextHandler(&out, nil)))
	log.Warn("failed to update cluster version", zap.Error(errors.New("etcdserver: request cancelled")))
	log.Warn("failed to update cluster version", zap.Error(errors.New("etcdserver: no leader")))
	if got := out.String(); strings.Contains(got, "cancelled") || !strings.Contains(got, "no leader") {
		t.Errorf("logged:\n%s", got)
	}
}

// On a slow machine one plain sentence a minute stands for the messages of etcd, which are for debugging.
func TestSlowMachineIsOneSentence(t *testing.T) {
	var out, all strings.Builder
	log := New(slog.New(slog.NewTextHandler(&out, nil)))
	debug := New(slog.New(slog.NewTextHandler(&all, &slog.HandlerOptions{Level: slog.LevelDebug})))
	for _, l := range []*zap.Logger{log, debug} {
		for range 3 {
			l.Warn("slow fdatasync", zap.Duration("took", 2*time.Second))
			l.Warn("apply request took too long", zap.Duration("took", time.Second))
			l.Warn("8e9e05c52164694d A tick missed to fire. Node blocks too long!")
			l.Warn("waiting for ReadIndex response took too long, retrying")
		}
	}
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, slowText) ||
		!strings.Contains(got, "took=2s") {
		t.Errorf("logged:\n%s\nwant one line: %s", got, slowText)
	}
	if got := all.String(); !strings.Contains(got, "apply request took too long") {
		t.Errorf("for debugging, logged:\n%s", got)
	}
	var s slowLimiter
	now := time.Unix(1, 0)
	if !s.due(now) || s.due(now.Add(slowInterval-1)) || !s.due(now.Add(slowInterval)) {
		t.Error("the warning does not come once in its interval")
	}
}

// A repeated message is logged a limited number of times a second, with the number of suppressed ones.
func TestRepeatLimiter(t *testing.T) {
	var said strings.Builder
	log := New(slog.New(slog.NewTextHandler(&said, nil)))
	for range 1000 {
		log.Warn("failed to publish")
	}
	log.Warn("something else")
	if n := strings.Count(said.String(), "failed to publish"); n < maxRepeatsPerSecond || n > 2*maxRepeatsPerSecond {
		t.Errorf("said %d times, want %d", n, maxRepeatsPerSecond)
	}
	if !strings.Contains(said.String(), "something else") {
		t.Error("another message was kept back")
	}
	var e repeatLimiter
	now := time.Unix(1, 0)
	for range maxRepeatsPerSecond + 7 {
		e.count("x", now)
	}
	if enough, kept := e.count("x", now.Add(time.Second)); enough || kept != 7 {
		t.Errorf("a second later: got %v and %d kept back, want it said, and 7", enough, kept)
	}
}
