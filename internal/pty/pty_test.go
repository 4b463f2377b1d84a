package pty

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/testkit"
)

// sizeOf returns the size of a terminal; another file is an error.
func sizeOf(f *os.File) (s Size, err error) {
	err = control(f, func(fd int) error {
		w, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
		if err == nil {
			s = Size{Rows: w.Row, Columns: w.Col}
		}
		return err
	})
	return s, err
}

// TestTerminal runs a program on a terminal: it sees its size, and an interrupt that is typed.
func TestTerminal(t *testing.T) {
	t.Parallel()
	keyboard, terminal, err := Open(Size{Rows: 31, Columns: 97})
	if err != nil {
		t.Fatal(err)
	}
	defer keyboard.Close()
	if s, err := sizeOf(terminal); err != nil || s != (Size{31, 97}) {
		t.Errorf("got the size %+v %v, want 31 rows of 97", s, err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "stty size; exec sleep 100000")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = terminal.Close()
	_ = keyboard.SetReadDeadline(time.Now().Add(20 * time.Second))
	var shown strings.Builder
	for buf := make([]byte, 100); !strings.Contains(shown.String(), "31 97"); {
		n, err := keyboard.Read(buf)
		if err != nil {
			t.Fatalf("the terminal shows %q, then %v", shown.String(), err)
		}
		shown.Write(buf[:n])
	}
	if _, err := keyboard.WriteString("\x03"); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGINT {
		t.Errorf("the program ended by %v, want an interrupt", cmd.ProcessState)
	}
}

// TestCloseEndsARead checks that Close ends a read that waits for a program's output.
func TestCloseEndsARead(t *testing.T) {
	t.Parallel()
	keyboard, terminal, err := Open(Size{})
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	ended := make(chan error, 1)
	go func() {
		_, err := keyboard.Read(make([]byte, 1))
		ended <- err
	}()
	_ = keyboard.Close()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("a read of a closed terminal succeeds")
		}
	case <-testkit.Context(t, 20*time.Second).Done():
		t.Error("a read outlives the terminal")
	}
}

// TestSizeOfAFile checks that a regular file has no terminal size.
func TestSizeOfAFile(t *testing.T) {
	t.Parallel()
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if s, err := sizeOf(f); err == nil {
		t.Errorf("%s has the size %+v", os.DevNull, s)
	}
}
