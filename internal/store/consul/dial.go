package consul

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/consul/api"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/remote"
)

const (
	// dialTimeout bounds the first contact, and endpointTimeout the check of one endpoint.
	dialTimeout     = 10 * time.Second
	endpointTimeout = 3 * time.Second
)

// minVersion is the oldest version of Consul that the suite passes on.
var minVersion = [2]int{1, 15}

// Dial connects to a Consul and returns when it answered, within 6 s for each endpoint and 10 s more. It checks the
// version and, by a first write to the log, that the token may read and write all keys of a store. The error is a
// *remote.DialError if an operator can do something about it.
func Dial(ctx context.Context, config DialConfig) (*Engine, error) {
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	if config.Recheck == 0 {
		config.Recheck = defaultRecheck
	}
	e := &Engine{config: config}
	e.lifetime, e.end = context.WithCancelCause(context.WithoutCancel(ctx))
	e.lanes = newLanes(e)
	p := config.Prefix
	if strings.HasPrefix(p, "/") || strings.Contains(p, "//") || len(p) > maxPrefix {
		return nil, fmt.Errorf("connect to consul: the prefix %q of its keys begins with a slash, has two in a row, "+
			"or is longer than %d bytes: %w", p, maxPrefix, store.ErrInvalid)
	}
	e.transport = &http.Transport{
		DialContext:         (&net.Dialer{Timeout: endpointTimeout, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout: endpointTimeout,
		MaxIdleConnsPerHost: 4 * maxLanes,
		IdleConnTimeout:     90 * time.Second,
	}
	if err := e.connect(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to consul: %w", err), e.Close())
	}
	return e, nil
}

// tokenTransport sends requests with the present token. Consul's client takes a token, a namespace and a partition from
// the environment, which may be another one than that of the other servers; this removes them.
type tokenTransport struct {
	http.RoundTripper
	token func() (string, error)
}

// tokenError says that the token cannot be read.
type tokenError struct{ error }

// Unwrap returns the cause.
func (e tokenError) Unwrap() error { return e.error }

// RoundTrip is part of http.RoundTripper.
func (t tokenTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	request.Header.Del("X-Consul-Token")
	request.Header.Del("Authorization")
	query := request.URL.Query()
	query.Del("ns")
	query.Del("partition")
	request.URL.RawQuery = query.Encode()
	if t.token != nil {
		token, err := t.token()
		if err != nil {
			return nil, tokenError{err}
		}
		if token != "" {
			request.Header.Set("X-Consul-Token", token)
		}
	}
	return t.RoundTripper.RoundTrip(request)
}

// connect makes a client for each endpoint, and tries the store.
func (e *Engine) connect(ctx context.Context) error {
	if e.config.TLS != nil {
		secure := remote.NewReloadingTLS(*e.config.TLS, e.config.Log)
		if _, err := secure.Config(); err != nil {
			return err
		}
		e.transport.DialTLSContext = dialTLS(secure)
	}
	var faults []error
	answers := -1
	for i, endpoint := range e.config.Endpoints {
		scheme, _, _ := strings.Cut(endpoint, "://")
		client, err := api.NewClient(&api.Config{
			Address: endpoint, Scheme: scheme, Datacenter: e.config.Datacenter,
			HttpClient: &http.Client{Transport: tokenTransport{e.transport, e.config.Token}},
		})
		if err != nil {
			return err
		}
		e.clients = append(e.clients, client)
		if err := tryEndpoint(ctx, client, endpoint); err != nil {
			faults = append(faults, err)
		} else if answers < 0 {
			answers = i
		}
	}
	if answers < 0 {
		return errors.Join(faults...)
	}
	for _, fault := range faults {
		e.config.Log.Warn("an endpoint of consul does not answer; others do", "error", fault)
	}
	e.current.Store(int32(answers))
	return e.probe(ctx)
}

// probe checks the version and the permissions.
func (e *Engine) probe(ctx context.Context) error {
	bounded, cancel := e.bound(ctx, dialTimeout)
	defer cancel()
	client, _ := e.client()
	if version, err := readVersion(client, e.query(bounded)); err == nil {
		if err := checkVersion(e.config.Endpoints[e.current.Load()], version); err != nil {
			return err
		}
	}
	// The transaction reads and deletes a key that does not exist, and begins the log of this engine.
	absent := e.key("berth/probe-" + uuid.NewString())
	o := operations{ops: api.TxnOps{kvOp(api.KVCheckNotExists, absent), kvOp(api.KVDelete, absent)}}
	if _, errs, err := e.commitWrites(bounded, &o); err != nil {
		return e.probeFault(err)
	} else if len(errs) > 0 {
		return fmt.Errorf("write to consul: %s", errs[0].What)
	}
	return nil
}

// probeFault classifies the error of the first write.
func (e *Engine) probeFault(err error) error {
	keys := e.key("berth")
	switch text := err.Error(); {
	case strings.Contains(text, "ACL not found"), strings.Contains(text, "token does not exist"):
		return &remote.DialError{
			Fault: remote.FaultPassword, Err: fmt.Errorf("consul does not know this token: %w", err),
		}
	case classify(err) == isDenied, errors.Is(err, errFiltered):
		return &remote.DialError{
			Fault: remote.FaultPermission, Err: fmt.Errorf("read and write keys that begin with %q: %w", keys, err),
		}
	case strings.Contains(text, "unknown KV verb"):
		return &remote.DialError{Fault: remote.FaultVersion, Err: err}
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrUnknown),
		errors.Is(err, context.DeadlineExceeded):
		return &remote.DialError{Fault: remote.FaultSilent, Err: err}
	}
	return err
}

// checkVersion returns an error for a version of Consul that is too old. It accepts a version that it cannot parse.
func checkVersion(endpoint, version string) error {
	var v [2]int
	if _, err := fmt.Sscanf(version, "%d.%d", &v[0], &v[1]); err != nil {
		return nil //nolint:nilerr // a build of Consul with its own version scheme is the operator's choice
	}
	if v[0] < minVersion[0] || v[0] == minVersion[0] && v[1] < minVersion[1] {
		return &remote.DialError{Fault: remote.FaultVersion, Err: fmt.Errorf("%s runs consul %s", endpoint, version)}
	}
	return nil
}

// dialTLS returns a function that opens secured connections, and reads the files for each of them.
func dialTLS(secure *remote.ReloadingTLS) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := secure.Config()
		if err != nil {
			return nil, err
		}
		bounded, cancel := context.WithTimeout(ctx, endpointTimeout)
		defer cancel()
		conn, err := new(net.Dialer).DialContext(bounded, network, address)
		if err != nil {
			return nil, err
		}
		secured, err := remote.Handshake(bounded, conn, c, address)
		if err != nil {
			return nil, &remote.DialError{Fault: remote.HandshakeFault(err), Err: err}
		}
		return secured, nil
	}
}

