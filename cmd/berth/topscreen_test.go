package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/testkit"
)

// busy is what a server tells of three services and a job.
func busy() []api.TaskView {
	task := func(owner, id, node string, cpu cluster.MilliCPU, memory cluster.Bytes,
		d *cluster.UseDetail,
	) api.TaskView {
		v := api.TaskView{
			ID: cluster.TaskID("default." + id), Node: node, State: cluster.StateRunning, Health: cluster.HealthHealthy,
			Owner: cluster.OwnerRef{Kind: cluster.KindService, Cluster: "default", Name: owner},
			Used:  &cluster.TaskStats{CPU: cpu, Memory: memory, Requests: -1, Detail: d},
		}
		return v
	}
	rates := func(throttled float64, in, out, read, written cluster.Bytes) cluster.Rates {
		return cluster.Rates{
			Throttled: throttled, Stall: &cluster.StallRates{CPU: throttled},
			Network: &cluster.NetworkRates{Received: in, Sent: out},
			Disk:    &cluster.DiskRates{Read: read, Written: written},
		}
	}
	web := task("web", "web.1.0", "n1", 1250, 300*cluster.MiB, &cluster.UseDetail{
		Rates: rates(12, 4*cluster.MiB, 9*cluster.MiB, 0, 12*cluster.KiB),
		Containers: []cluster.ContainerUse{
			{Name: "main", CPU: 1200, Memory: 290 * cluster.MiB, Rates: rates(12, 4*cluster.MiB, 9*cluster.MiB, 0, 0)},
			{
				Name: "proxy", CPU: 50, Memory: 10 * cluster.MiB,
				Rates: rates(0, 4*cluster.MiB, 9*cluster.MiB, 0, 12*cluster.KiB),
			},
		},
	})
	web.Used.Requests, web.Used.Growth = 240, 3*cluster.MiB
	host := task("cache", "cache.1.0", "n2", 40, 2*cluster.GiB,
		&cluster.UseDetail{Rates: cluster.Rates{HostNetwork: true, Disk: &cluster.DiskRates{Read: 7 * cluster.MiB}}})
	old := task("old", "old.1.0", "n3", 5, cluster.MiB, nil) // its agent knows no details
	job := task("batch", "batch.1.all.0", "n2", 2000, 100*cluster.MiB,
		&cluster.UseDetail{Rates: rates(0, 0, 0, 0, 90*cluster.MiB)})
	job.Owner.Kind = cluster.KindJob
	starts := api.TaskView{ID: "default.web.1.1", Node: "n2", State: cluster.StateRunning, Owner: web.Owner}
	return []api.TaskView{host, job, old, starts, web}
}

// screenOf returns a screen of a size that has looked at some tasks and nodes.
func screenOf(t *testing.T, tasks []api.TaskView, width, height int) topScreen {
	t.Helper()
	a := newApp(nil, io.Discard, io.Discard)
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	a.now = func() time.Time { return now }
	m := topScreen{app: a, opt: topOptions{view: topTasks, by: "cpu", every: 2 * time.Second}}
	m.ask = func(o topOptions) (topLook, error) {
		look := topLook{view: o.view, tasks: tasks}
		switch o.view {
		case topServices:
			look.owned, look.tasks = owners(tasks), nil
		case topNodes:
			look.tasks, look.nodes = nil,
				[]api.NodeView{{Name: "n1", State: cluster.NodeReady, Tasks: 1, Total: cluster.Demand{CPU: 4000}}}
		}
		return look, nil
	}
	m, _ = told(t, m, tea.WindowSizeMsg{Width: width, Height: height})
	return answered(t, m, m.next())
}

// told gives a screen a message.
func told(t *testing.T, m topScreen, msg tea.Msg) (topScreen, tea.Cmd) {
	t.Helper()
	next, cmd := m.Update(msg)
	screen, ok := next.(topScreen)
	if !ok {
		t.Fatalf("a screen became %T", next)
	}
	return screen, cmd
}

// answered gives a screen the answer to a look.
func answered(t *testing.T, m topScreen, cmd tea.Cmd) topScreen {
	t.Helper()
	if cmd == nil {
		t.Fatal("nothing is asked")
	}
	m, _ = told(t, m, cmd())
	return m
}

