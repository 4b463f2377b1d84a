// Package names answers the questions of a node's tasks for names (DNS). Those of services, which end in ".berth", it
// answers from what the agent knows of their healthy tasks; all others it passes on to the resolvers that the node asks
// itself.
//
//	<service>.<cluster>.berth               A and AAAA: the addresses of the nodes that healthy tasks are on;
//	                                        SRV: with all their ports
//	_<port>._tcp.<service>.<cluster>.berth  SRV: with one of their ports, by its name; _udp is the same
//	<address>.<service>.<cluster>.berth     what an SRV points to: an address of the service, with "-" for "." and ":"
//
// A service that nobody knows does not exist (NXDOMAIN); one without a healthy task has no addresses (NOERROR). Where
// no server has told of a service yet the answer is SERVFAIL, which nobody keeps.
//
// Who asks is a task, and may be hostile: questions, connections and what is passed on are bounded, in all and for each
// address that asks.
package names

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"time"
)

// Zone is what the names of services end in, without the dots around it.
const Zone = "berth"

// TTL is for how long an answer about a service may be kept, also one that there is none.
const TTL = 5 * time.Second

// Bounds of what the server does at a time.
const (
	mostAtOnce     = 512 // questions that are being answered
	mostOfOne      = 128 // of them by one address
	mostConns      = 256 // connections
	mostConnsOfOne = 32
	connIdle       = 10 * time.Second // for how long a connection may be silent
	connLife       = 2 * time.Minute
	answerWait     = 6 * time.Second // for one answer
)

// Address is one of a service, with the numbers of the ports that a task has there, by their names.
type Address struct {
	Addr  netip.Addr
	Ports map[string]int
}

// Service is what is known of a service. Nobody may change it.
type Service struct {
	// Missing says that there is none of that name.
	Missing   bool
	Addresses []Address
}

// ErrNotTold says that nothing is known of a service yet.
var ErrNotTold = errors.New("no server has told of the service")

// Directory knows the services.
type Directory interface {
	// Service returns what is known of a service that an address asks for; it may wait a moment until something is. Any
	// error means that nothing can be said. It may be called concurrently.
	Service(ctx context.Context, from netip.Addr, cluster, service string) (Service, error)
}

// Config is what New needs.
type Config struct {
	Directory Directory
	// Upstreams returns the resolvers that other names are passed on to, the first first. It is called for each
	// question.
	Upstreams func() []netip.AddrPort
	Logger    *slog.Logger // default: discard
}

// Server answers questions. Its methods may be called concurrently.
type Server struct {
	Config

	questions, connections *share

	mu    sync.Mutex
	doors map[netip.AddrPort]bool // where it listens: nothing is passed on to itself
}

// New returns a server; Serve makes it answer.
func New(c Config) *Server {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return &Server{
		Config: c, doors: map[netip.AddrPort]bool{},
		questions: newShare(mostAtOnce, mostOfOne), connections: newShare(mostConns, mostConnsOfOne),
	}
}

// share bounds how much is done at a time, in all and for one address.
type share struct {
	all, each int

	mu  sync.Mutex
	sum int
	of  map[netip.Addr]int
}

func newShare(all, each int) *share {
	return &share{all: all, each: each, of: map[netip.Addr]int{}}
}

// take reports whether there is room for one more; then it is given back.
func (s *share) take(from netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sum >= s.all || s.of[from] >= s.each {
		return false
	}
	s.sum++
	s.of[from]++
	return true
}

func (s *share) give(from netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sum--
	if s.of[from]--; s.of[from] == 0 {
		delete(s.of, from)
	}
}
