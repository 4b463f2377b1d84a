// Package consulclient has what all users of Consul in Berth share: the connection with its token and certificates, the
// first contact, and the advice for an operator after a fault.
package consulclient

import (
	"context"
	"crypto/tls"
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

	"github.com/hashicorp/consul/api"

	"github.com/berthd/berth/internal/store/remote"
)

// EndpointTimeout bounds the time until a connection is open, and half of the first contact with one endpoint.
const EndpointTimeout = 3 * time.Second

// minVersion is the oldest version of Consul that the tests pass on.
var minVersion = [2]int{1, 15}

// Config says how Consul is reached. Only Endpoints is required.
type Config struct {
	// Endpoints are the addresses of agents or servers of Consul, such as "http://127.0.0.1:8500": all secured or none.
	Endpoints []string
	// TLS holds the authority that signs the endpoints' certificates, and the client certificate, which may be missing.
	// The files are read again for each connection. It is nil for endpoints of http.
	TLS *remote.TLSFiles
	// Token, unless nil, returns the token of Consul's ACLs. It is called for every request.
	Token func() (string, error)
	// Datacenter and Namespace are those of all requests; "" is that of the agent. Only Consul Enterprise has
	// namespaces.
	Datacenter, Namespace string
	// IdleConns is the number of idle connections that are kept for each endpoint, and MaxConns, unless 0, the largest
	// number of connections.
	IdleConns, MaxConns int
	// Late says that the files for TLS are first read for the first connection, and that Connect never fails for them.
	Late bool
	// Log gets warnings.
	Log *slog.Logger
}

// Connect returns a client for each endpoint, and the transport that they share. It contacts no endpoint. The error is
// a *remote.DialError if the files for TLS cannot be used, unless they are read late.
func Connect(c Config) ([]*api.Client, *http.Transport, error) {
	transport := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: EndpointTimeout, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout: EndpointTimeout,
		MaxIdleConnsPerHost: c.IdleConns,
		MaxConnsPerHost:     c.MaxConns,
		IdleConnTimeout:     90 * time.Second,
	}
	if c.TLS != nil {
		secure := remote.NewReloadingTLS(*c.TLS, c.Log)
		if _, err := secure.Config(); err != nil && !c.Late {
			return nil, transport, err
		}
		transport.DialTLSContext = dialTLS(secure.Config)
	}
	clients := make([]*api.Client, len(c.Endpoints))
	for i, endpoint := range c.Endpoints {
		scheme, _, _ := strings.Cut(endpoint, "://")
		client, err := api.NewClient(&api.Config{
			Address: endpoint, Scheme: scheme, Datacenter: c.Datacenter,
			HttpClient: &http.Client{Transport: ownTransport{transport, c.Token, c.Namespace}},
		})
		if err != nil {
			return nil, transport, err
		}
		clients[i] = client
	}
	return clients, transport, nil
}

// ownTransport sends requests with the present token, and in the namespace. Consul's client takes a token, a namespace
// and a partition from the environment, which may be other ones than those of the configuration; this removes them.
type ownTransport struct {
	http.RoundTripper
	token     func() (string, error)
	namespace string
}

// tokenError says that the token cannot be read.
type tokenError struct{ error }

// Unwrap returns the cause.
func (e tokenError) Unwrap() error { return e.error }

// RoundTrip is part of http.RoundTripper.
func (t ownTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	request.Header.Del("X-Consul-Token")
	request.Header.Del("Authorization")
	query := request.URL.Query()
	query.Del("ns")
	query.Del("partition")
	if t.namespace != "" {
		query.Set("ns", t.namespace)
	}
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

// dialTLS returns a function that opens secured connections, each with a new configuration.
func dialTLS(config func() (*tls.Config, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := config()
		if err != nil {
			return nil, err
		}
		bounded, cancel := context.WithTimeout(ctx, EndpointTimeout)
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

// Try requests Consul's leader from an endpoint, which needs no permission. The answer takes 6 s at most. The error is
// a *remote.DialError.
func Try(ctx context.Context, client *api.Client, endpoint string) error {
	bounded, cancel := context.WithTimeout(ctx, 2*EndpointTimeout)
	defer cancel()
	leader, err := client.Status().LeaderWithQueryOptions(new(api.QueryOptions).WithContext(bounded))
	if err != nil {
		return Fault(err, endpoint)
	}
	if leader == "" {
		return &remote.DialError{Fault: remote.FaultSilent, Err: fmt.Errorf("%s: consul has no leader", endpoint)}
	}
	return nil
}

// Fault classifies the error of a request that needs no permission. The result is a *remote.DialError.
func Fault(err error, endpoint string) error {
	bad := func(fault remote.Fault, format string, args ...any) error {
		return &remote.DialError{Fault: fault, Err: fmt.Errorf(endpoint+": "+format, args...)}
	}
	if known, ok := errors.AsType[*remote.DialError](err); ok {
		return bad(known.Fault, "%w", known.Err)
	}
	status, answered := errors.AsType[api.StatusError](err)
	secured := strings.HasPrefix(endpoint, "https:")
	switch {
	case IsTokenFile(err):
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

// Version returns the version of the agent, which needs the permission to read it.
func Version(client *api.Client, q *api.QueryOptions) (string, error) {
	var self struct{ Config struct{ Version string } }
	_, err := client.Raw().Query("/v1/agent/self", &self, q)
	return strings.TrimPrefix(self.Config.Version, "v"), err
}

// CheckVersion returns a *remote.DialError for a version of Consul that is too old. It accepts a version that it cannot
// parse.
func CheckVersion(endpoint, version string) error {
	var v [2]int
	if _, err := fmt.Sscanf(version, "%d.%d", &v[0], &v[1]); err != nil {
		return nil //nolint:nilerr // a build of Consul with its own version scheme is the operator's choice
	}
	if v[0] < minVersion[0] || v[0] == minVersion[0] && v[1] < minVersion[1] {
		return &remote.DialError{Fault: remote.FaultVersion, Err: fmt.Errorf("%s runs consul %s", endpoint, version)}
	}
	return nil
}

// IsTokenFile reports whether the token cannot be read.
func IsTokenFile(err error) bool {
	_, ok := errors.AsType[tokenError](err)
	return ok
}

// IsUnsent reports whether no connection came about, so that nothing was sent.
func IsUnsent(err error) bool {
	if isResolution(err) {
		return true
	}
	if _, ok := errors.AsType[*remote.DialError](err); ok {
		return true
	}
	// An alert of TLS is no such error: with TLS 1.3 it may follow the request.
	e, ok := errors.AsType[*net.OpError](err)
	return ok && e.Op == "dial"
}

// IsDenied reports whether the token is unknown, cannot be read, or may not do what was requested. The client returns
// Consul's texts, and for transactions no status.
func IsDenied(err error) bool {
	return IsTokenFile(err) || IsUnknownToken(err) || contains(err, "Permission denied", "Access is restricted")
}

// IsUnknownToken reports whether Consul does not know the token.
func IsUnknownToken(err error) bool { return contains(err, "ACL not found", "token does not exist") }

// contains reports whether the text of an error has one of the parts.
func contains(err error, parts ...string) bool {
	text := err.Error()
	for _, part := range parts {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}

// isResolution reports whether a name has no address.
func isResolution(err error) bool {
	_, ok := errors.AsType[*net.DNSError](err)
	return ok
}
