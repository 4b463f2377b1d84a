package serving

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/serve/datadir"
	"github.com/berthd/berth/internal/serve/handover"
	"github.com/berthd/berth/internal/serve/node"
	"github.com/berthd/berth/internal/serve/server"
	"github.com/berthd/berth/internal/serve/single"
	"github.com/berthd/berth/internal/version"
)

// standaloneCommand is `berth standalone`.
type standaloneCommand struct {
	stateFlags                           // of the server
	dataDir, socket, http, traces, level string
	machine                              machineFlags
	node                                 nodeFlags
}

// NewStandaloneCommand returns `berth standalone`.
func NewStandaloneCommand() *cobra.Command {
	s := &standaloneCommand{}
	cmd := &cobra.Command{
		Use:   "standalone",
		Short: "Run a node without other servers, for production",
		Long: "Runs a server and an agent in one process: a node that needs no other machine. `berth converge`\n" +
			"brings the node to a directory of manifests, by hand or from Ansible, Puppet or Chef.\n\n" +
			"Tasks continue when the process ends or is killed: the next one with the same data directory finds\n" +
			"them. The server has the folder server in the data directory, and the agent the others.\n\n" +
			"The defaults are those of `berth server` and `berth agent`: only the unix socket serves, clusters have\n" +
			"no permissions, no path of the machine is shared, and only containers with an image run. `berth dev`\n" +
			"permits more, because it is for trials.",
		Args: session.Arguments(0, 0, ""),
		RunE: s.run,
	}
	fs := cmd.Flags()
	fs.StringVar(&s.dataDir, "data-dir", datadir.DefaultDataDir(),
		"folder for all data of Berth (default "+datadir.DataDirText+")")
	fs.StringVar(&s.socket, "socket", datadir.DefaultSocket(),
		"unix socket to serve, for this user only (default "+datadir.SocketText+")")
	fs.StringVar(&s.http, "http", "",
		"loopback `ADDRESS` to serve HTTP on as well, such as "+datadir.DefaultHTTP+
			", for callers with a token; default none")
	fs.StringVar(&s.traces, "trace-endpoint", "", "`URL` for traces (OpenTelemetry over HTTP); default none")
	fs.StringVar(&s.level, "log-level", "info", "debug, info, warn or error")
	s.addStateFlags(fs)
	s.machine.addFlags(cmd)
	s.node.addFlags(cmd, false)
	s.node.egress.addFlags(cmd, devRequests)
	session.HideDefaults(cmd, "data-dir", "socket")
	return cmd
}

// check parses the flags. The error lists all faults.
func (s *standaloneCommand) check(cmd *cobra.Command) (err error) {
	var list session.Faults
	// a service manager may start the next process in another directory
	if s.dataDir, err = filepath.Abs(s.dataDir); err != nil {
		return err
	}
	s.DataDir = filepath.Join(s.dataDir, "server")
	if s.socket == "" {
		list.Add("--socket is empty: want the path of a unix socket")
	} else if s.socket, err = filepath.Abs(s.socket); err != nil {
		return err
	}
	checkTraces(&list, s.traces)
	s.checkState(&list)
	s.machine.check(&list)
	s.node.check(&list)
	if s.Log, err = datadir.NewLogger(cmd.ErrOrStderr(), s.level); err != nil {
		list.Add("--%v", err)
	}
	return list.Err(cmd)
}

func (s *standaloneCommand) run(cmd *cobra.Command, _ []string) error {
	if err := s.check(cmd); err != nil {
		return err
	}
	if err := s.makeFolders(); err != nil {
		return err
	}
	s.Listen = []string{"unix://" + s.socket}
	if s.http != "" {
		s.Listen = append(s.Listen, s.http)
	}
	s.Traces, s.Egress, s.Command, s.Values = s.traces, s.node.egress.parsed, "berth standalone", flagValues(cmd)
	own, err := client.New(client.Config{Addr: "unix://" + s.socket, Agent: "berth-host/" + version.String()})
	if err != nil {
		return err
	}
	defer own.Close()
	mover, err := handover.Open(handover.Config{Dir: s.dataDir, Node: s.machine.name, Own: own, Log: s.Log})
	if err != nil {
		return err
	}
	x := s.node.executors
	x.DataDir, x.Log, x.Notices = s.dataDir, s.Log, cmd.ErrOrStderr()
	executors, err := node.OpenExecutors(cmd.Context(), x)
	if err != nil {
		return err
	}
	c := node.Config{
		DataDir: filepath.Join(s.dataDir, "agent"), Servers: []string{"unix://" + s.socket}, Executors: executors,
		Traces: s.traces, Log: s.Log,
	}
	s.machine.configure(&c)
	s.node.configure(&c)
	p := single.Process{
		Open: func(ctx context.Context) (*server.Server, error) { return server.Open(ctx, s.Config) },
		Node: c, Handover: mover, Stdout: cmd.OutOrStdout(),
	}
	return p.Run(cmd.Context())
}

// makeFolders makes the folders of the data and of the socket.
func (s *standaloneCommand) makeFolders() error {
	// Programs of other users reach their own folders below the data directory, as with the Debian package.
	if err := os.MkdirAll(s.dataDir, 0o711); err != nil { //nolint:gosec // see above
		return fmt.Errorf("create the data directory: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(s.socket), 0o700); err != nil {
		return fmt.Errorf("create the folder of the socket: %w", err)
	}
	return nil
}
