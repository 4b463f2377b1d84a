// Package serving implements the commands that run servers and agents: dev, standalone, server and agent.
package serving

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/berthd/berth/internal/backup"
	"github.com/berthd/berth/internal/cli/operator"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cli/storeflags"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/serve/datadir"
	"github.com/berthd/berth/internal/serve/server"
)

// serverFlags are the flags of `berth server`.
type serverFlags struct {
	stateFlags
	store          storeflags.Flags
	level, profile string
	egress         egressFlags
}

func (f *serverFlags) addFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.DataDir, "data-dir", datadir.DefaultDataDir(),
		"folder for the store, the token, the certificates and the server's id (default "+datadir.DataDirText+")")
	fs.StringArrayVar(&f.Listen, "listen", []string{"unix://" + datadir.DefaultSocket(), datadir.DefaultHTTP},
		"address to serve, unix:///path, a loopback host:port, or https://host:port; may be given several times "+
			"(default "+datadir.SocketText+" and http://"+datadir.DefaultHTTP+
			fmt.Sprintf("; a server for other machines also serves https://0.0.0.0:%d unless an https address is "+
				"given)", datadir.PortAPI))
	fs.StringVar(&f.ListenPeers, "listen-peers", "",
		"`HOST:PORT` to serve the other members of the store on; default the advertised port "+
			"on all interfaces")
	f.store.AddTo(fs)
	f.addStateFlags(fs)
	fs.StringVar(&f.Traces, "trace-endpoint", "",
		"`URL` for traces (OpenTelemetry over HTTP), such as http://127.0.0.1:4318; default none")
	f.egress.addFlags(cmd, serverRequests)
	fs.IntVar(&f.MaxWaiters, "max-waiters", 1024,
		"how many requests may wait for changes concurrently (streams of lists and events, and lists with ?wait); "+
			"further ones are answered with 429")
	fs.IntVar(&f.MaxClientWaiters, "max-client-waiters", 256,
		"how many such requests one token, or one user of the unix socket, may have")
	fs.StringArrayVar(&f.Machines.Identities, "ssh-identity", nil, "`FILE` with a private key for passive nodes that "+
		"are dialed over SSH; may be given several times")
	fs.StringArrayVar(&f.Machines.KnownHosts, "ssh-known-hosts", nil, "`FILE` with the keys of these machines; may be "+
		"given several times; default ~/.ssh/known_hosts and /etc/ssh/ssh_known_hosts")
	fs.StringVar(&f.level, "log-level", "info", "debug, info, warn or error")
	fs.StringVar(&f.profile, "cpu-profile", "", "file to write a CPU profile to, until the server ends")
	fs.DurationVar(&f.CertificateLife, "certificate-life", 0,
		"lifetime of certificates that this server signs; for tests")
	_ = fs.MarkHidden("certificate-life") // the flag is defined above
	session.HideDefaults(cmd, "data-dir", "listen")
}

// check parses the flags. The error lists all faults.
func (f *serverFlags) check(cmd *cobra.Command) error {
	var list session.Faults
	f.store.Check(&list)
	f.Store = f.store.Location
	f.checkState(&list)
	if f.MaxWaiters < 1 {
		list.Add("--max-waiters %d: want at least 1", f.MaxWaiters)
	}
	if f.MaxClientWaiters < 1 {
		list.Add("--max-client-waiters %d: want at least 1", f.MaxClientWaiters)
	}
	checkTraces(&list, f.Traces)
	f.egress.check(&list)
	f.Egress = f.egress.parsed
	if f.ListenPeers != "" {
		list.AddError("--listen-peers", checkListenAddress(f.ListenPeers))
	}
	if len(f.Listen) == 0 {
		list.Add("--listen is empty: want at least one address")
	}
	var err error
	if f.Log, err = datadir.NewLogger(cmd.ErrOrStderr(), f.level); err != nil {
		list.Add("--%v", err)
	}
	f.Values = flagValues(cmd)
	return list.Err(cmd)
}

// flagValues returns the settings of a server for operators: the names of files, never their content.
func flagValues(cmd *cobra.Command) map[string]string {
	values := map[string]string{}
	cmd.LocalNonPersistentFlags().VisitAll(func(flag *pflag.Flag) {
		if flag.Name != "help" && !flag.Hidden {
			values[flag.Name] = flag.Value.String()
		}
	})
	return values
}

