package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/berthd/berth/internal/store"
)

// SystemCA, in the place of a file with authorities, stands for those that the machine knows.
const SystemCA = "system"

// secured secures connections to an etcd that runs elsewhere, each by the files as they are when it is made: they can
// be replaced while the program runs. Files that cannot be read, as one of a pair may be newer than the other for a
// moment, leave those that were read last in use. It is safe for concurrent use.
type secured struct {
	files TLSFiles
	log   *slog.Logger

	mu   sync.Mutex
	last *tls.Config // nil before the first
}

// config returns what the next connection is made with.
func (s *secured) config() (*tls.Config, error) {
	c, err := s.files.distant()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.last = c
	case s.last == nil:
		return nil, err
	default:
		s.log.Warn("the files for the connection to etcd cannot be read; those of before are used", "error", err)
	}
	return s.last, nil
}

// distant reads the files for an etcd that runs elsewhere. The certificate may be missing: not each etcd asks for one.
func (f *TLSFiles) distant() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.CA != SystemCA {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, &DialError{Fault: FaultCA, Err: err}
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, &DialError{Fault: FaultCA, Err: fmt.Errorf("%s holds no certificate in PEM", f.CA)}
		}
	}
	if f.Cert == "" {
		return c, nil
	}
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, &DialError{Fault: FaultCertificate, Err: err}
	}
	if now := time.Now(); now.After(pair.Leaf.NotAfter) || now.Before(pair.Leaf.NotBefore) {
		return nil, &DialError{Fault: FaultCertificate, Err: fmt.Errorf("%s is valid from %s to %s",
			f.Cert, pair.Leaf.NotBefore.UTC().Format(time.RFC3339), pair.Leaf.NotAfter.UTC().Format(time.RFC3339))}
	}
	c.Certificates = []tls.Certificate{pair}
	return c, nil
}

// ClientHandshake is part of credentials.TransportCredentials.
func (s *secured) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo,
	error,
) {
	c, err := s.config()
	if err != nil {
		return nil, nil, err
	}
	return credentials.NewTLS(c).ClientHandshake(ctx, authority, raw)
}

// ServerHandshake is part of credentials.TransportCredentials. Nobody is served.
func (s *secured) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("this end only dials")
}

// Info is part of credentials.TransportCredentials.
func (s *secured) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone is part of credentials.TransportCredentials. There is nothing in it that a connection changes.
func (s *secured) Clone() credentials.TransportCredentials { return s }

// OverrideServerName is part of credentials.TransportCredentials, which calls it obsolete.
func (s *secured) OverrideServerName(string) error { return errors.New("the name is the endpoint's") }

// identity shows a user's token to an etcd that runs elsewhere, and gets a new one where etcd does not know it any
// more: it ran out, or etcd was restarted and had kept it in memory. The password is asked for each time, so that it
// can be changed while the program runs. It is safe for concurrent use.
type identity struct {
	user     string
	password func() (string, error)

	turn  chan struct{} // holds one value, of whom gets a token
	mu    sync.Mutex
	asked bool   // etcd has been asked for a token
	token string // "" before the first, and for an etcd that has no users
}

func newIdentity(user string, password func() (string, error)) *identity {
	return &identity{user: user, password: password, turn: make(chan struct{}, 1)}
}

func (i *identity) known() (token string, asked bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.token, i.asked
}

// renew gets a token in the place of one that was refused, unless another call has meanwhile.
func (i *identity) renew(ctx context.Context, on grpc.ClientConnInterface, refused string) error {
	select {
	case i.turn <- struct{}{}:
		defer func() { <-i.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if token, asked := i.known(); asked && token != refused {
		return nil
	}
	password, err := i.password()
	if err != nil {
		return &DialError{Fault: FaultPassword, Err: err}
	}
	answer, err := pb.NewAuthClient(on).Authenticate(ctx, &pb.AuthenticateRequest{Name: i.user, Password: password})
	token := answer.GetToken()
	if err != nil && !errors.Is(rpctypes.Error(err), rpctypes.ErrAuthNotEnabled) {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.asked, i.token = true, token
	return nil
}

// unary is a grpc.UnaryClientInterceptor. What etcd refuses for its token it has not begun with, so that it may be sent
// again.
func (i *identity) unary(ctx context.Context, method string, request, reply any, on *grpc.ClientConn,
	send grpc.UnaryInvoker, options ...grpc.CallOption,
) error {
	if method == pb.Auth_Authenticate_FullMethodName {
		return send(ctx, method, request, reply, on, options...)
	}
	used, asked := i.known()
	if !asked { // without a token etcd goes by the name in the certificate, if there is one
		if err := i.renew(ctx, on, used); err != nil {
			return err
		}
		used, _ = i.known()
	}
	err := send(ctx, method, request, reply, on, options...)
	// its users were turned on meanwhile
	nameless := used == "" && errors.Is(rpctypes.Error(err), rpctypes.ErrPermissionDenied)
	if !staleToken(err) && !nameless {
		return err
	}
	if err := i.renew(ctx, on, used); err != nil {
		return err
	}
	return send(ctx, method, request, reply, on, options...)
}

// staleToken reports whether an error says that another token may do.
func staleToken(err error) bool {
	if err == nil {
		return false
	}
	told := rpctypes.Error(err)
	return errors.Is(told, rpctypes.ErrInvalidAuthToken) || errors.Is(told, rpctypes.ErrAuthOldRevision) ||
		errors.Is(told, rpctypes.ErrUserEmpty)
}

// GetRequestMetadata is part of credentials.PerRPCCredentials.
func (i *identity) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	if token, _ := i.known(); token != "" {
		return map[string]string{rpctypes.TokenFieldNameGRPC: token}, nil
	}
	return nil, nil
}

// RequireTransportSecurity is part of credentials.PerRPCCredentials. Whether to send a password in clear is the
// operator's choice.
func (i *identity) RequireTransportSecurity() bool { return false }

// unwelcome says what is wrong, to who has to mend it, where etcd does not let a call in.
func (e *Engine) unwelcome(err error) error {
	switch told := rpctypes.Error(err); {
	case errors.Is(told, rpctypes.ErrPermissionDenied), errors.Is(told, rpctypes.ErrUserNotFound):
		return fmt.Errorf("etcd does not permit it to user %q: %w: %w", e.user, store.ErrUnavailable, err)
	case errors.Is(told, rpctypes.ErrAuthFailed):
		return fmt.Errorf("etcd does not take the password of user %q: %w: %w", e.user, store.ErrUnavailable, err)
	case staleToken(err):
		return fmt.Errorf("etcd wants a user: %w: %w", store.ErrUnavailable, err)
	}
	return nil
}
