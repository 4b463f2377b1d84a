package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/berthd/berth/internal/agent/names"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

// NamesConfig says how an agent answers questions for names. At the gateway of its bridge it answers without being told
// so.
type NamesConfig struct {
	// Listen is where it answers the programs of its machine, none if it is not valid.
	Listen netip.AddrPort
	// Upstreams are the resolvers that names are passed on to which are not Berth's. Default: those of the machine's
	// resolver file that are not on its loopback, or else those that systemd-resolved asks.
	Upstreams []netip.AddrPort
}

const (
	// nameWait is how long the first question for a service waits until a server tells of it.
	nameWait = 2 * time.Second
	// nameKept is how long a service is followed after the last question for it, unknownKept one that nothing is known
	// of or that does not exist.
	nameKept, unknownKept = 5 * time.Minute, 30 * time.Second
	// mostNames is how many services are followed for questions; who asks for more takes the place of those asked for
	// longest ago.
	mostNames = 1024
	// An address may ask for newNames services that are not followed yet, and for newNamesEvery later another one.
	newNames      = 100
	newNamesEvery = 100 * time.Millisecond
	// resolverEvery is how often the machine's resolver files are read at most, namesEvery how often it is looked
	// whether all is as it should be.
	resolverEvery = 5 * time.Second
	namesEvery    = 10 * time.Second
	// resolverFolder, in the data directory, holds the resolver files of tasks, one for each cluster.
	resolverFolder = "resolv"
)

// namedNetworks are Networks with a bridge at which tasks reach the agent.
type namedNetworks interface {
	// Gateway returns where that is, and the addresses of the tasks.
	Gateway() (gateway netip.Addr, tasks netip.Prefix)
	// Bridged reports whether there may be tasks behind the bridge.
	Bridged() bool
	// AnswerNames says that the agent answers at the gateway, and who does instead while it is not running.
	AnswerNames(ctx context.Context, instead netip.AddrPort) error
}

// nameDesk answers questions for names. Its methods may be called concurrently.
type nameDesk struct {
	agent  *Agent
	server *names.Server
	life   context.Context //nolint:containedctx // that of Run, in which doors are opened when the first task needs them

	mu      sync.Mutex
	watched map[serviceName]*watched
	askers  map[netip.Addr]*allowance
	file    names.Resolver // the machine's
	asked   []netip.AddrPort
	read    time.Duration // when the files were read (Boot), 0 before

	gate    sync.Mutex     // of what follows, and of life
	open    bool           // the door at the gateway
	instead netip.AddrPort // what the networks were told
	told    bool
	said    map[string]bool // what was said that does not work
}

// watched is a service that somebody asked for. The desk's mutex guards it.
type watched struct {
	following   *following
	began, used time.Duration // (Boot)
	poor        bool          // nothing is known of it, or that it does not exist
	known       names.Service
	stamp       string // of known
}

// allowance bounds how many services an address makes the agent follow.
type allowance struct {
	left int
	at   time.Duration // when left was counted (Boot)
}

func newNameDesk(a *Agent) *nameDesk {
	n := &nameDesk{
		agent: a, watched: map[serviceName]*watched{}, askers: map[netip.Addr]*allowance{}, said: map[string]bool{},
	}
	n.server = names.New(names.Config{Directory: n, Upstreams: n.upstreams, Logger: a.Logger})
	return n
}

// begin opens the doors, and keeps all in order until ctx ends.
func (n *nameDesk) begin(ctx context.Context) {
	n.gate.Lock()
	n.life, n.open, n.told = ctx, false, false
	n.gate.Unlock()
	if n.agent.Names.Listen.IsValid() {
		n.openHost()
	}
	n.atGateway(false)
	n.agent.work.Go(func() {
		look, tidy := time.NewTicker(namesEvery), time.NewTicker(unknownKept)
		defer look.Stop()
		defer tidy.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-look.C:
				n.atGateway(false)
			case <-tidy.C:
				n.tidy()
			}
		}
	})
}

