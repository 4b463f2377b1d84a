// Package names answers DNS questions of a node's tasks. It answers names of services, which end in ".berth", from the
// addresses of their healthy tasks. It forwards all others to the node's resolvers.
//
//	<service>.<cluster>.berth               A and AAAA: the addresses of the nodes that healthy tasks are on;
//	                                        SRV: with all their ports
//	_<port>._tcp.<service>.<cluster>.berth  SRV: with one of their ports, by its name; _udp is the same
//	<address>.<service>.<cluster>.berth     the target of an SRV: an address of the service, with "-" for "." and ":"
//
// An unknown service does not exist (NXDOMAIN); a service without a healthy task has no addresses (NOERROR). Before a
// server has sent a service's addresses, the answer is SERVFAIL, which clients do not cache.
//
// Clients are tasks and may be hostile: questions, connections and forwarded questions are limited, in total and for
// each client address.
package names

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"time"
)

// Zone is the last label of the names of services, without dots.
const Zone = "berth"

// TTL is how long clients may cache an answer about a service, also a negative one.
const TTL = 5 * time.Second

// Limits of concurrent work.
const (
	maxConcurrentQuestions = 512 // questions
	maxQuestionsPerClient  = 128 // questions of one address
	maxConns               = 256 // connections
	maxConnsPerClient      = 32
	connIdleTimeout        = 10 * time.Second // longest silence on a connection
	maxConnAge             = 2 * time.Minute
	answerTimeout          = 6 * time.Second // for one answer
)

// Address is an address of a service, with the ports of a task there, by name.
type Address struct {
	Addr  netip.Addr
	Ports map[string]int
}

// Service is the state of a service. Callers do not change it.
type Service struct {
	// Missing means that no service has the name.
	Missing   bool
	Addresses []Address
}

// ErrUnknown means that the state of a service is not known yet.
var ErrUnknown = errors.New("no server has sent addresses of the service")

// Directory provides the state of services.
type Directory interface {
	// Service returns the state of a service for a question from an address; it may wait a moment for the state. Any
	// error means that the state is unknown. It may be called concurrently.
	Service(ctx context.Context, from netip.Addr, cluster, service string) (Service, error)
}

// Config configures a Server.
type Config struct {
	Directory Directory
	// Upstreams returns the resolvers for all other names, in the order of preference. It is called for each question.
	Upstreams func() []netip.AddrPort
	Logger    *slog.Logger // default: discard
}

// Server answers DNS questions. Its methods may be called concurrently.
type Server struct {
	Config

	questions, connections *quota

	mu        sync.Mutex
	listeners map[netip.AddrPort]bool // the server's own addresses: it never forwards to itself
}

// New returns a server; Serve makes it answer.
func New(c Config) *Server {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return &Server{
		Config: c, listeners: map[netip.AddrPort]bool{},
		questions:   newQuota(maxConcurrentQuestions, maxQuestionsPerClient),
		connections: newQuota(maxConns, maxConnsPerClient),
	}
}

// quota limits concurrent work, in total and for one address.
type quota struct {
	all, each int

	mu  sync.Mutex
	sum int
	of  map[netip.Addr]int
}

func newQuota(all, each int) *quota {
	return &quota{all: all, each: each, of: map[netip.Addr]int{}}
}

// take reports whether there is room for one more; a true result must be followed by release.
func (s *quota) take(from netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sum >= s.all || s.of[from] >= s.each {
		return false
	}
	s.sum++
	s.of[from]++
	return true
}

func (s *quota) release(from netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sum--
	if s.of[from]--; s.of[from] == 0 {
		delete(s.of, from)
	}
}
