// Package domains runs this server's part in every domain that exists: one control plane for each.
//
// The default domain always has one. Those of other domains start and end with the record of the domain. A domain that
// is deleted and made again gets another one, because its plans have other numbers then.
package domains

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/controlplane"
	"github.com/berthd/berth/internal/store"
)

// Config is what New needs.
type Config struct {
	Tables *store.Tables
	// NewPlane returns the control plane of a domain. It starts nothing.
	NewPlane func(domain string) *controlplane.Plane
	Log      *slog.Logger
}

// Planes are the control planes of one server. They are safe for concurrent use.
type Planes struct {
	config       Config
	defaultPlane *controlplane.Plane

	mu      sync.RWMutex
	running map[string]*running // without the default domain
}

// running is a control plane that runs, for a record of its domain.
type running struct {
	plane  *controlplane.Plane
	number uint64
	stop   context.CancelFunc
	ended  chan struct{}
}

// New returns the planes. That of the default domain exists at once. Run starts them.
func New(c Config) *Planes {
	return &Planes{config: c, defaultPlane: c.NewPlane(cluster.DefaultDomain), running: map[string]*running{}}
}

// Default returns the control plane of the default domain.
func (p *Planes) Default() *controlplane.Plane { return p.defaultPlane }

// Of returns the control plane of a domain, nil if this server runs none.
func (p *Planes) Of(domain string) *controlplane.Plane {
	if domain == cluster.DefaultDomain {
		return p.defaultPlane
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	if r := p.running[domain]; r != nil {
		return r.plane
	}
	return nil
}

// Run runs the planes until the context ends, and returns when all have ended. It is called once.
//
// A plane of another domain that ends early ends nothing else: it is logged, and starts again with the next change of a
// domain. The error of the default domain's plane ends Run.
func (p *Planes) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer func() { // the context has ended
		p.mu.RLock()
		defer p.mu.RUnlock()
		stopAll(slices.Collect(maps.Values(p.running)))
	}()
	defer cancel()
	follow := p.config.Tables.Follow(store.TopicDomain)
	defer follow.Close()
	ended := make(chan error, 1)
	go func() { ended <- p.defaultPlane.Run(ctx) }()
	for {
		p.adjust(ctx)
		select {
		case err := <-ended:
			return err
		case <-follow.Wake():
			follow.Take()
		}
	}
}

// adjust starts and stops planes, so that each domain has one.
func (p *Planes) adjust(ctx context.Context) {
	snap := p.config.Tables.Snapshot()
	wanted := map[string]uint64{}
	for _, name := range snap.Domains() {
		if number, ok := snap.DomainNumber(name); ok && name != cluster.DefaultDomain {
			wanted[name] = number
		}
	}
	var stopped []*running
	p.mu.Lock()
	for name, r := range p.running { // order-free: each by itself
		if number, ok := wanted[name]; ok && number == r.number && !r.hasEnded() {
			continue
		}
		delete(p.running, name)
		stopped = append(stopped, r)
	}
	p.mu.Unlock()
	stopAll(stopped) // before others of the same domains start
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, number := range wanted { // order-free: each by itself
		if p.running[name] == nil && ctx.Err() == nil {
			p.running[name] = p.start(ctx, name, number)
		}
	}
}

// start starts the control plane of a domain with the number.
func (p *Planes) start(ctx context.Context, domain string, number uint64) *running {
	ctx, stop := context.WithCancel(ctx)
	r := &running{plane: p.config.NewPlane(domain), number: number, stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		if err := r.plane.Run(ctx); err != nil && ctx.Err() == nil {
			p.config.Log.Error("the control plane of a domain ended", "domain", domain, "error", err)
		}
	}()
	return r
}

// stopAll stops planes, and waits until they have ended.
func stopAll(planes []*running) {
	for _, r := range planes {
		r.stop()
	}
	for _, r := range planes {
		<-r.ended
	}
}

// hasEnded reports whether the plane has ended.
func (r *running) hasEnded() bool {
	select {
	case <-r.ended:
		return true
	default:
		return false
	}
}
