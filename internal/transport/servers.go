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

// registerWait is how long one server may take to answer a registration before another is asked. A full report of a
// large node is written meanwhile.
const registerWait = 20 * time.Second

// patience is how many calls in a row a server may leave unanswered before the agent turns to another one:
// one is a broken connection, two are a server that is away.
const patience = 2

// servers chooses the server that an agent talks to. It keeps the one that works, and begins anywhere, so that
// the servers of a cluster share the agents.
type servers struct {
	config ClientConfig

	mu      sync.Mutex
	given   []string // by the configuration
	learned []string // from servers, in the order in which this agent asks them
	current *link
	// avoid is the address of the server that the agent turned away from last.
	avoid string
}

// link is the way to one server.
type link struct {
	endpoint
	http *http.Client
	wire int // the version that the session speaks; servers.mu guards it
	// failures counts the calls in a row that were not answered; servers.mu guards it.
	failures int
}

func (s *servers) connect(e endpoint) *link {
	return &link{endpoint: e, http: e.client(&s.config, true)}
}

// learn takes the list of all servers, unless it is empty or holds none that this client can reach.
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
		if !slices.Contains(kept, a) { // a new one takes any place in the order
			kept = slices.Insert(kept, s.config.pick(len(kept)+1), a)
		}
	}
	s.learned = kept
}

// candidates returns the addresses to try for a registration, in order: the server that works, the known
// ones, those of the configuration, and last the one that was turned away from.
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
	for _, a := range slices.Concat(s.learned, s.given) {
		if a != s.avoid {
			add(a)
		}
	}
	for _, a := range slices.Concat(s.learned, s.given) {
		add(a)
	}
	return all
}

// to returns the link to an address, the present one if it leads there.
func (s *servers) to(address string) (*link, error) {
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

// speaks reports whether the session speaks a version or a newer one.
func (s *servers) speaks(l *link, version int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return l.wire >= version
}

// settle makes a link the present one; streams that are open on the old one go on until they are closed.
func (s *servers) settle(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.failures = 0
	s.avoid = ""
	if s.current != l && s.current != nil {
		s.current.http.CloseIdleConnections()
	}
	s.current = l
}

// present returns the link of the session, or before any the first candidate's.
func (s *servers) present() (*link, error) {
	s.mu.Lock()
	l := s.current
	s.mu.Unlock()
	if l != nil {
		return l, nil
	}
	l, err := s.to(s.candidates()[0])
	if err == nil {
		s.settle(l)
	}
	return l, err
}

// answered notes that the server answers.
func (s *servers) answered(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.failures = 0
}

// failed judges why a call of the session was not answered. It adds ErrElsewhere once another server is to be asked.
func (s *servers) failed(ctx context.Context, l *link, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, ErrSession), errors.Is(err, ErrRefused):
		s.answered(l)
		return err
	}
	told := errors.Is(err, ErrElsewhere)
	if !told && !errors.Is(err, errUnanswered) {
		s.answered(l)
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l.failures++
	if errors.Is(err, errHangs) {
		l.failures = patience
	}
	others := slices.ContainsFunc(slices.Concat(s.learned, s.given), func(a string) bool { return a != l.text })
	switch {
	case !others && told:
		return errors.New(err.Error()) // nobody else to ask: it may pass
	case !others || !told && l.failures < patience:
		return err
	}
	s.avoid = l.text
	if told {
		return err
	}
	return fmt.Errorf("%w: %w", ErrElsewhere, err)
}

// errUnanswered says that the server could not be reached, or went away before it answered.
var errUnanswered = errors.New("reach the server")

// Servers returns the addresses that the client knows, those to ask first first.
func (c *Client) Servers() []string { return c.servers.candidates() }

// Server returns the address of the server that the client talks to, empty before it registered.
func (c *Client) Server() string {
	c.servers.mu.Lock()
	defer c.servers.mu.Unlock()
	if c.servers.current == nil {
		return ""
	}
	return c.servers.current.text
}

// Learn tells the client the addresses of all servers, as one of them told them earlier. Those that it cannot reach for
// want of TLS are left out.
func (c *Client) Learn(list []string) { c.servers.learn(list) }

// Register begins a session, at the server that works or, where it does not answer, at another. At the first one of a
// client that knew no list it goes on to one of the list at random, so that the servers share their agents although all
// agents were given the same address.
func (c *Client) Register(ctx context.Context, r Registration) (Welcome, error) {
	c.servers.mu.Lock()
	stranger := len(c.servers.learned) == 0 && c.servers.current == nil
	c.servers.mu.Unlock()
	w, l, err := c.registerAnywhere(ctx, r, c.servers.candidates())
	if err != nil || !stranger || len(w.Servers) == 0 {
		return w, err
	}
	next := c.servers.candidates()
	drawn := next[c.servers.config.pick(len(next))]
	if drawn == l.text || !slices.Contains(w.Servers, drawn) || slices.Contains(c.servers.given, drawn) {
		return w, nil
	}
	r.Previous = w.Session
	if moved, _, err := c.registerAnywhere(ctx, r, []string{drawn}); err == nil {
		return moved, nil
	}
	return w, nil // it works where it is; had the other server taken it after all, the next call says so
}

// registerAnywhere tries the servers in order.
func (c *Client) registerAnywhere(ctx context.Context, r Registration, addresses []string) (Welcome, *link, error) {
	r.Wire, r.WireMin = WireVersion, WireMin
	var all error
	for _, address := range addresses {
		l, err := c.servers.to(address)
		if err != nil {
			return Welcome{}, nil, err
		}
		var w Welcome
		each, stop := context.WithTimeout(ctx, registerWait)
		err = c.call(each, l, PathRegister, r, &w)
		stop()
		if err == nil {
			err = w.speaks()
		}
		switch {
		case err == nil:
			c.servers.settle(l)
			c.servers.mu.Lock()
			l.wire = w.Wire
			c.servers.mu.Unlock()
			c.servers.learn(w.Servers)
			return w, l, nil
		case errors.Is(err, ErrSession):
			c.servers.settle(l) // the next try goes there too
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
