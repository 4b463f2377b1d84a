package reverse

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/berthd/berth/internal/pause"
)

const (
	// openTimeout bounds the time to open a connection to a node.
	openTimeout = 10 * time.Second
	// shortestPause and longestPause bound the time between two tries to reach a node.
	shortestPause = 250 * time.Millisecond
	longestPause  = 5 * time.Second
)

// Open opens a connection to the agent of a node.
type Open func(context.Context) (net.Conn, error)

// Dialer keeps an unused connection to each passive node, for a server. It is the net.Listener from which the server
// gets the connections that agents use. It is safe for concurrent use.
type Dialer struct {
	server string
	log    *slog.Logger

	used   chan net.Conn
	closed chan struct{}

	mu    sync.Mutex
	nodes map[string]*dialedNode
	done  sync.WaitGroup
	once  sync.Once
}

// dialedNode is a node that is dialed.
type dialedNode struct {
	cancel  context.CancelFunc
	problem error // of the last try; nil while a connection is open
}

// NewDialer returns a Dialer of the server with this address, "https://host:port".
func NewDialer(server string, log *slog.Logger) *Dialer {
	return &Dialer{
		server: server, log: log, used: make(chan net.Conn), closed: make(chan struct{}),
		nodes: map[string]*dialedNode{},
	}
}

// Keep dials a node from now on, in place of an earlier Open of the same node; it ends with Drop or Close.
func (d *Dialer) Keep(node string, open Open) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if was := d.nodes[node]; was != nil {
		was.cancel()
	}
	select {
	case <-d.closed:
		return
	default:
	}
	ctx, cancel := context.WithCancel(context.Background())
	n := &dialedNode{cancel: cancel, problem: errors.New("the connection is being opened")}
	d.nodes[node] = n
	d.done.Go(func() { d.keep(ctx, node, n, open) })
}

// Drop dials a node no longer. Connections that its agent uses go on.
func (d *Dialer) Drop(node string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if was := d.nodes[node]; was != nil {
		was.cancel()
		delete(d.nodes, node)
	}
}

// Problem returns why the node cannot be reached; nil if it can, or is not dialed.
func (d *Dialer) Problem(node string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := d.nodes[node]; n != nil {
		return n.problem
	}
	return nil
}

// Reached returns the numbers of the dialed nodes that can be reached, and of those that cannot.
func (d *Dialer) Reached() (reached, unreached int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, n := range d.nodes { // order-free: a count
		if n.problem == nil {
			reached++
		} else {
			unreached++
		}
	}
	return reached, unreached
}

// keep keeps an unused connection to a node until ctx ends.
func (d *Dialer) keep(ctx context.Context, node string, n *dialedNode, open Open) {
	between := pause.Backoff{Shortest: shortestPause, Longest: longestPause}
	failed := false
	for ctx.Err() == nil {
		used, err := d.offer(ctx, n, open)
		switch {
		case ctx.Err() != nil:
			return
		case used:
			between.Reset()
			failed = false
			continue
		}
		d.note(n, err)
		if !failed {
			failed = true // further failures say the same
			d.log.Warn("a passive node is not reached", "node", node, "error", err)
		}
		_ = between.Wait(ctx) // its only error ends the loop
	}
}

func (d *Dialer) note(n *dialedNode, problem error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n.problem = problem
}

// offer opens a connection, and waits until the agent begins to use it.
func (d *Dialer) offer(ctx context.Context, n *dialedNode, open Open) (used bool, err error) {
	opening, cancel := context.WithTimeoutCause(ctx, openTimeout, errors.New("no answer in time"))
	c, err := open(opening)
	cancel()
	if err != nil {
		return false, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	if err := writeGreeting(c, d.server); err != nil {
		stop()
		return false, errors.Join(fmt.Errorf("begin the connection: %w", err), c.Close())
	}
	d.note(n, nil)
	first := make([]byte, 1)
	if _, err := c.Read(first); err != nil {
		stop()
		_ = c.Close()
		return false, errEnded(err)
	}
	if !stop() {
		return false, ctx.Err()
	}
	select {
	case d.used <- &usedConn{Conn: c, first: first}:
		return true, nil
	case <-d.closed:
	case <-ctx.Done():
	}
	return false, c.Close()
}

// errEnded is the failure of a connection that the node ended before it was used.
func errEnded(err error) error {
	return fmt.Errorf("the node ended the connection (%w): the agent there waits for no servers, or has enough", err)
}

// Accept returns the next connection that an agent uses.
func (d *Dialer) Accept() (net.Conn, error) {
	select {
	case c := <-d.used:
		return c, nil
	case <-d.closed:
		return nil, net.ErrClosed
	}
}

// Close ends all unused connections, and Accept.
func (d *Dialer) Close() error {
	d.once.Do(func() { close(d.closed) })
	d.mu.Lock()
	for _, n := range d.nodes { // order-free: all are ended
		n.cancel()
	}
	clear(d.nodes)
	d.mu.Unlock()
	d.done.Wait()
	return nil
}

// Addr returns the address of the server.
func (d *Dialer) Addr() net.Addr { return address(d.server) }

// address is the address of a server as a net.Addr.
type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

// usedConn is a connection that an agent uses, with the first byte that was read from it.
type usedConn struct {
	net.Conn
	first []byte
}

// Read returns the first byte, and then what follows.
func (c *usedConn) Read(p []byte) (int, error) {
	if len(c.first) > 0 && len(p) > 0 {
		n := copy(p, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

// NetConn returns the connection below.
func (c *usedConn) NetConn() net.Conn { return c.Conn }
