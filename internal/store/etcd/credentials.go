package etcd

import (
	"context"
	"errors"
	"net"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/berthd/berth/internal/store/remote"
)

// grpcTLS secures connections of gRPC to an etcd that runs elsewhere. It is safe for concurrent use.
type grpcTLS struct{ *remote.ReloadingTLS }

// ClientHandshake is part of credentials.TransportCredentials.
func (s grpcTLS) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn,
	credentials.AuthInfo, error,
) {
	c, err := s.Config()
	if err != nil {
		return nil, nil, err
	}
	return credentials.NewTLS(c).ClientHandshake(ctx, authority, raw)
}

// ServerHandshake is part of credentials.TransportCredentials. It always fails: these credentials are for dialing.
func (s grpcTLS) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("this end only dials")
}

// Info is part of credentials.TransportCredentials.
func (s grpcTLS) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone is part of credentials.TransportCredentials. Connections do not change s, so it returns s.
func (s grpcTLS) Clone() credentials.TransportCredentials { return s }

// OverrideServerName is part of credentials.TransportCredentials, which calls it obsolete.
func (s grpcTLS) OverrideServerName(string) error {
	return errors.New("the name is the endpoint's")
}

// tokenSource sends a user's token to an etcd that runs elsewhere. It gets a new token when etcd no longer knows the
// old one: the token expired, or etcd kept it in memory and was restarted. It requests the password each time, so that
// the password can be changed while the program runs. It is safe for concurrent use.
type tokenSource struct {
	user     string
	password func() (string, error)

	renewing chan struct{} // holds one value while a call gets a token
	mu       sync.Mutex
	asked    bool   // a token has been requested from etcd
	token    string // "" before the first token, and for an etcd without users
}

func newTokenSource(user string, password func() (string, error)) *tokenSource {
	return &tokenSource{user: user, password: password, renewing: make(chan struct{}, 1)}
}

func (i *tokenSource) current() (token string, asked bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.token, i.asked
}

// renew gets a token in place of a refused one, unless another call has done so.
func (i *tokenSource) renew(ctx context.Context, on grpc.ClientConnInterface, refused string) error {
	select {
	case i.renewing <- struct{}{}:
		defer func() { <-i.renewing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if token, asked := i.current(); asked && token != refused {
		return nil
	}
	password, err := i.password()
	if err != nil {
		return &remote.DialError{Fault: remote.FaultPassword, Err: err}
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

// unary is a grpc.UnaryClientInterceptor. etcd does not begin a call that it refuses for its token, so the call may be
// sent again.
func (i *tokenSource) unary(ctx context.Context, method string, request, reply any, on *grpc.ClientConn,
	send grpc.UnaryInvoker, options ...grpc.CallOption,
) error {
	if method == pb.Auth_Authenticate_FullMethodName {
		return send(ctx, method, request, reply, on, options...)
	}
	used, asked := i.current()
	if !asked { // without a token etcd uses the name in the certificate, if there is one
		if err := i.renew(ctx, on, used); err != nil {
			return err
		}
		used, _ = i.current()
	}
	err := send(ctx, method, request, reply, on, options...)
	// etcd's authentication has been enabled since
	nameless := used == "" && errors.Is(rpctypes.Error(err), rpctypes.ErrPermissionDenied)
	if !isStaleToken(err) && !nameless {
		return err
	}
	if err := i.renew(ctx, on, used); err != nil {
		return err
	}
	return send(ctx, method, request, reply, on, options...)
}

// isStaleToken reports whether a call may succeed with another token.
func isStaleToken(err error) bool {
	if err == nil {
		return false
	}
	etcdErr := rpctypes.Error(err)
	return errors.Is(etcdErr, rpctypes.ErrInvalidAuthToken) || errors.Is(etcdErr, rpctypes.ErrAuthOldRevision) ||
		errors.Is(etcdErr, rpctypes.ErrUserEmpty)
}

// GetRequestMetadata is part of credentials.PerRPCCredentials.
func (i *tokenSource) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	if token, _ := i.current(); token != "" {
		return map[string]string{rpctypes.TokenFieldNameGRPC: token}, nil
	}
	return nil, nil
}

// RequireTransportSecurity is part of credentials.PerRPCCredentials. The operator decides whether to send a password in
// clear.
func (i *tokenSource) RequireTransportSecurity() bool { return false }
