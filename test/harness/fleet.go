package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store/consul/consultest"
	"github.com/berthd/berth/internal/testkit"
)

// joinLimit is how long a server may take from its start until it has its vote.
const joinLimit = time.Minute

// Host is a machine of a fleet: an address of its own, and how a command is run there.
type Host struct {
	Name    string
	Address string // an IP address
	// Prefix precedes each command, such as "ip netns exec NAME". It is empty for this machine itself.
	Prefix []string
}

// fleets counts the fleets of this process, for addresses of their own.
var fleets atomic.Int32

// Loopback returns n hosts: addresses of this machine's loopback that no other test uses.
func Loopback(n int) []Host {
	pid, fleet := os.Getpid(), int(fleets.Add(1))
	hosts := make([]Host, n)
	for i := range hosts {
		hosts[i] = Host{
			Name:    fmt.Sprintf("h%d", i+1),
			Address: fmt.Sprintf("127.%d.%d.%d", 32+pid/250%200, pid%250, 10*(fleet%24)+i+1),
		}
	}
	return hosts
}

// Fleet is servers with one store and agents that are connected to them over mutual TLS. Each has a data directory and
// a host of its own. When the test ends, the fleet ends its processes and fails the test if any are left, like a Site.
type Fleet struct {
	*Site
	Servers []*Server
	Agents  []*Agent
	// Flags are added to the command line of every server, and AgentFlags to the command line of every agent.
	Flags, AgentFlags []string
	// StoreHost is where a store runs that StoreVariable names: a host that all servers reach. The zero value is this
	// machine.
	StoreHost Host

	// consul is nil before the first server starts, and with a store of the servers. endStore ends it.
	consul   *consultest.Server
	endStore func()
}

// Server is one server of a fleet.
type Server struct {
	*Daemon // of its last start; nil before
	Host    Host
	Dir     string // its data directory
	Socket  string
	Token   string // the file with its join token; empty for the first server

	fleet   *Fleet
	removed bool // it is not started again
}

// Agent is the agent of one node of a fleet.
type Agent struct {
	*Daemon
	Host Host
	Name string
	Dir  string

	fleet *Fleet
	Token string // the file with its join token
}

// NewFleet returns a fleet in which nothing runs yet.
func NewFleet(tb testing.TB) *Fleet {
	tb.Helper()
	f := &Fleet{endStore: func() {}}
	_ = tb.TempDir() // a store has its data there, so it is removed after the store has ended
	tb.Cleanup(func() { f.endStore() })
	f.Site = New(tb, Process) // its cleanup needs the store
	f.fleet = f
	return f
}

// Start makes and starts a fleet of that many servers, and waits until all of them have a vote.
func (f *Fleet) Start(hosts ...Host) {
	f.tb.Helper()
	f.Init(hosts[0]).Start()
	for _, h := range hosts[1:] {
		f.Join(h).Start()
	}
	f.Voters(len(hosts))
}

// add notes a server that is about to be made.
func (f *Fleet) add(h Host) *Server {
	name := fmt.Sprintf("s%d", len(f.Servers)+1)
	dir := filepath.Join(f.Dir, name)
	s := &Server{Host: h, Dir: dir, Socket: filepath.Join(f.Dir, name+".sock"), fleet: f}
	f.Servers = append(f.Servers, s)
	return s
}

// name is the server's name.
func (s *Server) name() string { return filepath.Base(s.Dir) }

// URL returns the address that agents and people from elsewhere reach the server at.
func (s *Server) URL() string { return "https://" + s.Host.Address + ":7071" }

// Init makes the first server, without starting it.
func (f *Fleet) Init(h Host) *Server {
	f.tb.Helper()
	s := f.add(h)
	f.berthOn(h.Prefix, nil, "server", "init", "--data-dir", s.Dir, "--name", s.name(), "--advertise",
		h.Address).Want(f.tb, 0)
	return s
}

