// Package consultest starts, for tests, real servers of Consul on loopback, as an operator would run them for Berth.
package consultest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/consul/api"

	"github.com/berthd/berth/internal/store/remote/remotetest"
	"github.com/berthd/berth/internal/testkit"
)

// Program returns the path of Consul, which is also its command line, and skips the test without it.
func Program(tb testing.TB) string {
	tb.Helper()
	return testkit.NeedServer(tb, "consul")
}

// Server is one server of Consul.
type Server struct {
	tb      testing.TB
	path    string
	dir     string
	prefix  []string
	running *exec.Cmd
	ended   chan struct{}
	// Address is the host:port of its API, RPC that for other servers, and DNS that for DNS queries, which is empty
	// without Options.DNS.
	Address, RPC, DNS string
	// Token is the management token, "" without ACLs.
	Token string
	// Authority signs the server's certificate, and Cert and Key are of a client; without TLS they are empty.
	Authority *remotetest.Authority
	Cert, Key string
}

// Options configure Start.
type Options struct {
	// ACLs says that the servers require tokens, and TLS that they speak https and require client certificates.
	ACLs, TLS bool
	// DNS says that the servers answer DNS queries.
	DNS bool
	// Dir returns a folder for the data of a server; nil means one of the test.
	Dir func() string
	// Host is the address that the servers listen on; "" means 127.0.0.1. Prefix precedes their command line, such as
	// "ip netns exec NAME" for a host that the test itself does not reach.
	Host   string
	Prefix []string
	// Cleanup registers what ends a server; nil means that of the test.
	Cleanup func(end func())
	// Config is added to the configuration of each server.
	Config map[string]any
}

// Start starts servers of one datacenter, and returns once they have a leader. They end with the test.
func Start(tb testing.TB, count int, options Options) []*Server {
	tb.Helper()
	path := Program(tb)
	token := ""
	if options.ACLs {
		token = uuid.NewString()
	}
	host := cmp.Or(options.Host, "127.0.0.1")
	free := func() string {
		_, number, _ := net.SplitHostPort(testkit.FreeAddress(tb))
		return net.JoinHostPort(host, number)
	}
	servers, serf := make([]*Server, count), make([]string, count)
	for i := range serf {
		serf[i] = free()
	}
	for i := range servers {
		s := &Server{
			tb: tb, path: path, Address: free(), RPC: free(), Token: token, dir: tb.TempDir(),
			prefix: options.Prefix,
		}
		data := filepath.Join(s.dir, "data")
		if options.Dir != nil {
			data = options.Dir()
		}
		ports := map[string]any{
			"http": port(tb, s.Address), "server": port(tb, s.RPC), "serf_lan": port(tb, serf[i]),
			"serf_wan": -1, "dns": -1, "grpc": -1, "grpc_tls": -1, "https": -1,
		}
		if options.DNS {
			s.DNS = free()
			ports["dns"] = port(tb, s.DNS)
		}
		config := map[string]any{
			"node_name": fmt.Sprintf("consul%d", i+1), "server": true, "bootstrap_expect": count, "data_dir": data,
			"bind_addr": host, "client_addr": host, "log_level": "warn", "retry_join": serf,
			"retry_interval": "200ms", "disable_update_check": true, "disable_remote_exec": true,
			"leave_on_terminate": false, "connect": map[string]any{"enabled": false},
			"ui_config":   map[string]any{"enabled": false},
			"performance": map[string]any{"raft_multiplier": 1},
			"ports":       ports,
		}
		if options.ACLs {
			config["acl"] = map[string]any{
				"enabled": true, "default_policy": "deny",
				"tokens": map[string]any{"initial_management": token, "agent": token},
			}
		}
		if options.TLS {
			s.secure(config)
		}
		maps.Copy(config, options.Config)
		s.writeConfig("consul.json", config)
		s.writeConfig(addedConfig, map[string]any{})
		servers[i] = s
		s.Start()
		if options.Cleanup != nil {
			options.Cleanup(s.Kill)
		} else {
			tb.Cleanup(s.Kill)
		}
	}
	for _, s := range servers {
		s.AwaitLeader()
	}
	return servers
}

