package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// Fault classifies an obstacle on the way to an etcd that runs elsewhere, by the remedy for an operator.
type Fault string

// All faults. The text of the DialError names the endpoint, the files or the user.
const (
	FaultUnreachable  Fault = "unreachable"    // nothing answers there
	FaultPlain        Fault = "plain"          // it speaks plain http, and https was asked of it
	FaultSecured      Fault = "secured"        // the other way round
	FaultOther        Fault = "other"          // what answers is no etcd
	FaultAuthority    Fault = "authority"      // its certificate is of another authority
	FaultServerName   Fault = "server name"    // its certificate is for other names
	FaultServerExpiry Fault = "server expired" // its certificate ran out, or begins later
	FaultCA           Fault = "ca"             // the file of the authority cannot be used
	FaultCertificate  Fault = "certificate"    // the certificate that is shown to it, or its key, cannot be used
	FaultRefused      Fault = "refused"        // it does not take the certificate that is shown to it, or wants one
	FaultPassword     Fault = "password"       // there is no password, or it is wrong, or the user does not exist
	FaultUser         Fault = "user"           // it wants a user
	FaultPermission   Fault = "permission"     // the user may not do what a store does
	FaultVersion      Fault = "version"        // it is too old
	FaultSilent       Fault = "silent"         // it is there and does not answer: most likely it has no quorum
)

// DialError is an error of Dial with its fault.
type DialError struct {
	Fault Fault
	Err   error
}

// Error returns the cause. Callers choose the advice for the operator by the fault.
func (e *DialError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *DialError) Unwrap() error { return e.Err }

const (
	// endpointTimeout bounds each step of the check of one endpoint.
	endpointTimeout = 3 * time.Second
	// http2Preface is the first message of a gRPC client: the preface of HTTP/2 and an empty frame of settings.
	http2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
)

// checkEndpoints checks each endpoint by itself. It returns the endpoints that answer as gRPC does, or the faults of
// all if none does. gRPC itself only reports, after a while, that there is no connection. checkEndpoints logs a warning
// for endpoints that do not answer while others do.
func checkEndpoints(ctx context.Context, config *DialConfig, secure *reloadingTLS) (present []string, err error) {
	faults := make([]error, len(config.Endpoints))
	var trials sync.WaitGroup
	for i, endpoint := range config.Endpoints {
		trials.Go(func() { faults[i] = tryEndpoint(ctx, endpoint, secure) })
	}
	trials.Wait()
	if !slices.Contains(faults, nil) {
		return nil, errors.Join(faults...)
	}
	for i, err := range faults {
		if err == nil {
			present = append(present, config.Endpoints[i])
		} else {
			config.Log.Warn("an endpoint of etcd does not answer; others do", "endpoint", config.Endpoints[i], "error",
				err)
		}
	}
	return present, nil
}

