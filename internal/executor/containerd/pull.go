package containerd

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/client"
	metadata "github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/egress"
	"github.com/berthd/berth/internal/executor/containerd/registry"
	"github.com/berthd/berth/internal/pause"
)

// PullConfig limits how a node pulls images. A field that is 0 has its default.
type PullConfig struct {
	// MaxConcurrent is the number of images that are pulled at a time, default DefaultPulls. A single registry gets one
	// less, if MaxConcurrent is more than 1.
	MaxConcurrent int
	// MaxAttempts is the number of attempts of a pull, default 6. MaxWait is the total wait between them, default 5
	// minutes.
	MaxAttempts int
	MaxWait     time.Duration
	// FirstRetry is the wait after the first attempt. It doubles with each attempt up to LongestRetry, and half of it
	// is random. Default 1 s and 1 minute.
	FirstRetry, LongestRetry time.Duration
	// StallTimeout is how long a registry may send nothing within a response, default 1 minute.
	StallTimeout time.Duration
	// ProgressInterval is the least interval between progress messages, default 3 s.
	ProgressInterval time.Duration
	// Egress limits the addresses of requests, also of those that go through the proxy of the environment. A registry
	// may be on this machine.
	Egress egress.Policy
}

// DefaultPulls is the number of images that a node pulls at a time.
const DefaultPulls = 4

func (c *PullConfig) defaults() {
	set := func(d *time.Duration, standard time.Duration) {
		if *d <= 0 {
			*d = standard
		}
	}
	if c.MaxConcurrent <= 0 {
		c.MaxConcurrent = DefaultPulls
	}
	if c.MaxAttempts <= 0 {
		c.MaxAttempts = 6
	}
	set(&c.MaxWait, 5*time.Minute)
	set(&c.FirstRetry, time.Second)
	set(&c.LongestRetry, time.Minute)
	set(&c.StallTimeout, time.Minute)
	set(&c.ProgressInterval, 3*time.Second)
}

// retryDelay returns the wait after that many failures in a row.
func (c *PullConfig) retryDelay(failures int) time.Duration {
	return pause.Jitter(pause.Doubled(c.FirstRetry, c.LongestRetry, failures), rand.Float64)
}

// partialLifetime is how long containerd keeps the content of a failed pull, so that the next pull continues there.
const partialLifetime = time.Hour

// puller pulls images, each once at a time however many request it.
type puller struct {
	PullConfig
	registries *registry.Client
	slots      *registry.Slots

	mu      sync.Mutex
	running map[pullKey]*pull
}

// pullKey distinguishes pulls by login: a login gets content only if the registry accepts that login.
type pullKey struct{ ref, user, secret string }

func newPuller(c PullConfig) *puller {
	c.defaults()
	return &puller{
		PullConfig: c, registries: registry.New(c.StallTimeout, c.Egress, http.ProxyFromEnvironment),
		slots:   registry.NewSlots(c.MaxConcurrent),
		running: map[pullKey]*pull{},
	}
}

// pull is the pull of one image, shared by all its waiters.
type pull struct {
	images      *imageSource
	ref, host   string
	displayName string // the image as people know it
	user        string
	credentials func(string) (string, string)
	cancel      context.CancelFunc
	done        chan struct{} // closed with img and err set
	img         client.Image
	err         error

	waiters    int // puller.mu
	progressMu sync.Mutex
	rate       rate // progressMu

	mu      sync.Mutex
	state   string                               // the current activity, unless it is fetching
	failure string                               // the state after the last try; empty during the first one
	parts   map[digest.Digest]*part              // configuration and layers
	blobs   map[digest.Digest]ocispec.Descriptor // all requested ones
}

// pullShared pulls an image, or joins a running pull; displayName is its name for users. It returns soon after ctx
// ends. The pull ends with its last waiter.
func (src *imageSource) pullShared(ctx context.Context, ref, displayName string,
	credentials func(string) (string, string), progress func(string),
) (client.Image, error) {
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return nil, fmt.Errorf("image: %q is not the name of an image: %w", ref, err)
	}
	p, leave := src.puller.join(ctx, src, [2]string{ref, displayName}, reference.Domain(named), credentials)
	defer leave()
	reported := ""
	report := func() {
		if text := p.progress(ctx); text != reported {
			reported = text
			progress(text)
		}
	}
	report()
	ticker := time.NewTicker(src.puller.ProgressInterval)
	defer ticker.Stop()
	for {
		select {
		case <-p.done:
			return p.img, p.err
		case <-ctx.Done():
			return nil, fmt.Errorf("pull %s: %w", displayName, ctx.Err())
		case <-ticker.C:
			report()
		}
	}
}

