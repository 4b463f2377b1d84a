// Command domains measures what idle domains cost a server: its CPU time, the writes of its store, what they take on
// its disk, and its memory. A domain is idle without nodes and clusters.
//
//	domains -berth bin/berth -counts 0,1,10,50 -for 1m
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/berthd/berth/internal/pause"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "domains:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("domains", flag.ContinueOnError)
	berth := flags.String("berth", "bin/berth", "the berth binary")
	counts := flags.String("counts", "0,1,10,50", "numbers of idle domains")
	length := flags.Duration("for", time.Minute, "how long to measure each")
	settle := flags.Duration("settle", 10*time.Second, "how long to wait before")
	if err := flags.Parse(args); err != nil {
		return err
	}
	fmt.Fprintln(out, "| idle domains | CPU, s a minute | commits a minute | KiB to the disk a minute | resident |")
	fmt.Fprintln(out, "|---|---|---|---|---|")
	for text := range strings.SplitSeq(*counts, ",") {
		n, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		m, err := measure(ctx, *berth, n, *settle, *length)
		if err != nil {
			return err
		}
		minutes := length.Minutes()
		fmt.Fprintf(out, "| %d | %.2f | %.0f | %.0f | %d MB |\n", n, m.cpu/minutes, m.commits/minutes,
			m.written/1024/minutes, m.resident>>20)
	}
	return nil
}

// figures are counts of a server.
type figures struct {
	cpu      float64 // seconds
	commits  float64
	written  float64 // bytes that the process sent to disks
	resident int     // bytes
}

// measure starts a server with a number of idle domains, and returns what it does in a time.
func measure(ctx context.Context, berth string, n int, settle, length time.Duration) (m figures, err error) {
	dir, err := os.MkdirTemp("", "berth-domains-")
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	socket := "unix://" + filepath.Join(dir, "api.sock")
	cmd := exec.CommandContext(ctx, berth, "server", "--data-dir", filepath.Join(dir, "data"), "--listen", socket,
		"--log-level", "warn")
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return m, err
	}
	if err := cmd.Start(); err != nil {
		return m, err
	}
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		err = cmp.Or(err, cmd.Wait())
	}()
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || !strings.HasPrefix(line, "berth: ready") {
		return m, fmt.Errorf("the server did not become ready: %q: %w", line, err)
	}
	if err := makeDomains(ctx, berth, socket, n); err != nil {
		return m, err
	}
	if err := pause.For(ctx, settle); err != nil {
		return m, err
	}
	before, err := read(ctx, socket, cmd.Process.Pid)
	if err != nil {
		return m, err
	}
	if err := pause.For(ctx, length); err != nil {
		return m, err
	}
	after, err := read(ctx, socket, cmd.Process.Pid)
	after.cpu, after.commits, after.written = after.cpu-before.cpu, after.commits-before.commits,
		after.written-before.written
	return after, err
}

// makeDomains makes a number of domains.
func makeDomains(ctx context.Context, berth, socket string, n int) error {
	var text bytes.Buffer
	for i := range n {
		fmt.Fprintf(&text, "---\nkind: Domain\nname: idle-%d\n", i+1)
	}
	if n == 0 {
		return nil
	}
	cmd := exec.CommandContext(ctx, berth, "--addr", socket, "run", "-")
	cmd.Stdin = &text
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make the domains: %w: %s", err, out)
	}
	return nil
}

// read returns the present figures of a server.
func read(ctx context.Context, socket string, pid int) (m figures, err error) {
	out, err := exec.CommandContext(ctx, "curl", "-sS", "--unix-socket", strings.TrimPrefix(socket, "unix://"),
		"http://localhost/metrics").Output()
	if err != nil {
		return m, fmt.Errorf("read the metrics: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		v, _ := strconv.ParseFloat(value, 64) // 0 for a comment
		switch {
		case strings.HasPrefix(name, "berth_store_commit_duration_seconds_count"):
			m.commits += v
		case name == "process_cpu_seconds_total":
			m.cpu = v
		case name == "process_resident_memory_bytes":
			m.resident = int(v)
		}
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return m, err
	}
	_, rest, _ := strings.Cut(string(text), "\nwrite_bytes: ")
	rest, _, _ = strings.Cut(rest, "\n")
	m.written, err = strconv.ParseFloat(rest, 64)
	return m, err
}
