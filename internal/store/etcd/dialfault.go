package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/berthd/berth/internal/store/remote"
)

const (
	// endpointTimeout bounds each step of the check of one endpoint.
	endpointTimeout = 3 * time.Second
	// http2Preface is the first message of a gRPC client: the preface of HTTP/2 and an empty frame of settings.
	http2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
)

// checkEndpoints checks each endpoint by itself. It returns the endpoints that answer as gRPC does, or the faults of
// all if none does. gRPC itself only reports, after a while, that there is no connection. checkEndpoints logs a warning
// for endpoints that do not answer while others do.
func checkEndpoints(ctx context.Context, config *DialConfig, secure *remote.ReloadingTLS) (
	present []string, err error,
) {
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

// tryEndpoint sends the HTTP/2 preface to an endpoint. The error is a *remote.DialError.
func tryEndpoint(ctx context.Context, endpoint string, secure *remote.ReloadingTLS) error {
	_, address, _ := strings.Cut(endpoint, "://")
	bad := func(fault remote.Fault, format string, args ...any) error {
		return &remote.DialError{Fault: fault, Err: fmt.Errorf(endpoint+": "+format, args...)}
	}
	bounded, cancel := context.WithTimeout(ctx, endpointTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(bounded, "tcp", address)
	if err != nil {
		return bad(remote.FaultUnreachable, "%w", err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(endpointTimeout)) // a connection without deadlines fails by itself
	if secure != nil {
		c, err := secure.Config()
		if err != nil {
			return err
		}
		c = c.Clone()
		c.ServerName, _, _ = net.SplitHostPort(address)
		c.NextProtos = []string{"h2"}
		secured := tls.Client(conn, c)
		if err := secured.HandshakeContext(bounded); err != nil {
			return bad(remote.HandshakeFault(err), "%w", err)
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
	case secure != nil && err != nil && remote.HandshakeFault(err) == remote.FaultRefused:
		// With TLS 1.3 the other side refuses a certificate only after the handshake.
		return bad(remote.FaultRefused, "%w", err)
	case secure == nil && (err != nil && !errors.Is(err, context.DeadlineExceeded) && !remote.IsTimeout(err) || n > 0 &&
		answer[0] == 0x15 || string(answer[:n]) == "HTTP/1.0 "):
		return bad(remote.FaultSecured, "it closed the connection, as one that wants https does")
	case err != nil:
		return bad(remote.FaultSilent, "it says nothing: %w", err)
	}
	return bad(remote.FaultOther, "it answers, but not as etcd does")
}

// callFault classifies the error of a first call.
func (c *calls) callFault(doing string, err error) error {
	etcdErr := rpctypes.Error(err)
	fault, known := errors.AsType[*remote.DialError](err)
	switch {
	case known:
		return fault
	case errors.Is(etcdErr, rpctypes.ErrAuthFailed):
		return &remote.DialError{
			Fault: remote.FaultPassword, Err: fmt.Errorf("log in to etcd as user %q: %w", c.user, err),
		}
	case errors.Is(etcdErr, rpctypes.ErrUserEmpty):
		return &remote.DialError{Fault: remote.FaultUser, Err: fmt.Errorf("%s: %w", doing, err)}
	case errors.Is(etcdErr, rpctypes.ErrPermissionDenied):
		return &remote.DialError{
			Fault: remote.FaultPermission, Err: fmt.Errorf("%s as %s: %w", doing, describeUser(c.user), err),
		}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(etcdErr, rpctypes.ErrTimeout),
		errors.Is(etcdErr, rpctypes.ErrNoLeader), etcdErr.Error() == context.DeadlineExceeded.Error():
		return &remote.DialError{Fault: remote.FaultSilent, Err: fmt.Errorf("%s: no answer: %w", doing, err)}
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
			return &remote.DialError{Fault: remote.FaultVersion, Err: fmt.Errorf("%s runs etcd %s", endpoint, version)}
		}
	}
	if last := minVersions[len(minVersions)-1]; v[0] > last[0] || v[0] == last[0] && v[1] > last[1] {
		return nil
	}
	return &remote.DialError{Fault: remote.FaultVersion, Err: fmt.Errorf("%s runs etcd %s", endpoint, version)}
}