// join returns the pull of an image, a new one if there is none. The caller must call leave.
func (u *puller) join(ctx context.Context, src *imageSource, names [2]string, host string,
	credentials func(string) (string, string),
) (p *pull, leave func()) {
	key := pullKey{ref: names[0]}
	if credentials != nil {
		key.user, key.secret = credentials(host)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	p = u.running[key]
	if p == nil {
		p = &pull{
			images: src, ref: names[0], displayName: names[1], host: host, user: key.user, credentials: credentials,
			done:  make(chan struct{}),
			parts: map[digest.Digest]*part{}, blobs: map[digest.Digest]ocispec.Descriptor{},
		}
		var running context.Context
		running, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
		u.running[key] = p
		go func() {
			defer p.cancel()
			p.img, p.err = p.run(running)
			u.mu.Lock()
			if u.running[key] == p {
				delete(u.running, key)
			}
			u.mu.Unlock()
			close(p.done)
		}()
	}
	p.waiters++
	return p, func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if p.waiters--; p.waiters == 0 {
			p.cancel()
			if u.running[key] == p {
				delete(u.running, key)
			}
		}
	}
}

// run tries until the image is there, or it makes no sense any more.
func (p *pull) run(ctx context.Context) (client.Image, error) {
	src, u := p.images, p.images.puller
	leased, _, err := src.client.WithLease(quiet(ctx), leases.WithRandomID(), leases.WithExpiration(partialLifetime))
	if err != nil {
		return nil, failed(ctx, "pull "+p.displayName, err)
	}
	for try, waited := 1, time.Duration(0); ; try++ {
		if waited, err = p.awaitRegistry(ctx, waited); err != nil {
			return nil, err
		}
		err := u.slots.Take(ctx, p.host, func(taken int) {
			p.setState(fmt.Sprintf("waits to pull %s: %d pulls are under way on the node", p.displayName, taken))
		})
		if err != nil {
			return nil, fmt.Errorf("pull %s: %w", p.displayName, err)
		}
		p.setState("")
		img, err := p.once(leased)
		u.slots.Give(p.host)
		if err == nil {
			u.registries.ClearFailures(p.host)
			if id, ok := leases.FromContext(leased); ok {
				// it ends by itself, too
				_ = src.client.LeasesService().Delete(context.WithoutCancel(leased), leases.Lease{ID: id})
			}
			return img, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("pull %s: %w", p.displayName, ctx.Err())
		}
		fault := p.classify(err)
		if fault.daemon != nil {
			return nil, failed(ctx, "pull "+p.displayName, fault.daemon)
		}
		src.cfg.Logger.Info("an image could not be pulled", "image", p.ref, "registry", p.host, "try", try, "cause",
			fault.cause)
		if fault.corrupt {
			p.dropPartial(leased)
		}
		var wait time.Duration
		if fault.suspend {
			wait = u.registries.Suspend(p.host, fault.cause, fault.retryAfter, u.retryDelay)
		} else if fault.retryable {
			wait = u.retryDelay(try - 1)
		}
		switch {
		case !fault.retryable:
			return nil, fault.err("pull " + p.displayName)
		case try >= u.MaxAttempts, fault.corrupt && try >= maxCorruptAttempts:
			return nil, fmt.Errorf("pull %s: %s (tried %d times)", p.displayName, fault.cause, try)
		case waited+wait > u.MaxWait:
			return nil, fmt.Errorf("pull %s: %s, and to ask again in %v is later than a pull waits", p.displayName,
				fault.cause, wait.Round(time.Second))
		}
		p.setFailure(fmt.Sprintf("%s%s: %s%s%v (try %d of %d)", cluster.MessagePulling, p.displayName, fault.cause,
			cluster.MessageTriesAgain, roundWait(wait), try+1, u.MaxAttempts))
		if fault.suspend {
			continue // awaitRegistry counts it
		}
		waited += wait
		if err := pause.For(ctx, wait); err != nil {
			return nil, fmt.Errorf("pull %s: %w", p.displayName, err)
		}
	}
}