// writeConfig writes a configuration file.
func (s *Server) writeConfig(name string, config map[string]any) {
	s.tb.Helper()
	content, err := json.Marshal(config)
	if err != nil {
		s.tb.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, name), content, 0o600); err != nil {
		s.tb.Fatal(err)
	}
}

// Configure replaces what an earlier call added to the configuration of a running server. Consul applies some settings
// only when it starts.
func (s *Server) Configure(added map[string]any) {
	s.tb.Helper()
	if added == nil {
		added = map[string]any{}
	}
	s.writeConfig(addedConfig, added)
	if err := s.running.Process.Signal(syscall.SIGHUP); err != nil {
		s.tb.Fatal(err)
	}
}

// addedConfig is the configuration file of Configure. It has precedence.
const addedConfig = "added.json"

// secure adds TLS to a configuration.
func (s *Server) secure(config map[string]any) {
	s.Authority = remotetest.NewAuthority(s.tb)
	s.Cert, s.Key = s.Authority.Sign("client", 12*time.Hour)
	cert, key := s.Authority.Sign("server", 12*time.Hour)
	config["tls"] = map[string]any{"https": map[string]any{
		"ca_file": s.Authority.CA(), "cert_file": cert, "key_file": key, "verify_incoming": true,
	}}
	if ports, ok := config["ports"].(map[string]any); ok {
		ports["https"], ports["http"] = ports["http"], -1
	}
}

// URL is the address of the server's API.
func (s *Server) URL() string {
	if s.Authority != nil {
		return "https://" + s.Address
	}
	return "http://" + s.Address
}

func port(tb testing.TB, address string) int {
	tb.Helper()
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		tb.Fatal(err)
	}
	number, err := strconv.Atoi(text)
	if err != nil {
		tb.Fatal(err)
	}
	return number
}

// Start starts the program of a server that does not run.
func (s *Server) Start() {
	s.tb.Helper()
	log, err := os.OpenFile(s.Log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.tb.Fatal(err)
	}
	defer log.Close()
	s.running = s.command(context.WithoutCancel(s.tb.Context()), "agent",
		"-config-file", filepath.Join(s.dir, "consul.json"), "-config-file", filepath.Join(s.dir, addedConfig))
	s.running.Stdout, s.running.Stderr = log, log
	if err := s.running.Start(); err != nil {
		s.tb.Fatal(err)
	}
	ended := make(chan struct{})
	s.ended = ended
	go func(c *exec.Cmd) {
		_ = c.Wait() // ended by Kill
		close(ended)
	}(s.running)
}

// command is a command of Consul on the host of the server.
func (s *Server) command(ctx context.Context, args ...string) *exec.Cmd {
	line := slices.Concat(s.prefix, []string{s.path}, args)
	return exec.CommandContext(ctx, line[0], line[1:]...)
}

// Log is the file with the output of the server.
func (s *Server) Log() string { return filepath.Join(s.dir, "consul.log") }

// Kill ends the program with SIGKILL. Its data stay.
func (s *Server) Kill() {
	if s.running != nil {
		_ = s.running.Process.Kill() // it may have ended
		<-s.ended
		s.running = nil
	}
}

// Stop halts the program until Continue: it answers nothing, as a server that is cut off, and its connections stay.
func (s *Server) Stop() {
	s.tb.Helper()
	if err := s.running.Process.Signal(syscall.SIGSTOP); err != nil {
		s.tb.Fatal(err)
	}
}

// Continue ends Stop.
func (s *Server) Continue() {
	s.tb.Helper()
	if err := s.running.Process.Signal(syscall.SIGCONT); err != nil {
		s.tb.Fatal(err)
	}
}

