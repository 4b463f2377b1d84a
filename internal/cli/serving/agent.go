package serving

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/hinted"
	"github.com/berthd/berth/internal/pki"
	"github.com/berthd/berth/internal/reverse"
	"github.com/berthd/berth/internal/serve/datadir"
	"github.com/berthd/berth/internal/serve/handover"
	"github.com/berthd/berth/internal/serve/join"
	"github.com/berthd/berth/internal/serve/node"
)

// agentFlags are the flags of `berth agent`.
type agentFlags struct {
	servers              []string
	tokenFile, joinToken string
	dataDir, level       string
	traces, listen       string
	machine              machineFlags
	node                 nodeFlags
	log                  *slog.Logger
	// acceptor has the connections that servers open; nil unless the node is a passive one.
	acceptor *reverse.Acceptor
}

func (f *agentFlags) addFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringSliceVar(&f.servers, "server", []string{"unix://" + datadir.DefaultSocket()},
		"address of a server, https://host:port, unix:///path or http://host:port; several "+
			"are tried in turn, and the agent learns the other servers from them (default "+datadir.SocketText+")")
	fs.StringVar(&f.listen, "listen-for-servers", "",
		"`HOST:PORT` where servers dial this agent, for a passive node, which opens no connection to them (see 'berth "+
			"node dial'); it takes the place of --server")
	fs.StringVar(&f.tokenFile, "token-file", "", "file with the token for a server on loopback HTTP")
	fs.StringVar(&f.joinToken, "join-token-file", "",
		"`FILE` with the output of `berth token create --join --role node`; needed until the "+
			"node has its certificate")
	fs.StringVar(&f.dataDir, "data-dir", datadir.DefaultDataDir(),
		"folder for the agent's state, logs and volumes (default "+datadir.DataDirText+")")
	fs.StringVar(&f.traces, "trace-endpoint", "",
		"`URL` for traces (OpenTelemetry over HTTP); default none")
	fs.StringVar(&f.level, "log-level", "info", "debug, info, warn or error")
	f.machine.addFlags(cmd)
	f.node.addFlags(cmd, false)
	f.node.egress.addFlags(cmd, agentRequests)
	session.HideDefaults(cmd, "server", "data-dir")
}

// check parses the flags. The error lists all faults.
func (f *agentFlags) check(cmd *cobra.Command) (err error) {
	var list session.Faults
	f.machine.check(&list)
	f.servers = session.SplitList(f.servers)
	switch {
	case f.listen != "" && cmd.Flags().Changed("server"):
		list.Add("--listen-for-servers and --server exclude each other: the servers dial a passive node")
	case f.listen != "":
		if _, _, err := net.SplitHostPort(f.listen); err != nil {
			list.Add("--listen-for-servers %q: want HOST:PORT, such as 0.0.0.0:%d", f.listen, cluster.PassivePort)
		}
		f.servers = nil
	case len(f.servers) == 0:
		list.Add("--server is empty: want the address of a server")
	}
	for _, s := range f.servers {
		if host, ok := strings.CutPrefix(s, "https://"); ok {
			_, err := session.ParseHostPort(strings.TrimSuffix(host, "/"), datadir.PortAPI)
			list.AddError("--server", err)
		} else if !strings.HasPrefix(s, "http://") && !strings.HasPrefix(s, "unix://") {
			list.Add("--server %q: want https://host:port, unix:///path or http://host:port", s)
		}
	}
	checkTraces(&list, f.traces)
	f.node.check(&list)
	if f.log, err = datadir.NewLogger(cmd.ErrOrStderr(), f.level); err != nil {
		list.Add("--%v", err)
	}
	return list.Err(cmd)
}

// NewAgentCommand returns `berth agent`.
func NewAgentCommand(sess *session.Session) *cobra.Command {
	f := &agentFlags{}
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run the agent of this machine",
		Long: "Runs the agent of this machine. The agent connects to a server, runs the tasks that are placed here\n" +
			"and reports their state. Tasks continue when the agent ends: the next agent with the same data\n" +
			"directory finds them.\n\n" +
			"The agent reaches servers on other machines over https. At the first start it trades the join token\n" +
			"for the node's certificate. The agent renews the certificate, so later starts need no token.",
		Args: session.Arguments(0, 0, ""),
		RunE: f.run,
	}
	f.addFlags(cmd)
	return cmd
}

func (f *agentFlags) run(cmd *cobra.Command, _ []string) error {
	if err := f.check(cmd); err != nil {
		return err
	}
	end, err := f.listenForServers(cmd.Context())
	if err != nil {
		return err
	}
	defer end()
	c, err := f.buildConfig(cmd.Context())
	if err != nil {
		return err
	}
	if err := handover.BeginAgent(f.dataDir, f.log); err != nil {
		return err
	}
	x := f.node.executors
	x.DataDir, x.Log, x.Notices = f.dataDir, f.log, cmd.ErrOrStderr()
	if c.Executors, err = node.OpenExecutors(cmd.Context(), x); err != nil {
		return err
	}
	err = node.Run(cmd.Context(), c)
	if c.Executors.Idle(cmd.Context()) {
		err = errors.Join(err, c.Executors.StopAll(cmd.Context()))
	}
	return errors.Join(err, c.Executors.Close())
}

