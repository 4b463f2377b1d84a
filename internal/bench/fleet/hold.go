package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/berthd/berth/internal/pki"
)

// hold keeps agents connected for a while and prints what that costs.
func hold(ctx context.Context, o options, stdout, stderr io.Writer) error {
	var processes []process
	for _, text := range list(o.pids) {
		pid, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("-pids: %w", err)
		}
		processes = append(processes, process(pid))
	}
	if o.addresses == "" {
		dir, err := os.MkdirTemp("", "berth-fleet-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir) // the keys of nothing
		o.authority = filepath.Join(dir, "pki")
		if err := pki.CreateAuthority(o.authority, time.Now()); err != nil {
			return err
		}
		s, err := startOwn(ctx, o, stderr)
		if err != nil {
			return err
		}
		defer func() { _ = s.stop() }() // it was measured
		o.addresses = s.address
		processes = []process{process(s.cmd.Process.Pid)}
	}
	f, err := startWorkers(ctx, o, stderr)
	if err != nil {
		return err
	}
	err = f.watch(ctx, o, processes, stdout)
	return errors.Join(err, f.stop())
}

// child is a process of this program in another role.
type child struct {
	cmd     *exec.Cmd
	out     io.Reader
	address string
}

func (o options) child(ctx context.Context, stderr io.Writer, args ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.CommandContext(ctx, self, append(args, "-authority", o.authority)...)}
	c.cmd.Stderr = stderr
	c.cmd.Cancel = func() error { return nil } // stop ends it
	if c.out, err = c.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	return c, c.cmd.Start()
}

func (c *child) stop() error {
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	return c.cmd.Wait()
}

// startOwn starts this program as the server.
func startOwn(ctx context.Context, o options, stderr io.Writer) (*child, error) {
	c, err := o.child(ctx, stderr, "-serve", "-cpu-profile", o.profile, "-profile-after", o.after.String(),
		"-whole="+strconv.FormatBool(o.whole), "-heap", o.heap.String())
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fscanln(c.out, &c.address); err != nil {
		return nil, errors.Join(fmt.Errorf("the server did not begin: %w", err), c.stop())
	}
	return c, nil
}

// workers are the processes with the agents.
type workers struct {
	children []*child
	mu       sync.Mutex
	tallies  []tally
	reading  sync.WaitGroup
}

func startWorkers(ctx context.Context, o options, stderr io.Writer) (*workers, error) {
	f := &workers{tallies: make([]tally, o.processes)}
	for i := range o.processes {
		first, next := i*o.agents/o.processes, (i+1)*o.agents/o.processes
		args := []string{
			"-work", "-addresses", o.addresses, "-agents", strconv.Itoa(next - first), "-first", strconv.Itoa(first),
			"-churn", fmt.Sprint(o.churn / float64(o.processes)), "-busy=" + strconv.FormatBool(o.busy),
		}
		c, err := o.child(ctx, stderr, args...)
		if err != nil {
			return nil, errors.Join(err, f.stop())
		}
		f.children = append(f.children, c)
		f.reading.Go(func() {
			in := json.NewDecoder(c.out)
			for t := (tally{}); in.Decode(&t) == nil; {
				f.mu.Lock()
				f.tallies[i] = t
				f.mu.Unlock()
			}
		})
	}
	return f, nil
}

func (f *workers) stop() error {
	for _, c := range f.children {
		_ = c.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	}
	f.reading.Wait()
	var errs []error
	for _, c := range f.children {
		errs = append(errs, c.cmd.Wait())
	}
	return errors.Join(errs...)
}

func (f *workers) total() (sum tally) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, t := range f.tallies {
		sum = sum.plus(t)
	}
	return sum
}

// watch prints a row now and then, from the first second to the end.
func (f *workers) watch(ctx context.Context, o options, servers []process, out io.Writer) error {
	fmt.Fprintln(out, "| s | connected | registered | reports/s | refused | moved | failed | servers' CPU, "+
		"% of a core | RSS, MB |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|---|---|")
	began := time.Now()
	tick := time.NewTicker(o.every)
	defer tick.Stop()
	end := time.After(o.hold)
	last, cpu, at := tally{}, make([]float64, len(servers)), began
	for i, s := range servers {
		cpu[i] = s.cpu()
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-end:
			return nil
		case <-tick.C:
		}
		t, now := f.total(), time.Now()
		passed := now.Sub(at).Seconds()
		var load, memory []string
		for i, s := range servers {
			c := s.cpu()
			load = append(load, fmt.Sprintf("%.2f", (c-cpu[i])/passed*100))
			memory = append(memory, strconv.Itoa(s.rss()>>20))
			cpu[i] = c
		}
		fmt.Fprintf(out, "| %.0f | %d | %d | %.1f | %d | %d | %d | %s | %s |\n", now.Sub(began).Seconds(), t.Connected,
			t.Registered,
			float64(t.Reports-last.Reports)/passed, t.Refused, t.Moved, t.Failed, strings.Join(load, " "),
			strings.Join(memory, " "))
		last, at = t, now
	}
}
