// Package transporttest is a network for tests of agents and servers.
package transporttest

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
)

// Network is a network in memory, with servers that can stop, hang, or be cut off. It uses package time, so that it
// works inside a synctest bubble. Its methods may be called concurrently.
type Network struct {
	mu      sync.Mutex
	servers map[string]*member
}

// member is a server on a network.
type member struct {
	conns  chan net.Conn
	server *http.Server
	done   chan error
	links  []*cable
	cut    bool // no data passes
}

// New returns a network without servers.
func New() *Network { return &Network{servers: map[string]*member{}} }

// Serve serves an address, in place of a stopped server, until the test ends.
func (n *Network) Serve(t testing.TB, address string, s *http.Server) {
	t.Helper()
	m := &member{conns: make(chan net.Conn), done: make(chan error, 1), server: s}
	n.mu.Lock()
	n.servers[address] = m
	n.mu.Unlock()
	l := &listener{conns: m.conns, closed: make(chan struct{})}
	go func() { m.done <- s.Serve(l) }()
	t.Cleanup(func() { n.Stop(address) })
}

// Stop ends a server and its connections, as kill -9 does.
func (n *Network) Stop(address string) {
	n.mu.Lock()
	m := n.servers[address]
	delete(n.servers, address)
	n.mu.Unlock()
	if m == nil {
		return
	}
	_ = m.server.Close()
	<-m.done //nolint:errcheck // it was closed
	for _, l := range m.links {
		_ = l.Close()
	}
}

// Cut makes a server's network, or the server itself, silent: written data are lost, and dials are not answered.
func (n *Network) Cut(address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m := n.servers[address]
	m.cut = true
	for _, l := range m.links {
		l.silence()
	}
}

// Reset breaks the connections to a server. The server continues.
func (n *Network) Reset(address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.servers[address].links {
		_ = l.Close()
	}
}

// Dial opens a connection to a server; it is for a client's configuration.
func (n *Network) Dial(ctx context.Context, address string) (net.Conn, error) {
	n.mu.Lock()
	m := n.servers[address]
	if m == nil {
		n.mu.Unlock()
		return nil, errors.New("connection refused")
	}
	if m.cut {
		n.mu.Unlock()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	here, there := net.Pipe()
	c := &cable{Conn: here}
	m.links = append(m.links, c)
	n.mu.Unlock()
	select {
	case m.conns <- there:
		return c, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// cable is the dialer's end of a connection.
type cable struct {
	net.Conn
	mu     sync.Mutex
	silent bool
}

func (c *cable) silence() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.silent = true
}

func (c *cable) isSilent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.silent
}

// Write discards data on a silent cable.
func (c *cable) Write(p []byte) (int, error) {
	if c.isSilent() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// Read discards the data of a silent cable.
func (c *cable) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if err != nil || !c.isSilent() {
			return n, err
		}
	}
}

type listener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, io.EOF
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: "fabric"} }
