// Package ssh runs commands on a machine over SSH.
//
// A Conn is one connection that all commands share. It connects when the first command needs it, also through jump
// hosts, and again after the connection was lost. A command that a lost connection interrupted returns ErrLost: whether
// it ran is unknown, so callers run only commands that may run twice.
package ssh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

const (
	// dialTimeout bounds the time of one connection: the route, the key exchange and the authentication.
	dialTimeout = 15 * time.Second
	// keepAliveInterval is the time between requests that show whether the machine still answers. A connection whose
	// request has no answer for keepAliveTimeout counts as lost.
	keepAliveInterval = 5 * time.Second
	keepAliveTimeout  = 15 * time.Second
	// maxErrorText bounds what an ExitError keeps of the error output of a command, in bytes.
	maxErrorText = 4 << 10
)

// ErrLost means that the connection was lost while a command ran.
var ErrLost = errors.New("the SSH connection was lost")

// ExitError is the failure of a command on the machine.
type ExitError struct {
	Status int
	// Signal ended the command; it is empty if the command exited.
	Signal string
	// Text is the end of the error output.
	Text string
}

// Error returns the status and the last line of the error output.
func (e *ExitError) Error() string {
	what := fmt.Sprintf("exit status %d", e.Status)
	if e.Signal != "" {
		what = "signal " + e.Signal
	}
	if e.Text == "" {
		return what
	}
	return what + ": " + e.Text
}

// Target is a machine with a server for SSH.
type Target struct {
	User, Host string
	Port       int
}

// String returns "user@host", with the port if it is not 22.
func (t Target) String() string {
	host := t.Host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if t.Port != DefaultPort {
		host = t.address()
	}
	return t.User + "@" + host
}

func (t Target) address() string { return net.JoinHostPort(t.Host, fmt.Sprint(t.Port)) }

// Config names a machine and what authenticates both sides.
type Config struct {
	Target Target
	// Jump are the machines through which the connection goes, in order.
	Jump []Target
	// Auth and Keys are used for all machines.
	Auth *Auth
	Keys *HostKeys
	// Dial opens the first TCP connection. Default: that of package net.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Conn is a connection to a machine. It is safe for concurrent use.
type Conn struct {
	config Config

	mu      sync.Mutex
	clients []*ssh.Client // those of the jump hosts, then that of the machine; nil without a connection
	lost    chan struct{} // closed with the connection
}

// New returns a connection that is not open yet.
func New(c Config) *Conn {
	if c.Dial == nil {
		c.Dial = (&net.Dialer{}).DialContext
	}
	return &Conn{config: c}
}

// Target returns the machine.
func (c *Conn) Target() Target { return c.config.Target }

// Connect opens the connection unless it is open.
func (c *Conn) Connect(ctx context.Context) error {
	_, _, err := c.client(ctx)
	return err
}

// Close closes the connection. A later command opens another one.
func (c *Conn) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop()
}

// drop closes the connection. The caller holds c.mu.
func (c *Conn) drop() {
	if c.clients == nil {
		return
	}
	for _, client := range slices.Backward(c.clients) {
		_ = client.Close() // also ends the goroutine of the connection
	}
	c.clients = nil
	close(c.lost)
}

// client returns the open connection and a channel that is closed with it.
func (c *Conn) client(ctx context.Context) (*ssh.Client, <-chan struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.clients != nil {
		return c.clients[len(c.clients)-1], c.lost, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, dialTimeout*time.Duration(1+len(c.config.Jump)),
		errors.New("no answer in time"))
	defer cancel()
	clients, err := c.dial(ctx)
	if err != nil {
		return nil, nil, err
	}
	c.clients, c.lost = clients, make(chan struct{})
	last, lost := clients[len(clients)-1], c.lost
	go c.watch(last, lost)
	return last, lost, nil
}

// dial connects to the jump hosts and the machine, each through the one before.
func (c *Conn) dial(ctx context.Context) (clients []*ssh.Client, err error) {
	defer func() {
		if err != nil {
			for _, done := range clients {
				_ = done.Close()
			}
			clients = nil
		}
	}()
	dial := c.config.Dial
	for _, t := range append(slices.Clip(c.config.Jump), c.config.Target) {
		client, err := c.reach(ctx, dial, t)
		if lookup, ok := errors.AsType[*net.DNSError](err); ok && lookup.IsNotFound {
			return clients, fmt.Errorf("connect to %s: %w: ~/.ssh/config is not read, so an alias of it is no "+
				"address: 'ssh -G %s' prints what to give", t, err, t.Host)
		}
		if err != nil {
			return clients, fmt.Errorf("connect to %s: %w", t, orCause(ctx, err))
		}
		clients = append(clients, client)
		dial = client.DialContext
	}
	return clients, nil
}

