// Package nameserver answers DNS questions for services, to programs of the machine and to tasks behind its bridge.
// Package names speaks the protocol; package addresses knows the addresses. Answers are prepared at the first question
// after a change: 0.16 ms with 1,000 addresses.
package nameserver

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/berthd/berth/internal/agent/addresses"
	"github.com/berthd/berth/internal/agent/names"
	"github.com/berthd/berth/internal/agent/node"
)

// Config configures the answers to DNS questions. The agent always answers at the gateway of its bridge.
type Config struct {
	// Listen is the address for programs of the machine; the agent answers none if it is invalid.
	Listen netip.AddrPort
	// Upstreams are the resolvers for names outside of Berth. Default: those of the machine's resolver file that are
	// not on its loopback, or else those of systemd-resolved.
	Upstreams []netip.AddrPort
}

const (
	// firstAnswerTimeout is how long the first question for a service waits for a server's answer.
	firstAnswerTimeout = 2 * time.Second
	// followTime is how long a service stays followed after the last question for it; unknownFollowTime applies to a
	// service that does not exist or is not known yet.
	followTime, unknownFollowTime = 5 * time.Minute, 30 * time.Second
	// maxFollowedNames limits the services that are followed for questions. A further service replaces the one with the
	// oldest last question.
	maxFollowedNames = 1024
	// maxNewNames is how many unfollowed services one client address may request; each newNameInterval permits one
	// more.
	maxNewNames     = 100
	newNameInterval = 100 * time.Millisecond
	// resolverReadInterval is the shortest time between two reads of the machine's resolver files. gatewayCheckInterval
	// is how often the listener at the gateway is checked.
	resolverReadInterval = 5 * time.Second
	gatewayCheckInterval = 10 * time.Second
	// resolverFolder, in the data directory, holds the resolver files of tasks, one for each cluster.
	resolverFolder = "resolv"
)

// Networks are Networks with a bridge at which tasks reach the agent.
type Networks interface {
	// Gateway returns the gateway's address and the tasks' addresses.
	Gateway() (gateway netip.Addr, tasks netip.Prefix)
	// Bridged reports whether tasks may be behind the bridge.
	Bridged() bool
	// AnswerNames directs questions to the agent at the gateway, and to instead while the agent does not run.
	AnswerNames(ctx context.Context, instead netip.AddrPort) error
}

// Server answers DNS questions for services. A service is followed in the directory from the first question for it
// until some time after the last one. Its methods may be called concurrently.
type Server struct {
	node      *node.Node
	config    Config
	directory *addresses.Directory
	networks  Networks // nil if the node has none
	server    *names.Server
	life      context.Context //nolint:containedctx // ctx of begin: listeners open later

	mu         sync.Mutex
	watched    map[addresses.ServiceName]*watchedName
	allowances map[netip.Addr]*allowance
	file       names.Resolver // of the machine
	resolvers  []netip.AddrPort
	readAt     time.Duration // when the resolver files were read (Boot), 0 for never

	listenMu       sync.Mutex      // guards the remaining fields and life
	gatewayOpen    bool            // the listener at the gateway is open
	instead        netip.AddrPort  // the fallback that the networks have
	insteadSet     bool            // the networks know instead
	loggedProblems map[string]bool // problems that were logged
}

// watchedName is a service that a client requested. The name server's mutex guards it.
type watchedName struct {
	following   *addresses.Following
	began, used time.Duration // (Boot)
	unknown     bool          // the service does not exist or is not known yet
	answer      names.Service
	stamp       string // of answer
}

// allowance limits how many services a client address makes the agent follow.
type allowance struct {
	left int
	at   time.Duration // when left was computed (Boot)
}

// New returns a name server. Nil networks mean that no task asks at a gateway.
func New(on *node.Node, c Config, d *addresses.Directory, networks Networks) *Server {
	n := &Server{
		node: on, config: c, directory: d, networks: networks, watched: map[addresses.ServiceName]*watchedName{},
		allowances: map[netip.Addr]*allowance{}, loggedProblems: map[string]bool{},
	}
	n.server = names.New(names.Config{Directory: n, Upstreams: n.upstreams, Logger: on.Logger})
	return n
}

