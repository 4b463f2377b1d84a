package containerd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/remotes/docker"

	"github.com/berthd/berth/internal/egress"
	"github.com/berthd/berth/internal/plain"
)

// Time limits for requests to a registry.
const (
	dialLimit   = 10 * time.Second
	headerLimit = 30 * time.Second
)

// registries holds when the registries that asked for a wait, or could not be reached, may be asked again. Safe for
// concurrent use.
type registries struct {
	client *http.Client
	stall  time.Duration

	mu    sync.Mutex
	rests map[string]rest // by the registry's host and port
}

// rest is why and until when a registry is not asked.
type rest struct {
	until    time.Time
	failures int // in a row
	why      string
}

func newRegistries(stall time.Duration, policy egress.Policy) *registries {
	r := &registries{stall: stall, rests: map[string]rest{}}
	over := policy.Transport(dialLimit)
	over.Proxy, over.MaxIdleConns = http.ProxyFromEnvironment, 20
	over.ResponseHeaderTimeout, over.ExpectContinueTimeout = min(headerLimit, stall), time.Second
	r.client = &http.Client{Transport: patientTransport{over, stall}}
	return r
}

// resolver speaks https, or plain http to this machine.
func (r *registries) resolver(credentials func(string) (string, string)) remotes.Resolver {
	authorizer := docker.NewDockerAuthorizer(docker.WithAuthClient(r.client),
		docker.WithAuthCreds(func(registry string) (string, string, error) {
			if credentials == nil {
				return "", "", nil
			}
			user, secret := credentials(familiar(registry))
			return user, secret, nil
		}))
	return docker.NewResolver(docker.ResolverOptions{Hosts: docker.ConfigureDefaultRegistries(
		docker.WithPlainHTTP(docker.MatchLocalhost), docker.WithAuthorizer(authorizer), docker.WithClient(r.client),
	)})
}

// familiar returns a registry as users write it.
func familiar(registry string) string {
	if registry == "registry-1.docker.io" {
		return "docker.io"
	}
	return registry
}

// resting returns for how long a registry is not to be asked, and why.
func (r *registries) resting(host string) (time.Duration, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.rests[host]
	return time.Until(s.until), s.why
}

// rest suspends requests to a registry: at least for the wanted time, and longer with each failure in a row. It returns
// the duration.
func (r *registries) rest(host, why string, wanted time.Duration,
	pause func(failures int) time.Duration,
) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.rests[host]
	// another pull got the same answer just now, which is one failure and not two
	if left := time.Until(s.until); left > wanted {
		return left
	}
	wait := max(wanted, pause(s.failures))
	r.rests[host] = rest{time.Now().Add(wait), s.failures + 1, why}
	return wait
}

// answered clears the failures of a registry.
func (r *registries) answered(host string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s, ok := r.rests[host]; ok && !time.Now().Before(s.until) {
		delete(r.rests, host)
	}
}

// busyError says that a registry asked to wait.
type busyError struct {
	status string
	after  time.Duration // 0 if the registry names no duration
}

func (e *busyError) Error() string { return "it answered " + e.status }

// stallError says that a registry began a response and then sent nothing.
type stallError struct{ after time.Duration }

func (e *stallError) Error() string { return fmt.Sprintf("it sent nothing for %v", e.after) }

// patientTransport turns responses that ask for a wait into errors, so that nothing retries at once. It ends stalled
// bodies.
type patientTransport struct {
	over  http.RoundTripper
	stall time.Duration
}

// RoundTrip implements http.RoundTripper.
func (t patientTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.over.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	after, told := wantedRest(resp.Header.Get("Retry-After"), time.Now())
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable && told {
		_ = resp.Body.Close()
		return nil, &busyError{resp.Status, after}
	}
	resp.Body = newPatientBody(resp.Body, t.stall)
	return resp, nil
}

// wantedRest reads a Retry-After header: seconds or a date. told is false without one.
func wantedRest(text string, now time.Time) (after time.Duration, told bool) {
	if n, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(n) * time.Second, true
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(at.Sub(now), 0), true
	}
	return 0, false
}

