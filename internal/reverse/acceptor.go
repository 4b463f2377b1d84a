package reverse

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berthd/berth/internal/pause"
)

const (
	// maxUnused limits the unused connections of one server, and maxServers the servers with any. More are closed.
	maxUnused, maxServers = 4, 32
	// maxGreetings limits the connections that have not sent their first line.
	maxGreetings = 64
)

// Acceptor accepts the connections that servers open, for an agent. It is safe for concurrent use.
type Acceptor struct {
	listener net.Listener
	log      *slog.Logger

	mu      sync.Mutex
	unused  map[string][]*unusedConn // by server address, the oldest first
	arrived chan struct{}            // closed and replaced when a connection arrives
}

// unusedConn is a connection that no one uses yet. A goroutine reads from it until then, to notice its end.
type unusedConn struct {
	net.Conn
	stop  func() // ends the read
	ended chan struct{}
	err   error // of the read; valid after ended is closed
}

// Listen opens the address, "host:port". Run accepts connections.
func Listen(address string, log *slog.Logger) (*Acceptor, error) {
	config := net.ListenConfig{KeepAliveConfig: KeepAlive()}
	l, err := config.Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for servers on %s: %w", address, err)
	}
	return &Acceptor{listener: l, log: log, unused: map[string][]*unusedConn{}, arrived: make(chan struct{})}, nil
}

// Addr returns the address that is listened on.
func (a *Acceptor) Addr() net.Addr { return a.listener.Addr() }

// Run accepts connections until ctx ends, and then closes the unused ones.
func (a *Acceptor) Run(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { _ = a.listener.Close() })
	defer stop()
	greeting := make(chan struct{}, maxGreetings)
	between := pause.Backoff{Shortest: shortestPause, Longest: longestPause}
	var running sync.WaitGroup
	defer a.closeUnused()
	defer running.Wait() // a connection may be kept until then
	for {
		c, err := a.listener.Accept()
		if err != nil {
			if ctx.Err() == nil {
				a.log.Error("the connection of a server was not accepted", "error", err) // such as: too many open files
			}
			if between.Wait(ctx) != nil {
				return
			}
			continue
		}
		between.Reset()
		select {
		case greeting <- struct{}{}:
		default: // others have sent nothing: the server tries again
			_ = c.Close()
			continue
		}
		running.Go(func() {
			a.greet(ctx, c)
			<-greeting
		})
	}
}

// greet reads the first line of a connection, and keeps the connection for the agent.
func (a *Acceptor) greet(ctx context.Context, c net.Conn) {
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	server, err := readGreeting(c)
	if !stop() || err != nil {
		a.log.Debug("a connection is refused", "from", c.RemoteAddr().String(), "error", err)
		_ = c.Close()
		return
	}
	u := &unusedConn{Conn: c, ended: make(chan struct{})}
	u.stop = func() { _ = c.SetReadDeadline(time.Unix(1, 0)) }
	a.mu.Lock()
	known := len(a.unused[server]) > 0
	if len(a.unused[server]) >= maxUnused || !known && len(a.unused) >= maxServers {
		a.mu.Unlock()
		_ = c.Close()
		return
	}
	a.unused[server] = append(a.unused[server], u)
	close(a.arrived)
	a.arrived = make(chan struct{})
	a.mu.Unlock()
	go a.watch(server, u)
}

// watch forgets an unused connection when it ends.
func (a *Acceptor) watch(server string, u *unusedConn) {
	n, err := u.Read(make([]byte, 1))
	if n > 0 {
		err = errors.New("the server sent something first")
	}
	u.err = err
	close(u.ended)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return // take uses it
	}
	a.mu.Lock()
	a.remove(server, u)
	a.mu.Unlock()
	_ = u.Close()
}

// remove removes an unused connection. The mutex is held.
func (a *Acceptor) remove(server string, u *unusedConn) {
	left := slices.DeleteFunc(a.unused[server], func(other *unusedConn) bool { return other == u })
	if a.unused[server] = left; len(left) == 0 {
		delete(a.unused, server)
	}
}

// Dial returns a connection that the server with this address, "https://host:port" or "host:port", has opened. It waits
// for one until ctx ends. The connections of one server are used in the order in which they arrived.
func (a *Acceptor) Dial(ctx context.Context, address string) (net.Conn, error) {
	server := "https://" + strings.TrimSuffix(strings.TrimPrefix(address, "https://"), "/")
	for {
		a.mu.Lock()
		var u *unusedConn
		if all := a.unused[server]; len(all) > 0 {
			u = all[0]
			a.remove(server, u)
		}
		arrived := a.arrived
		a.mu.Unlock()
		if u != nil {
			if c, ok := u.take(); ok {
				return c, nil
			}
			continue
		}
		select {
		case <-arrived:
		case <-ctx.Done():
			return nil, fmt.Errorf("the server %s has not connected to this node at %s: %w", server, a.Addr(),
				context.Cause(ctx))
		}
	}
}

// take ends the read of the watching goroutine. It is false for a connection that has ended.
func (u *unusedConn) take() (net.Conn, bool) {
	u.stop()
	<-u.ended
	if !errors.Is(u.err, os.ErrDeadlineExceeded) || u.SetReadDeadline(time.Time{}) != nil {
		_ = u.Close()
		return nil, false
	}
	return u.Conn, true
}

// Servers returns the addresses of the servers that have unused connections, in order.
func (a *Acceptor) Servers() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(maps.Keys(a.unused))
}

// Arrived returns a channel that is closed when the next connection has arrived.
func (a *Acceptor) Arrived() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.arrived
}

// WaitForServer waits until a server has connected, and returns the addresses of the servers.
func (a *Acceptor) WaitForServer(ctx context.Context) ([]string, error) {
	for {
		arrived := a.Arrived()
		if all := a.Servers(); len(all) > 0 {
			return all, nil
		}
		select {
		case <-arrived:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// closeUnused closes the unused connections.
func (a *Acceptor) closeUnused() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, all := range a.unused { // order-free: all are closed
		for _, u := range all {
			_ = u.Close()
		}
	}
}
