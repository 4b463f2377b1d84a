package transport

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"
)

// registerTimeout bounds the time of one server's answer to a registration, before the agent tries another. The server
// writes the full report of a node in the meantime, which may be large.
const registerTimeout = 20 * time.Second

// maxUnanswered is the number of consecutive unanswered calls after which the agent uses another server. One unanswered
// call may be a broken connection; two mean that the server is away.
const maxUnanswered = 2

// servers chooses the server of an agent. It keeps a server that works. It begins with a random one, so that the
// servers of a cluster share the agents.
type servers struct {
	config ClientConfig

	mu         sync.Mutex
	configured []string // addresses of the configuration
	learned    []string // addresses from servers, in the order in which this agent tries them
	current    *link
	// avoid is the address of the server that the agent left last.
	avoid string
}

// link is the connection to one server.
type link struct {
	endpoint
	http *http.Client
	// failures counts consecutive unanswered calls; servers.mu guards it.
	failures int
}

func (s *servers) connect(e endpoint) *link {
	return &link{endpoint: e, http: e.client(&s.config, true)}
}

// learn replaces the list of servers, unless the new one holds no address that this client can reach.
func (s *servers) learn(list []string) {
	var usable []string
	for _, a := range list {
		e, err := parseAddress(a)
		if err == nil && (!e.tls || s.config.TLS != nil) && !slices.Contains(usable, a) {
			usable = append(usable, a)
		}
	}
	if len(usable) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := slices.DeleteFunc(slices.Clone(s.learned), func(a string) bool { return !slices.Contains(usable, a) })
	for _, a := range usable {
		if !slices.Contains(kept, a) { // a new address gets a random place
			kept = slices.Insert(kept, s.config.pick(len(kept)+1), a)
		}
	}
	s.learned = kept
}

// candidates returns the addresses to try for a registration, in order: the current server, the learned ones, the
// configured ones, and last the one that the agent left.
func (s *servers) candidates() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	add := func(a string) {
		if !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	if s.current != nil && s.current.text != s.avoid {
		add(s.current.text)
	}
	for _, a := range slices.Concat(s.learned, s.configured) {
		if a != s.avoid {
			add(a)
		}
	}
	for _, a := range slices.Concat(s.learned, s.configured) {
		add(a)
	}
	return all
}

// linkTo returns the link to an address; it is the current link if the address is the same.
func (s *servers) linkTo(address string) (*link, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != nil && s.current.text == address {
		return s.current, nil
	}
	e, err := parseAddress(address)
	if err != nil {
		return nil, err
	}
	return s.connect(e), nil
}

// use makes a link the current one. Open streams on the old link continue until they are closed.
func (s *servers) use(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.failures = 0
	s.avoid = ""
	if s.current != l && s.current != nil {
		s.current.http.CloseIdleConnections()
	}
	s.current = l
}

// currentLink returns the link of the session, or a link to the first candidate before any session.
func (s *servers) currentLink() (*link, error) {
	s.mu.Lock()
	l := s.current
	s.mu.Unlock()
	if l != nil {
		return l, nil
	}
	all := s.candidates()
	if len(all) == 0 {
		return nil, errNoServer
	}
	l, err := s.linkTo(all[0])
	if err == nil {
		s.use(l)
	}
	return l, err
}

// callAnswered notes that the server answered.
func (s *servers) callAnswered(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.failures = 0
}

// callFailed handles the error of a call of the session. It adds ErrElsewhere once the agent must use another server.
func (s *servers) callFailed(ctx context.Context, l *link, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, ErrSession), errors.Is(err, ErrRefused):
		s.callAnswered(l)
		return err
	}
	redirected := errors.Is(err, ErrElsewhere)
	if !redirected && !errors.Is(err, errUnanswered) {
		s.callAnswered(l)
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l.failures++
	if errors.Is(err, errServerHangs) {
		l.failures = maxUnanswered
	}
	others := slices.ContainsFunc(slices.Concat(s.learned, s.configured), func(a string) bool { return a != l.text })
	switch {
	case !others && redirected:
		return errors.New(err.Error()) // there is no other server: the fault may pass
	case !others || !redirected && l.failures < maxUnanswered:
		return err
	}
	s.avoid = l.text
	if redirected {
		return err
	}
	return fmt.Errorf("%w: %w", ErrElsewhere, err)
}

// errNoServer says that the client has not learned any address yet.
var errNoServer = errors.New("no server is known yet")

// errUnanswered says that the server could not be reached, or went away before it answered.
var errUnanswered = errors.New("reach the server")

// Servers returns the addresses that the client has, in the order in which it tries them.
func (c *Client) Servers() []string { return c.servers.candidates() }

// Server returns the address of the current server, "" before the first registration.
func (c *Client) Server() string {
	c.servers.mu.Lock()
	defer c.servers.mu.Unlock()
	if c.servers.current == nil {
		return ""
	}
	return c.servers.current.text
}

// Learn passes to the client the addresses of all servers, which it received earlier. The client ignores addresses that
// need TLS if it has none.
func (c *Client) Learn(list []string) { c.servers.learn(list) }

// Register begins a session at the current server or, if that does not answer, at another. A client that knows no list
// of servers moves on from the first server to a random one of the list. The servers thereby share the agents, although
// all agents may have been configured with the same address.
func (c *Client) Register(ctx context.Context, r Registration) (Welcome, error) {
	c.servers.mu.Lock()
	isFirst := len(c.servers.learned) == 0 && c.servers.current == nil
	c.servers.mu.Unlock()
	w, l, err := c.registerAnywhere(ctx, r, c.servers.candidates())
	if err != nil || !isFirst || len(w.Servers) == 0 {
		return w, err
	}
	next := c.servers.candidates()
	drawn := next[c.servers.config.pick(len(next))]
	if drawn == l.text || !slices.Contains(w.Servers, drawn) || slices.Contains(c.servers.configured, drawn) {
		return w, nil
	}
	r.Previous = w.Session
	if moved, _, err := c.registerAnywhere(ctx, r, []string{drawn}); err == nil {
		return moved, nil
	}
	return w, nil // a registration there after all shows in the next call
}

// registerAnywhere tries the servers in order.
func (c *Client) registerAnywhere(ctx context.Context, r Registration, addresses []string) (Welcome, *link, error) {
	r.Wire, r.WireMin = WireVersion, WireMin
	if len(addresses) == 0 {
		return Welcome{}, nil, errNoServer
	}
	var all error
	for _, address := range addresses {
		l, err := c.servers.linkTo(address)
		if err != nil {
			return Welcome{}, nil, err
		}
		var w Welcome
		each, stop := context.WithTimeout(ctx, registerTimeout)
		err = c.call(each, l, PathRegister, r, &w)
		stop()
		if err == nil {
			err = w.speaks()
		}
		switch {
		case err == nil:
			c.servers.use(l)
			c.servers.learn(w.Servers)
			return w, l, nil
		case errors.Is(err, ErrSession):
			c.servers.use(l) // the next attempt uses this server too
			return Welcome{}, nil, err
		case ctx.Err() != nil:
			return Welcome{}, nil, ctx.Err()
		}
		l.http.CloseIdleConnections()
		err = fmt.Errorf("%s: %w", address, err)
		if all != nil {
			err = fmt.Errorf("%w; %w", all, err)
		}
		all = err
	}
	return Welcome{}, nil, all
}

// pick returns a number from 0 up to n.
func (c *ClientConfig) pick(n int) int {
	if c.Random == nil {
		return rand.IntN(n)
	}
	return min(int(c.Random()*float64(n)), n-1)
}