// patientBody is a body that ends with a stallError when it stalls.
type patientBody struct {
	io.ReadCloser
	stall time.Duration
	timer *time.Timer

	mu      sync.Mutex
	stalled bool
}

func newPatientBody(from io.ReadCloser, stall time.Duration) *patientBody {
	b := &patientBody{ReadCloser: from, stall: stall}
	b.timer = time.AfterFunc(stall, func() {
		b.mu.Lock()
		b.stalled = true
		b.mu.Unlock()
		_ = from.Close()
	})
	b.timer.Stop()
	return b
}

// Read counts time only while a read waits, because a pause between reads is not the registry's fault.
func (b *patientBody) Read(p []byte) (int, error) {
	b.timer.Reset(b.stall)
	n, err := b.ReadCloser.Read(p)
	b.timer.Stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil && b.stalled {
		err = &stallError{b.stall}
	}
	return n, err
}

func (b *patientBody) Close() error {
	b.timer.Stop()
	return b.ReadCloser.Close()
}

// slots limits the concurrent pulls. One slot is reserved for registries other than the busiest, so that a slow
// registry does not block all others.
type slots struct {
	most int

	mu      sync.Mutex
	taken   int
	by      map[string]int // pulls of each registry
	waiting []*slotWaiter  // in the order in which they came
}

type slotWaiter struct {
	host    string
	granted chan struct{}
}

func newSlots(most int) *slots { return &slots{most: most, by: map[string]int{}} }

// free reports whether a registry may have another slot. s.mu is held.
func (s *slots) free(host string) bool {
	return s.taken < s.most && (s.most == 1 || s.by[host] < s.most-1)
}

// take waits for a slot. Waiting, unless nil, is called once if that is not at once.
func (s *slots) take(ctx context.Context, host string, waiting func(taken int)) error {
	s.mu.Lock()
	if s.free(host) {
		s.taken++
		s.by[host]++
		s.mu.Unlock()
		return nil
	}
	w := &slotWaiter{host, make(chan struct{})}
	s.waiting = append(s.waiting, w)
	taken := s.taken
	s.mu.Unlock()
	if waiting != nil {
		waiting(taken)
	}
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.waiting {
		if s.waiting[i] == w {
			s.waiting = append(s.waiting[:i:i], s.waiting[i+1:]...)
			return ctx.Err()
		}
	}
	s.release(host) // it was granted meanwhile
	return ctx.Err()
}

func (s *slots) give(host string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release(host)
}

// release gives a slot back and passes free slots to waiting pulls. s.mu is held.
func (s *slots) release(host string) {
	s.taken--
	if s.by[host]--; s.by[host] == 0 {
		delete(s.by, host)
	}
	left := s.waiting[:0:0]
	for _, w := range s.waiting {
		if !s.free(w.host) {
			left = append(left, w)
			continue
		}
		s.taken++
		s.by[w.host]++
		close(w.granted)
	}
	s.waiting = left
}

// isNetwork reports whether an error is that of a connection that failed or broke.
func isNetwork(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	var late net.Error
	if errors.Is(err, egress.ErrRefused) {
		return false // it does not pass
	}
	return errors.As(err, &op) || errors.As(err, &dns) || errors.As(err, &late) && late.Timeout() ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF)
}

// unreachable reports whether no connection came about at all.
func unreachable(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	return errors.As(err, &dns) || errors.As(err, &op) && op.Op == "dial" && !errors.Is(err, egress.ErrRefused)
}

// plainNetwork returns the plain words of an error of the network, without addresses of requests in it: they may carry
// secrets.
func plainNetwork(err error) string {
	var dns *net.DNSError
	var op *net.OpError
	switch {
	case errors.As(err, &dns):
		return "its name cannot be looked up: " + cmp.Or(dns.Err, "no answer")
	case errors.As(err, &op):
		return plain.Text(op)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return "the connection broke off"
	}
	return "it did not answer in time"
}
