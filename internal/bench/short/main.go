// Command short measures short tasks of jobs with real processes: a real `berth server` with its embedded etcd and
// fsync, and real agents with mutual TLS and the executor process or containerd.
//
//	short -berth bin/berth -for 15s
//	short -berth bin/berth -for 15s -executor containerd
//
// Jobs of 1,000 tasks wait, and each task ends as soon as it has begun. The command counts the recorded outcomes over
// a while, and the CPU time for each of them. It also prints the latencies of tasks: from the placement to the start of
// the program, and from the program's end to the recorded outcome.
//
// It needs root. With containerd it also needs containerd, runc and a static busybox.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "short:", err)
		os.Exit(1)
	}
}

type options struct {
	berth, executor, isolation string
	agents, places, jobs       int
	warmUp, length             time.Duration
	profile, dir               string
}

func run(ctx context.Context, args []string, out, messages io.Writer) (err error) {
	var o options
	flags := flag.NewFlagSet("short", flag.ContinueOnError)
	flags.SetOutput(messages)
	flags.StringVar(&o.berth, "berth", "bin/berth", "the berth binary")
	flags.StringVar(&o.executor, "executor", executorProcess, "what runs the tasks: process or containerd")
	flags.StringVar(&o.isolation, "isolation", "required", "isolation of programs of the executor process")
	flags.IntVar(&o.agents, "agents", 1, "how many agents")
	flags.IntVar(&o.places, "places", 40, "how many tasks an agent has at a time")
	flags.IntVar(&o.jobs, "jobs", 100, "how many jobs of 1,000 tasks are submitted")
	flags.DurationVar(&o.warmUp, "warm-up", 5*time.Second, "the time before the measurement")
	flags.DurationVar(&o.length, "for", 15*time.Second, "how long to measure")
	flags.StringVar(&o.dir, "dir", "/var/lib", "where the data folders are made; tasks do not see those below /tmp")
	flags.StringVar(&o.profile, "cpu-profile", "", "file for a CPU profile of the server")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if o.berth, err = filepath.Abs(o.berth); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(o.dir, "berth-short-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // programs of other users pass through it
		return err
	}
	d, err := startDomain(ctx, o, dir, messages)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.stop()) }()
	r, err := d.measure(ctx, o)
	if err != nil {
		return err
	}
	r.print(out, o)
	return nil
}
