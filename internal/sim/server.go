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
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
)

// host is a machine on which lives of a server follow each other.
type host struct {
	w     *World
	id    string
	wall  atomic.Int64 // offset of its wall clock, in nanoseconds
	boot  atomic.Int64 // offset of its boot-time clock, in nanoseconds
	lives int

	mu   sync.Mutex
	down int // number of events that keep it down
	live *server
}

// server is one life of a server.
type server struct {
	w      *World
	id     string
	host   *host
	ctx    context.Context //nolint:containedctx // the life
	stop   func()
	paused *atomic.Bool
	work   sync.WaitGroup

	engine   *engineLink
	tables   *store.Tables
	plane    *controlplane.Plane
	dispatch *dispatcher.Dispatcher
}

// bootClock is the machine's boot-time clock.
func (h *host) bootClock() time.Duration {
	return time.Hour + time.Since(h.w.began) + time.Duration(h.boot.Load())
}

func (h *host) wallClock() time.Time { return time.Now().Add(time.Duration(h.wall.Load())) }

// now returns the present life, or nil.
func (h *host) now() *server {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.live
}

// start begins a life, unless something keeps the machine down.
func (h *host) start() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down > 0 || h.live != nil {
		return
	}
	h.lives++
	w := h.w
	s := &server{w: w, id: h.id, host: h, paused: new(atomic.Bool)}
	ctx, cancel := context.WithCancel(w.ctx)
	s.ctx = ctx
	s.engine = &engineLink{w: w, server: s, Engine: w.engine.Open(memory.Hooks{})}
	log := w.logger(h.id)
	without := w.options.Without
	s.tables = store.NewTables(store.TablesConfig{Engine: s.engine, Logger: log, Without: without})
	s.plane = controlplane.New(controlplane.Config{
		Engine: s.engine, Tables: s.tables, Domain: cluster.DefaultDomain, Server: h.id,
		Random: rand.New(rand.NewPCG(w.story.Seed, uint64(h.lives))), NewID: h.identities(cluster.DefaultDomain),
		Logger: log, Now: h.wallClock, Clock: h.bootClock,
		Without: without, Measurer: w.external, ProjectAfter: w.story.projectAfter(),
	})
	s.dispatch = dispatcher.New(dispatcher.Config{
		Engine: s.engine, Tables: s.tables, Domain: cluster.DefaultDomain, Logger: log, Clock: h.bootClock,
		Without: without,
	})
	s.work.Go(func() { _ = s.tables.Run(ctx) })
	s.work.Go(func() { _ = s.plane.Run(ctx) })
	s.work.Go(func() { _ = s.dispatch.Run(ctx) })
	if w.story.claims() {
		other := controlplane.New(controlplane.Config{
			Engine: s.engine, Tables: s.tables, Domain: otherDomain, Server: h.id,
			Random: rand.New(rand.NewPCG(w.story.Seed, uint64(h.lives))), NewID: h.identities(otherDomain),
			Logger: log, Now: h.wallClock, Clock: h.bootClock,
			Without: without, ProjectAfter: w.story.projectAfter(),
		})
		s.work.Go(func() { _ = other.Run(ctx) })
	}
	if len(w.hosts) > 1 {
		s.work.Go(func() { s.sendDigests(ctx) })
	}
	s.stop = func() {
		cancel()
		s.work.Wait()
	}
	h.live = s
}

// identities returns a source of attempt identities for the new life and a domain.
func (h *host) identities(domain string) func() string {
	name, life, n := h.id+":"+domain, h.lives, uint64(0)
	return func() string { // called in the leader's goroutine only
		n++
		return identity(hashed(h.w.story.Seed<<32+uint64(life)<<24+n, name))
	}
}

// kill ends the present life.
func (h *host) kill() {
	h.mu.Lock()
	s := h.live
	h.live = nil
	h.mu.Unlock()
	if s != nil {
		s.stop()
	}
}

// hold adds n events that keep the machine down.
func (h *host) hold(n int) {
	h.mu.Lock()
	h.down += n
	h.mu.Unlock()
	if n > 0 {
		h.kill()
	} else {
		h.start()
	}
}

// later runs do after a while, unless the life ends before.
func (s *server) later(after time.Duration, do func(context.Context)) {
	if s.ctx.Err() != nil {
		return
	}
	s.w.background.Go(func() {
		if sleep(s.ctx, after) {
			do(s.ctx)
		}
	})
}

// sendDigests sends the other servers each second the pulses that were heard here, as the servers of a fleet do (P6.1).
func (s *server) sendDigests(ctx context.Context) {
	for sleep(ctx, time.Second) {
		for _, h := range s.w.hosts {
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
		if s.w.node(node).at(s.id) {
			p.At = s.host.bootClock() - p.At // its age
			ages[node] = p
		}
	}
	s.w.background.Go(func() {
		f := s.w.net.decideDelivery(s.id, to.id, "digest")
		if f.lost || !sleep(ctx, f.delay) || s.w.net.waitOpen(ctx, s.id, to.id, time.Second) != nil {
			return
		}
		far := to.now()
		if far == nil {
			return
		}
		for node, p := range ages {
			p.At = to.bootClock() - p.At
			far.tables.SetPulse(node, p)
		}
	})
}

// otherDomain is a second domain, for worlds in which nodes change their owner. It has no work of its own.
const otherDomain = "elsewhere"
