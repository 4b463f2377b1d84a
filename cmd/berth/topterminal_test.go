package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/cli/clitest"
	"github.com/berthd/berth/internal/testkit"
)

// terminal is one side of a pseudo-terminal; the other is what a program is started on.
type terminal struct {
	t            *testing.T
	ours, theirs *os.File

	mu   sync.Mutex
	text strings.Builder
}

func openTerminal(t *testing.T) *terminal {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		testkit.Skip(t, "no pseudo-terminals: "+err.Error())
	}
	t.Cleanup(func() { _ = ours.Close() }) // it was used
	if err := unix.IoctlSetPointerInt(int(ours.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(ours.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = theirs.Close() }) // it was used
	term := &terminal{t: t, ours: ours, theirs: theirs}
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := ours.Read(b)
			if err != nil {
				return
			}
			term.mu.Lock()
			term.text.Write(b[:n])
			term.mu.Unlock()
		}
	}()
	return term
}

func (term *terminal) all() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.text.String()
}

func (term *terminal) settings() unix.Termios {
	term.t.Helper()
	s, err := unix.IoctlGetTermios(int(term.theirs.Fd()), unix.TCGETS)
	if err != nil {
		term.t.Fatal(err)
	}
	return *s
}

// shows waits until the program shows a text. It resizes the terminal again and again, because a program then redraws
// everything.
func (term *terminal) shows(text string) {
	term.t.Helper()
	width := uint16(150)
	testkit.Eventually(term.t, time.Minute, func() error {
		before := len(term.all())
		if width++; width > 160 {
			width = 150
		}
		if err := unix.IoctlSetWinsize(int(term.ours.Fd()), unix.TIOCSWINSZ,
			&unix.Winsize{Row: 20, Col: width}); err != nil {
			return err
		}
		testkit.Pause(term.t.Context(), 200*time.Millisecond)
		if now := term.all()[before:]; !strings.Contains(now, text) {
			return fmt.Errorf("want %q on the screen, found %q", text, now)
		}
		return nil
	})
}

// TestTopOnATerminal runs the program on a real terminal: it follows keys and sizes, survives the loss of its server,
// and leaves the terminal as it was, whether a key or a signal ends it.
func TestTopOnATerminal(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*terminal, *os.Process) error{
		"a key":    func(term *terminal, _ *os.Process) error { _, err := term.ours.WriteString("q"); return err },
		"Ctrl-C":   func(term *terminal, _ *os.Process) error { _, err := term.ours.WriteString("\x03"); return err },
		"a signal": func(_ *terminal, p *os.Process) error { return p.Signal(syscall.SIGTERM) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := clitest.NewFake()
			f.Mutex.Lock() // it is another process that asks: nothing else orders its questions after this
			f.States = []clitest.State{{Tasks: clitest.BusyTasks()}}
			f.Mutex.Unlock()
			address := f.Listener.Addr().String()
			term := openTerminal(t)
			before := term.settings()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, "berth-main", "top", "--interval", "200ms")
			cmd.Env = append(os.Environ(), "BERTH_ADDR="+f.URL, "HOME="+t.TempDir(), "TERM=xterm-256color",
				"GORACE=atexit_sleep_ms=0")
			cmd.Stdin, cmd.Stdout, cmd.Stderr = term.theirs, term.theirs, term.theirs
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			term.shows("batch.1.all.0")
			if term.settings() == before {
				t.Error("the terminal was not taken")
			}
			if _, err := term.ours.WriteString("2"); err != nil {
				t.Fatal(err)
			}
			term.shows("service/cache")
			f.CloseClientConnections()
			f.Close()
			term.shows("trying again")
			term.shows("service/cache")
			again, err := net.Listen("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			g := clitest.NewFakeAt(again, clitest.State{Tasks: clitest.BusyTasks()[:1]})
			defer g.Close()
			term.shows("1 task of 1 service or job")

			if err := end(term, cmd.Process); err != nil {
				t.Fatal(err)
			}
			var exit *exec.ExitError
			if err := cmd.Wait(); err != nil && !errors.As(err, &exit) || exit != nil && exit.ExitCode() != 0 {
				testkit.Pause(t.Context(), time.Second) // for its last words
				all := term.all()
				t.Errorf("it ended with %v and these words: %q", err, all[max(len(all)-8000, 0):])
			}
			if after := term.settings(); after != before {
				t.Errorf("the terminal is left changed (-want +got):\n%s", cmp.Diff(before, after))
			}
			testkit.Eventually(t, time.Minute, func() error {
				all := term.all()
				for on, off := range map[string]string{"\x1b[?1049h": "\x1b[?1049l", "\x1b[?25l": "\x1b[?25h"} {
					if i := strings.LastIndex(all, on); i < 0 || strings.LastIndex(all, off) < i {
						return fmt.Errorf("%q was not taken back by %q: %q", on, off, all[max(len(all)-200, 0):])
					}
				}
				return nil
			})
		})
	}
}
