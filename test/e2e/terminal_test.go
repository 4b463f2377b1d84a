package e2e_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/berthd/berth/internal/pty"
	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/harness"
)

// box is a service that does nothing, and ticks.
const box = `
kind: TaskDefinition
name: box
version: 1
containers:
  - name: main
    image: ` + harness.Image + `
    command: [sh, -c, 'trap "echo told to stop; exit 9" INT; trap "echo woken" USR1; n=0; while :; do n=$((n+1)); echo "tick $n"; echo "tock $n" >&2; sleep 0.2; done']
    resources: {cpu: 10m, memory: 64MiB}
min_healthy_time: 100ms
grace: 1s
---
kind: Service
name: box
definition: box
count: 1
`

// newBox starts a site with a box.
func newBox(t *testing.T, executor string) *harness.Site {
	t.Helper()
	s := harness.New(t, executor)
	s.Server()
	s.Agent()
	s.Berth("run", s.Write("box.yaml", box)).Want(t, 0)
	return s
}

// userTerminal is a user's terminal with a berth that runs on it.
type userTerminal struct {
	t                  *testing.T
	keyboard, terminal *os.File
	before             string // its modes
	cmd                *exec.Cmd
	ended              chan struct{}

	mu    sync.Mutex
	shown bytes.Buffer
}

func sit(t *testing.T, site *harness.Site, size pty.Size, args ...string) *userTerminal {
	t.Helper()
	keyboard, terminal, err := pty.Open(size)
	if err != nil {
		t.Fatal(err)
	}
	d := &userTerminal{t: t, keyboard: keyboard, terminal: terminal, ended: make(chan struct{})}
	d.before = d.modes()
	d.cmd = exec.CommandContext(t.Context(), harness.Binary(), args...)
	d.cmd.Dir = site.Dir
	d.cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + site.Dir, "TERM=vt220",
		"BERTH_ADDR=unix://" + site.Socket,
	}
	d.cmd.Stdin, d.cmd.Stdout, d.cmd.Stderr = terminal, terminal, terminal
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(d, keyboard) // until the terminal is closed
	}()
	go func() {
		_ = d.cmd.Wait() // its state is checked
		close(d.ended)
	}()
	t.Cleanup(func() {
		_ = d.cmd.Process.Kill() // it may have ended
		<-d.ended
		_, _ = terminal.Close(), keyboard.Close()
		<-read
	})
	return d
}

// Write receives the output of the terminal.
func (d *userTerminal) Write(b []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.shown.Write(b)
}

func (d *userTerminal) text() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.shown.String()
}

func (d *userTerminal) press(keys string) {
	d.t.Helper()
	if _, err := d.keyboard.WriteString(keys); err != nil {
		d.t.Fatal(err)
	}
}

func (d *userTerminal) sees(text string) {
	d.t.Helper()
	testkit.Eventually(d.t, soon, func() error {
		if got := d.text(); !strings.Contains(got, text) {
			return fmt.Errorf("the terminal does not show %q: %q", text, got)
		}
		return nil
	})
}

// ends waits for berth's end, and checks that the terminal is restored.
func (d *userTerminal) ends(code int) {
	d.t.Helper()
	select {
	case <-d.ended:
	case <-testkit.Context(d.t, soon).Done():
		d.t.Fatalf("berth continues: %q", d.text())
	}
	if got := d.cmd.ProcessState.ExitCode(); got != code {
		d.t.Errorf("exit code %d, want %d: %q", got, code, d.text())
	}
	if after := d.modes(); after != d.before {
		d.t.Errorf("the terminal was left as %s, it was %s", after, d.before)
	}
}

// modes are the modes of the terminal, in the format of stty.
func (d *userTerminal) modes() string {
	d.t.Helper()
	stty := exec.CommandContext(d.t.Context(), "stty", "-g")
	stty.Stdin = d.terminal
	out, err := stty.Output()
	if err != nil {
		d.t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// cut is a way to the site's server that a test can cut.
type cut struct {
	path  string
	mu    sync.Mutex
	conns []net.Conn
}

func newCut(t *testing.T, s *harness.Site) *cut {
	t.Helper()
	c := &cut{path: filepath.Join(s.Dir, "cut.sock")}
	l, err := net.Listen("unix", c.path)
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); c.cut(); work.Wait() })
	work.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("unix", s.Socket)
			if err != nil {
				_ = near.Close()
				continue
			}
			c.mu.Lock()
			c.conns = append(c.conns, near, far)
			c.mu.Unlock()
			work.Go(func() { _, _ = io.Copy(far, near); _ = far.Close() })
			work.Go(func() { _, _ = io.Copy(near, far); _ = near.Close() })
		}
	})
	return c
}

func (c *cut) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		_ = conn.Close()
	}
}

// processesWith returns how many processes of the machine sleep that long.
func processesWith(word string) (n int) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		if args, err := os.ReadFile(f); err == nil && bytes.Contains(args, []byte("sleep\x00"+word+"\x00")) {
			n++
		}
	}
	return n
}

// A shell in a container has a terminal: its size and later ones, interrupts and its exit code; the user's own terminal
// is restored, also when the connection breaks, which ends the command.
func TestTerminal(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, executor string) {
		s := newBox(t, executor)
		d := sit(t, s, pty.Size{Rows: 41, Columns: 121}, "exec", "-it", "box.1.0", "--", "sh")
		d.press(`stty size; echo "on a $TERM"` + "\r")
		d.sees("41 121\r\n")
		d.sees("on a vt220\r\n")
		if err := pty.SetSize(d.keyboard, pty.Size{Rows: 52, Columns: 133}); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, soon, func() error {
			d.press("stty size\r")
			if !strings.Contains(d.text(), "52 133\r\n") {
				return fmt.Errorf("the new size does not come: %q", d.text())
			}
			return nil
		})
		word := fmt.Sprintf("7%d", time.Now().UnixNano()%1e9)
		d.press("echo be''gun; sleep " + word + "; echo interrup''ted\r")
		d.sees("begun\r\n")
		s.Eventually(soon, func() error {
			if n := processesWith(word); n != 1 {
				return fmt.Errorf("%d processes sleep", n)
			}
			return nil
		})
		d.press("\x03")
		s.Eventually(soon, func() error {
			if n := processesWith(word); n != 0 {
				return fmt.Errorf("%d processes sleep after Ctrl-C", n)
			}
			return nil
		})
		d.press("exit 7\r")
		d.ends(7)

		// The connection breaks.
		c := newCut(t, s)
		word = fmt.Sprintf("8%d", time.Now().UnixNano()%1e9)
		d = sit(t, s, pty.Size{Rows: 24, Columns: 80}, "--addr", "unix://"+c.path, "exec", "-it", "box.1.0", "sh", "-c",
			"echo begun; sleep "+word+"; true")
		d.sees("begun\r\n")
		c.cut()
		d.ends(125)
		d.sees("the end of the command was not seen: the connection to the server broke")
		s.Eventually(soon, func() error {
			if n := processesWith(word); n != 0 {
				return fmt.Errorf("%d processes of the command still run", n)
			}
			return nil
		})

		// Without a terminal the command gets none.
		s.BerthWith(strings.NewReader(""), "exec", "-it", "box.1.0", "sh").Want(t, 125,
			"-t needs a terminal on standard input", "Leave out -t")
		d = sit(t, s, pty.Size{}, "exec", "-it", "box.1.0", "no-such-program")
		d.ends(125)
		d.sees("no-such-program")
	})
}
