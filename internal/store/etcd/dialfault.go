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

// Fault is what stands in the way to an etcd that runs elsewhere, by what an operator does about it.
type Fault string

// All faults. Each is of the endpoint, of the files, or of the user that the DialError's text names.
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

// DialError is why Dial failed.
type DialError struct {
	Fault Fault
	Err   error
}

// Error returns the cause. The fault is for those who say what to do.
func (e *DialError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *DialError) Unwrap() error { return e.Err }

const (
	// examineLimit bounds each of the steps by which an endpoint is tried by itself.
	examineLimit = 3 * time.Second
	// hello begins HTTP/2: what each client of gRPC says first, and an empty frame of settings.
	hello = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
)

// examine tries all endpoints, each by itself, and returns those that answer as gRPC does, or the faults of all. gRPC
// itself only says, after a while, that there is no connection. Of endpoints that do not answer while others do it
// warns.
func examine(ctx context.Context, config *DialConfig, secure *secured) (present []string, err error) {
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

// tryEndpoint says hello to an endpoint. The error is a DialError.
func tryEndpoint(ctx context.Context, endpoint string, secure *secured) error {
	_, address, _ := strings.Cut(endpoint, "://")
	bad := func(fault Fault, format string, args ...any) error {
		return &DialError{Fault: fault, Err: fmt.Errorf(endpoint+": "+format, args...)}
	}
	bounded, cancel := context.WithTimeout(ctx, examineLimit)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(bounded, "tcp", address)
	if err != nil {
		return bad(FaultUnreachable, "%w", err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(examineLimit)) // a connection that cannot have one fails by itself
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
	_, err = conn.Write([]byte(hello))
	n := 0
	if err == nil {
		n, err = conn.Read(answer)
	}
	switch {
	case n >= 4 && answer[3] == 4 && answer[0] == 0: // settings
		return nil
	case secure != nil && err != nil && handshakeFault(err) == FaultRefused:
		// with TLS 1.3 the other side says so only now
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

// handshakeFault names what went wrong in a TLS handshake.
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
	// One that is not asked for TLS either answers in clear, or closes the connection.
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok || errors.Is(err, io.EOF) ||
		errors.Is(err, syscall.ECONNRESET) {
		return FaultPlain
	}
	if e, ok := errors.AsType[*net.OpError](err); ok && e.Op == "remote error" { // what crypto/tls calls an alert
		return FaultRefused
	}
	if isTimeout(err) || errors.Is(err, context.DeadlineExceeded) {
		return FaultSilent
	}
	return FaultOther
}

// callFault names what a first call failed with.
func (e *Engine) callFault(doing string, err error) error {
	told := rpctypes.Error(err)
	fault, known := errors.AsType[*DialError](err)
	switch {
	case known:
		return fault
	case errors.Is(told, rpctypes.ErrAuthFailed):
		return &DialError{FaultPassword, fmt.Errorf("log in to etcd as user %q: %w", e.user, err)}
	case errors.Is(told, rpctypes.ErrUserEmpty):
		return &DialError{FaultUser, fmt.Errorf("%s: %w", doing, err)}
	case errors.Is(told, rpctypes.ErrPermissionDenied):
		return &DialError{FaultPermission, fmt.Errorf("%s as %s: %w", doing, who(e.user), err)}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(told, rpctypes.ErrTimeout),
		errors.Is(told, rpctypes.ErrNoLeader), told.Error() == context.DeadlineExceeded.Error():
		return &DialError{FaultSilent, fmt.Errorf("%s: no answer: %w", doing, err)}
	}
	return fmt.Errorf("%s: %w", doing, err)
}

func who(user string) string {
	if user == "" {
		return "the user that the certificate names"
	}
	return fmt.Sprintf("user %q", user)
}

// oldest are the first versions of etcd, of each line that has any, that lose no events of a watch and revoke no lease
// by mistake. Lines above are fine, lines below are not.
var oldest = [][3]int{{3, 4, 31}, {3, 5, 13}}

// checkVersion returns an error for a version of etcd that is too old. One that cannot be read is let pass.
func checkVersion(endpoint, version string) error {
	var v [3]int
	if _, err := fmt.Sscanf(version, "%d.%d.%d", &v[0], &v[1], &v[2]); err != nil {
		return nil //nolint:nilerr // who builds etcd under another name for its version knows why
	}
	for _, o := range oldest {
		if v[0] == o[0] && v[1] == o[1] {
			if v[2] >= o[2] {
				return nil
			}
			return &DialError{FaultVersion, fmt.Errorf("%s runs etcd %s", endpoint, version)}
		}
	}
	if last := oldest[len(oldest)-1]; v[0] > last[0] || v[0] == last[0] && v[1] > last[1] {
		return nil
	}
	return &DialError{FaultVersion, fmt.Errorf("%s runs etcd %s", endpoint, version)}
}