// maxCorruptAttempts is the number of attempts for content that does not match its digest.
const maxCorruptAttempts = 3

func roundWait(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(time.Second)
}

// awaitRegistry waits until the registry may be asked. waited is this pull's total wait so far.
func (p *pull) awaitRegistry(ctx context.Context, waited time.Duration) (time.Duration, error) {
	u := p.images.puller
	for {
		wait, why := u.registries.SuspendedFor(p.host)
		if wait <= 0 {
			return waited, nil
		}
		if waited += wait; waited > u.MaxWait {
			return waited, fmt.Errorf("pull %s: %s; it is asked again in %v, which is later than a pull waits",
				p.displayName, why, wait.Round(time.Second))
		}
		p.mu.Lock()
		if p.state == "" { // this pull has not reported it yet
			p.state = fmt.Sprintf("waits to pull %s: %s; it is asked again in %v", p.displayName, why, roundWait(wait))
		}
		p.mu.Unlock()
		if err := pause.For(ctx, wait); err != nil {
			return waited, fmt.Errorf("pull %s: %w", p.displayName, err)
		}
	}
}

// once pulls and unpacks.
func (p *pull) once(ctx context.Context) (client.Image, error) {
	src := p.images
	opts := []client.RemoteOpt{
		client.WithPullUnpack, client.WithResolver(src.puller.registries.Resolver(p.credentials)),
		client.WithImageHandlerWrapper(p.follow), client.WithPullLabels(src.index.labelsOfPulled(ctx, p.ref)),
	}
	if src.cfg.Snapshotter != "" {
		opts = append(opts, client.WithPullSnapshotter(src.cfg.Snapshotter))
	}
	return src.client.Pull(ctx, p.ref, opts...)
}

// follow records the parts of the image.
func (p *pull) follow(h metadata.Handler) metadata.Handler {
	return metadata.HandlerFunc(func(ctx context.Context, d ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		p.mu.Lock()
		p.blobs[d.Digest] = d
		p.mu.Unlock()
		children, err := h.Handle(ctx, d)
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, c := range children {
			if metadata.IsManifestType(c.MediaType) || metadata.IsIndexType(c.MediaType) {
				continue
			}
			if p.parts[c.Digest] == nil {
				p.parts[c.Digest] = &part{Descriptor: c, layer: metadata.IsLayerType(c.MediaType)}
			}
		}
		return children, err //nolint:wrapcheck // it is containerd's own
	})
}

// dropPartial throws away what came of the image and is not whole: it may not be what it should.
func (p *pull) dropPartial(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range p.blobs { // order-free: each by itself
		// most are complete, so there is nothing to abort
		_ = p.images.client.ContentStore().Abort(ctx, remotes.MakeRefKey(ctx, d))
	}
	clear(p.blobs)
}

// setFailure sets the state of a pull that failed and is tried again. It is shown during the next try, too, until parts
// of the image are known. Otherwise the cause would disappear from the status with each try.
func (p *pull) setFailure(state string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state, p.failure = state, state
}

func (p *pull) setState(state string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = state
}

// resolveDigest asks a registry for the digest of a name, once.
func (src *imageSource) resolveDigest(ctx context.Context, name string,
	credentials func(string) (string, string),
) (string, error) {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return "", fmt.Errorf("image: %q is not the name of an image: %w", name, err)
	}
	p := &pull{images: src, ref: name, host: reference.Domain(named)}
	if credentials != nil {
		p.user, _ = credentials(p.host)
	}
	if wait, why := src.puller.registries.SuspendedFor(p.host); wait > 0 {
		return "", fmt.Errorf("look up %s: %s", name, why)
	}
	_, d, err := src.puller.registries.Resolver(credentials).Resolve(quiet(ctx), name)
	if err == nil {
		src.puller.registries.ClearFailures(p.host)
		return d.Digest.String(), nil
	}
	if ctx.Err() != nil {
		return "", fmt.Errorf("look up %s: registry %s did not answer in time", name, p.host)
	}
	t := p.classify(err)
	if t.suspend {
		src.puller.registries.Suspend(p.host, t.cause, t.retryAfter, src.puller.retryDelay)
	}
	return "", t.err("look up " + name)
}
