// Command latency measures the time from an agent's receipt of an assignment to the first instruction of the
// container's program. It measures the same for a container that is started directly through containerd. The two
// alternate, on a containerd that the command starts.
//
//	latency -berth bin/berth -runs 30
//	latency -berth bin/berth -runs 9 -burst 100 -at-once 8
//
// With -burst it measures how long it takes until that many tasks run that were assigned together, with the same bound
// on concurrent starts for both.
//
// It needs root, containerd, runc and a static busybox.
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
	"slices"
	"syscall"
	"time"

	"github.com/berthd/berth/internal/bench/busybox"
	"github.com/berthd/berth/internal/executor/containerd"
	"github.com/berthd/berth/internal/executor/containerd/daemon"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "latency:", err)
		os.Exit(1)
	}
}

// image is the name of the image that all containers run.
const image = "berth.local/latency:1"

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("latency", flag.ContinueOnError)
	berth := flags.String("berth", "bin/berth", "the berth binary, which collects the output")
	runs := flags.Int("runs", 30, "how often")
	burst := flags.Int("burst", 0, "start so many together, instead of one after the other")
	atOnce := flags.Int("at-once", containerd.DefaultAtOnce, "how many of a burst are being started at any time")
	if err := flags.Parse(args); err != nil {
		return err
	}
	binary, err := filepath.Abs(*berth)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "berth-latency-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	own, err := daemon.Launch(ctx, daemon.Config{Dir: filepath.Join(dir, "containerd")})
	if err != nil {
		return err
	}
	x, err := containerd.New(containerd.Config{
		Address: own.Address, Dir: filepath.Join(dir, "collector"),
		Executable: binary, AtOnce: *atOnce,
	})
	if err != nil {
		return errors.Join(err, own.Stop(ctx))
	}
	err = measure(ctx, dir, x, own.Address, func(node *node, direct *direct) error {
		if *burst > 0 {
			return compareBursts(ctx, out, dir, node, direct, *burst, *atOnce, *runs)
		}
		return compare(ctx, out, node, direct, *runs)
	})
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	return errors.Join(err, x.StopCollector(ending), x.Close(), own.Stop(ending))
}

func measure(ctx context.Context, dir string, x *containerd.Executor, address string,
	compare func(*node, *direct) error,
) error {
	archive, err := busybox.Image(dir, image)
	if err != nil {
		return err
	}
	_, err = x.LoadImages(ctx, archive)
	if err := errors.Join(err, archive.Close()); err != nil {
		return fmt.Errorf("load the image: %w", err)
	}
	flag, err := newFlag(filepath.Join(dir, "flag"))
	if err != nil {
		return err
	}
	defer flag.close()
	node, err := startNode(ctx, filepath.Join(dir, "agent"), x, flag)
	if err != nil {
		return err
	}
	direct, err := newDirect(address, flag, filepath.Join(dir, "logs"))
	if err == nil {
		err = compare(node, direct)
		direct.close()
	}
	return errors.Join(err, node.stop())
}

// compare lets the two take turns.
func compare(ctx context.Context, out io.Writer, node *node, direct *direct, runs int) error {
	var service, job, plain []time.Duration
	for i := range runs + 1 {
		s, err1 := node.start(ctx, i, false)
		j, err2 := node.start(ctx, i, true)
		p, err3 := direct.start(ctx, i)
		if err := errors.Join(err1, err2, err3); err != nil {
			return err
		}
		if i > 0 { // the first warms the caches
			service, job, plain = append(service, s), append(job, j), append(plain, p)
		}
	}
	base := median(plain)
	fmt.Fprintf(out, "| to the first instruction, %d runs in turn | median | more than containerd |\n|---|---|---|\n",
		runs)
	fmt.Fprintf(out, "| containerd's client, same isolation | %.1f ms | |\n", ms(base))
	fmt.Fprintf(out, "| a service's task, from its assignment | %.1f ms | %.1f ms |\n", ms(median(service)),
		ms(median(service)-base))
	fmt.Fprintf(out, "| a job's task, from its assignment, barrier included | %.1f ms | %.1f ms |\n", ms(median(job)),
		ms(median(job)-base))
	return nil
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// programFlag is a named pipe that a program writes to with its first instruction.
type programFlag struct {
	dir  string
	file *os.File
}

func newFlag(dir string) (*programFlag, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // visible to the programs of all containers
		return nil, err
	}
	path := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(path, 0o666); err != nil {
		return nil, err
	}
	// Opened for both, it never ends.
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	return &programFlag{dir, f}, err
}

// wait blocks until a program wrote.
func (f *programFlag) wait(limit time.Duration) error {
	if err := f.file.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	var b [1]byte
	if _, err := io.ReadFull(f.file, b[:]); err != nil {
		return fmt.Errorf("the program did not start: %w", err)
	}
	return nil
}

func (f *programFlag) close() { _ = f.file.Close() }

// inside is the flag's folder in the container, and command the program's command line.
const inside = "/flag"

func command() []string {
	return []string{"/bin/busybox", "sh", "-c", "echo -n x > " + inside + "/fifo; exec sleep 1000"}
}