// buildConfig returns the agent's configuration without the executors. It joins the control plane if the node has no
// certificate.
func (f *agentFlags) buildConfig(ctx context.Context) (c node.Config, err error) {
	// a supervisor may start the next agent in another directory
	if f.dataDir, err = filepath.Abs(f.dataDir); err != nil {
		return c, err
	}
	c = node.Config{
		DataDir: filepath.Join(f.dataDir, "agent"), Servers: f.servers, Traces: f.traces, Log: f.log,
		Acceptor: f.acceptor,
	}
	f.machine.configure(&c)
	f.node.configure(&c)
	if f.tokenFile != "" {
		if c.Token, err = datadir.ReadSecret("the token file", f.tokenFile); err != nil {
			return c, err
		}
	}
	known := &node.ServerList{Given: f.servers}
	c.Keeper, err = f.openKeeper(ctx, filepath.Join(c.DataDir, datadir.PKIDir), known.All)
	if c.Keeper != nil {
		c.Known = known
	}
	return c, err
}

// openKeeper returns the keeper of the node's certificate, which renews it at any known server. If the certificate is
// missing, or has expired and there is a token, the node joins. Without an https server it returns nil.
func (f *agentFlags) openKeeper(ctx context.Context, dir string, known func() []string) (*pki.Keeper, error) {
	dial := f.dialer()
	isSecure := func(server string) bool { return strings.HasPrefix(server, "https://") }
	if f.acceptor == nil && !slices.ContainsFunc(f.servers, isSecure) {
		return nil, nil //nolint:nilnil // no certificate is needed
	}
	open := func() (*pki.Keeper, error) {
		var k *pki.Keeper
		var err error
		k, err = pki.OpenKeeper(pki.KeeperConfig{
			Dir: dir, Log: f.log,
			Renew: join.RenewAt(func() *tls.Config { return k.ClientTLS() }, dial, known),
		})
		return k, err
	}
	self := pki.Subject{Role: cluster.RoleNode, Name: f.machine.name}
	keeper, err := open()
	switch {
	case errors.Is(err, fs.ErrNotExist) && f.joinToken == "":
		return nil, &hinted.Error{
			Err: errors.New("a server that is reached over https requires this node's certificate, and the node " +
				"has none yet"),
			Hint: "Join once with --join-token-file FILE. Create the token on a server: `berth token " +
				"create --join --role node`.",
		}
	case errors.Is(err, fs.ErrNotExist):
		return f.joinNode(ctx, dir, self, open)
	case err != nil:
		return nil, err
	case keeper.Subject() != self:
		return nil, &hinted.Error{
			Err: fmt.Errorf("the certificate in %s belongs to the %s, not to the node %s", dir, keeper.Subject(),
				f.machine.name),
			Hint: "Start with --name " + keeper.Subject().Name + ", or use another data directory for another node.",
		}
	}
	health := keeper.Health()
	if !errors.Is(health, pki.ErrExpired) {
		return keeper, nil
	}
	// The tasks of the node need the agent even without servers, so a failed join does not end it. The keeper uses a
	// certificate that is installed later.
	if f.joinToken != "" {
		joined, err := f.joinNode(ctx, dir, self, open)
		if err == nil {
			return joined, nil
		}
		health = fmt.Errorf("%w; joining again failed: %w", health, err)
	}
	f.log.Error("the servers do not accept this node any more", "error", health,
		"remedy", "start once with --join-token-file and a new token from `berth token create --join --role node`")
	return keeper, nil
}

// joinNode trades the join token for a certificate. On a passive node it waits for a server.
func (f *agentFlags) joinNode(ctx context.Context, dir string, self pki.Subject,
	open func() (*pki.Keeper, error),
) (*pki.Keeper, error) {
	token, err := datadir.ReadSecret("--join-token-file", f.joinToken)
	if err != nil {
		return nil, err
	}
	j := join.Joiner{Dir: dir, Self: self, Servers: f.servers, Token: token, Dial: f.dialer()}
	if f.acceptor != nil {
		f.log.Info("the node joins as soon as a server dials it", "at", f.acceptor.Addr().String())
		if j.Servers, err = f.acceptor.WaitForServer(ctx); err != nil {
			return nil, err
		}
	}
	if _, err := j.Join(ctx); err != nil {
		return nil, join.AddHint(err, cluster.RoleNode)
	}
	f.log.Info("joined", "node", self.Name)
	keeper, err := open()
	return keeper, errors.Join(err, j.Done())
}
