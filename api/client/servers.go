package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// endpoint is one address of a server.
type endpoint struct {
	addr string
	base *url.URL // what requests are made for
	unix string   // the socket, where it is one
	via  http.RoundTripper
}

// errAddress returns the error of a malformed address.
func errAddress(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if _, unnumbered := strconv.ParseUint(port, 10, 16); err == nil && unnumbered == nil {
		scheme := "https"
		if ip, err := netip.ParseAddr(host); host == "localhost" || err == nil && ip.IsLoopback() {
			scheme = "http"
		}
		return fmt.Errorf("address %q: it has no scheme: write %s://%s", addr, scheme, addr)
	}
	return fmt.Errorf("address %q: want https://host:port, http://host:port or unix:///path", addr)
}

// readEndpoint parses an address.
func readEndpoint(addr string) (endpoint, error) {
	e := endpoint{addr: addr}
	u, err := url.Parse(addr)
	switch {
	case err != nil:
		return e, errAddress(addr)
	case u.Scheme == "unix" && u.Path != "":
		e.unix, e.base = u.Path, &url.URL{Scheme: "http", Host: "localhost"}
	case (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && (u.Path == "" || u.Path == "/"):
		e.base = &url.URL{Scheme: u.Scheme, Host: u.Host}
	default:
		return e, errAddress(addr)
	}
	return e, nil
}

// dialNext limits the time to connect if there is another server.
const dialNext = 3 * time.Second

// transport returns the transport to the address. It uses only HTTP/1 for connections that are taken over.
func (e *endpoint) transport(config *tls.Config, http1, several bool) http.RoundTripper {
	dialer := &net.Dialer{Timeout: dialTimeout}
	if several {
		dialer.Timeout = dialNext
	}
	// Not a copy of http.DefaultTransport, which is the program's to replace by something else.
	tr := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dialer.DialContext,
		ForceAttemptHTTP2:   true, // also with a dialer and a TLS configuration of our own
		TLSHandshakeTimeout: dialTimeout,
		MaxIdleConns:        100,
		IdleConnTimeout:     90 * time.Second,
	}
	if e.unix != "" {
		tr.Proxy = nil
		tr.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", e.unix)
		}
	}
	if config != nil {
		tr.TLSClientConfig = config.Clone()
	}
	if http1 {
		tr.Protocols = new(http.Protocols)
		tr.Protocols.SetHTTP1(true)
	}
	return tr
}

// servers sends each request to the server that answered last, and to the next one if that is unreachable. It is an
// http.RoundTripper.
type servers struct {
	list []endpoint
	good *atomic.Int64 // index of the one that answered last; shared by the transports of a client
}

// RoundTrip tries another server if that is safe: nothing was sent to the one before, the request only reads, or a
// repetition has the same effect. A repetition has the same effect if the request says so or compares what it changes.
func (s *servers) RoundTrip(req *http.Request) (*http.Response, error) {
	first := int(s.good.Load())
	t := trial{safe: safe(req)}
	for i := range s.list {
		at := (first + i) % len(s.list)
		e := &s.list[at]
		if i > 0 && req.Body != nil {
			if req.GetBody == nil {
				break
			}
			body, err := req.GetBody()
			if err != nil {
				return nil, err
			}
			req.Body = body
		}
		res, sent, err := e.try(req, i < len(s.list)-1)
		if err != nil && len(s.list) > 1 {
			err = fmt.Errorf("%s: %w", e.addr, err)
		}
		if err == nil {
			s.good.Store(int64(at))
		}
		if over := t.take(req, answered{res, sent, err}); over {
			break
		}
	}
	return t.end()
}

// answered is the result of a request at one server.
type answered struct {
	res  *http.Response
	sent bool
	err  error
}

// trial is a request in progress over several servers.
type trial struct {
	safe bool // it may be sent a second time
	errs []error
	lost error          // of a write that was sent and not answered
	best *http.Response // an answer of a server that could not do it; another may
}

// take records a server's result and reports whether it is final.
func (t *trial) take(req *http.Request, a answered) (over bool) {
	if a.err != nil {
		t.errs = append(t.errs, a.err)
		if a.sent && req.Method != http.MethodGet {
			t.lost = a.err
		}
		return req.Context().Err() != nil || a.sent && !t.safe
	}
	if t.best != nil {
		_ = t.best.Body.Close() // a better answer is there
	}
	t.best = a.res
	switch a.res.StatusCode {
	case http.StatusServiceUnavailable: // also: it was sent to the store, which did not answer
		if t.safe && req.Method != http.MethodGet {
			t.lost = errUnavailable
		}
		return !t.safe || !strings.HasPrefix(req.URL.Path, "/v1/")
	case http.StatusInsufficientStorage: // nothing was written; the disk of another server may have room
		return false
	}
	return true
}