// Begin opens the listeners and maintains them until ctx ends.
func (n *Server) Begin(ctx context.Context) {
	n.listenMu.Lock()
	n.life, n.gatewayOpen, n.insteadSet = ctx, false, false
	n.listenMu.Unlock()
	if n.config.Listen.IsValid() {
		n.openHost()
	}
	n.listenAtGateway(false)
	n.node.Go(func() {
		check, tidy := time.NewTicker(gatewayCheckInterval), time.NewTicker(unknownFollowTime)
		defer check.Stop()
		defer tidy.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-check.C:
				n.listenAtGateway(false)
			case <-tidy.C:
				n.forgetUnused()
			}
		}
	})
}

// openHost opens the listener for the programs of the machine.
func (n *Server) openHost() {
	at := n.config.Listen
	listener, err := names.Listen(n.life, at)
	if err != nil {
		level := slog.LevelWarn
		if errors.Is(err, syscall.EADDRINUSE) {
			level = slog.LevelInfo // usually by another agent
		}
		n.node.Logger.Log(n.life, level,
			"programs of the machine get no answers for names from this agent; its tasks with network bridge do",
			"listen", at, "error", err, "remedy",
			"give it a free address with --dns-listen, or none with --dns-listen off")
		return
	}
	n.node.Logger.Info("names are answered", "listen", listener.Address())
	n.node.Go(func() { n.server.Serve(n.life, listener, func(netip.Addr) bool { return true }) })
}

// listenAtGateway answers questions at the bridge's address if tasks are behind the bridge, or will be (wanted). It
// returns the address.
func (n *Server) listenAtGateway(wanted bool) (gateway netip.Addr, ok bool) {
	n.listenMu.Lock()
	defer n.listenMu.Unlock()
	networks := n.networks
	if networks == nil || n.life == nil || n.life.Err() != nil || !wanted && !networks.Bridged() {
		return gateway, false
	}
	gateway, tasks := networks.Gateway()
	if !n.gatewayOpen {
		listener, err := names.Listen(n.life, netip.AddrPortFrom(gateway, names.Port))
		if err != nil {
			n.warnOnce("tasks behind the bridge find no services by name", err)
			return gateway, false
		}
		n.gatewayOpen = true
		n.node.Go(func() {
			n.server.Serve(n.life, listener, func(from netip.Addr) bool {
				return from == gateway || tasks.Contains(from)
			})
		})
	}
	upstreams := n.upstreams()
	if len(upstreams) == 0 {
		n.warnOnce("tasks behind the bridge find no names but those of services",
			errors.New("the machine's resolver files name only its own loopback: give the agent a resolver "+
				"with --dns-upstream"))
		upstreams = []netip.AddrPort{{}}
	}
	if !n.insteadSet || n.instead != upstreams[0] {
		if err := networks.AnswerNames(n.life, upstreams[0]); err != nil {
			n.warnOnce("the rules for names of tasks behind the bridge are not as they should be", err)
			return gateway, true
		}
		n.insteadSet, n.instead = true, upstreams[0]
	}
	return gateway, true
}

// warnOnce logs a problem once. n.listenMu is held.
func (n *Server) warnOnce(what string, err error) {
	if text := what + err.Error(); !n.loggedProblems[text] && len(n.loggedProblems) < 100 {
		n.loggedProblems[text] = true
		n.node.Logger.Warn("DNS questions are not answered as configured", "what", what, "error", err)
	}
}

// upstreams returns the resolvers for all other names.
func (n *Server) upstreams() []netip.AddrPort {
	if given := n.config.Upstreams; len(given) > 0 {
		return given
	}
	_, list := n.resolver()
	return list
}