// tryEndpoint requests Consul's leader from an endpoint, which needs no permission. The error is a *remote.DialError.
func tryEndpoint(ctx context.Context, client *api.Client, endpoint string) error {
	bad := func(fault remote.Fault, format string, args ...any) error {
		return &remote.DialError{Fault: fault, Err: fmt.Errorf(endpoint+": "+format, args...)}
	}
	bounded, cancel := context.WithTimeout(ctx, 2*endpointTimeout)
	defer cancel()
	leader, err := client.Status().LeaderWithQueryOptions(new(api.QueryOptions).WithContext(bounded))
	if err == nil {
		if leader == "" {
			return bad(remote.FaultSilent, "consul has no leader")
		}
		return nil
	}
	if known, ok := errors.AsType[*remote.DialError](err); ok {
		return bad(known.Fault, "%w", known.Err)
	}
	status, answered := errors.AsType[api.StatusError](err)
	secured := strings.HasPrefix(endpoint, "https:")
	switch {
	case isToken(err):
		return bad(remote.FaultPassword, "%w", err)
	case answered && strings.Contains(status.Body, "HTTP request to an HTTPS server"):
		return bad(remote.FaultSecured, "it wants https")
	case answered && strings.Contains(status.Body, "No cluster leader"):
		return bad(remote.FaultSilent, "%w", err)
	case answered:
		return bad(remote.FaultOther, "it answers, but not as consul does: %w", err)
	case errors.Is(err, syscall.ECONNREFUSED), isResolution(err):
		return bad(remote.FaultUnreachable, "%w", err)
	case remote.IsTimeout(err), errors.Is(err, context.DeadlineExceeded):
		return bad(remote.FaultSilent, "it says nothing: %w", err)
	case !secured && errors.Is(err, io.EOF), !secured && strings.Contains(err.Error(), "malformed HTTP"):
		return bad(remote.FaultSecured, "it closed the connection, as one that wants https does: %w", err)
	case secured && strings.Contains(err.Error(), "HTTP response to HTTPS client"):
		return bad(remote.FaultPlain, "%w", err)
	case secured:
		return bad(remote.HandshakeFault(err), "%w", err)
	}
	if _, ok := errors.AsType[*url.Error](err); ok {
		return bad(remote.FaultUnreachable, "%w", err)
	}
	return bad(remote.FaultOther, "it answers, but not as consul does: %w", err)
}

// isToken reports whether the token cannot be read.
func isToken(err error) bool {
	_, ok := errors.AsType[tokenError](err)
	return ok
}

// isResolution reports whether a name has no address.
func isResolution(err error) bool {
	_, ok := errors.AsType[*net.DNSError](err)
	return ok
}