// end returns the result for the caller.
func (t *trial) end() (*http.Response, error) {
	if t.best != nil && t.lost != nil {
		switch t.best.StatusCode {
		case http.StatusPreconditionFailed, http.StatusNotFound, http.StatusConflict:
			// It may have been this very request that changed the object.
			_ = t.best.Body.Close()
			return nil, fmt.Errorf("%w: %w", ErrUncertain, t.lost)
		}
	}
	switch {
	case t.best != nil:
		return t.best, nil
	case t.lost != nil:
		return nil, fmt.Errorf("%w: %w", ErrUncertain, errors.Join(t.errs...))
	case len(t.errs) == 1:
		return nil, t.errs[0]
	}
	return nil, errors.Join(t.errs...)
}

// repeatKey marks the context of a request that may be sent twice.
type repeatKey struct{}

func repeatable(ctx context.Context) context.Context {
	return context.WithValue(ctx, repeatKey{}, true)
}

// safe reports whether a request has the same effect when it is sent twice.
func safe(req *http.Request) bool {
	return req.Method == http.MethodGet || req.Context().Value(repeatKey{}) != nil ||
		req.Header.Get("If-Match") != "" || req.Header.Get("If-None-Match") != ""
}

// Errors of a try.
var (
	errSilent      = fmt.Errorf("no answer within %s", readTimeout)
	errUnavailable = errors.New("a server could not answer")
)

// readTimeout is how long a server may take to answer a read before the next server is asked, besides the wait that the
// read requests. The last server, and writes, have the time of their context.
const readTimeout = 5 * time.Second

// answerTimeout returns how long a request may take until its answer begins, 0 for no limit: a server that gets the
// answer from nodes has to wait for them.
func answerTimeout(req *http.Request) time.Duration {
	path := req.URL.Path
	if req.Method != http.MethodGet || !strings.HasPrefix(path, "/v1/") || path == "/v1/images" ||
		strings.HasSuffix(path, "/logs") || strings.HasSuffix(path, "/exec") {
		return 0
	}
	wait, err := time.ParseDuration(req.URL.Query().Get("wait"))
	if err != nil {
		wait = 0
	}
	return readTimeout + wait
}

// try sends a request to one server; more says that another server follows. Sent says whether any part may have
// arrived.
func (e *endpoint) try(req *http.Request, more bool) (res *http.Response, sent bool, err error) {
	ctx, cancel := context.WithCancel(req.Context())
	var late atomic.Bool
	if limit := answerTimeout(req); more && limit > 0 {
		timer := time.AfterFunc(limit, func() { late.Store(true); cancel() })
		defer timer.Stop()
	}
	var went atomic.Bool
	res, err = e.via.RoundTrip(e.address(req.WithContext(ctx), func() { went.Store(true) }))
	if err != nil {
		cancel()
		if late.Load() {
			err = errSilent
		}
		return nil, went.Load(), err
	}
	if _, both := res.Body.(io.Writer); both { // a connection that is taken over
		context.AfterFunc(req.Context(), cancel)
		return res, true, nil
	}
	res.Body = &body{res.Body, cancel}
	return res, true, nil
}

// body is an answer's body that ends its request when it is closed.
type body struct {
	io.ReadCloser
	cancel context.CancelFunc
}

// Close closes the body and releases the request's resources.
func (b *body) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}

// CloseIdleConnections closes unused connections.
func (s *servers) CloseIdleConnections() {
	for i := range s.list {
		if c, ok := s.list[i].via.(interface{ CloseIdleConnections() }); ok {
			c.CloseIdleConnections()
		}
	}
}

// address returns a copy of the request for this server; sent is called once some of it may be on its way. A request
// over a unix socket has no token, because everybody who can open the socket is trusted.
func (e *endpoint) address(req *http.Request, sent func()) *http.Request {
	trace := &httptrace.ClientTrace{WroteHeaders: sent}
	out := req.Clone(httptrace.WithClientTrace(req.Context(), trace))
	out.URL.Scheme, out.URL.Host, out.Host = e.base.Scheme, e.base.Host, ""
	if e.unix != "" {
		out.Header.Del("Authorization")
	}
	return out
}

// newServers returns the transport to the addresses.
func newServers(cfg Config, good *atomic.Int64, http1 bool) (*servers, error) {
	s := &servers{good: good}
	several := strings.Contains(cfg.Addr, ",")
	for addr := range strings.SplitSeq(cfg.Addr, ",") {
		e, err := readEndpoint(strings.TrimSpace(addr))
		if err != nil {
			return nil, err
		}
		e.via = cfg.Transport
		if e.via == nil {
			e.via = e.transport(cfg.TLS, http1, several)
		}
		s.list = append(s.list, e)
	}
	return s, nil
}