// press gives a screen keys, and the answers to what it asks then.
func press(t *testing.T, m topScreen, keys ...string) topScreen {
	t.Helper()
	codes := map[string]tea.KeyPressMsg{
		"tab": {Code: tea.KeyTab}, "down": {Code: tea.KeyDown}, "end": {Code: tea.KeyEnd}, "home": {Code: tea.KeyHome},
		"pgdown": {Code: tea.KeyPgDown},
		"space":  {Code: tea.KeySpace, Text: " "},
	}
	for _, k := range keys {
		msg, special := codes[k]
		if !special {
			r, _ := utf8.DecodeRuneInString(k)
			msg = tea.KeyPressMsg{Code: r, Text: k}
		}
		round := m.round
		var cmd tea.Cmd
		if m, cmd = told(t, m, msg); m.round != round {
			m = answered(t, m, cmd)
		}
	}
	return m
}

func TestTopScreen(t *testing.T) {
	for _, test := range []struct {
		name          string
		width, height int
		keys          []string
		want          string
	}{
		{"tasks", 150, 10, nil, `
1 nodes  2 services  3 [tasks]  5 tasks: 3.29 CPUs, 2.4 GiB memory in use
by cpu, every 2s
TASK           STATE    NODE   CPU  MEMORY  GROWTH/M  REQ/S  THROTTLED  NET IN/S  NET OUT/S  READ/S  WRITE/S  CPU STALL  MEM STALL  IO STALL
batch.1.all.0  healthy  n2       2  100MiB                          0%         0          0       0    90MiB         0%         0%        0%
web.1.0        healthy  n1    1.25  300MiB      3MiB    240        12%      4MiB       9MiB       0    12KiB        12%         0%        0%
cache.1.0      healthy  n2    0.04    2GiB                          0%      host       host    7MiB        0          -          -         -
old.1.0        healthy  n3    0.01    1MiB                           -         -          -       -        -          -          -         -
web.1.1        running  n2       ?       ?                           -         -          -       -        -          -          -         -

q quit  tab view  s sort  r reverse  o containers  space pause  ↑↓ scroll  ? keys
`},
		{"containers by name, narrow, with more rows than there is room", 60, 8, []string{"n", "o", "down"}, `
1 nodes  2 services  3 [tasks]  5 tasks: 3.29 CPUs, 2.4 GiB…
by name, every 2s; 2 to 5 of 7
TASK           STATE    NODE   CPU  MEMORY  GROWTH/M  REQ/S
cache.1.0      healthy  n2    0.04    2GiB
old.1.0        healthy  n3    0.01    1MiB
web.1.0        healthy  n1    1.25  300MiB      3MiB    240
  main                         1.2  290MiB
q quit  tab view  s sort  r reverse  o containers  space pa…
`},
		{"services by memory, the least first", 110, 9, []string{"2", "m", "r"}, `
1 nodes  2 [services]  3 tasks  5 tasks of 4 services and jobs: 3.29 CPUs, 2.4 GiB memory in use
by memory, the least first, every 2s
SERVICE OR JOB  TASKS   CPU  MEMORY  MOST BY ONE  REQ/S  THROTTLED  NET IN/S  NET OUT/S  READ/S  WRITE/S
service/old         1  0.01    1MiB         1MiB                 -         -          -       -        -
job/batch           1     2  100MiB       100MiB                0%         0          0       0    90MiB
service/web         2  1.25  300MiB       300MiB    240        12%      4MiB       9MiB       0    12KiB
service/cache       1  0.04    2GiB         2GiB                0%      host       host    7MiB        0

q quit  tab view  s sort  r reverse  o containers  space pause  ↑↓ scroll  ? keys
`},
		{"nodes", 80, 6, []string{"tab"}, `
1 [nodes]  2 services  3 tasks  1 node: 1 ready; reserved 0 of 4 CPUs, 0 B of 0…
by cpu, every 2s
NODE  STATE  TASKS  CPU USED  RESERVED  TOTAL  MEMORY USED  RESERVED  TOTAL
n1    ready      1         ?         0      4            ?         0      0

q quit  tab view  s sort  r reverse  o containers  space pause  ↑↓ scroll  ? ke…
`},
		{"the keys", 60, 5, []string{"?"}, `
1 nodes  2 services  3 [tasks]  5 tasks: 3.29 CPUs, 2.4 GiB…
by cpu, every 2s; 1 to 1 of 5
tab, 1 2 3      nodes, services, tasks
s, S            the next order, the one before
q quit  tab view  s sort  r reverse  o containers  space pa…
`},
		{"a window of two lines", 20, 2, nil, "\n1 nodes  2 services…\nq quit  tab view  s…\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := press(t, screenOf(t, busy(), test.width, test.height), test.keys...)
			got := "\n" + m.render() + "\n"
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("screen (-want +got):\n%s\n%s", diff, got)
			}
			if v := m.View(); !v.AltScreen {
				t.Error("it writes over what was on the terminal")
			}
		})
	}
}