// tryEndpoint sends the HTTP/2 preface to an endpoint. The error is a DialError.
func tryEndpoint(ctx context.Context, endpoint string, secure *reloadingTLS) error {
	_, address, _ := strings.Cut(endpoint, "://")
	bad := func(fault Fault, format string, args ...any) error {
		return &DialError{Fault: fault, Err: fmt.Errorf(endpoint+": "+format, args...)}
	}
	bounded, cancel := context.WithTimeout(ctx, endpointTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(bounded, "tcp", address)
	if err != nil {
		return bad(FaultUnreachable, "%w", err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(endpointTimeout)) // a connection without deadlines fails by itself
	if secure != nil {
		c, err := secure.config()
		if err != nil {
			return err
		}
		c = c.Clone()
		c.ServerName, _, _ = net.SplitHostPort(address)
		c.NextProtos = []string{"h2"}
		secured := tls.Client(conn, c)
		if err := secured.HandshakeContext(bounded); err != nil {
			return bad(handshakeFault(err), "%w", err)
		}
		conn = secured
	}
	answer := make([]byte, 9)
	_, err = conn.Write([]byte(http2Preface))
	n := 0
	if err == nil {
		n, err = conn.Read(answer)
	}
	switch {
	case n >= 4 && answer[3] == 4 && answer[0] == 0: // settings
		return nil
	case secure != nil && err != nil && handshakeFault(err) == FaultRefused:
		// With TLS 1.3 the other side refuses a certificate only after the handshake.
		return bad(FaultRefused, "%w", err)
	case secure == nil && (err != nil && !errors.Is(err, context.DeadlineExceeded) && !isTimeout(err) || n > 0 &&
		answer[0] == 0x15 || string(answer[:n]) == "HTTP/1.0 "):
		return bad(FaultSecured, "it closed the connection, as one that wants https does")
	case err != nil:
		return bad(FaultSilent, "it says nothing: %w", err)
	}
	return bad(FaultOther, "it answers, but not as etcd does")
}

func isTimeout(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}

// handshakeFault classifies an error of a TLS handshake.
func handshakeFault(err error) Fault {
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return FaultAuthority
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return FaultServerName
	}
	if _, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		return FaultServerExpiry
	}
	// A server without TLS answers in clear, or closes the connection.
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok || errors.Is(err, io.EOF) ||
		errors.Is(err, syscall.ECONNRESET) {
		return FaultPlain
	}
	if e, ok := errors.AsType[*net.OpError](err); ok && e.Op == "remote error" { // crypto/tls's name for an alert
		return FaultRefused
	}
	if isTimeout(err) || errors.Is(err, context.DeadlineExceeded) {
		return FaultSilent
	}
	return FaultOther
}

// callFault classifies the error of a first call.
func (c *calls) callFault(doing string, err error) error {
	etcdErr := rpctypes.Error(err)
	fault, known := errors.AsType[*DialError](err)
	switch {
	case known:
		return fault
	case errors.Is(etcdErr, rpctypes.ErrAuthFailed):
		return &DialError{FaultPassword, fmt.Errorf("log in to etcd as user %q: %w", c.user, err)}
	case errors.Is(etcdErr, rpctypes.ErrUserEmpty):
		return &DialError{FaultUser, fmt.Errorf("%s: %w", doing, err)}
	case errors.Is(etcdErr, rpctypes.ErrPermissionDenied):
		return &DialError{FaultPermission, fmt.Errorf("%s as %s: %w", doing, describeUser(c.user), err)}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(etcdErr, rpctypes.ErrTimeout),
		errors.Is(etcdErr, rpctypes.ErrNoLeader), etcdErr.Error() == context.DeadlineExceeded.Error():
		return &DialError{FaultSilent, fmt.Errorf("%s: no answer: %w", doing, err)}
	}
	return fmt.Errorf("%s: %w", doing, err)
}

func describeUser(user string) string {
	if user == "" {
		return "the user that the certificate names"
	}
	return fmt.Sprintf("user %q", user)
}

// minVersions holds the first correct version of each line of etcd. Earlier versions lose events of a watch or revoke a
// lease by mistake. All later lines are correct, and no earlier line is.
var minVersions = [][3]int{{3, 4, 31}, {3, 5, 13}}

// checkVersion returns an error for a version of etcd that is too old. It accepts a version that it cannot parse.
func checkVersion(endpoint, version string) error {
	var v [3]int
	if _, err := fmt.Sscanf(version, "%d.%d.%d", &v[0], &v[1], &v[2]); err != nil {
		return nil //nolint:nilerr // a build of etcd with its own version scheme is the operator's choice
	}
	for _, o := range minVersions {
		if v[0] == o[0] && v[1] == o[1] {
			if v[2] >= o[2] {
				return nil
			}
			return &DialError{FaultVersion, fmt.Errorf("%s runs etcd %s", endpoint, version)}
		}
	}
	if last := minVersions[len(minVersions)-1]; v[0] > last[0] || v[0] == last[0] && v[1] > last[1] {
		return nil
	}
	return &DialError{FaultVersion, fmt.Errorf("%s runs etcd %s", endpoint, version)}
}
