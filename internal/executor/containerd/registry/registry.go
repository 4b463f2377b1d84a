// Package registry talks to registries of images: it spaces out the requests to those that are busy or down, ends
// stalled responses, and limits the concurrent pulls.
package registry

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

// Client holds when the registries that requested a wait, or could not be reached, may be asked again. Safe for
// concurrent use.
type Client struct {
	client *http.Client

	mu          sync.Mutex
	suspensions map[string]suspension // by the registry's host and port
}

// suspension is why and until when a registry is not asked.
type suspension struct {
	until    time.Time
	failures int // in a row
	why      string
}

// New returns a client. stall is how long a registry may send nothing within a response; policy limits the addresses,
// but a registry may be on this machine. proxy chooses the proxy of a request; the policy limits the requests to it.
func New(stall time.Duration, policy egress.Policy, proxy egress.ProxyFunc) *Client {
	r := &Client{suspensions: map[string]suspension{}}
	over := policy.WithLoopback().Transport(dialLimit)
	over.Proxy, over.MaxIdleConns = policy.LimitProxy(proxy, net.DefaultResolver), 20
	over.ResponseHeaderTimeout, over.ExpectContinueTimeout = min(headerLimit, stall), time.Second
	r.client = &http.Client{Transport: stallTransport{over, stall}}
	return r
}

// Resolver returns a resolver that speaks https, or plain http to this machine.
func (r *Client) Resolver(credentials func(string) (string, string)) remotes.Resolver {
	authorizer := docker.NewDockerAuthorizer(docker.WithAuthClient(r.client),
		docker.WithAuthCreds(func(registry string) (string, string, error) {
			if credentials == nil {
				return "", "", nil
			}
			user, secret := credentials(userName(registry))
			return user, secret, nil
		}))
	return docker.NewResolver(docker.ResolverOptions{Hosts: docker.ConfigureDefaultRegistries(
		docker.WithPlainHTTP(docker.MatchLocalhost), docker.WithAuthorizer(authorizer), docker.WithClient(r.client),
	)})
}

// userName returns a registry as users write it.
func userName(registry string) string {
	if registry == "registry-1.docker.io" {
		return "docker.io"
	}
	return registry
}

// SuspendedFor returns for how long a registry is not to be asked, and why.
func (r *Client) SuspendedFor(host string) (time.Duration, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.suspensions[host]
	return time.Until(s.until), s.why
}

// Suspend suspends requests to a registry: at least for the wanted time, and longer with each failure in a row. It
// returns the duration.
func (r *Client) Suspend(host, why string, wanted time.Duration,
	pause func(failures int) time.Duration,
) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.suspensions[host]
	// another pull got the same answer just now, which is one failure and not two
	if left := time.Until(s.until); left > wanted {
		return left
	}
	wait := max(wanted, pause(s.failures))
	r.suspensions[host] = suspension{time.Now().Add(wait), s.failures + 1, why}
	return wait
}

// ClearFailures clears the failures of a registry.
func (r *Client) ClearFailures(host string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s, ok := r.suspensions[host]; ok && !time.Now().Before(s.until) {
		delete(r.suspensions, host)
	}
}

// BusyError says that a registry asked to wait.
type BusyError struct {
	Status string
	After  time.Duration // 0 if the registry names no duration
}

// Error is part of error.
func (e *BusyError) Error() string { return "it answered " + e.Status }

// StallError says that a registry began a response and then sent nothing.
type StallError struct{ After time.Duration }

// Error is part of error.
func (e *StallError) Error() string { return fmt.Sprintf("it sent nothing for %v", e.After) }

// stallTransport turns responses that request a wait into errors, so that nothing retries immediately. It ends stalled
// bodies.
type stallTransport struct {
	over  http.RoundTripper
	stall time.Duration
}

// RoundTrip implements http.RoundTripper.
func (t stallTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.over.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	after, found := parseRetryAfter(resp.Header.Get("Retry-After"), time.Now())
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable && found {
		_ = resp.Body.Close()
		return nil, &BusyError{resp.Status, after}
	}
	resp.Body = newStallBody(resp.Body, t.stall)
	return resp, nil
}

// parseRetryAfter reads a Retry-After header: seconds or a date. found is false without one.
func parseRetryAfter(text string, now time.Time) (after time.Duration, found bool) {
	if n, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(n) * time.Second, true
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(at.Sub(now), 0), true
	}
	return 0, false
}

// stallBody is a body that ends with a StallError when it stalls.
type stallBody struct {
	io.ReadCloser
	stall time.Duration
	timer *time.Timer

	mu      sync.Mutex
	stalled bool
}

func newStallBody(from io.ReadCloser, stall time.Duration) *stallBody {
	b := &stallBody{ReadCloser: from, stall: stall}
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
func (b *stallBody) Read(p []byte) (int, error) {
	b.timer.Reset(b.stall)
	n, err := b.ReadCloser.Read(p)
	b.timer.Stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil && b.stalled {
		err = &StallError{b.stall}
	}
	return n, err
}

// Close is part of io.Closer.
func (b *stallBody) Close() error {
	b.timer.Stop()
	return b.ReadCloser.Close()
}

// Slots limits the concurrent pulls. One slot is reserved for registries other than the busiest, so that a slow
// registry does not block all others.
type Slots struct {
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

// NewSlots returns slots for a number of pulls.
func NewSlots(most int) *Slots { return &Slots{most: most, by: map[string]int{}} }

// free reports whether a registry may have another slot. s.mu is held.
func (s *Slots) free(host string) bool {
	return s.taken < s.most && (s.most == 1 || s.by[host] < s.most-1)
}

// Take waits for a slot. Waiting, unless nil, is called once if it has to wait.
func (s *Slots) Take(ctx context.Context, host string, waiting func(taken int)) error {
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

// Give gives a slot back.
func (s *Slots) Give(host string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release(host)
}

// release gives a slot back and passes free slots to waiting pulls. s.mu is held.
func (s *Slots) release(host string) {
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

// IsConnectionError reports whether an error is that of a connection that failed or broke.
func IsConnectionError(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	var late net.Error
	if errors.Is(err, egress.ErrRefused) {
		return false // it does not pass
	}
	return errors.As(err, &op) || errors.As(err, &dns) || errors.As(err, &late) && late.Timeout() ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF)
}

// IsUnreachable reports whether no connection came about at all.
func IsUnreachable(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	return errors.As(err, &dns) || errors.As(err, &op) && op.Op == "dial" && !errors.Is(err, egress.ErrRefused)
}

// DescribeNetworkError returns the plain words of an error of the network, without addresses of requests in it: they
// may carry secrets.
func DescribeNetworkError(err error) string {
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
