// Package node runs an agent with its executors.
package node

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berthd/berth/internal/agent"
	"github.com/berthd/berth/internal/agent/artifact"
	"github.com/berthd/berth/internal/agent/devices"
	"github.com/berthd/berth/internal/agent/diskspace"
	"github.com/berthd/berth/internal/agent/machine"
	"github.com/berthd/berth/internal/agent/nameserver"
	"github.com/berthd/berth/internal/agent/network"
	"github.com/berthd/berth/internal/agent/secrets"
	"github.com/berthd/berth/internal/agent/usage"
	"github.com/berthd/berth/internal/agent/volumes"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/egress"
	"github.com/berthd/berth/internal/pki"
	"github.com/berthd/berth/internal/reverse"
	"github.com/berthd/berth/internal/telemetry"
	"github.com/berthd/berth/internal/transport"
	"github.com/berthd/berth/internal/version"
)

// Config is the configuration of an agent.
type Config struct {
	Name      string
	DataDir   string
	Servers   []string // addresses; none with an Acceptor
	Token     string
	Keeper    *pki.Keeper // of the node's certificate; nil without an https server
	Known     *ServerList // of the keeper; nil without one
	Executors *Executors
	Labels    cluster.Labels
	Address   string // overrides the address that the node finds
	Traces    string // URL for spans; "" for none
	// Thresholds of memory pressure in percent. 0 is the agent's default.
	PressureStall, PressureFree float64
	// Thresholds of the image cache in percent of the disk. 0 is the agent's default.
	ImageHigh, ImageLow float64
	// Finder finds devices. CPUs are all CPUs for tasks, if cores are offered.
	Finder devices.Finder
	CPUs   []int
	// The address of the metrics of tasks, "" for none, and the token that a reader needs.
	MetricsListen, MetricsToken string
	// Subnet has the addresses of tasks behind a bridge.
	Subnet netip.Prefix
	// Names configures the DNS server.
	Names nameserver.Config
	// SecretsDir is the in-memory folder for secrets; "" for the agent's choice.
	SecretsDir string
	// Folders of the node that tasks may use.
	HostVolumes []volumes.HostVolume
	HostPaths   []string
	// Egress restricts downloads of artifacts.
	Egress egress.Policy
	// ObjectStore has images and artifacts of tasks.
	ObjectStore artifact.ObjectStore
	// Discovery is where tasks are registered for other programs.
	Discovery Discovery
	// ReservedPorts are never given to tasks.
	ReservedPorts []int
	// Host configures the API of the node itself.
	Host HostAPI
	// Acceptor, unless nil, has the connections to the servers; the node opens none itself. The caller runs it.
	Acceptor *reverse.Acceptor

	Log *slog.Logger
}

// ServerList has the servers that an agent knows: the given ones, and the others that a server has named.
type ServerList struct {
	Given  []string
	client atomic.Pointer[transport.Client]
}

// All returns the addresses of the servers. It is safe for concurrent use.
func (l *ServerList) All() []string {
	if c := l.client.Load(); c != nil {
		return c.Servers()
	}
	return l.Given
}

// Run runs an agent until the context ends.
func Run(ctx context.Context, c Config) error {
	dial := transport.ClientConfig{Addresses: c.Servers, Token: c.Token}
	if c.Keeper != nil {
		dial.TLS = c.Keeper.ClientTLS()
	}
	if c.Acceptor != nil {
		dial.Dial = c.Acceptor.Dial
	}
	client, err := transport.NewClient(dial)
	if err != nil {
		return err
	}
	defer client.Close()
	if c.Known != nil {
		c.Known.client.Store(client)
	}
	tracer, err := telemetry.OpenTracer(ctx,
		telemetry.TracerConfig{Endpoint: c.Traces, Instance: c.Name, Version: version.String(), Log: c.Log})
	if err != nil {
		return err
	}
	defer func() {
		sending, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = tracer.Close(sending) // unsent spans do not matter
	}()
	metrics, err := openMetrics(ctx, c.MetricsListen, c.MetricsToken, c.Name, c.Log)
	if err != nil {
		return err
	}
	if metrics != nil {
		defer func() { _ = metrics.listener.Close() }()
	}
	driver, owner, err := c.Discovery.open(c.DataDir, c.Log)
	if err != nil {
		return err
	}
	config := agentConfig(&c)
	config.Source, config.Tracer = agent.FromClient(client), tracer
	config.Discovery, config.DiscoveryOwner = driver, owner
	if metrics != nil {
		config.Metrics, config.Measure.Samples = metrics.agent, metrics.tasks.Take
	}
	a, err := agent.New(config)
	if err != nil {
		return err
	}
	host, err := openHostAPI(ctx, &c, a)
	if err != nil {
		return err
	}
	return runParts(ctx, &c, a, client, metrics, host)
}

// agentConfig returns the part of the agent's configuration that needs no connection.
func agentConfig(c *Config) agent.Config {
	return agent.Config{
		Name:      c.Name,
		DataDir:   c.DataDir,
		Executors: c.Executors.list,
		Retired:   c.Executors.retired,
		Logger:    c.Log,

		Machine: machine.Config{
			Labels: c.Labels, Version: version.String(), Address: c.Address, ReservedPorts: c.ReservedPorts,
			Devices: c.Finder.Find,
			Networks: network.New(
				network.Config{Dir: filepath.Join(c.DataDir, "network"), Subnet: c.Subnet, Logger: c.Log}),
		},
		Measure: usage.Config{
			Pressure: usage.Thresholds{Stall: c.PressureStall, Free: c.PressureFree},
		},
		Volumes:   volumes.Config{Host: c.HostVolumes, Paths: c.HostPaths},
		Disks:     diskspace.Config{High: c.ImageHigh, Low: c.ImageLow},
		Artifacts: artifact.Config{Egress: c.Egress, ObjectStore: c.ObjectStore},
		CPUs:      c.CPUs,
		Names:     c.Names,
		Secrets:   secrets.Config{Dir: c.SecretsDir, Credentials: c.Executors.logins},
	}
}

// runParts runs the agent, and what is served beside it, until the context ends.
func runParts(ctx context.Context, c *Config, a *agent.Agent, client *transport.Client, metrics *nodeMetrics,
	host *hostAPI,
) error {
	group, within := errgroup.WithContext(ctx)
	group.Go(func() error { return a.Run(within) })
	if c.Acceptor != nil {
		group.Go(func() error { return learnServers(within, c.Acceptor, client) })
	}
	if host != nil {
		group.Go(func() error { return host.run(within) })
	}
	if metrics != nil {
		group.Go(func() error { return metrics.run(within) })
	}
	if c.Keeper != nil {
		group.Go(func() error { return c.Keeper.Run(within) })
	}
	err := group.Wait()
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// learnServers names the servers that have dialed the node to the client, until the context ends.
func learnServers(ctx context.Context, from *reverse.Acceptor, client *transport.Client) error {
	for {
		arrived := from.Arrived()
		client.Learn(from.Servers())
		select {
		case <-arrived:
		case <-ctx.Done():
			return nil
		}
	}
}
