// Command streams measures the cost of watched lists for a server: streams of server-sent events over loopback, on a
// fleet of node and task records that change all the time.
//
//	streams -nodes 5000 -tasks 20000 -viewers 200 -rate 50
//
// The server is a process of its own: the API's real handlers over tables that follow a store in memory, and a writer
// in it that changes tasks at the stated rate. Its CPU seconds are measured without viewers, then with all viewers on
// one kind of list, and at last on a mixture of lists. The viewers live in this process, and each holds a token of the
// role viewer. A row shows what the server took in a time span after the viewers had their first answer, and how that
// differs from the server without viewers. The streams' own start is in a column of its own.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/berthd/berth/internal/pause"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "streams:", err)
		os.Exit(1)
	}
}

type options struct {
	nodes, tasks, services int
	viewers, rate          int
	span                   time.Duration
	only                   string
	profile                string
	serve                  bool
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	var o options
	fs := flag.NewFlagSet("streams", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.IntVar(&o.nodes, "nodes", 5000, "nodes of the fleet")
	fs.IntVar(&o.tasks, "tasks", 20_000, "tasks that run on them")
	fs.IntVar(&o.services, "services", 200, "services that the tasks belong to")
	fs.IntVar(&o.viewers, "viewers", 200, "streams that are open concurrently")
	fs.IntVar(&o.rate, "rate", 50, "task updates a second")
	fs.DurationVar(&o.span, "for", 20*time.Second, "how long each row is measured")
	fs.StringVar(&o.only, "only", "", "measure this kind of viewers alone")
	fs.StringVar(&o.profile, "profile", "", "file that a CPU profile of the server's whole life is written to")
	fs.BoolVar(&o.serve, "serve", false, "be the server that is measured")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if o.serve {
		return serve(ctx, o, stdin, stdout)
	}
	return measure(ctx, o, args, stdout, stderr)
}

// greeting is the first line of the server's process.
type greeting struct{ URL, Token string }

// figures is the use and work of the server's process until one time.
type figures struct {
	CPU      float64 // seconds
	Updates  int
	Revision uint64
	Resident int // bytes
}

// server is the measured process, from the view of the measuring one.
type server struct {
	greeting

	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

func start(ctx context.Context, args []string, stderr io.Writer) (*server, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, append([]string{"-serve"}, args...)...)
	cmd.Stderr = stderr
	s := &server{cmd: cmd}
	if s.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s.out = json.NewDecoder(bufio.NewReader(out))
	return s, s.out.Decode(&s.greeting)
}

// figures requests the figures of the process.
func (s *server) figures() (f figures, err error) {
	if _, err = fmt.Fprintln(s.in); err != nil {
		return f, err
	}
	return f, s.out.Decode(&f)
}

// stop ends the process.
func (s *server) stop() error {
	_ = s.in.Close() // the call waits for its end
	return s.cmd.Wait()
}

func measure(ctx context.Context, o options, args []string, out, stderr io.Writer) error {
	s, err := start(ctx, args, stderr)
	if err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	fmt.Fprintf(out, "%d nodes, %d tasks of %d services, %d updates of tasks a second, %d viewers, %s a row\n\n",
		o.nodes, o.tasks, o.services, o.rate, o.viewers, o.span)
	fmt.Fprintln(out, "| viewers of | CPU of the server, s | % of a core | more than without viewers | CPU "+
		"s until all had their first answer | bytes a second and viewer | events a second and viewer | "+
		"updates a second | resident, MB |\n|---|---|---|---|---|---|---|---|---|")
	rest, err := s.row(ctx, o, kind{name: "nobody"}, 0, out)
	for _, k := range kinds() {
		if err == nil && (o.only == "" || o.only == k.name) {
			_, err = s.row(ctx, o, k, rest, out)
		}
	}
	return errors.Join(err, s.stop())
}

// row measures one kind of viewers, prints their cost, and returns the server's use in cores. Rest is its use without
// viewers.
func (s *server) row(ctx context.Context, o options, k kind, rest float64, out io.Writer) (share float64, err error) {
	before, err := s.figures()
	if err != nil {
		return 0, err
	}
	c, err := s.open(ctx, o, k)
	if err != nil {
		return 0, err
	}
	defer c.close()
	_ = pause.For(ctx, 2*time.Second) // garbage of the start
	begin, err := s.figures()
	if err != nil {
		return 0, err
	}
	began, bytes, events := time.Now(), c.bytes.Load(), c.events.Load()
	_ = pause.For(ctx, o.span)
	end, err := s.figures()
	if err != nil {
		return 0, err
	}
	took := time.Since(began).Seconds()
	if err := errors.Join(ctx.Err(), c.fault()); err != nil {
		return 0, err
	}
	share = (end.CPU - begin.CPU) / took
	each := max(1, float64(len(k.paths(o))))
	fmt.Fprintf(out, "| %s | %.2f | %.1f | %+.1f | %.2f | %.0f | %.1f | %.0f | %d |\n", k.name, end.CPU-begin.CPU,
		100*share, 100*(share-rest),
		begin.CPU-before.CPU, float64(c.bytes.Load()-bytes)/took/each, float64(c.events.Load()-events)/took/each,
		float64(end.Updates-begin.Updates)/took, end.Resident>>20)
	return share, nil
}
