package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/berthd/berth/internal/agent"
	"github.com/berthd/berth/internal/agent/artifact"
	"github.com/berthd/berth/internal/agent/devices"
	"github.com/berthd/berth/internal/agent/network"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/egress"
	"github.com/berthd/berth/internal/pki"
	"github.com/berthd/berth/internal/telemetry"
	"github.com/berthd/berth/internal/transport"
	"github.com/berthd/berth/internal/version"
)

// nodeConfig is what an agent needs.
type nodeConfig struct {
	name      string
	dataDir   string
	servers   []string // addresses
	token     string
	keeper    *pki.Keeper // of the node's certificate; nil where no server is reached over https
	known     *serverList // the keeper's; nil like it
	executors *runners
	labels    cluster.Labels
	address   string // of the node, instead of the one that it finds
	traces    string // where spans are sent; "" is nowhere
	// When the node counts as short of memory, in percent: 0 is the agent's own default.
	pressureStall, pressureFree float64
	// How full the disk of the images may be, in percent: 0 is the agent's own default.
	imageHigh, imageLow float64
	// finder finds devices; cpus are all that tasks run on, where it offers cores.
	finder devices.Finder
	cpus   []int
	// Where the metrics of tasks are shown, "" for nowhere, and the token that they are shown for.
	metricsListen, metricsToken string
	// subnet is what the addresses of tasks are of that have a network of their own.
	subnet netip.Prefix
	// names says how questions for names are answered.
	names agent.NamesConfig
	// secretsDir is the folder in memory for secrets, "" for the agent's own choice.
	secretsDir string
	// What the node lends of its folders.
	hostVolumes []agent.HostVolume
	hostPaths   []string
	// egress is for the artifacts of tasks.
	egress egress.Policy
	// reservedPorts are never given to tasks.
	reservedPorts []int

	log *slog.Logger
}

// serverList is the servers that an agent knows: those that it was given, and once it talks to one of them all others.
type serverList struct {
	given  []string
	client atomic.Pointer[transport.Client]
}

func (l *serverList) all() []string {
	if c := l.client.Load(); c != nil {
		return c.Servers()
	}
	return l.given
}