// openHost opens the door for the programs of the machine.
func (n *nameDesk) openHost() {
	at := n.agent.Names.Listen
	door, err := names.Listen(n.life, at)
	if err != nil {
		level := slog.LevelWarn
		if errors.Is(err, syscall.EADDRINUSE) {
			level = slog.LevelInfo // by another agent, as a rule
		}
		n.agent.Logger.Log(n.life, level,
			"programs of the machine get no answers for names from this agent; its tasks with network bridge do",
			"listen", at, "error", err, "remedy",
			"give it a free address with --dns-listen, or none with --dns-listen off")
		return
	}
	n.agent.Logger.Info("names are answered", "listen", door.Address())
	n.agent.work.Go(func() { n.server.Serve(n.life, door, func(netip.Addr) bool { return true }) })
}

// atGateway answers at the bridge's own address where there are, or, with wanted, will be tasks behind it, and returns
// where that is.
func (n *nameDesk) atGateway(wanted bool) (gateway netip.Addr, ok bool) {
	networks, can := n.agent.Networks.(namedNetworks)
	n.gate.Lock()
	defer n.gate.Unlock()
	if !can || n.life == nil || n.life.Err() != nil || !wanted && !networks.Bridged() {
		return gateway, false
	}
	gateway, tasks := networks.Gateway()
	if !n.open {
		door, err := names.Listen(n.life, netip.AddrPortFrom(gateway, names.Port))
		if err != nil {
			n.sayOnce("tasks behind the bridge find no services by name", err)
			return gateway, false
		}
		n.open = true
		n.agent.work.Go(func() {
			n.server.Serve(n.life, door, func(from netip.Addr) bool { return from == gateway || tasks.Contains(from) })
		})
	}
	upstreams := n.upstreams()
	if len(upstreams) == 0 {
		n.sayOnce("tasks behind the bridge find no names but those of services",
			errors.New("the machine's resolver files name only its own loopback: give the agent a resolver "+
				"with --dns-upstream"))
		upstreams = []netip.AddrPort{{}}
	}
	if !n.told || n.instead != upstreams[0] {
		if err := networks.AnswerNames(n.life, upstreams[0]); err != nil {
			n.sayOnce("the rules for names of tasks behind the bridge are not as they should be", err)
			return gateway, true
		}
		n.told, n.instead = true, upstreams[0]
	}
	return gateway, true
}

// sayOnce tells what does not work. n.gate is held.
func (n *nameDesk) sayOnce(what string, err error) {
	if text := what + err.Error(); !n.said[text] && len(n.said) < 100 {
		n.said[text] = true
		n.agent.Logger.Warn("names are not answered as they should be", "what", what, "error", err)
	}
}

// upstreams returns the resolvers that other names are passed on to.
func (n *nameDesk) upstreams() []netip.AddrPort {
	if given := n.agent.Names.Upstreams; len(given) > 0 {
		return given
	}
	_, list := n.resolver()
	return list
}

// resolver returns what the machine's own resolver file says, and whom it asks in the end.
func (n *nameDesk) resolver() (names.Resolver, []netip.AddrPort) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.read != 0 && n.agent.Boot()-n.read < resolverEvery {
		return n.file, n.asked
	}
	n.read = n.agent.Boot()
	n.file, n.asked = names.Resolver{}, nil
	if text, err := os.ReadFile(resolverFile); err == nil {
		n.file = names.ParseResolver(text)
	}
	servers := n.file.Outward()
	if text, err := os.ReadFile(outwardFile); err == nil && len(servers) == 0 {
		servers = names.ParseResolver(text).Outward()
	}
	for _, s := range servers {
		n.asked = append(n.asked, netip.AddrPortFrom(s, names.Port))
	}
	return n.file, n.asked
}

