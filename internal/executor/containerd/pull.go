package containerd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	metadata "github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	registryerrors "github.com/containerd/containerd/v2/core/remotes/errors"
	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/egress"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/executor/outlive"
)

// PullConfig limits how a node pulls images. A field that is 0 has its default.
type PullConfig struct {
	// Most is the number of images that are pulled at a time, default DefaultPulls. A single registry gets one less, if
	// Most is more than 1.
	Most int
	// Tries is the number of attempts of a pull, default 6. Patience is the total wait between attempts, default 5
	// minutes.
	Tries    int
	Patience time.Duration
	// First is the wait after the first try; it doubles with each up to Longest, and half of it is chance. Default 1 s
	// and 1 minute.
	First, Longest time.Duration
	// Stall is how long a registry may send nothing within a response, default 1 minute.
	Stall time.Duration
	// Tell is the least interval between progress messages, default 3 s.
	Tell time.Duration
	// Egress limits the addresses of requests. A registry may be on this machine, and may be reached through the proxy
	// of the environment, which the operator chose.
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
	if c.Most <= 0 {
		c.Most = DefaultPulls
	}
	if c.Tries <= 0 {
		c.Tries = 6
	}
	set(&c.Patience, 5*time.Minute)
	set(&c.First, time.Second)
	set(&c.Longest, time.Minute)
	set(&c.Stall, time.Minute)
	set(&c.Tell, 3*time.Second)
}

// pause returns the wait after so many failures in a row.
func (c *PullConfig) pause(failures int) time.Duration {
	d := c.Longest
	if failures < 20 && c.First<<failures < c.Longest {
		d = c.First << failures
	}
	return d/2 + rand.N(d/2+1)
}

// keepPartial is how long containerd keeps the content of a failed pull, so that the next pull continues there.
const keepPartial = time.Hour

// puller pulls images, each once at a time however many ask for it.
type puller struct {
	PullConfig
	registries *registries
	slots      *slots

	mu      sync.Mutex
	running map[pullKey]*pull
}

// pullKey distinguishes pulls by login: a login gets content only if the registry accepts that login.
type pullKey struct{ ref, user, secret string }

func newPuller(c PullConfig) *puller {
	c.defaults()
	return &puller{
		PullConfig: c, registries: newRegistries(c.Stall, c.Egress.WithLoopback()), slots: newSlots(c.Most),
		running: map[pullKey]*pull{},
	}
}

// pull is the pull of one image, shared by all its waiters.
type pull struct {
	executor    *Executor
	ref, host   string
	shown       string // the image as people know it
	user        string
	credentials func(string) (string, string)
	cancel      context.CancelFunc
	done        chan struct{} // closed with img and err set
	img         client.Image
	err         error

	waiters int // puller.mu
	telling sync.Mutex
	rate    rate // telling

	mu    sync.Mutex
	state string                               // the current activity, unless it is fetching
	parts map[digest.Digest]*part              // configuration and layers
	blobs map[digest.Digest]ocispec.Descriptor // all that was asked for
}

// part is a blob of the image that counts as progress.
type part struct {
	ocispec.Descriptor
	layer bool
	have  int64
}

// pulled pulls an image, or joins a running pull; shown is its name for users. It returns soon after ctx ends. The pull
// ends with its last waiter.
func (e *Executor) pulled(ctx context.Context, ref, shown string, credentials func(string) (string, string),
	progress func(string),
) (client.Image, error) {
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return nil, fmt.Errorf("image: %q is not the name of an image: %w", ref, err)
	}
	p, leave := e.puller.join(ctx, e, [2]string{ref, shown}, reference.Domain(named), credentials)
	defer leave()
	told := ""
	tell := func() {
		if text := p.text(ctx); text != told {
			told = text
			progress(text)
		}
	}
	tell()
	ticker := time.NewTicker(e.puller.Tell)
	defer ticker.Stop()
	for {
		select {
		case <-p.done:
			return p.img, p.err
		case <-ctx.Done():
			return nil, fmt.Errorf("pull %s: %w", shown, ctx.Err())
		case <-ticker.C:
			tell()
		}
	}
}

