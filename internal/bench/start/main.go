// Command start measures the first use on one machine: the time until `berth dev` serves, its memory when idle, and the
// time of `berth version`.
//
//	start -berth bin/berth -runs 10
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
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
		fmt.Fprintln(os.Stderr, "start:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("start", flag.ContinueOnError)
	berth := flags.String("berth", "bin/berth", "the berth binary")
	runs := flags.Int("runs", 10, "how often")
	idle := flags.Duration("idle", 3*time.Second, "how long to wait before memory is read")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var ready, again, version []time.Duration
	var rss []int
	for range *runs {
		dir, err := os.MkdirTemp("", "berth-start-")
		if err != nil {
			return err
		}
		first, memory, err := dev(ctx, *berth, dir, *idle)
		if err != nil {
			return errors.Join(err, os.RemoveAll(dir))
		}
		second, _, err := dev(ctx, *berth, dir, 0)
		if err := errors.Join(err, os.RemoveAll(dir)); err != nil {
			return err
		}
		ready, again, rss = append(ready, first), append(again, second), append(rss, memory)
		began := time.Now()
		if err := exec.CommandContext(ctx, *berth, "version").Run(); err != nil {
			return fmt.Errorf("berth version: %w", err)
		}
		version = append(version, time.Since(began))
	}
	slices.Sort(rss)
	fmt.Fprintf(out, "| what, %d runs | median | worst |\n|---|---|---|\n", *runs)
	for _, row := range []struct {
		what string
		took []time.Duration
	}{{"berth dev, new data folder, until it serves", ready}, {"berth dev, again", again}, {"berth version", version}} {
		slices.Sort(row.took)
		fmt.Fprintf(out, "| %s | %d ms | %d ms |\n", row.what, row.took[len(row.took)/2].Milliseconds(),
			row.took[len(row.took)-1].Milliseconds())
	}
	fmt.Fprintf(out, "| resident memory of an idle berth dev | %d MB | %d MB |\n", rss[len(rss)/2]>>20,
		rss[len(rss)-1]>>20)
	return nil
}

// dev starts `berth dev`, waits until it serves and then for a time. It returns the duration of the start and the
// memory.
func dev(ctx context.Context, berth, dir string, idle time.Duration) (took time.Duration, memory int, err error) {
	cmd := exec.CommandContext(ctx, berth, "dev", "--data-dir", dir, "--http", "127.0.0.1:0", "--executor", "process")
	cmd.Env = append(os.Environ(), "XDG_CONFIG_HOME="+dir)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, 0, err
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	took = time.Since(began)
	if err != nil || !strings.HasPrefix(line, "berth: ready") {
		return 0, 0, errors.Join(fmt.Errorf("berth dev did not become ready: %q", line), err, cmd.Process.Kill(),
			cmd.Wait())
	}
	_ = pause.For(ctx, idle)
	memory = resident(cmd.Process.Pid)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return 0, 0, err
	}
	if err := cmd.Wait(); err != nil {
		return 0, 0, fmt.Errorf("berth dev ended badly: %w", err)
	}
	return took, memory, nil
}

// resident returns a process's resident memory in bytes.
func resident(pid int) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	var size, pages int
	_, _ = fmt.Sscan(string(b), &size, &pages) // 0 where it is no number
	return pages * os.Getpagesize()
}