// What was seen last stays on the screen while no server answers, with its age, and an answer that comes too late for
// its view is not shown.
func TestTopScreenWithoutServer(t *testing.T) {
	m := screenOf(t, busy(), 100, 12)
	works := m.ask
	lost := fmt.Errorf("%w at http://127.0.0.1:1: connection refused", client.ErrUnreachable)
	m.ask = func(topOptions) (topLook, error) { return topLook{}, lost }
	first := m.app.now()
	m.app.now = func() time.Time { return first.Add(42 * time.Second) }
	m, cmd := told(t, m, due{m.round})
	m = answered(t, m, cmd)
	lines := strings.Split(m.render(), "\n")
	if want := "as it was 42s ago: no server at http://127.0.0.1:1: connection refused; it is looked for again"; lines[1] != want {
		t.Errorf("the second line is %q, want %q", lines[1], want)
	}
	if !strings.Contains(m.render(), "web.1.0") {
		t.Errorf("what was seen is gone:\n%s", m.render())
	}
	m.ask = works
	if m, cmd = told(t, m, due{m.round}); cmd == nil {
		t.Fatal("it does not look again")
	}
	late := cmd()
	m = answered(t, m, cmd)
	if strings.Contains(m.render(), "as it was") {
		t.Errorf("the server is back, and it says:\n%s", m.render())
	}
	m, cmd = told(t, m, tea.KeyPressMsg{Code: '1', Text: "1"})
	if m, _ = told(t, m, late); m.look.view != topNodes || strings.Contains(m.render(), "web.1.0") {
		t.Errorf("an answer of another view is shown:\n%s", m.render())
	}
	if m = answered(t, m, cmd); !strings.Contains(m.render(), "n1 ") {
		t.Errorf("no nodes:\n%s", m.render())
	}
	if paused := press(t, m, "space"); !paused.paused {
		t.Error("it does not pause")
	} else if _, cmd := told(t, paused, due{paused.round}); cmd != nil {
		t.Error("it looks while it is paused")
	}
	for _, key := range []string{"q", "esc", "ctrl+c"} {
		if _, cmd := m.pressed(key); cmd == nil || cmd() != (tea.QuitMsg{}) {
			t.Errorf("%s does not end it", key)
		}
	}
}

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

// shows waits until the program shows a text. It resizes the terminal again and again, as a program then draws all
// anew.
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
// and leaves the terminal as it was, whether it is told to end by a key or by a signal.
func TestTopOnATerminal(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*terminal, *os.Process) error{
		"a key":    func(term *terminal, _ *os.Process) error { _, err := term.ours.WriteString("q"); return err },
		"Ctrl-C":   func(term *terminal, _ *os.Process) error { _, err := term.ours.WriteString("\x03"); return err },
		"a signal": func(_ *terminal, p *os.Process) error { return p.Signal(syscall.SIGTERM) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake()
			f.mu.Lock() // it is another process that asks: nothing else orders its questions after this
			f.worlds = []world{{Tasks: busy()}}
			f.mu.Unlock()
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
			term.shows("it is looked for again")
			term.shows("service/cache")
			again, err := net.Listen("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			g := newFakeAt(again, world{Tasks: busy()[:1]})
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