// runNode runs an agent until the context ends.
func runNode(ctx context.Context, c nodeConfig) error {
	config := transport.ClientConfig{Addresses: c.servers, Token: c.token}
	if c.keeper != nil {
		config.TLS = c.keeper.ClientTLS()
	}
	client, err := transport.NewClient(config)
	if err != nil {
		return err
	}
	defer client.Close()
	if c.known != nil {
		c.known.client.Store(client)
	}
	tracer, err := telemetry.OpenTracer(ctx,
		telemetry.TracerConfig{Endpoint: c.traces, Instance: c.name, Version: version.String(), Log: c.log})
	if err != nil {
		return err
	}
	defer func() {
		sending, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = tracer.Close(sending) // spans that nobody takes are of no matter
	}()
	metrics, err := openMetrics(ctx, c.metricsListen, c.metricsToken, c.name, c.log)
	if err != nil {
		return err
	}
	var samples func([]telemetry.ContainerSample)
	if metrics != nil {
		samples = metrics.tasks.Take
		defer func() { _ = metrics.listener.Close() }()
	}
	a, err := agent.New(agent.Config{
		Samples:   samples,
		Name:      c.name,
		DataDir:   c.dataDir,
		Source:    agent.FromClient(client),
		Executors: c.executors.list,
		Retired:   c.executors.retired,

		Credentials: c.executors.logins,
		Logger:      c.log,
		Labels:      c.labels,
		Address:     c.address,
		Version:     version.String(),
		Tracer:      tracer,

		Devices: c.finder.Find,
		Networks: network.New(
			network.Config{Dir: filepath.Join(c.dataDir, "network"), Subnet: c.subnet, Logger: c.log}),
		Names:         c.names,
		CPUs:          c.cpus,
		SecretsDir:    c.secretsDir,
		HostVolumes:   c.hostVolumes,
		HostPaths:     c.hostPaths,
		Artifacts:     artifact.Config{Egress: c.egress},
		ReservedPorts: c.reservedPorts,
		PressureStall: c.pressureStall,
		PressureFree:  c.pressureFree,
		ImageHigh:     c.imageHigh,
		ImageLow:      c.imageLow,
	})
	if err != nil {
		return err
	}
	group, within := errgroup.WithContext(ctx)
	group.Go(func() error { return a.Run(within) })
	if metrics != nil {
		group.Go(func() error { return metrics.run(within) })
	}
	if c.keeper != nil {
		group.Go(func() error { return c.keeper.Run(within) })
	}
	err = group.Wait()
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// machineName returns the node's name where none is given: the machine's, in the form that names have.
func machineName() string {
	host, err := os.Hostname()
	if err != nil {
		return "node"
	}
	host = strings.ToLower(strings.ReplaceAll(host, "_", "-"))
	if !cluster.ValidNodeName(host) {
		return "node"
	}
	return host
}

// agentFlags are the flags of `berth agent`.
type agentFlags struct {
	servers              []string
	tokenFile, joinToken string
	dataDir, name, level string
	address, traces      string
	secretsDir           string
	labels               []string
	node                 nodeFlags
	log                  *slog.Logger
	parsedLabels         cluster.Labels
}

// pressureFlags say when a node counts as short of memory.
type pressureFlags struct{ stall, free float64 }

func (p *pressureFlags) flags(cmd *cobra.Command) {
	cmd.Flags().Float64Var(&p.stall, "pressure-stall", agent.DefaultPressureStall,
		"`PERCENT` of the time that tasks wait for memory from which on the node is short of it and gives a "+
			"task away, where the kernel tells")
	cmd.Flags().Float64Var(&p.free, "pressure-free", agent.DefaultPressureFree,
		"`PERCENT` of the memory that is free below which the node is short of it, where the kernel does "+
			"not tell how long tasks wait")
}

// check notes what is wrong with the flags: 0 would mean their defaults.
func (p *pressureFlags) check(list *faults) {
	for _, f := range []struct {
		name  string
		value float64
	}{{"stall", p.stall}, {"free", p.free}} {
		if !(f.value > 0 && f.value <= 100) { // also what is no number
			list.add("--pressure-%s %v: want a percentage above 0, 100 at the most", f.name, f.value)
		}
	}
}

func (f *agentFlags) flags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringSliceVar(&f.servers, "server", []string{"unix://" + defaultSocket()},
		"address of a server, https://host:port, unix:///path or http://host:port; several stand for each "+
			"other, and the others are learned from them (default "+socketText+")")
	fs.StringVar(&f.tokenFile, "token-file", "", "file with the token for a server on loopback HTTP")
	fs.StringVar(&f.joinToken, "join-token-file", "",
		"`FILE` with what `berth token create --join --role node` printed; needed until the node has its certificate")
	fs.StringVar(&f.dataDir, "data-dir", defaultDataDir(),
		"folder for the agent's state, logs and volumes (default "+dataDirText+")")
	fs.StringVar(&f.name, "name", machineName(), "name of the node (default the machine's)")
	fs.StringVar(&f.address, "address", "",
		"`IP` address that the node's ports are reached at; default the one that leads to the network")
	fs.StringArrayVar(&f.labels, "label", nil, "label of the node, key=value; may be given several times")
	fs.StringVar(&f.traces, "trace-endpoint", "",
		"`URL` that traces are sent to (OpenTelemetry over HTTP); default nowhere")
	fs.StringVar(&f.level, "log-level", "info", "debug, info, warn or error")
	fs.StringVar(&f.secretsDir, "secrets-dir", "",
		"`FOLDER` in memory (tmpfs) for the secrets of tasks; default one below /run, the user's run "+
			"directory or /dev/shm, whichever is in memory")
	f.node.flags(cmd, false)
	f.node.egress.flags(cmd)
	ofMachine(cmd, "server", "data-dir", "name")
}

// check reads what is made of the flags, and returns all that is wrong at once.
func (f *agentFlags) check(cmd *cobra.Command) (err error) {
	var list faults
	if !cluster.ValidNodeName(f.name) {
		list.add("--name %q: want lower-case letters, digits, \"-\" and \".\"", f.name)
	}
	f.servers = splitList(f.servers)
	if len(f.servers) == 0 {
		list.add("--server is empty: want the address of a server")
	}
	for _, s := range f.servers {
		if host, ok := strings.CutPrefix(s, "https://"); ok {
			_, err := hostPort(strings.TrimSuffix(host, "/"), portAPI)
			list.check("--server", err)
		} else if !strings.HasPrefix(s, "http://") && !strings.HasPrefix(s, "unix://") {
			list.add("--server %q: want https://host:port, unix:///path or http://host:port", s)
		}
	}
	if f.address != "" && net.ParseIP(f.address) == nil {
		list.add("--address %q: want an IP address", f.address)
	}
	checkTraces(&list, f.traces)
	if f.parsedLabels, err = parseLabels(f.labels); err != nil {
		list.add("--label %v", err)
	}
	f.node.check(&list)
	if f.log, err = newLogger(cmd.ErrOrStderr(), f.level); err != nil {
		list.add("--%v", err)
	}
	return list.err(cmd)
}

