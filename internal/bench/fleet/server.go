package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/berthd/berth/internal/freeport"
	"github.com/berthd/berth/internal/pki"
)

// server is a `berth server` that this program started: agents reach it over TLS, clients at a loopback address.
type server struct {
	cmd            *exec.Cmd
	dir            string
	address, token string
	agents         string         // for agents: https, or its socket
	carriers       []*http.Client // of agents that share connections, or none
	authority      *pki.Authority
	measured       chan error    // nil unless the CPU is measured
	ending         chan struct{} // closed once tasks of jobs end as soon as they have begun; or nil

	// If agents follow a service: the counter, the way of their connections, and the channel that closes when they
	// begin.
	audience *audience
	dial     func(ctx context.Context, address string) (net.Conn, error)
	curtain  chan struct{}

	consul *consulServer // holds the state; nil without
}

func startServer(ctx context.Context, o options, stderr io.Writer) (*server, error) {
	dir, err := os.MkdirTemp("", "berth-fleet-")
	if err != nil {
		return nil, err
	}
	s := &server{dir: dir, curtain: make(chan struct{})}
	if o.brief > 0 {
		s.ending = make(chan struct{})
	}
	if err := s.begin(ctx, o, stderr); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// begin makes the server's certificates and starts it.
func (s *server) begin(ctx context.Context, o options, stderr io.Writer) error {
	reach, err := freeport.Address(ctx)
	if err != nil {
		return err
	}
	peer, err := freeport.Address(ctx)
	if err != nil {
		return err
	}
	made := exec.CommandContext(ctx, o.berth, "server", "init", "--name", "fleet", "--data-dir", s.dir, "--advertise",
		reach, "--advertise-peers", peer)
	made.Stderr = stderr
	if err := made.Run(); err != nil {
		return fmt.Errorf("make the server: %w", err)
	}
	s.agents = "https://" + reach
	listen := []string{
		"server", "--data-dir", s.dir, "--listen", "127.0.0.1:0", "--listen", s.agents, "--log-level",
		"error", "--default-permissions", "all",
	}
	if o.consul != "" {
		if s.consul, err = startConsul(ctx, o.consul, s.dir, stderr); err != nil {
			return fmt.Errorf("start Consul: %w", err)
		}
		listen = append(listen, "--store", "consul://"+s.consul.address)
	}
	if o.shared > 0 {
		path := filepath.Join(s.dir, "api.sock")
		s.agents, s.carriers = "unix://"+path, carriers(path, (o.agents+o.shared-1)/o.shared)
		listen = append(listen, "--listen", s.agents)
	}
	s.cmd = exec.CommandContext(ctx, o.berth, listen...)
	s.cmd.Stderr = stderr
	s.cmd.Cancel = func() error { return nil } // stop ends it
	s.cmd.WaitDelay = 10 * time.Second
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	if _, err := fmt.Fscanf(out, "berth: ready at %s\n", &s.address); err != nil {
		return fmt.Errorf("the server did not become ready: %w", err)
	}
	if s.authority, err = pki.OpenAuthority(filepath.Join(s.dir, "pki")); err != nil {
		return err
	}
	token, err := os.ReadFile(filepath.Join(s.dir, "token"))
	s.token = strings.TrimSpace(string(token))
	return err
}

// maxShared is how many agents may share a connection: each has a stream open all the time and another for a report,
// of the 250 that a server allows.
const maxShared = 100

// carriers are clients with one connection each to a socket.
func carriers(path string, count int) []*http.Client {
	all := make([]*http.Client, count)
	for i := range all {
		protocols := new(http.Protocols)
		protocols.SetUnencryptedHTTP2(true)
		all[i] = &http.Client{Transport: &http.Transport{
			Protocols: protocols, DisableCompression: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", path)
			},
		}}
	}
	return all
}

// stop ends the server and removes its data.
func (s *server) stop() {
	if s.cmd != nil && s.cmd.Process != nil {
		_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		_ = s.cmd.Wait()
	}
	if s.consul != nil {
		s.consul.stop()
	}
	_ = os.RemoveAll(s.dir)
}