// resolver returns the machine's resolver file and the resolvers that it leads to in the end.
func (n *Server) resolver() (names.Resolver, []netip.AddrPort) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.readAt != 0 && n.node.Boot()-n.readAt < resolverReadInterval {
		return n.file, n.resolvers
	}
	n.readAt = n.node.Boot()
	n.file, n.resolvers = names.Resolver{}, nil
	if text, err := os.ReadFile(resolverFile); err == nil {
		n.file = names.ParseResolver(text)
	}
	servers := n.file.Outward()
	if text, err := os.ReadFile(outwardFile); err == nil && len(servers) == 0 {
		servers = names.ParseResolver(text).Outward()
	}
	for _, s := range servers {
		n.resolvers = append(n.resolvers, netip.AddrPortFrom(s, names.Port))
	}
	return n.file, n.resolvers
}

// Service implements names.Directory. A question for a service makes the agent follow it.
func (n *Server) Service(ctx context.Context, from netip.Addr, inCluster, service string) (names.Service, error) {
	name := addresses.ServiceName{Cluster: inCluster, Service: service}
	w := n.watch(from, name)
	if w == nil {
		return names.Service{}, names.ErrUnknown
	}
	until := w.began + firstAnswerTimeout
	for {
		changed := w.following.Changed() // before now is read: other readers may take the change
		now := w.following.Now(name)
		left := until - n.node.Boot()
		switch {
		case now.Known && (!now.Stale || left <= 0):
			return n.answer(w, &now), nil
		case left <= 0:
			return names.Service{}, names.ErrUnknown
		}
		timer := time.NewTimer(left)
		select {
		case <-ctx.Done():
			timer.Stop()
			return names.Service{}, ctx.Err()
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// watch returns the service and follows it from now on. It returns nil if the address requested too many services that
// no other client requested.
func (n *Server) watch(from netip.Addr, name addresses.ServiceName) *watchedName {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.node.Boot()
	w := n.watched[name]
	if w == nil {
		if !n.allowed(from, now) {
			return nil
		}
		if len(n.watched) >= maxFollowedNames {
			n.evictName()
		}
		w = &watchedName{following: n.directory.Follow(name), began: now, unknown: true}
		n.watched[name] = w
	}
	w.used = now
	return w
}

// allowed takes one from the allowance of an address. n.mu is held.
func (n *Server) allowed(from netip.Addr, now time.Duration) bool {
	a := n.allowances[from]
	if a == nil {
		a = &allowance{left: maxNewNames, at: now}
		n.allowances[from] = a
	}
	if more := int((now - a.at) / newNameInterval); more > 0 {
		a.left = min(maxNewNames, a.left+more)
		a.at += time.Duration(more) * newNameInterval
	}
	if a.left == 0 {
		return false
	}
	a.left--
	return true
}

// evictName stops following the service with the oldest last question, unknown services first. n.mu is held.
func (n *Server) evictName() {
	var last addresses.ServiceName
	var worst *watchedName
	for name, w := range n.watched { // order-free: a tie may go either way
		if worst == nil || w.unknown && !worst.unknown || w.unknown == worst.unknown && w.used < worst.used {
			last, worst = name, w
		}
	}
	if worst != nil {
		worst.following.Stop()
		delete(n.watched, last)
	}
}

// answer returns the answer for a service, which is built once for each stamp.
func (n *Server) answer(w *watchedName, now *addresses.Service) names.Service {
	n.mu.Lock()
	defer n.mu.Unlock()
	w.unknown = now.Missing
	if w.stamp == now.Stamp && w.stamp != "" {
		return w.answer
	}
	s := names.Service{Missing: now.Missing}
	for _, a := range now.Addresses {
		if addr, err := netip.ParseAddr(a.Address); err == nil {
			s.Addresses = append(s.Addresses, names.Address{Addr: addr.Unmap().WithZone(""), Ports: a.Ports})
		}
	}
	w.answer, w.stamp = s, now.Stamp
	return s
}

// forgetUnused stops following services without recent questions.
func (n *Server) forgetUnused() {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.node.Boot()
	for name, w := range n.watched { // order-free: services are independent
		kept := followTime
		if w.unknown {
			kept = unknownFollowTime
		}
		if now-w.used > kept {
			w.following.Stop()
			delete(n.watched, name)
		}
	}
	for from, a := range n.allowances { // order-free: addresses are independent
		if now-a.at > maxNewNames*newNameInterval {
			delete(n.allowances, from)
		}
	}
}
