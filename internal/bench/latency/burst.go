package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

// burstLimit bounds the start of a burst.
const burstLimit = 3 * time.Minute

// startBurst assigns that many tasks together, waits for the first instruction of each, calls running, and then waits
// until nothing of them is left.
func (n *node) startBurst(ctx context.Context, generation uint64, count int, running func()) (time.Duration, error) {
	all, gone := make([]cluster.Desired, count), make([]chan struct{}, count)
	n.mu.Lock()
	for i := range all {
		all[i] = cluster.Desired{
			Task: cluster.ServiceTask("default", "burst", generation, i), Attempt: 1, UUID: uuid.NewString(),
			Node: "latency", Count: count,
			Owner:      cluster.OwnerRef{Kind: cluster.KindService, Cluster: "default", Name: "burst"},
			Definition: cluster.Ref{Name: "latency", Version: 1},
		}
		gone[i] = make(chan struct{})
		n.gone[all[i].UUID] = gone[i]
	}
	n.mu.Unlock()
	began := time.Now()
	for _, d := range all {
		n.messages <- transport.Message{Assignment: &transport.Assignment{Desired: d, Revision: 2*generation - 1}}
	}
	if err := n.flag.waitAll(count, burstLimit); err != nil {
		return 0, fmt.Errorf("through the agent: %w", err)
	}
	took := time.Since(began)
	running()
	for _, d := range all {
		d.Stop = &cluster.Stop{Class: cluster.StopMandatory, Reason: cluster.ReasonEnded, Ended: true}
		n.messages <- transport.Message{Assignment: &transport.Assignment{Desired: d, Revision: 2 * generation}}
	}
	for _, g := range gone {
		select {
		case <-g:
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(burstLimit):
			return 0, errors.New("a task did not end")
		}
	}
	for _, d := range all {
		n.messages <- transport.Message{Forget: &transport.Forget{Task: d.Task, UUID: d.UUID}}
	}
	return took, nil
}

// startBurst starts that many containers, atOnce of them in parallel. It waits for the first instruction of each, calls
// running, and removes them.
func (d *direct) startBurst(ctx context.Context, round, count, atOnce int, running func()) (time.Duration, error) {
	ends := make([]func() error, count)
	began := time.Now()
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i := range count {
		group.Go(func() (err error) {
			ends[i], err = d.launch(ctx, fmt.Sprintf("burst-%d-%d", round, i))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	if err := d.flag.waitAll(count, burstLimit); err != nil {
		return 0, fmt.Errorf("through containerd: %w", err)
	}
	took := time.Since(began)
	running()
	var removal errgroup.Group
	removal.SetLimit(atOnce)
	for _, end := range ends {
		removal.Go(end)
	}
	return took, removal.Wait()
}

// waitAll blocks until that many programs wrote.
func (f *programFlag) waitAll(count int, limit time.Duration) error {
	if err := f.file.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	b := make([]byte, count)
	if n, err := io.ReadFull(f.file, b); err != nil {
		return fmt.Errorf("%d of %d programs started: %w", n, count, err)
	}
	return nil
}

// compareBursts lets the agent and containerd's client take turns at starting a burst.
func compareBursts(ctx context.Context, out io.Writer, dir string, node *node, direct *direct, count, atOnce,
	runs int,
) error {
	var took, plain, ratios []time.Duration
	var spent, plainSpent []time.Duration
	for i := range runs + 1 {
		var one, two time.Duration
		var cpu [2]time.Duration
		// The order alternates between rounds.
		for _, agents := range []bool{i%2 == 0, i%2 != 0} {
			before, err := processorTime(dir)
			if err != nil {
				return err
			}
			which := 0
			if !agents {
				which = 1
			}
			running := func() {
				now, readErr := processorTime(dir)
				cpu[which], err = now-before, readErr
			}
			var err2 error
			if agents {
				one, err2 = node.startBurst(ctx, uint64(i+1), count, running)
			} else {
				two, err2 = direct.startBurst(ctx, i, count, atOnce, running)
			}
			if err := errors.Join(err, err2); err != nil {
				return err
			}
		}
		fmt.Fprintf(os.Stderr, "round %d: agent %v (%v of processor), containerd %v (%v)\n", i, one, cpu[0], two,
			cpu[1])
		if i > 0 { // the first warms the caches
			took, plain = append(took, one), append(plain, two)
			spent, plainSpent = append(spent, cpu[0]), append(plainSpent, cpu[1])
			ratios = append(ratios, time.Duration(float64(one)/float64(two)*1e6))
		}
	}
	fmt.Fprintf(out, "| %d containers of one image, %d at once, %d runs in turn | median | fastest | "+
		"slowest | processor time |\n|---|---|---|---|---|\n", count, atOnce, runs)
	row := func(name string, all, cpu []time.Duration) time.Duration {
		m := median(all)
		fmt.Fprintf(out, "| %s | %.2f s | %.2f s | %.2f s | %.1f s |\n", name, m.Seconds(), slices.Min(all).Seconds(),
			slices.Max(all).Seconds(), median(cpu).Seconds())
		return m
	}
	a, b := row("through the agent, from their assignment to the last first instruction", took, spent),
		row("containerd's client, same isolation, output to a file", plain, plainSpent)
	fmt.Fprintf(out, "| ratio of the medians; of the pairs, median, least and most | %.2f; %.2f | %.2f | "+
		"%.2f | %.2f |\n", a.Seconds()/b.Seconds(),
		float64(median(ratios))/1e6, float64(slices.Min(ratios))/1e6, float64(slices.Max(ratios))/1e6,
		median(spent).Seconds()/median(plainSpent).Seconds())
	return nil
}

// tick is how the kernel counts processor time in /proc.
const tick = 10 * time.Millisecond

// processorTime returns the processor time of this process and of all processes with dir on their command line,
// including their ended children. These processes are containerd, its shims and the collector.
func processorTime(dir string) (time.Duration, error) {
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		return 0, err
	}
	total := time.Duration(own.Utime.Nano() + own.Stime.Nano())
	list, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return 0, err
	}
	for _, path := range list {
		line, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(line), dir) {
			continue // it ended, or is another's
		}
		stat, err := os.ReadFile(filepath.Join(filepath.Dir(path), "stat"))
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(rest)
		if len(fields) < 15 {
			continue
		}
		for _, f := range fields[11:15] { // utime, stime, and the same of children
			n, _ := strconv.ParseInt(f, 10, 64)
			total += time.Duration(n) * tick
		}
	}
	return total, nil
}