// join returns the pull of an image, a new one if there is none. The caller must call leave.
func (u *puller) join(ctx context.Context, e *Executor, names [2]string, host string,
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
			executor: e, ref: names[0], shown: names[1], host: host, user: key.user, credentials: credentials,
			done:  make(chan struct{}),
			parts: map[digest.Digest]*part{}, blobs: map[digest.Digest]ocispec.Descriptor{},
		}
		var life context.Context
		life, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
		u.running[key] = p
		go func() {
			defer p.cancel()
			p.img, p.err = p.run(life)
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
	e, u := p.executor, p.executor.puller
	leased, _, err := e.client.WithLease(quiet(ctx), leases.WithRandomID(), leases.WithExpiration(keepPartial))
	if err != nil {
		return nil, failed(ctx, "pull "+p.shown, err)
	}
	for try, waited := 1, time.Duration(0); ; try++ {
		if waited, err = p.awaitRegistry(ctx, waited); err != nil {
			return nil, err
		}
		err := u.slots.take(ctx, p.host, func(taken int) {
			p.say(fmt.Sprintf("waits to pull %s: %d pulls are under way on the node", p.shown, taken))
		})
		if err != nil {
			return nil, fmt.Errorf("pull %s: %w", p.shown, err)
		}
		p.say("")
		img, err := p.once(leased)
		u.slots.give(p.host)
		if err == nil {
			u.registries.answered(p.host)
			if id, ok := leases.FromContext(leased); ok {
				// it ends by itself, too
				_ = e.client.LeasesService().Delete(context.WithoutCancel(leased), leases.Lease{ID: id})
			}
			return img, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("pull %s: %w", p.shown, ctx.Err())
		}
		trouble := p.judge(err)
		if trouble.daemon != nil {
			return nil, failed(ctx, "pull "+p.shown, trouble.daemon)
		}
		e.cfg.Logger.Info("an image could not be pulled", "image", p.ref, "registry", p.host, "try", try, "cause",
			trouble.cause)
		if trouble.broken {
			p.dropPartial(leased)
		}
		var wait time.Duration
		if trouble.rest {
			wait = u.registries.rest(p.host, trouble.cause, trouble.after, u.pause)
		} else if trouble.again {
			wait = u.pause(try - 1)
		}
		switch {
		case !trouble.again:
			return nil, trouble.err("pull " + p.shown)
		case try >= u.Tries, trouble.broken && try >= brokenTries:
			return nil, fmt.Errorf("pull %s: %s (tried %d times)", p.shown, trouble.cause, try)
		case waited+wait > u.Patience:
			return nil, fmt.Errorf("pull %s: %s, and to ask again in %v is later than a pull waits", p.shown,
				trouble.cause, wait.Round(time.Second))
		}
		p.say(fmt.Sprintf("pulling %s: %s; trying again after %v (try %d of %d)", p.shown, trouble.cause,
			roundWait(wait), try+1, u.Tries))
		if trouble.rest {
			continue // awaitRegistry counts it
		}
		waited += wait
		if err := outlive.Pause(ctx, wait); err != nil {
			return nil, fmt.Errorf("pull %s: %w", p.shown, err)
		}
	}
}

// brokenTries is the number of attempts for content that does not match its digest.
const brokenTries = 3

func roundWait(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(time.Second)
}

// awaitRegistry waits until the registry may be asked. waited is this pull's total wait so far.
func (p *pull) awaitRegistry(ctx context.Context, waited time.Duration) (time.Duration, error) {
	u := p.executor.puller
	for {
		wait, why := u.registries.resting(p.host)
		if wait <= 0 {
			return waited, nil
		}
		if waited += wait; waited > u.Patience {
			return waited, fmt.Errorf("pull %s: %s; it is asked again in %v, which is later than a pull waits", p.shown,
				why, wait.Round(time.Second))
		}
		p.mu.Lock()
		if p.state == "" { // this pull has not reported it yet
			p.state = fmt.Sprintf("waits to pull %s: %s; it is asked again in %v", p.shown, why, roundWait(wait))
		}
		p.mu.Unlock()
		if err := outlive.Pause(ctx, wait); err != nil {
			return waited, fmt.Errorf("pull %s: %w", p.shown, err)
		}
	}
}

