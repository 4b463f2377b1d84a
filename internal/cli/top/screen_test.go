package top

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"charm.land/bubbletea/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/clitest"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
)

// newTestScreen returns a screen with some tasks and nodes.
func newTestScreen(t *testing.T, tasks []api.TaskView, width, height int) topScreen {
	t.Helper()
	a := session.New(nil, io.Discard, io.Discard)
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	a.Now = func() time.Time { return now }
	m := topScreen{sess: a, options: topOptions{view: topTasks, sortBy: "cpu", interval: 2 * time.Second}}
	m.read = func(o topOptions) (topUsage, error) {
		use := topUsage{view: o.view, tasks: tasks}
		switch o.view {
		case topServices:
			use.owners, use.tasks = sumByOwner(tasks), nil
		case topNodes:
			use.tasks, use.nodes = nil,
				[]api.NodeView{{Name: "n1", State: cluster.NodeReady, Tasks: 1, Total: cluster.Demand{CPU: 4000}}}
		}
		return use, nil
	}
	m, _ = sendMessage(t, m, tea.WindowSizeMsg{Width: width, Height: height})
	return sendUsage(t, m, m.readNext())
}

// sendMessage sends a message to a screen.
func sendMessage(t *testing.T, m topScreen, msg tea.Msg) (topScreen, tea.Cmd) {
	t.Helper()
	next, cmd := m.Update(msg)
	screen, ok := next.(topScreen)
	if !ok {
		t.Fatalf("a screen became %T", next)
	}
	return screen, cmd
}

// sendUsage sends the result of a read to a screen.
func sendUsage(t *testing.T, m topScreen, cmd tea.Cmd) topScreen {
	t.Helper()
	if cmd == nil {
		t.Fatal("nothing is asked")
	}
	m, _ = sendMessage(t, m, cmd())
	return m
}

// pressKeys sends keys to a screen, and the results of the reads that they cause.
func pressKeys(t *testing.T, m topScreen, keys ...string) topScreen {
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
		round := m.readNumber
		var cmd tea.Cmd
		if m, cmd = sendMessage(t, m, msg); m.readNumber != round {
			m = sendUsage(t, m, cmd)
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
by memory, reversed, every 2s
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
s, S            next order, previous order
q quit  tab view  s sort  r reverse  o containers  space pa…
`},
		{"a window of two lines", 20, 2, nil, "\n1 nodes  2 services…\nq quit  tab view  s…\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := pressKeys(t, newTestScreen(t, clitest.BusyTasks(), test.width, test.height), test.keys...)
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

// TestTopScreenWithoutServer checks that the last usage stays while no server answers, with its age. A late result for
// another view is dropped.
func TestTopScreenWithoutServer(t *testing.T) {
	m := newTestScreen(t, clitest.BusyTasks(), 100, 12)
	works := m.read
	lost := fmt.Errorf("%w at http://127.0.0.1:1: connection refused", client.ErrUnreachable)
	m.read = func(topOptions) (topUsage, error) { return topUsage{}, lost }
	first := m.sess.Now()
	m.sess.Now = func() time.Time { return first.Add(42 * time.Second) }
	m, cmd := sendMessage(t, m, readDue{m.readNumber})
	m = sendUsage(t, m, cmd)
	lines := strings.Split(m.render(), "\n")
	if want := "state of 42s ago: no server at http://127.0.0.1:1: connection refused; trying again"; lines[1] != want {
		t.Errorf("the second line is %q, want %q", lines[1], want)
	}
	if !strings.Contains(m.render(), "web.1.0") {
		t.Errorf("what was seen is gone:\n%s", m.render())
	}
	m.read = works
	if m, cmd = sendMessage(t, m, readDue{m.readNumber}); cmd == nil {
		t.Fatal("the screen does not read again")
	}
	late := cmd()
	m = sendUsage(t, m, cmd)
	if strings.Contains(m.render(), "as it was") {
		t.Errorf("the server is back, and it says:\n%s", m.render())
	}
	m, cmd = sendMessage(t, m, tea.KeyPressMsg{Code: '1', Text: "1"})
	if m, _ = sendMessage(t, m, late); m.usage.view != topNodes || strings.Contains(m.render(), "web.1.0") {
		t.Errorf("an answer of another view is shown:\n%s", m.render())
	}
	if m = sendUsage(t, m, cmd); !strings.Contains(m.render(), "n1 ") {
		t.Errorf("no nodes:\n%s", m.render())
	}
	if paused := pressKeys(t, m, "space"); !paused.paused {
		t.Error("it does not pause")
	} else if _, cmd := sendMessage(t, paused, readDue{paused.readNumber}); cmd != nil {
		t.Error("it polls while it is paused")
	}
	for _, key := range []string{"q", "esc", "ctrl+c"} {
		if _, cmd := m.handleKey(key); cmd == nil || cmd() != (tea.QuitMsg{}) {
			t.Errorf("%s does not end it", key)
		}
	}
}