// stateFlags say what the leader keeps of the state, and what new clusters permit. `berth server` and
// `berth standalone` share them.
type stateFlags struct {
	server.Config
	permissionsText string // the value of --default-permissions
}

func (f *stateFlags) addStateFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&f.Snapshots.Every, "snapshot-every", time.Hour, "how often the server saves a snapshot of "+
		"the store; 0 for never")
	fs.IntVar(&f.Snapshots.Keep, "snapshot-keep", 24, "how many of these snapshots to keep")
	fs.StringVar(&f.Snapshots.Dir, "snapshot-dir", "", "folder for these snapshots; default snapshots in the "+
		"data directory")
	fs.DurationVar(&f.KeepDefinitions, "definition-keep", 0, "how long the leader keeps versions of task definitions "+
		"that nothing names, such as 2160h; 0 for ever. The leader's own value counts: give all servers the same")
	fs.StringVar(&f.permissionsText, "default-permissions", "",
		"default `PERMISSIONS` of new clusters: all, or some separated by commas; default none")
}

// checkState parses the flags and adds their faults to list. The data directory must be set.
func (f *stateFlags) checkState(list *session.Faults) {
	if f.Snapshots.Every < 0 || f.Snapshots.Every > 0 && f.Snapshots.Every < backup.LeastEvery {
		list.Add("--snapshot-every %v: want at least %v, or 0 for never", f.Snapshots.Every, backup.LeastEvery)
	}
	if f.Snapshots.Keep < 1 {
		list.Add("--snapshot-keep %d: want at least 1", f.Snapshots.Keep)
	}
	if f.KeepDefinitions < 0 || f.KeepDefinitions > 0 && f.KeepDefinitions < time.Hour {
		list.Add("--definition-keep %v: want at least 1h, or 0 for ever", f.KeepDefinitions)
	}
	if f.Snapshots.Dir == "" {
		f.Snapshots.Dir = filepath.Join(f.DataDir, "snapshots")
	}
	var err error
	f.Permissions, err = cluster.ParsePermissions(f.permissionsText)
	list.AddError("--default-permissions", err)
}

// checkTraces adds a fault to list unless the endpoint is a URL.
func checkTraces(list *session.Faults, endpoint string) {
	if u, err := url.Parse(endpoint); endpoint != "" &&
		(err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		list.Add("--trace-endpoint %q: want http://host:port or https://host:port", endpoint)
	}
}

// NewServerCommand returns `berth server`.
func NewServerCommand(sess *session.Session) *cobra.Command {
	f := &serverFlags{}
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Run a control plane: store, decisions and API",
		Long: "Runs a control plane: the store, the decisions and the API. Agents on this machine connect to one of\n" +
			"its addresses.\n\n" +
			"By default the server listens only on unix sockets and loopback addresses, for this machine.\n" +
			"Loopback addresses require the token in <data-dir>/token.\n\n" +
			"A data directory from `berth server init` or `berth server join` makes a server for other machines.\n" +
			"It uses https with mutual TLS and shares the store with the other servers.",
		Args: session.Arguments(0, 0, ""),
		RunE: f.run,
	}
	f.addFlags(cmd)
	cmd.AddCommand(newServerInitCommand(sess), newServerJoinCommand(sess), newServerMembersCommand(sess),
		newServerPromoteCommand(sess),
		newServerRemoveCommand(sess), operator.NewServerRecoverCommand(sess))
	return cmd
}

func (f *serverFlags) run(cmd *cobra.Command, _ []string) error {
	if err := f.check(cmd); err != nil {
		return err
	}
	if !cmd.Flags().Changed("listen") {
		if err := os.MkdirAll(filepath.Dir(datadir.DefaultSocket()), 0o700); err != nil {
			return fmt.Errorf("create the folder of the socket: %w", err)
		}
	}
	stop, err := server.ProfileCPU(f.profile)
	if err != nil {
		return err
	}
	defer stop()
	s, err := server.Open(cmd.Context(), f.Config)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(cmd.Context())
	group.Go(func() error { return s.Run(ctx) })
	group.Go(func() error {
		if err := s.WaitReady(ctx); err != nil {
			return nil //nolint:nilerr // Run reports why the server ended
		}
		fmt.Fprintf(cmd.OutOrStdout(), "berth: ready at %s\n", server.PreferredURL(s.Listeners))
		return nil
	})
	return group.Wait()
}
