package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/egress"
)

// newDevCommand returns `berth dev`.
func newDevCommand() *cobra.Command {
	var dataDir, address, socket, traces, level string
	var flags nodeFlags
	var external serverFlags // those about the store
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a control plane and an agent in one process",
		Long: "Runs a control plane and an agent in one process, on this machine: all of Berth to try, or " +
			"for a single server.\n" +
			"It prints one line once it serves. Ctrl-C ends Berth but no task: the next `berth dev` with the same\n" +
			"data directory finds them running. `berth delete` ends them.\n\n" +
			"With --store it keeps nothing but that in the data directory, and remembers it there: the next " +
			"start goes on with the same store.",
		Args: arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list faults
			log, err := newLogger(cmd.ErrOrStderr(), level)
			if err != nil {
				list.add("--%v", err)
			}
			checkTraces(&list, traces)
			flags.check(&list)
			external.checkStore(&list)
			if err := list.err(cmd); err != nil {
				return err
			}
			dir, err := filepath.Abs(dataDir)
			if err != nil {
				return err
			}
			if socket == "" {
				socket = devSocket(cmd, dir)
			}
			if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
				return fmt.Errorf("make the folder of the socket: %w", err)
			}
			s, err := openServer(cmd.Context(), serverConfig{
				dataDir: dir,
				listen:  []string{"unix://" + socket, address},
				store:   external.store,
				traces:  traces,
				egress:  flags.egress.parsed,
				log:     log,
				command: "berth dev",

				permissions: cluster.Permissions(), // it is its user's own machine
				say:         func(text string) { fmt.Fprintln(cmd.ErrOrStderr(), "berth:", text) },
			})
			if err != nil {
				return err
			}
			x := flags.executors
			x.dataDir, x.log, x.say = dir, log, cmd.ErrOrStderr()
			opened, err := openExecutors(cmd.Context(), x)
			if err != nil {
				return errors.Join(err, s.close())
			}
			c := nodeConfig{
				name:      machineName(),
				dataDir:   filepath.Join(dir, "agent"),
				servers:   []string{"unix://" + socket},
				executors: opened,
				traces:    traces,
				log:       log,
			}
			flags.configure(&c)
			return runDev(cmd.Context(), s, c, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&dataDir, "data-dir", defaultDataDir(),
		"folder for everything that Berth keeps (default "+dataDirText+")")
	cmd.Flags().StringVar(&address, "http", defaultHTTP, "loopback address to serve HTTP on")
	cmd.Flags().StringVar(&socket, "socket", "",
		"unix socket to serve; default: in the run directory, or in a data directory that was given")
	cmd.Flags().StringVar(&traces, "trace-endpoint", "",
		"`URL` that traces are sent to (OpenTelemetry over HTTP); default nowhere")
	cmd.Flags().StringVar(&level, "log-level", "warn", "debug, info, warn or error")
	flags.flags(cmd, true)
	flags.egress.flags(cmd, egress.Loopback()...) // a server that is tried asks its own machine
	external.storeFlags(cmd.Flags())
	ofMachine(cmd, "data-dir")
	return cmd
}

// devSocket puts the socket into a data directory that was given, so that several can run side by side.
func devSocket(cmd *cobra.Command, dir string) string {
	if cmd.Flags().Changed("data-dir") {
		return filepath.Join(dir, "api.sock")
	}
	return defaultSocket()
}

// runDev runs the server and the agent until the context ends. It prints the address on stdout once they serve, and on
// stderr how many tasks go on without them.
func runDev(ctx context.Context, s *server, n nodeConfig, stdout, stderr io.Writer) error {
	forget, err := s.remember()
	if err != nil {
		n.log.Warn("other terminals will have to be told the address", "error", err)
	} else {
		defer forget()
	}
	group, within := errgroup.WithContext(ctx)
	group.Go(func() error { return s.run(within) })
	group.Go(func() error {
		if s.ready(within) != nil {
			return nil //nolint:nilerr // run says why the server ended
		}
		return runNode(within, n)
	})
	group.Go(func() error {
		if s.ready(within) != nil || s.joined(within, n.name) != nil {
			return nil //nolint:nilerr // the same
		}
		fmt.Fprintf(stdout, "berth: ready at %s\n", preferredURL(s.listeners))
		return nil
	})
	err = group.Wait()
	live := s.live()
	if live > 0 && err == nil {
		text := "tasks go on running, the next `berth dev` takes them up"
		if live == 1 {
			text = "task goes on running, the next `berth dev` takes it up"
		}
		fmt.Fprintf(stderr, "berth: ended; %d %s again\n", live, text)
	}
	if live == 0 {
		err = errors.Join(err, n.executors.stopAll(ctx))
	}
	return errors.Join(err, n.executors.close())
}

// stopTime is how long `berth dev` and `berth agent` wait at their end for what they started.
const stopTime = 10 * time.Second

// joined waits until the node is ready.
func (s *server) joined(ctx context.Context, node string) error {
	for {
		snap := s.tables.Snapshot()
		if n, ok := snap.Node(node); ok && n.Value.State == cluster.NodeReady {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.tables.Changed(snap.Revision()):
		}
	}
}

// live counts the tasks of which something runs, as far as the tables know.
func (s *server) live() int {
	n := 0
	for row := range s.tables.Snapshot().AllAttempts() {
		if o := row.Observed; o != nil && !o.State.Terminal() && !o.Gone {
			n++
		}
	}
	return n
}

// remember writes the address where commands in other terminals of the same user look for it, and returns
// what takes it away again.
func (s *server) remember() (forget func(), err error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return nil, err
	}
	dir = filepath.Join(dir, "berth")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "addr")
	text := s.listeners[0].URL() + "\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return nil, err
	}
	return func() {
		if b, err := os.ReadFile(path); err == nil && string(b) == text {
			_ = os.Remove(path) // a stale address is told as such by whoever finds it
		}
	}, nil
}