// Client returns a client with the management token.
func (s *Server) Client() *api.Client {
	s.tb.Helper()
	config := &api.Config{Address: s.URL(), Token: s.Token}
	if s.Authority != nil {
		config.TLSConfig = api.TLSConfig{CAFile: s.Authority.CA(), CertFile: s.Cert, KeyFile: s.Key}
	}
	client, err := api.NewClient(config)
	if err != nil {
		s.tb.Fatal(err)
	}
	return client
}

// AwaitLeader waits until the server answers a linearizable read, and its ACLs are in force.
func (s *Server) AwaitLeader() {
	s.tb.Helper()
	client := s.Client()
	testkit.Eventually(s.tb, 30*time.Second, func() error {
		ctx, cancel := context.WithTimeout(s.tb.Context(), 2*time.Second)
		defer cancel()
		if len(s.prefix) > 0 {
			said, err := s.command(ctx, "kv", "put", "-http-addr="+s.URL(), "ready").CombinedOutput()
			if err != nil {
				return fmt.Errorf("%w: %s; see %s", err, said, s.Log())
			}
			return nil
		}
		_, _, err := client.KV().Get("ready", (&api.QueryOptions{RequireConsistent: true}).WithContext(ctx))
		if err != nil {
			return fmt.Errorf("%w; see %s", err, s.Log())
		}
		return nil
	})
}

// AwaitVoters waits until so many servers have a vote. Consul takes the vote of a dead server, and gives it back some
// seconds after the server has returned.
func (s *Server) AwaitVoters(count int) {
	s.tb.Helper()
	testkit.Eventually(s.tb, 30*time.Second, func() error {
		raft, err := s.Client().Operator().RaftGetConfiguration(nil)
		if err != nil {
			return err
		}
		voters := 0
		for _, server := range raft.Servers {
			if server.Voter {
				voters++
			}
		}
		if voters != count {
			return fmt.Errorf("%d servers of Consul have a vote, want %d", voters, count)
		}
		return nil
	})
}

// AwaitRefusals waits until the server has refused so many requests within its last ten seconds, because it limits
// their rate. Then nothing is left of what it lets through at once.
func (s *Server) AwaitRefusals(count int) {
	s.tb.Helper()
	agent := s.Client().Agent()
	testkit.Eventually(s.tb, 30*time.Second, func() error {
		metrics, err := agent.Metrics()
		if err != nil {
			return err
		}
		refused := 0
		for _, c := range metrics.Counters {
			if c.Name == "consul.rpc.rate_limit.exceeded" {
				refused += c.Count
			}
		}
		if refused < count {
			return fmt.Errorf("consul has refused %d requests, want %d", refused, count)
		}
		return nil
	})
}

// Permit makes a token with the permissions that the rules give, in Consul's language for policies.
func (s *Server) Permit(rules string) string {
	s.tb.Helper()
	client, name := s.Client(), "test-"+uuid.NewString()
	if _, _, err := client.ACL().PolicyCreate(&api.ACLPolicy{Name: name, Rules: rules}, nil); err != nil {
		s.tb.Fatal(err)
	}
	made, _, err := client.ACL().TokenCreate(&api.ACLToken{Policies: []*api.ACLTokenPolicyLink{{Name: name}}}, nil)
	if err != nil {
		s.tb.Fatal(err)
	}
	return made.SecretID
}

// Revoke deletes a token.
func (s *Server) Revoke(token string) {
	s.tb.Helper()
	if _, err := s.Client().ACL().TokenDelete(s.Accessor(token), nil); err != nil {
		s.tb.Fatal(err)
	}
}

// Accessor returns the public name of a token.
func (s *Server) Accessor(token string) string {
	s.tb.Helper()
	found, _, err := s.Client().ACL().TokenReadSelf(&api.QueryOptions{Token: token})
	if err != nil {
		s.tb.Fatal(err)
	}
	return found.AccessorID
}

// Rules are the permissions that a store needs, in Consul's language for policies. The guide has them as they are.
const Rules = `key_prefix "berth" {
  policy = "write"
}
agent_prefix "" {
  policy = "read"
}
`