// Join makes another server with a join token of the fleet, without starting it.
func (f *Fleet) Join(h Host) *Server {
	f.tb.Helper()
	token := f.JoinToken("server")
	s := f.add(h)
	s.Token = token
	s.Rejoin(token).Want(f.tb, 0)
	return s
}

// Rejoin runs `berth server join` for the server with a token in a file.
func (s *Server) Rejoin(tokenFile string) Result {
	s.fleet.tb.Helper()
	args := []string{
		"server", "join", "--data-dir", s.Dir, "--name", s.name(), "--advertise", s.Host.Address,
		"--token-file", tokenFile,
	}
	for _, other := range s.fleet.Servers {
		if other != s && !other.removed {
			args = append(args, "--server", other.URL())
		}
	}
	return s.fleet.berthOn(s.Host.Prefix, nil, args...)
}

// JoinToken makes a join token and returns the file that holds it.
func (f *Fleet) JoinToken(role string, flags ...string) string {
	f.tb.Helper()
	r := f.Berth(append([]string{"token", "create", "--join", "--role", role}, flags...)...)
	r.Want(f.tb, 0)
	file, err := os.CreateTemp(f.Dir, "token-")
	if err == nil {
		_, err = file.WriteString(r.Stdout)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		f.tb.Fatal(err)
	}
	return file.Name()
}

// Start starts the server and waits until it serves.
func (s *Server) Start(flags ...string) *Server {
	s.fleet.tb.Helper()
	s.Begin(flags...)
	s.ready()
	return s
}

// Begin is Start without the waiting: servers that were all ended come back together only.
func (s *Server) Begin(flags ...string) *Server {
	s.fleet.tb.Helper()
	args := slices.Concat([]string{
		"server", "--data-dir", s.Dir, "--listen", "unix://" + s.Socket, "--listen", s.URL(),
		"--listen-peers", s.Host.Address + ":7072", "--log-level", logLevel(),
	}, s.fleet.ServerDefaults(), s.fleet.Flags, flags)
	args = append(args, s.fleet.storeFlags(args)...)
	s.Daemon = s.fleet.keep(s.fleet.startOn(s.Host.Prefix, args...))
	return s
}

// Ready waits until a server that was begun serves.
func (s *Server) Ready() *Server {
	s.fleet.tb.Helper()
	s.ready()
	return s
}

// Removed marks the server as removed from the fleet. The cleanup does not start it again.
func (s *Server) Removed() { s.removed = true }

// Client returns a client of only this server, through its socket.
func (s *Server) Client() *client.Client {
	s.fleet.tb.Helper()
	c, err := client.New(client.Config{Addr: "unix://" + s.Socket})
	if err != nil {
		s.fleet.tb.Fatal(err)
	}
	s.fleet.tb.Cleanup(c.Close)
	return c
}

// Berth runs a command against only this server.
func (s *Server) Berth(args ...string) Result {
	s.fleet.tb.Helper()
	return s.fleet.Berth(append([]string{"--addr", "unix://" + s.Socket}, args...)...)
}

// address is where commands find the fleet: every server's socket, which network faults do not touch.
func (f *Fleet) address() string {
	var all []string
	for _, s := range f.Servers {
		if !s.removed {
			all = append(all, "unix://"+s.Socket)
		}
	}
	if len(all) == 0 {
		return "unix://" + f.Site.Socket
	}
	return strings.Join(all, ",")
}

// URLs returns the addresses that agents are given.
func (f *Fleet) URLs() []string {
	var all []string
	for _, s := range f.Servers {
		if !s.removed {
			all = append(all, s.URL())
		}
	}
	return all
}

// HasExternalStore reports whether StoreVariable names a store for the servers that have started.
func (f *Fleet) HasExternalStore() bool { return f.consul != nil }

// Members returns the servers as one of them shows them.
func (f *Fleet) Members() ([]api.ServerView, error) {
	f.tb.Helper()
	page, err := f.Client().Servers(f.tb.Context(), client.ListOptions{})
	return page.Items, err
}