// Service implements names.Directory: who asks for a service lets it be followed.
func (n *nameDesk) Service(ctx context.Context, from netip.Addr, inCluster, service string) (names.Service, error) {
	name := serviceName{inCluster, service}
	w := n.watch(from, name)
	if w == nil {
		return names.Service{}, names.ErrNotTold
	}
	until := w.began + nameWait
	for {
		news := w.following.changed() // before it is looked: others look too
		now := w.following.now(name)
		left := until - n.agent.Boot()
		switch {
		case now.Known && (!now.Old || left <= 0):
			return n.known(w, &now), nil
		case left <= 0:
			return names.Service{}, names.ErrNotTold
		}
		timer := time.NewTimer(left)
		select {
		case <-ctx.Done():
			timer.Stop()
			return names.Service{}, ctx.Err()
		case <-news:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// watch returns the service that is asked for, which is followed from now on; nil where the address asked for too many
// that nobody else did.
func (n *nameDesk) watch(from netip.Addr, name serviceName) *watched {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.agent.Boot()
	w := n.watched[name]
	if w == nil {
		if !n.allowed(from, now) {
			return nil
		}
		if len(n.watched) >= mostNames {
			n.makeRoom()
		}
		w = &watched{following: n.agent.directory().follow(name), began: now, poor: true}
		n.watched[name] = w
	}
	w.used = now
	return w
}

// allowed takes one from what an address may let be followed. n.mu is held.
func (n *nameDesk) allowed(from netip.Addr, now time.Duration) bool {
	a := n.askers[from]
	if a == nil {
		a = &allowance{left: newNames, at: now}
		n.askers[from] = a
	}
	if more := int((now - a.at) / newNamesEvery); more > 0 {
		a.left = min(newNames, a.left+more)
		a.at += time.Duration(more) * newNamesEvery
	}
	if a.left == 0 {
		return false
	}
	a.left--
	return true
}

// makeRoom lets go of the service that was asked for longest ago, first of one that nothing is known of. n.mu is held.
func (n *nameDesk) makeRoom() {
	var last serviceName
	var worst *watched
	for name, w := range n.watched { // order-free: of two that were asked for at once either goes
		if worst == nil || w.poor && !worst.poor || w.poor == worst.poor && w.used < worst.used {
			last, worst = name, w
		}
	}
	if worst != nil {
		worst.following.stop()
		delete(n.watched, last)
	}
}

// known returns what there is to answer, which is made once for each stamp.
func (n *nameDesk) known(w *watched, now *serviceAddresses) names.Service {
	n.mu.Lock()
	defer n.mu.Unlock()
	w.poor = now.Missing
	if w.stamp == now.Stamp && w.stamp != "" {
		return w.known
	}
	s := names.Service{Missing: now.Missing}
	for _, a := range now.Addresses {
		if addr, err := netip.ParseAddr(a.Address); err == nil {
			s.Addresses = append(s.Addresses, names.Address{Addr: addr.Unmap().WithZone(""), Ports: a.Ports})
		}
	}
	w.known, w.stamp = s, now.Stamp
	return s
}

// tidy lets go of what nobody asks for any more.
func (n *nameDesk) tidy() {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.agent.Boot()
	for name, w := range n.watched { // order-free: each is judged by itself
		kept := nameKept
		if w.poor {
			kept = unknownKept
		}
		if now-w.used > kept {
			w.following.stop()
			delete(n.watched, name)
		}
	}
	for from, a := range n.askers { // order-free: each is judged by itself
		if now-a.at > newNames*newNamesEvery {
			delete(n.askers, from)
		}
	}
}

// resolver returns the mount of the resolver file that a container behind a bridge sees: one that names the agent, or
// where that cannot answer there what it would see without Berth's names.
func (a *Agent) resolver(d *cluster.Desired, def *cluster.TaskDefinition, c *cluster.Container) []executor.Mount {
	if def.Network != cluster.NetworkBridge || ownResolver(c) {
		return nil
	}
	gateway, ok := a.names.atGateway(true)
	if !ok {
		return resolver(def, c, os.ReadFile)
	}
	file, _ := a.names.resolver()
	path := filepath.Join(a.DataDir, resolverFolder, d.Owner.Cluster)
	if err := keepFile(path, []byte(file.File(gateway, d.Owner.Cluster))); err != nil {
		a.Logger.Warn("a task finds no services by name", "task", d.Task, "error", err)
		return resolver(def, c, os.ReadFile)
	}
	return []executor.Mount{{Source: path, Path: resolverFile, ReadOnly: true}}
}

// keepFile writes a file unless it holds the text already. It is the same file afterwards, which others see.
func keepFile(path string, text []byte) error {
	if old, err := os.ReadFile(path); err == nil && slices.Equal(old, text) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // whoever runs in the task reads it
		return err
	}
	return os.WriteFile(path, text, 0o644) //nolint:gosec // whoever runs in the task reads it
}
