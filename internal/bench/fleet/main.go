// Command fleet measures placements end to end: a real `berth server` with its embedded etcd and
// fsync in one process, and in another, this one, many fake agents over real HTTP/2 connections, which
// pass the start barrier of every task they are given and report it running.
//
//	fleet -berth bin/berth -agents 1000 -jobs 20 -tasks 1000
//
// It prints one row: how many placements a second the agents received, and how many were placed and
// acknowledged as running, both counted from the submission of the first job.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

type options struct {
	berth               string
	agents, jobs, tasks int
	limit               time.Duration
	profile             string
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var o options
	flags := flag.NewFlagSet("fleet", flag.ContinueOnError)
	flags.StringVar(&o.berth, "berth", "bin/berth", "the berth binary")
	flags.IntVar(&o.agents, "agents", 1000, "how many fake agents")
	flags.IntVar(&o.jobs, "jobs", 20, "how many jobs")
	flags.IntVar(&o.tasks, "tasks", 1000, "tasks of each job")
	flags.StringVar(&o.profile, "cpu-profile", "", "file for a CPU profile of the server")
	flags.DurationVar(&o.limit, "limit", 5*time.Minute, "give up after")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	s, err := startServer(ctx, o, stderr)
	if err != nil {
		return err
	}
	defer s.stop()

	var count counts
	group, fleet := errgroup.WithContext(ctx)
	for i := range o.agents {
		group.Go(func() error { return newAgent(s, i, &count).run(fleet) })
	}
	result := make(chan error, 1)
	go func() { result <- measure(ctx, s, o, &count, stdout) }()
	select {
	case err = <-result:
	case <-fleet.Done():
		err = errors.New("an agent ended early")
	}
	cancel()
	if aerr := group.Wait(); err != nil && aerr != nil && !errors.Is(aerr, context.Canceled) {
		err = errors.Join(err, aerr)
	}
	return err
}

// counts is what the agents have seen together.
type counts struct {
	ready, assigned, running atomic.Int64
}

// measure submits the jobs and waits until the agents have all tasks, and all of them run.
func measure(ctx context.Context, s *server, o options, c *counts, out io.Writer) error {
	if err := until(ctx, func() bool { return c.ready.Load() == int64(o.agents) }); err != nil {
		return fmt.Errorf("%d of %d agents are ready: %w", c.ready.Load(), o.agents, err)
	}
	api, err := client.New(client.Config{Addr: s.address, Token: s.token})
	if err != nil {
		return err
	}
	if err := submit(ctx, api, o, -1); err != nil { // the definition
		return err
	}
	cpu := s.cpu()
	began := time.Now()
	for i := range o.jobs {
		if err := submit(ctx, api, o, i); err != nil {
			return err
		}
	}
	submitted := time.Since(began)
	total := int64(o.jobs * o.tasks)
	if err := until(ctx, func() bool { return c.assigned.Load() >= total }); err != nil {
		return fmt.Errorf("%d of %d tasks were placed: %w", c.assigned.Load(), total, err)
	}
	placed := time.Since(began)
	if err := until(ctx, func() bool { return c.running.Load() >= total }); err != nil {
		return fmt.Errorf("%d of %d tasks run: %w", c.running.Load(), total, err)
	}
	running := time.Since(began)
	rate := func(d time.Duration) float64 { return float64(total) / d.Seconds() }
	fmt.Fprintf(out, "| agents | jobs × tasks | submitted, s | placed, s | placed/s | running, s | running/s | server CPU, s | server RSS, MB |\n")
	fmt.Fprintf(out, "|---|---|---|---|---|---|---|---|---|\n")
	fmt.Fprintf(out, "| %d | %d × %d | %.2f | %.2f | %.0f | %.2f | %.0f | %.1f | %d |\n", o.agents, o.jobs, o.tasks,
		submitted.Seconds(), placed.Seconds(), rate(placed), running.Seconds(), rate(running), s.cpu()-cpu, s.rss()>>20)
	return nil
}

// submit applies the definition (-1) or one job.
func submit(ctx context.Context, c *client.Client, o options, job int) error {
	object := api.Object{Kind: cluster.KindTaskDefinition}
	var spec any = &cluster.TaskDefinition{Name: "noop", Version: 1, Containers: []cluster.Container{{
		Name: "main", Command: []string{"true"}, Resources: cluster.Resources{CPU: 100, Memory: 64 * cluster.MiB},
	}}}
	if job >= 0 {
		object.Kind = cluster.KindJob
		spec = &cluster.Job{Name: fmt.Sprintf("job-%d", job), Steps: []cluster.Step{{
			Name: "s", Definition: cluster.Ref{Name: "noop", Version: 1}, Count: o.tasks,
		}}}
	}
	raw, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	object.Spec = raw
	_, err = c.Apply(ctx, api.ApplyRequest{Objects: []api.Object{object}})
	return err
}

// until polls a condition every few milliseconds.
func until(ctx context.Context, holds func() bool) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// server is a `berth server` that this program started.
type server struct {
	cmd            *exec.Cmd
	dir            string
	address, token string
}

func startServer(ctx context.Context, o options, stderr io.Writer) (*server, error) {
	dir, err := os.MkdirTemp("", "berth-fleet-")
	if err != nil {
		return nil, err
	}
	s := &server{dir: dir}
	s.cmd = exec.CommandContext(ctx, o.berth, "server", "--data-dir", dir, "--listen", "127.0.0.1:0", "--log-level", "warn", "--cpu-profile", o.profile)
	s.cmd.Stderr = stderr
	s.cmd.Cancel = func() error { return nil } // stop ends it
	s.cmd.WaitDelay = 10 * time.Second
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	var line string
	if _, err := fmt.Fscanf(out, "berth: ready at %s\n", &line); err != nil {
		s.stop()
		return nil, fmt.Errorf("the server did not become ready: %w", err)
	}
	s.address = line
	token, err := os.ReadFile(filepath.Join(dir, "token"))
	s.token = strings.TrimSpace(string(token))
	return s, err
}

// stop ends the server and removes its data.
func (s *server) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	_ = s.cmd.Wait()
	_ = os.RemoveAll(s.dir)
}

// cpu returns the CPU seconds that the server has used.
func (s *server) cpu() float64 {
	var user, system uint64
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	f := strings.Fields(rest)
	if len(f) > 12 {
		_, _ = fmt.Sscan(f[11], &user) // 0 where it is no number
		_, _ = fmt.Sscan(f[12], &system)
	}
	return float64(user+system) / 100
}

// rss returns the server's resident memory in bytes.
func (s *server) rss() int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", s.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	var size, resident int
	_, _ = fmt.Sscan(string(b), &size, &resident) // 0 where it is no number
	return resident * os.Getpagesize()
}
