package executortest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/suite"
)

// terminalTests are about commands with a terminal.
func terminalTests() []test {
	return []test{
		{"terminal", needShell, terminalTest},
		{"terminal: a small reader", needShell, terminalSlowReader},
		{"terminal is hung up with its context", needShell, terminalCancelled},
	}
}

// screen keeps the output of a terminal.
type screen struct {
	mu    sync.Mutex
	shown bytes.Buffer
}

// Write implements io.Writer.
func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shown.Write(b)
}

func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shown.String()
}

// shows waits until the terminal shows a text.
func (b *bench) shows(s *screen, text string) {
	b.Helper()
	suite.Eventually(b, Limit, func() error {
		if got := s.text(); !strings.Contains(got, text) {
			return fmt.Errorf("the terminal does not show %q: %q", text, got)
		}
		return nil
	})
}

type ending struct {
	code int
	err  error
}

func (b *bench) wantEnding(ended <-chan ending, code int) {
	b.Helper()
	select {
	case e := <-ended:
		if e.err != nil || e.code != code {
			b.Errorf("the command ended with %d, %v, want %d", e.code, e.err, code)
		}
	case <-suite.Context(b, Limit).Done():
		b.Fatalf("the command does not end")
	}
}

// onTerminal runs a command on a terminal; keys is its input.
func (b *bench) onTerminal(ctx context.Context, id executor.ID, t *executor.Terminal, args ...string) (keys io.Writer,
	s *screen, ended <-chan ending,
) {
	in, keysTo := io.Pipe()
	s = &screen{}
	done := make(chan ending, 1)
	go func() {
		code, err := b.ex.Exec(ctx, id,
			executor.Command{Args: args, Env: []string{"TERM=vt100"}, Stdin: in, Stdout: s, Terminal: t})
		_ = in.Close()
		done <- ending{code, err}
	}()
	return keysTo, s, done
}

func terminalTest(b *bench) {
	s := b.spec(b.m.Shell("exec sleep 100000"))
	s.Container.User = "65534"
	if b.m.OneUser {
		s.Container.User = ""
	}
	id := b.start(s)
	sizes := make(chan executor.TerminalSize, 1)
	keys, shown, ended := b.onTerminal(b.Context(), id,
		&executor.Terminal{Size: executor.TerminalSize{Rows: 33, Columns: 101}, Resized: sizes},
		"sh", "-c", `test -t 0 && test -t 1 && test -t 2 && echo "on a $TERM of $(stty size)"; trap 'echo now $(stty size)' WINCH; echo ready >/dev/tty
			while :; do sleep 0.05; done`)
	b.shows(shown, "on a vt100 of 33 101\r\n")
	b.shows(shown, "ready\r\n")
	sizes <- executor.TerminalSize{Rows: 44, Columns: 122}
	b.shows(shown, "now 44 122\r\n")
	_, err := io.WriteString(keys, "\x03") // the line discipline makes an interrupt of it
	b.must(err)
	b.wantEnding(ended, 130)

	keys, shown, ended = b.onTerminal(b.Context(), id, &executor.Terminal{}, "sh")
	_, err = io.WriteString(keys, "echo typed-$((3*14)) >$(tty) && exit 7\n")
	b.must(err)
	b.wantEnding(ended, 7)
	b.shows(shown, "typed-42\r\n")
	b.state(id, executor.StateRunning)

	_, _, ended = b.onTerminal(b.Context(), id, &executor.Terminal{}, "no-such-program")
	if e := <-ended; e.err == nil || !strings.Contains(e.err.Error(), "no-such-program") {
		b.Errorf("a missing command on a terminal: %+v", e)
	}
	b.must(b.ex.Remove(b.Context(), id))
	_, err = b.ex.Exec(b.Context(), id, executor.Command{Args: []string{"true"}, Terminal: &executor.Terminal{}})
	b.wantErr("a terminal of what is not there", err, executor.ErrNotFound)
}

// gate takes nothing until it is opened.
type gate struct {
	reached, opened chan struct{}
	once            sync.Once
	n               int
}

// Write implements io.Writer.
func (g *gate) Write(p []byte) (int, error) {
	g.once.Do(func() { close(g.reached) })
	<-g.opened
	g.n += len(p)
	return len(p), nil
}

// terminalSlowReader checks that a reader that takes nothing blocks the command that writes to it, and that nothing is
// lost.
func terminalSlowReader(b *bench) {
	id := b.start(b.spec(b.m.Shell("exec sleep 100000")))
	out := &gate{reached: make(chan struct{}), opened: make(chan struct{})}
	ended := make(chan ending, 1)
	go func() {
		code, err := b.ex.Exec(b.Context(), id, executor.Command{
			Args: []string{"sh", "-c", "head -c 3000000 /dev/zero"}, Stdout: out, Terminal: &executor.Terminal{},
		})
		ended <- ending{code, err}
	}()
	<-out.reached
	select {
	case e := <-ended:
		b.Errorf("three megabytes went nowhere: %+v", e)
	default:
	}
	close(out.opened)
	b.wantEnding(ended, 0)
	if out.n != 3000000 {
		b.Errorf("%d bytes came, want 3000000", out.n)
	}
}

func terminalCancelled(b *bench) {
	word := fmt.Sprintf("8%d", time.Now().UnixNano()%1e8)
	id := b.start(b.spec(b.m.Shell("exec sleep 100000")))
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	_, shown, ended := b.onTerminal(ctx, id, &executor.Terminal{}, "sh", "-c", "echo begun; sleep "+word+"; true")
	b.shows(shown, "begun")
	cancel()
	select {
	case e := <-ended:
		if !errors.Is(e.err, context.Canceled) {
			b.Errorf("the command ended with %+v, want that it was cancelled", e)
		}
	case <-suite.Context(b, Limit).Done():
		b.Fatalf("the command outlives its context")
	}
	b.gone(word) // the shell's child too
	b.state(id, executor.StateRunning)
}
