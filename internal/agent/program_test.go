package agent

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

// formatFrame returns a frame as text.
func formatFrame(f transport.Frame) string {
	return fmt.Sprintf("%d %s", f.Channel, f.Body)
}

// readFrames reads all frames of a stream.
func readFrames(conn io.Reader) (got []string) {
	for frames := transport.NewFrameReader(conn); ; {
		f, err := frames.Next()
		if err != nil {
			return got
		}
		got = append(got, formatFrame(f))
	}
}

func (w *world) terminal(id string, d cluster.Desired, size transport.TerminalSize, command ...string) net.Conn {
	return w.carry(id, transport.StreamRequest{
		Kind: transport.StreamTerminal, Task: d.Task,
		Terminal: &transport.TerminalRequest{Command: command, Size: size, Type: "vt100"},
	})
}

func TestTerminalStream(t *testing.T) {
	inWorld(t, func(w *world) {
		d := w.service("s1", definition("web", "app"))
		conn := w.terminal("a", d, transport.TerminalSize{Rows: 3, Columns: 4}, "tty")
		frames := transport.NewFrameReader(conn)
		next := func(want string) {
			t.Helper()
			if f, err := frames.Next(); err != nil || formatFrame(f) != want {
				t.Fatalf("got %q %v, want %q", formatFrame(f), err, want)
			}
		}
		next("1 [TERM=vt100] {3 4}")
		out := transport.NewFrameWriter(conn)
		size, _ := json.Marshal(transport.TerminalSize{Rows: 5, Columns: 6})
		_, _ = out.Channel(transport.ChannelResize).Write(size)
		next("1 {5 6}")
		_, _ = io.WriteString(out.Channel(transport.ChannelStdin), "q")
		next(`3 {"code":17}`)
		_ = conn.Close()

		// The command does not read its large input: the client's end is noticed all the same.
		conn = w.terminal("b", d, transport.TerminalSize{}, "hang")
		out = transport.NewFrameWriter(conn)
		for range 3 {
			_, _ = out.Channel(transport.ChannelStdin).Write(make([]byte, 60<<10))
		}
		synctest.Wait()
		_ = conn.Close() // ends the command, or the bubble would not end

		if got := readFrames(w.carry("c", transport.StreamRequest{Kind: transport.StreamTerminal, Task: d.Task})); len(
			got) != 1 || !strings.Contains(got[0], "without its parameters") {
			t.Errorf("a request without what it asks: %q", got)
		}
		w.stopTask(d, false)
		if got := readFrames(w.terminal("d", d, transport.TerminalSize{}, "tty")); len(got) != 1 ||
			!strings.Contains(got[0], "does not run") {
			t.Errorf("a terminal in a stopped task: %q", got)
		}
	})
}

func TestAttachStream(t *testing.T) {
	inWorld(t, func(w *world) {
		w.executor.programs["app"] = program{Runs: time.Minute, Code: 4, SurvivesKill: true}
		d := w.batch("b1", definition("work", "app"))
		w.write("b1", "app", 2, "before")
		conn := w.carry("a", transport.StreamRequest{
			Kind: transport.StreamAttach, Task: d.Task,
			Attach: &transport.AttachRequest{Tail: 1},
		})
		frames := transport.NewFrameReader(conn)
		out := transport.NewFrameWriter(conn)
		go func() { _, _ = io.WriteString(out.Channel(transport.ChannelSignal), "KILL") }()
		var got []string
		for range 2 {
			f, err := frames.Next()
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, formatFrame(f))
		}
		if strings.HasPrefix(got[0], "2 ") { // in any order
			got[0], got[1] = got[1], got[0]
		}
		if got[0] != "1 before 1\n" || !strings.Contains(got[1], `the signal "KILL" is not passed on`) {
			t.Errorf("got %q", got)
		}
		_, _ = io.WriteString(out.Channel(transport.ChannelSignal), "USR1")
		synctest.Wait()
		w.executor.mu.Lock()
		var signals []syscall.Signal
		for _, r := range w.executor.runs { // order-free: there is one
			signals = append(signals, r.signals...)
		}
		w.executor.mu.Unlock()
		if diff := cmp.Diff([]syscall.Signal{syscall.SIGUSR1}, signals); diff != "" {
			t.Errorf("signals (-want +got):\n%s", diff)
		}
		w.write("b1", "app", 1, "later")
		if diff := cmp.Diff([]string{"1 later 0\n", `3 {"code":4}`}, readFrames(conn)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// TestProgramsThatAreNotThere: files and ports of a program without a process on this machine are refused.
func TestProgramsThatAreNotThere(t *testing.T) {
	inWorld(t, func(w *world) {
		d := w.service("s1", definition("web", "app"))
		for kind, r := range map[transport.StreamKind]transport.StreamRequest{ // order-free: each by itself
			transport.StreamForward: {Forward: &transport.ForwardRequest{Port: "80"}},
			transport.StreamCopyOut: {Copy: &transport.CopyRequest{Path: "/etc"}},
			transport.StreamCopyIn:  {Copy: &transport.CopyRequest{Path: "/etc"}},
		} {
			r.Kind, r.Task = kind, d.Task
			if got := readFrames(w.carry(string(kind), r)); len(got) != 1 || !strings.Contains(got[0], "does not run") {
				t.Errorf("%s: got %q", kind, got)
			}
		}
	})
}