// once pulls and unpacks.
func (p *pull) once(ctx context.Context) (client.Image, error) {
	e := p.executor
	opts := []client.RemoteOpt{
		client.WithPullUnpack, client.WithResolver(e.puller.registries.resolver(p.credentials)),
		client.WithImageHandlerWrapper(p.follow), client.WithPullLabels(e.labelsOfPulled(ctx, p.ref)),
	}
	if e.cfg.Snapshotter != "" {
		opts = append(opts, client.WithPullSnapshotter(e.cfg.Snapshotter))
	}
	return e.client.Pull(ctx, p.ref, opts...)
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
		_ = p.executor.client.ContentStore().Abort(ctx, remotes.MakeRefKey(ctx, d))
	}
	clear(p.blobs)
}

func (p *pull) say(state string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = state
}

// text describes the progress of the pull.
func (p *pull) text(ctx context.Context) string {
	p.mu.Lock()
	state, parts := p.state, make([]*part, 0, len(p.parts))
	for d, b := range p.parts { // order-free: they are counted
		if _, fetched := p.blobs[d]; fetched { // layers that are here unpacked, of another image, are not asked for
			parts = append(parts, b)
		}
	}
	p.mu.Unlock()
	switch {
	case state != "":
		return state
	case len(parts) == 0:
		return "pulling " + p.shown
	}
	p.telling.Lock()
	defer p.telling.Unlock()
	store := p.executor.client.ContentStore()
	var layers, whole int
	var have, all int64
	for _, b := range parts {
		b.have = max(b.have, haveOf(ctx, store, b.Descriptor, b.have))
		have, all = have+b.have, all+b.Size
		if b.layer {
			layers++
		}
		if b.layer && b.have >= b.Size {
			whole++
		}
	}
	if whole == layers && have >= all {
		return "unpacking " + p.shown
	}
	text := fmt.Sprintf("pulling %s: %d of %d layers, %s of %s MiB", p.shown, whole, layers, mebi(have), mebi(all))
	if n := p.rate.take(time.Now(), have); n > 0 {
		text += ", " + mebi(n) + " MiB/s"
	}
	return text
}

// rate measures the transfer rate.
type rate struct {
	at   time.Time // of the last measurement
	have int64
	rate int64 // bytes per second before it
}

// rateEvery is over how long a rate is measured at least.
const rateEvery = time.Second

// take returns the bytes per second, or 0 while they are unknown.
func (r *rate) take(now time.Time, have int64) int64 {
	switch since := now.Sub(r.at); {
	case r.at.IsZero() || have < r.have: // a layer started again
		r.at, r.have, r.rate = now, have, 0
	case since >= rateEvery:
		r.rate = int64(float64(have-r.have) / since.Seconds())
		r.at, r.have = now, have
	}
	return r.rate
}

// haveOf returns the received bytes of a blob; known is the previous result.
func haveOf(ctx context.Context, store content.Store, d ocispec.Descriptor, known int64) int64 {
	if known >= d.Size {
		return known
	}
	if status, err := store.Status(ctx, remotes.MakeRefKey(ctx, d)); err == nil {
		return status.Offset
	}
	if _, err := store.Info(ctx, d.Digest); err == nil {
		return d.Size
	}
	return 0
}

func mebi(n int64) string { return fmt.Sprintf("%.1f", float64(n)/float64(cluster.MiB)) }

// trouble is the meaning of an error of a pull.
type trouble struct {
	cause  string
	again  bool          // it may work later
	rest   bool          // no request goes to the registry meanwhile
	after  time.Duration // the wait that the registry asked for
	broken bool          // what came is not what its digest says
	daemon error         // containerd's own, not the registry's
	login  bool          // another login may do
}

// err returns the trouble as an error of the operation doing.
func (t *trouble) err(doing string) error {
	if t.login {
		return loginError(doing + ": " + t.cause)
	}
	return errors.New(doing + ": " + t.cause)
}

// loginError is an executor.ErrLogin with its own words.
type loginError string

// Error returns the words.
func (e loginError) Error() string { return string(e) }

// Is makes it an executor.ErrLogin.
func (loginError) Is(target error) bool { return target == executor.ErrLogin }

