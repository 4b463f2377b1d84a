package sim

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/controlplane"
	"github.com/berthd/berth/internal/dispatcher"
	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
)

// host is a machine with one server process after another.
type host struct {
	fleet *fleet
	id    string
	wall  atomic.Int64 // offset of its wall clock, in nanoseconds
	boot  atomic.Int64 // offset of its boot-time clock, in nanoseconds
	lives int

	mu   sync.Mutex
	down int // number of events that keep it down
	live *server
}

// server is one process of a server.
type server struct {
	fleet  *fleet
	id     string
	host   *host
	ctx    context.Context //nolint:containedctx // the life of the process
	stop   func()
	paused *atomic.Bool
	work   sync.WaitGroup

	engine   *engineLink
	tables   *store.Tables
	plane    *controlplane.Plane            // of the default domain
	planes   map[string]*controlplane.Plane // by domain
	dispatch *dispatcher.Dispatcher
}

// bootClock is the machine's boot-time clock.
func (h *host) bootClock() time.Duration {
	return time.Hour + time.Since(h.fleet.began) + time.Duration(h.boot.Load())
}

func (h *host) wallClock() time.Time { return time.Now().Add(time.Duration(h.wall.Load())) }

// liveServer returns the running server process, or nil.
func (h *host) liveServer() *server {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.live
}

// start starts a server process, unless an event keeps the machine down.
func (h *host) start() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down > 0 || h.live != nil {
		return
	}
	h.lives++
	f := h.fleet
	s := &server{fleet: f, id: h.id, host: h, paused: new(atomic.Bool)}
	ctx, cancel := context.WithCancel(f.ctx)
	s.ctx = ctx
	s.engine = &engineLink{fleet: f, server: s, Engine: f.engine.Open(memory.Hooks{})}
	log := f.logger(h.id)
	without := f.options.Without
	s.tables = store.NewTables(store.TablesConfig{Engine: s.engine, Logger: log, Without: without})
	s.plane = controlplane.New(controlplane.Config{
		Engine: s.engine, Tables: s.tables, Domain: cluster.DefaultDomain, Server: h.id,
		Random: rand.New(rand.NewPCG(f.story.Seed, uint64(h.lives))), NewID: h.identities(cluster.DefaultDomain),
		Logger: log, Now: h.wallClock, Clock: h.bootClock,
		Without: without, Measurer: f.external, ProjectAfter: f.story.projectAfter(), Window: f.story.window(),
	})
	s.planes = map[string]*controlplane.Plane{cluster.DefaultDomain: s.plane}
	s.dispatch = dispatcher.New(dispatcher.Config{
		Engine: s.engine, Tables: s.tables, Logger: log, Clock: h.bootClock,
		Without: without,
	})
	s.work.Go(func() { _ = s.tables.Run(ctx) })
	s.work.Go(func() { _ = s.plane.Run(ctx) })
	s.work.Go(func() { _ = s.dispatch.Run(ctx) })
	if f.story.claims() {
		other := controlplane.New(controlplane.Config{
			Engine: s.engine, Tables: s.tables, Domain: otherDomain, Server: h.id,
			Random: rand.New(rand.NewPCG(f.story.Seed, uint64(h.lives))), NewID: h.identities(otherDomain),
			Logger: log, Now: h.wallClock, Clock: h.bootClock,
			Without: without, ProjectAfter: f.story.projectAfter(), Window: f.story.window(),
		})
		s.planes[otherDomain] = other
		s.work.Go(func() { _ = other.Run(ctx) })
	}
	if len(f.hosts) > 1 {
		s.work.Go(func() { s.sendDigests(ctx) })
	}
	s.stop = func() {
		cancel()
		s.work.Wait()
	}
	h.live = s
}

// identities returns a source of attempt identities for the new process and a domain.
func (h *host) identities(domain string) func() string {
	name, life, n := h.id+":"+domain, h.lives, uint64(0)
	return func() string { // called in the leader's goroutine only
		n++
		return identity(hashed(h.fleet.story.Seed<<32+uint64(life)<<24+n, name))
	}
}

// kill ends the server process.
func (h *host) kill() {
	h.mu.Lock()
	s := h.live
	h.live = nil
	h.mu.Unlock()
	if s != nil {
		s.stop()
	}
}

// countHold adds n events that keep the machine down.
func (h *host) countHold(n int) {
	h.mu.Lock()
	h.down += n
	h.mu.Unlock()
	if n > 0 {
		h.kill()
	} else {
		h.start()
	}
}

// runLater runs do after a while, unless the life of the process ends before.
func (s *server) runLater(after time.Duration, do func(context.Context)) {
	if s.ctx.Err() != nil {
		return
	}
	s.fleet.background.Go(func() {
		if pause.For(s.ctx, after) == nil {
			do(s.ctx)
		}
	})
}

// sendDigests sends the other servers, each second, the liveness of the agents of this server (P6.1).
func (s *server) sendDigests(ctx context.Context) {
	for pause.For(ctx, time.Second) == nil {
		for _, h := range s.fleet.hosts {
			if h.id == s.id {
				continue
			}
			s.sendDigest(ctx, h)
		}
	}
}

// sendDigest sends one digest. Received digests are not forwarded.
func (s *server) sendDigest(ctx context.Context, to *host) {
	ages := map[string]cluster.Pulse{}
	for node, p := range s.tables.Pulses() {
		if s.fleet.node(node).at(s.id) {
			p.At = s.host.bootClock() - p.At // its age
			ages[node] = p
		}
	}
	s.fleet.background.Go(func() {
		f := s.fleet.net.decideDelivery(s.id, to.id, "digest")
		if f.lost || pause.For(ctx, f.delay) != nil || s.fleet.net.waitOpen(ctx, s.id, to.id, time.Second) != nil {
			return
		}
		far := to.liveServer()
		if far == nil {
			return
		}
		for node, p := range ages {
			p.At = to.bootClock() - p.At
			far.tables.SetPulse(node, p)
		}
	})
}

// otherDomain is a second domain, for stories in which nodes change their domain. Its cluster has one job.
const otherDomain = "elsewhere"
