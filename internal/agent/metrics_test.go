package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/logs"
	"github.com/berthd/berth/internal/transport"
)

// counts keeps what an agent counts, as metrics do.
type counts struct {
	mu sync.Mutex
	by map[string]int64
}

func (c *counts) add(what string, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by = map[string]int64{}
	}
	c.by[what] += n
}

func (c *counts) ContainerCreated(executor string, err error) {
	c.add(fmt.Sprintf("created by %s: %t", executor, err == nil), 1)
}

func (c *counts) ContainerStarted(executor string, err error) {
	c.add(fmt.Sprintf("started by %s: %t", executor, err == nil), 1)
}

func (c *counts) Connected() { c.add("connected", 1) }

func (c *counts) Interrupted() { c.add("interrupted", 1) }

func (c *counts) LogLinesLost(lines int64, written bool) {
	c.add(fmt.Sprintf("lost, written: %t", written), lines)
}

// expect compares the counts so far.
func (c *counts) expect(t *testing.T, want map[string]int64) {
	t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if diff := cmp.Diff(want, c.by); diff != "" {
		t.Fatalf("counts (-want +got):\n%s", diff)
	}
}

// inCountedWorld runs a test in a bubble with a running agent that counts.
func inCountedWorld(t *testing.T, test func(w *world, c *counts)) {
	synctest.Test(t, func(t *testing.T) {
		w, c := newWorld(t), &counts{}
		w.metrics = c
		w.start()
		defer w.stop()
		test(w, c)
	})
}

func TestFailuresOfContainersAreCounted(t *testing.T) {
	inCountedWorld(t, func(w *world, c *counts) {
		w.executor.programs["good"] = program{}
		w.executor.programs["pull"] = program{Prepare: errors.New("no such image")}
		w.executor.programs["start"] = program{Start: fmt.Errorf("%w: no such command", executor.ErrNotStarted)}
		w.service("g1", definition("good", "good"))
		c.expect(t, map[string]int64{"connected": 1, "created by box: true": 1, "started by box: true": 1})
		w.batch("p1", definition("pull", "pull"))
		w.batch("s1", definition("start", "start"))
		c.expect(t, map[string]int64{
			"connected": 1, "created by box: true": 2, "created by box: false": 1, "started by box: true": 1,
			"started by box: false": 1,
		})
	})
}

// A container that is stopped while its image is pulled is no failure.
func TestCancelledCreationIsNoFailure(t *testing.T) {
	inCountedWorld(t, func(w *world, c *counts) {
		w.executor.programs["slow"] = program{Pull: time.Hour}
		d := w.service("s1", definition("slow", "slow"))
		w.stopTask(d, true)
		w.pass(time.Minute)
		c.expect(t, map[string]int64{"connected": 1})
	})
}

// Each broken connection counts once, and the end of the agent is none.
func TestInterruptionsOfTheAgentAreCounted(t *testing.T) {
	inCountedWorld(t, func(w *world, c *counts) {
		w.pass(time.Minute)
		c.expect(t, map[string]int64{"connected": 1})
		w.server.cut(true)
		w.pass(time.Minute)
		c.expect(t, map[string]int64{"connected": 2, "interrupted": 1})
		w.server.cut(false)
		w.pass(10 * time.Minute) // it dials in vain, which interrupts nothing
		c.expect(t, map[string]int64{"connected": 2, "interrupted": 2})
		w.server.cut(true)
		w.pass(time.Minute)
		c.expect(t, map[string]int64{"connected": 3, "interrupted": 2})
		w.restart()
		w.pass(time.Minute)
		c.expect(t, map[string]int64{"connected": 4, "interrupted": 2})
	})
}

// readLines reads lines up to one that begins with last. It returns how many came, and how many were said to be lost.
func readLines(t *testing.T, r io.Reader, last string) (lines, lost int64) {
	t.Helper()
	dec := json.NewDecoder(r)
	for {
		var l logs.Line
		if err := dec.Decode(&l); err != nil {
			t.Fatalf("after %d lines and %d lost ones: %v", lines, lost, err)
		}
		lost += l.Lost
		if l.Lost > 0 {
			continue
		}
		lines++
		if strings.HasPrefix(l.Text, last) {
			return lines, lost
		}
	}
}

// A reader that is too slow loses the lines that the log rotated away, and lines that could not be written are lost to
// each reader. Both are counted, with the numbers that the readers get.
func TestLostLogLinesAreCounted(t *testing.T) {
	inCountedWorld(t, func(w *world, c *counts) {
		d := w.service("s1", definition("web", "app"))
		dir := w.agent.node.LogDir("s1", "app")
		log := logs.NewWriter(logs.Config{Dir: dir, SegmentSize: 4 * cluster.KiB, Segments: 2})
		write := func(lines int) {
			for i := range lines {
				_, _ = fmt.Fprintf(log.Stream(logs.Stdout), "%4d%s\n", i, strings.Repeat(".", 100))
			}
		}
		write(1)
		conn := w.carry("x", transport.StreamRequest{
			Kind: transport.StreamLogs, Task: d.Task, Logs: &transport.LogsRequest{Follow: true, Tail: -1},
		})
		synctest.Wait() // the reader waits with the first line
		write(1000)
		if err := log.Close(); err != nil {
			w.t.Fatal(err)
		}
		lines, lost := readLines(w.t, conn, " 999")
		if lost < 500 || lost+lines != 1001 {
			w.t.Fatalf("the reader got %d lines and lost %d of 1001", lines, lost)
		}
		c.expect(w.t, map[string]int64{
			"connected": 1, "created by box: true": 1, "started by box: true": 1, "lost, written: true": lost,
		})
	})
}

// A disk without room loses lines before they are stored.
func TestUnwrittenLogLinesAreCounted(t *testing.T) {
	inCountedWorld(t, func(w *world, c *counts) {
		d := w.service("s1", definition("web", "app"))
		dir := w.agent.node.LogDir("s1", "app")
		parked := dir + ".parked"
		if err := errors.Join(os.MkdirAll(filepath.Dir(dir), 0o700), os.Rename(dir, parked),
			os.WriteFile(dir, nil, 0o600)); err != nil { // a file in place of the folder: nothing can be written
			w.t.Fatal(err)
		}
		log := logs.NewWriter(logs.Config{Dir: dir})
		for range 3 {
			_, _ = fmt.Fprintln(log.Stream(logs.Stdout), "lost")
		}
		if err := errors.Join(os.Remove(dir), os.Rename(parked, dir)); err != nil {
			w.t.Fatal(err)
		}
		w.pass(time.Minute)
		_, _ = fmt.Fprintln(log.Stream(logs.Stdout), "kept")
		if err := log.Close(); err != nil {
			w.t.Fatal(err)
		}
		conn := w.carry("x", transport.StreamRequest{Kind: transport.StreamLogs, Task: d.Task})
		if lines, lost := readLines(w.t, conn, "kept"); lines != 1 || lost != 3 {
			w.t.Fatalf("the reader got %d lines and lost %d, want 1 and 3", lines, lost)
		}
		c.expect(w.t, map[string]int64{
			"connected": 1, "created by box: true": 1, "started by box: true": 1, "lost, written: false": 3,
		})
	})
}