// judge classifies an error. Errors contain the addresses of requests, which may hold secrets, so their text is used
// only if it is known to be safe.
func (p *pull) judge(err error) trouble {
	var busy *busyError
	var stall *stallError
	var status registryerrors.ErrUnexpectedStatus
	var untrusted *tls.CertificateVerificationError
	text := err.Error()
	from := "registry " + p.host
	switch {
	case errors.As(err, &busy):
		cause := from + " answered " + busy.status
		if busy.after > 0 {
			cause += fmt.Sprintf(" and wants to be asked again after %v", busy.after)
		}
		return trouble{cause: cause, again: true, rest: true, after: busy.after}
	case errors.As(err, &stall):
		return trouble{cause: fmt.Sprintf("%s sent nothing for %v", from, stall.after), again: true}
	case errors.Is(err, docker.ErrInvalidAuthorization),
		errors.As(err, &status) && status.StatusCode == http.StatusUnauthorized:
		return trouble{cause: p.refused(from), login: true}
	case errors.As(err, &status) && status.StatusCode == http.StatusForbidden:
		return trouble{cause: from + " does not give this node the image: it answered 403 Forbidden" + p.asUser()}
	case errors.As(err, &status) && status.StatusCode == http.StatusRequestedRangeNotSatisfiable:
		return trouble{
			cause: from + " does not go on in the middle of a layer (it answered 416)", again: true,
			broken: true,
		}
	case errors.As(err, &status):
		return trouble{
			cause: from + " answered " + status.Status,
			again: status.StatusCode >= http.StatusInternalServerError ||
				status.StatusCode == http.StatusRequestTimeout,
		}
	case strings.Contains(text, "no match for platform"):
		return trouble{cause: from + " has the image for other kinds of machines only"}
	case strings.Contains(text, "unexpected commit digest"), strings.Contains(text, "unexpected commit size"),
		strings.Contains(text, "expected size"):
		return trouble{cause: from + " sent other bytes than their digest says", again: true, broken: true}
	case strings.Contains(text, "no space left on device"):
		return trouble{cause: "the disk of the node is full"}
	case errors.As(err, &untrusted):
		return trouble{cause: from + " is not trusted by this node: its certificate: " + untrusted.Err.Error()}
	case unreachable(err):
		return trouble{cause: from + " cannot be reached: " + plainNetwork(err), again: true, rest: true}
	case isA(err, errdefs.IsUnavailable):
		return trouble{daemon: err}
	case isA(err, errdefs.IsNotFound):
		return trouble{cause: from + " does not have it"}
	case isNetwork(err):
		return trouble{cause: from + " broke off: " + plainNetwork(err), again: true}
	case strings.Contains(text, "failed to authorize"), strings.Contains(text, "authorization"):
		return trouble{cause: p.refused(from), login: true}
	}
	return trouble{cause: withoutQueries(text)}
}

func (p *pull) refused(from string) string {
	if p.user == "" {
		return from + " wants a login (401 Unauthorized), and there is none for it"
	}
	return from + " does not accept the login of user " + p.user + " (401 Unauthorized): it is wrong or has expired"
}

func (p *pull) asUser() string {
	if p.user == "" {
		return " to one without a login"
	}
	return " to user " + p.user
}

var queries = regexp.MustCompile(`\?[^\s"']+`)

// withoutQueries cuts what follows a question mark in addresses.
func withoutQueries(text string) string { return queries.ReplaceAllString(text, "?…") }

// resolved asks a registry for the digest of a name, once.
func (e *Executor) resolved(ctx context.Context, name string, credentials func(string) (string, string)) (string,
	error,
) {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return "", fmt.Errorf("image: %q is not the name of an image: %w", name, err)
	}
	p := &pull{executor: e, ref: name, host: reference.Domain(named)}
	if credentials != nil {
		p.user, _ = credentials(p.host)
	}
	if wait, why := e.puller.registries.resting(p.host); wait > 0 {
		return "", fmt.Errorf("look up %s: %s", name, why)
	}
	_, d, err := e.puller.registries.resolver(credentials).Resolve(quiet(ctx), name)
	if err == nil {
		e.puller.registries.answered(p.host)
		return d.Digest.String(), nil
	}
	if ctx.Err() != nil {
		return "", fmt.Errorf("look up %s: registry %s did not answer in time", name, p.host)
	}
	t := p.judge(err)
	if t.rest {
		e.puller.registries.rest(p.host, t.cause, t.after, e.puller.pause)
	}
	return "", t.err("look up " + name)
}

// Executor implements ImageKeeper.
var _ executor.ImageKeeper = (*Executor)(nil)
