package serving

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cli/storeflags"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/egress"
	"github.com/berthd/berth/internal/serve/datadir"
	"github.com/berthd/berth/internal/serve/node"
	"github.com/berthd/berth/internal/serve/server"
	"github.com/berthd/berth/internal/serve/single"
)

// devCommand is `berth dev`.
type devCommand struct {
	dataDir, address, socket, traces, level string
	node                                    nodeFlags
	store                                   storeflags.Flags
}

// NewDevCommand returns `berth dev`.
func NewDevCommand() *cobra.Command {
	d := &devCommand{}
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a control plane and an agent in one process",
		Long: "Runs a control plane and an agent in one process on this machine, to try Berth. The command prints\n" +
			"one line when it is ready. Ctrl-C ends Berth, but not the tasks: the next `berth dev` with the same\n" +
			"data directory finds them running. `berth delete` stops tasks. `berth standalone` is for a machine in\n" +
			"production: it has the permissions and limits of an agent.\n\n" +
			"With --store, the data directory holds no store of its own. It remembers the external store, and the\n" +
			"next start uses the same one.",
		Args: session.Arguments(0, 0, ""),
		RunE: d.run,
	}
	cmd.Flags().StringVar(&d.dataDir, "data-dir", datadir.DefaultDataDir(),
		"folder for all data of Berth (default "+datadir.DataDirText+")")
	cmd.Flags().StringVar(&d.address, "http", datadir.DefaultHTTP, "loopback address to serve HTTP on")
	cmd.Flags().StringVar(&d.socket, "socket", "",
		"unix socket to serve; default: in the run directory, or in the data directory if --data-dir is given")
	cmd.Flags().StringVar(&d.traces, "trace-endpoint", "",
		"`URL` for traces (OpenTelemetry over HTTP); default none")
	cmd.Flags().StringVar(&d.level, "log-level", "warn", "debug, info, warn or error")
	d.node.addFlags(cmd, true)
	// A trial server may call services of its own machine.
	d.node.egress.addFlags(cmd, devRequests, egress.Loopback()...)
	d.store.AddTo(cmd.Flags())
	session.HideDefaults(cmd, "data-dir")
	return cmd
}

func (d *devCommand) run(cmd *cobra.Command, _ []string) error {
	var list session.Faults
	log, err := datadir.NewLogger(cmd.ErrOrStderr(), d.level)
	if err != nil {
		list.Add("--%v", err)
	}
	checkTraces(&list, d.traces)
	d.node.check(&list)
	d.store.Check(&list)
	if err := list.Err(cmd); err != nil {
		return err
	}
	dir, err := filepath.Abs(d.dataDir)
	if err != nil {
		return err
	}
	if d.socket == "" {
		d.socket = devSocketPath(cmd, dir)
	}
	if err := os.MkdirAll(filepath.Dir(d.socket), 0o700); err != nil {
		return fmt.Errorf("create the folder of the socket: %w", err)
	}
	s, err := server.Open(cmd.Context(), server.Config{
		DataDir: dir,
		Listen:  []string{"unix://" + d.socket, d.address},
		Store:   d.store.Location,
		Traces:  d.traces,
		Egress:  d.node.egress.parsed,
		Log:     log,
		Command: "berth dev",

		Permissions: cluster.Permissions(), // the machine belongs to its user
		Notices:     func(text string) { fmt.Fprintln(cmd.ErrOrStderr(), "berth:", text) },
	})
	if err != nil {
		return err
	}
	x := d.node.executors
	x.DataDir, x.Log, x.Notices = dir, log, cmd.ErrOrStderr()
	opened, err := node.OpenExecutors(cmd.Context(), x)
	if err != nil {
		return errors.Join(err, s.Close())
	}
	c := node.Config{
		Name:      datadir.MachineName(),
		DataDir:   filepath.Join(dir, "agent"),
		Servers:   []string{"unix://" + d.socket},
		Executors: opened,
		Traces:    d.traces,
		Log:       log,
	}
	d.node.configure(&c)
	p := single.Process{
		Open: func(context.Context) (*server.Server, error) { return s, nil },
		Node: c, Stdout: cmd.OutOrStdout(), Notices: cmd.ErrOrStderr(),
	}
	return p.Run(cmd.Context())
}

// devSocketPath returns the path of the API socket. With --data-dir the socket is in that directory, so several
// instances can run side by side.
func devSocketPath(cmd *cobra.Command, dir string) string {
	if cmd.Flags().Changed("data-dir") {
		return filepath.Join(dir, "api.sock")
	}
	return datadir.DefaultSocket()
}
