package process

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/berthd/berth/internal/testkit"
)

// To wait for many supervisors takes no thread for each, and all of them are reaped.
func TestAwaitTakesNoThreads(t *testing.T) {
	threads := func() int {
		all, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	const many = 60
	var commands []*exec.Cmd
	var ended sync.WaitGroup
	before := threads()
	for range many {
		pidfd := -1
		cmd := exec.Command("sleep", "600") // killed below
		cmd.SysProcAttr = &syscall.SysProcAttr{PidFD: &pidfd, Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if pidfd < 0 {
			_ = cmd.Process.Kill() // it has only begun
			_ = cmd.Wait()         // killed
			testkit.Skip(t, "the kernel gives no descriptors of processes")
		}
		commands = append(commands, cmd)
		ended.Go(func() { await(cmd, pidfd) })
	}
	testkit.Pause(t.Context(), 100*time.Millisecond) // for those that would hold a thread
	if now := threads(); now > before+many/2 {
		t.Errorf("%d threads more wait for %d processes", now-before, many)
	}
	for _, cmd := range commands {
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
	}
	ended.Wait()
	for _, cmd := range commands {
		if cmd.ProcessState == nil || cmd.ProcessState.Success() {
			t.Errorf("it was waited for, and its end is %v", cmd.ProcessState)
		}
	}
}

// A reply comes whole, however large; one that never comes is nothing.
func TestReceive(t *testing.T) {
	for name, message := range map[string][]byte{
		"small":       []byte("{}"),
		"the largest": bytes.Repeat([]byte("x"), maxPacket), "none": nil,
	} {
		t.Run(name, func(t *testing.T) {
			addr := &net.UnixAddr{Net: "unixpacket", Name: filepath.Join(t.TempDir(), "s")}
			l, err := net.ListenUnix("unixpacket", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			ours, err := net.DialUnix("unixpacket", nil, addr)
			if err != nil {
				t.Fatal(err)
			}
			defer ours.Close()
			theirs, err := l.AcceptUnix()
			if err != nil {
				t.Fatal(err)
			}
			var sent sync.WaitGroup
			sent.Go(func() {
				testkit.Pause(t.Context(), 10*time.Millisecond) // it is waited for first
				if len(message) > 0 {
					if _, err := theirs.Write(message); err != nil {
						t.Error(err)
					}
				}
				_ = theirs.Close() // that is the end
			})
			got, err := receive(ours)
			sent.Wait()
			if err != nil || !bytes.Equal(got, message) {
				t.Errorf("got %d bytes, %v, want %d", len(got), err, len(message))
			}
		})
	}
}