// reach connects to one machine. It asks for the machine's key of each kind until one is accepted.
func (c *Conn) reach(ctx context.Context, dial dialFunc, t Target) (*ssh.Client, error) {
	var refused error
	for _, algorithms := range c.config.Keys.offers(t) {
		conn, err := dial(ctx, "tcp", t.address())
		if err != nil {
			return nil, err
		}
		client, err := c.handshake(ctx, conn, t, algorithms)
		if err == nil || !hasOtherKeys(err) {
			return client, err
		}
		if _, shown := errors.AsType[*HostKeyError](refused); !shown {
			refused = err // the first key says more than a kind that the machine lacks
		}
	}
	return nil, refused
}

// dialFunc connects to an address.
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// handshake exchanges keys and authenticates. It closes the connection on a failure, and when ctx ends.
func (c *Conn) handshake(ctx context.Context, conn net.Conn, t Target, algorithms []string) (*ssh.Client, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	methods, done, err := c.config.Auth.methods()
	if err != nil {
		stop()
		return nil, errors.Join(err, conn.Close())
	}
	defer done()
	config := &ssh.ClientConfig{
		User: t.User, Auth: methods, HostKeyCallback: c.config.Keys.check(t),
		HostKeyAlgorithms: algorithms,
	}
	wire, channels, requests, err := ssh.NewClientConn(conn, t.address(), config)
	if err == nil && !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		stop()
		_ = conn.Close() // the failure of the handshake says more
		return nil, c.config.Auth.explain(t, err)
	}
	return ssh.NewClient(wire, channels, requests), nil
}

// watch closes the connection when the machine does not answer any more.
func (c *Conn) watch(client *ssh.Client, lost <-chan struct{}) {
	ticker := time.NewTicker(keepAliveInterval)
	defer ticker.Stop()
	ended := make(chan struct{})
	go func() {
		_ = client.Wait() // the reason does not matter: a command gets ErrLost
		close(ended)
	}()
	for answered := make(chan error, 1); ; {
		go func() {
			_, _, err := client.SendRequest("keepalive@openssh.com", true, nil)
			answered <- err
		}()
		timeout := time.NewTimer(keepAliveTimeout)
		select {
		case <-lost:
			timeout.Stop()
			return
		case err := <-answered:
			timeout.Stop()
			if err == nil {
				break
			}
			c.forget(client)
			return
		case <-timeout.C:
			c.forget(client)
			return
		case <-ended:
			timeout.Stop()
			c.forget(client)
			return
		}
		select {
		case <-lost:
			return
		case <-ended:
			c.forget(client)
			return
		case <-ticker.C:
		}
	}
}

// forget drops the connection if it is still that of the client.
func (c *Conn) forget(client *ssh.Client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.clients) > 0 && c.clients[len(c.clients)-1] == client {
		c.drop()
	}
}

// Command is a command of the machine's shell.
type Command struct {
	// Line is interpreted by the login shell of the user. Quote makes a word of a text.
	Line string
	// Stdin, unless nil, is the input. Stdout and Stderr, unless nil, get the output.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// Run runs a command until it ends. Its errors are *ExitError for a command that failed, ErrLost, and failures to
// connect. When ctx ends, Run returns its cause; the command may go on.
func (c *Conn) Run(ctx context.Context, command Command) error {
	client, lost, err := c.client(ctx)
	if err != nil {
		return err
	}
	session, err := client.NewSession()
	if err != nil {
		c.forget(client)
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	defer func() { _ = session.Close() }()
	text := &tail{also: command.Stderr}
	session.Stdin, session.Stdout, session.Stderr = command.Stdin, command.Stdout, text
	ended := make(chan error, 1)
	go func() { ended <- session.Run(command.Line) }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-lost:
		return ErrLost
	}
	var exit *ssh.ExitError
	var missing *ssh.ExitMissingError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &exit):
		return &ExitError{Status: exit.ExitStatus(), Signal: exit.Signal(), Text: text.String()}
	case errors.As(err, &missing), errors.Is(err, io.EOF):
		return ErrLost
	}
	return fmt.Errorf("%w: %w", ErrLost, err)
}

// Output runs a command and returns its output without the space around it.
func (c *Conn) Output(ctx context.Context, line string) (string, error) {
	var out bytes.Buffer
	err := c.Run(ctx, Command{Line: line, Stdout: &out})
	return strings.TrimSpace(out.String()), err
}

// Quote returns a word of a shell that stands for the text.
func Quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// tail keeps the end of what is written, and passes all of it on.
type tail struct {
	also io.Writer
	mu   sync.Mutex
	kept []byte
}

// Write is part of io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	t.kept = t.kept[max(0, len(t.kept)-maxErrorText):]
	if t.also != nil {
		return t.also.Write(p)
	}
	return len(p), nil
}

// String returns what was kept, without the space around it.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.kept))
}

// orCause returns the cause of the end of ctx instead of an error that follows from it.
func orCause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