// Voters waits until that many servers are up and have a vote, and no other is there. Servers of a store that runs
// elsewhere have no votes.
func (f *Fleet) Voters(n int) {
	f.tb.Helper()
	f.Eventually(joinLimit, func() error {
		members, err := f.Members()
		if err != nil {
			return err
		}
		voters := 0
		for _, m := range members {
			votes := f.consul != nil || m.Engine != nil && !m.Engine.Learner && m.Engine.Healthy
			if votes && m.State == api.ServerUp {
				voters++
			}
		}
		if voters != n || len(members) != n {
			return fmt.Errorf("%d of %d servers have a vote, want %d: %+v", voters, len(members), n, members)
		}
		return nil
	})
}

// Leader waits until a living server leads the domain, and returns it.
func (f *Fleet) Leader() *Server {
	f.tb.Helper()
	var leader *Server
	f.Eventually(readyLimit, func() error {
		status, err := f.Client().Status(f.tb.Context())
		if err != nil {
			return err
		}
		if status.Leader == nil {
			return errors.New("no server leads")
		}
		for _, s := range f.Servers {
			if s.name() == status.Leader.Name && s.Daemon != nil && s.Alive() {
				leader = s
				return nil
			}
		}
		return fmt.Errorf("%q leads, which does not live", status.Leader.Name)
	})
	return leader
}

// Agent makes a node, starts its agent and waits until it is ready.
func (f *Fleet) Agent(h Host, flags ...string) *Agent {
	f.tb.Helper()
	name := fmt.Sprintf("n%d", len(f.Agents)+1)
	a := &Agent{
		Host: h, Name: name, Dir: filepath.Join(f.Dir, name), fleet: f,
		Token: f.JoinToken("node", "--for", name),
	}
	f.Agents = append(f.Agents, a)
	a.Begin(flags...)
	f.NodeIs(name, cluster.NodeReady)
	return a
}

// Begin starts the agent.
func (a *Agent) Begin(flags ...string) *Agent {
	a.fleet.tb.Helper()
	args := slices.Concat([]string{
		"agent", "--data-dir", a.Dir, "--name", a.Name, "--executor", a.fleet.Executor, "--join-token-file", a.Token,
		"--server", strings.Join(a.fleet.URLs(), ","), "--log-level", logLevel(),
	}, a.fleet.AgentDefaults(slices.Concat(a.fleet.AgentFlags, flags)...), a.fleet.AgentFlags, flags)
	a.Daemon = a.fleet.keep(a.fleet.startOn(a.Host.Prefix, args...))
	return a
}

// NodeIs waits until a node is in a state.
func (f *Fleet) NodeIs(name string, state cluster.NodeState) {
	f.tb.Helper()
	c := f.Client()
	f.Eventually(readyLimit, func() error {
		n, err := c.Node(f.tb.Context(), name)
		if err == nil && n.State != state {
			err = fmt.Errorf("the node %s is %s: %s", name, n.State, n.Reason)
		}
		return err
	})
}

func (f *Fleet) agentDirs() []string {
	var dirs []string
	for _, a := range f.Agents {
		dirs = append(dirs, a.Dir)
	}
	return dirs
}

// revive starts the processes that the test ended, so that the cleanup can delete all services and jobs.
func (f *Fleet) revive(ctx context.Context) error {
	for _, s := range f.Servers {
		if s.Daemon == nil || s.removed {
			continue
		}
		if !s.Alive() {
			s.Begin()
		}
	}
	for _, a := range f.Agents {
		if a.Daemon != nil && !a.Alive() {
			a.Begin()
		}
	}
	for _, s := range f.Servers {
		if s.Daemon == nil || s.removed {
			continue
		}
		err := testkit.Poll(ctx, func() error {
			if s.Alive() && !strings.Contains(s.Output(), "berth: ready at ") {
				return errors.New("it does not serve")
			}
			return nil
		})
		if err != nil || !s.Alive() {
			return fmt.Errorf("start %s once more: %w\n%s", s.name(), err, s.Output())
		}
	}
	return nil
}