// newAgentCommand returns `berth agent`.
func (a *app) newAgentCommand() *cobra.Command {
	var f agentFlags
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run the agent of this machine",
		Long: "Runs the agent of this machine: it connects to a server, runs the tasks that are placed here " +
			"and reports on them.\n" +
			"Ending it ends no task; the next agent with the same data directory finds them.\n\n" +
			"Servers on other machines are reached over https. The first start trades the join token for " +
			"the node's certificate, which renews\n" +
			"itself from then on; later starts need no token.",
		Args: arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(cmd); err != nil {
				return err
			}
			c, err := f.config(cmd.Context())
			if err != nil {
				return err
			}
			x := f.node.executors
			x.dataDir, x.log, x.say = f.dataDir, f.log, cmd.ErrOrStderr()
			if c.executors, err = openExecutors(cmd.Context(), x); err != nil {
				return err
			}
			err = runNode(cmd.Context(), c)
			if c.executors.idle(cmd.Context()) {
				err = errors.Join(err, c.executors.stopAll(cmd.Context()))
			}
			return errors.Join(err, c.executors.close())
		},
	}
	f.flags(cmd)
	return cmd
}

// config makes the agent's configuration, all but the executors; it joins where the node has to.
func (f *agentFlags) config(ctx context.Context) (c nodeConfig, err error) {
	if f.dataDir, err = filepath.Abs(f.dataDir); err != nil { // supervisors have a folder of their own
		return c, err
	}
	c = nodeConfig{
		name: f.name, dataDir: filepath.Join(f.dataDir, "agent"), servers: f.servers, labels: f.parsedLabels,
		address: f.address, traces: f.traces, log: f.log,
		secretsDir: f.secretsDir,
	}
	f.node.configure(&c)
	if f.tokenFile != "" {
		if c.token, err = readSecret("the token file", f.tokenFile); err != nil {
			return c, err
		}
	}
	known := &serverList{given: f.servers}
	if c.keeper, err = f.identity(ctx, filepath.Join(c.dataDir, pkiDir), known.all); c.keeper != nil {
		c.known = known
	}
	return c, err
}

// identity returns the keeper of the node's certificate, which it joins for where there is none, or where it has
// expired and there is a token. It is renewed at any of the known servers. Without a server that is reached over https
// it returns nil.
func (f *agentFlags) identity(ctx context.Context, dir string, known func() []string) (*pki.Keeper, error) {
	if !slices.ContainsFunc(f.servers, func(s string) bool { return strings.HasPrefix(s, "https://") }) {
		return nil, nil //nolint:nilnil // no certificate is needed
	}
	open := func() (*pki.Keeper, error) {
		var k *pki.Keeper
		var err error
		k, err = pki.OpenKeeper(pki.KeeperConfig{
			Dir: dir, Log: f.log,
			Renew: renewAt(func() *tls.Config { return k.ClientTLS() }, known),
		})
		return k, err
	}
	self := pki.Subject{Role: cluster.RoleNode, Name: f.name}
	keeper, err := open()
	switch {
	case errors.Is(err, fs.ErrNotExist) && f.joinToken == "":
		return nil, &hintedError{
			errors.New("a server that is reached over https wants this node's certificate, and there is none yet"),
			"Join once with --join-token-file FILE; `berth token create --join --role node` on a server " +
				"makes the token.",
		}
	case errors.Is(err, fs.ErrNotExist):
		return f.joinNode(ctx, dir, self, open)
	case err != nil:
		return nil, err
	case keeper.Subject() != self:
		return nil, &hintedError{
			fmt.Errorf("the certificate in %s is that of the %s, not of the node %s", dir, keeper.Subject(), f.name),
			"Start with --name " + keeper.Subject().Name + ", or use another data directory for another node.",
		}
	}
	health := keeper.Health()
	if !errors.Is(health, pki.ErrExpired) {
		return keeper, nil
	}
	// The tasks of the node need the agent, with or without servers, so it goes on whatever becomes of this. A
	// certificate that somebody puts into the folder later is taken.
	if f.joinToken != "" {
		joined, err := f.joinNode(ctx, dir, self, open)
		if err == nil {
			return joined, nil
		}
		health = fmt.Errorf("%w; joining anew did not work: %w", health, err)
	}
	f.log.Error("this node cannot reach the servers any more", "error", health,
		"remedy", "start once with --join-token-file and a new token from `berth token create --join --role node`")
	return keeper, nil
}

// joinNode trades the token for a certificate.
func (f *agentFlags) joinNode(ctx context.Context, dir string, self pki.Subject,
	open func() (*pki.Keeper, error),
) (*pki.Keeper, error) {
	token, err := readSecret("--join-token-file", f.joinToken)
	if err != nil {
		return nil, err
	}
	j := joiner{dir: dir, self: self, servers: f.servers, token: token}
	if _, err := j.join(ctx); err != nil {
		return nil, joinProblem(err, cluster.RoleNode)
	}
	f.log.Info("joined", "node", self.Name)
	keeper, err := open()
	return keeper, errors.Join(err, j.done())
}

func parseLabels(list []string) (cluster.Labels, error) {
	labels := cluster.Labels{}
	for _, l := range list {
		k, v, ok := strings.Cut(l, "=")
		if !ok || k == "" {
			return nil, fmt.Errorf("%q: want key=value", l)
		}
		labels[k] = v
	}
	return labels, nil
}
