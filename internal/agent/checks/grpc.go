package checks

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/berthd/berth/internal/cluster"
)

// maxHealthReply limits the answer of a task's gRPC server, in bytes. A valid answer is a few bytes long.
const maxHealthReply = 4 << 10

// grpc calls the standard health service over a new connection: a server that accepts no new connection is not healthy.
func (p *Prober) grpc(ctx context.Context, c *cluster.Check) error {
	address, err := p.address(c)
	if err != nil {
		return err
	}
	trust := insecure.NewCredentials()
	if c.TLS {
		trust = credentials.NewTLS(&tls.Config{
			MinVersion: tls.VersionTLS12,
			//nolint:gosec // the check needs no identity; the address is the node's own
			InsecureSkipVerify: true,
		})
	}
	var unreached atomic.Pointer[error]
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", address)
		if err != nil {
			unreached.Store(&err)
		}
		return conn, err
	}
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithContextDialer(dial),
		grpc.WithTransportCredentials(trust), grpc.WithNoProxy(), grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithUserAgent("berth-check"), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxHealthReply)))
	if err != nil {
		return err
	}
	defer conn.Close() // the call is complete or has failed
	reply, err := health.NewHealthClient(conn).Check(ctx, &health.HealthCheckRequest{Service: c.Service})
	if err != nil {
		if failed := unreached.Load(); failed != nil {
			return *failed // same error as for the other types
		}
		return grpcProblem(c, err)
	}
	if reply.GetStatus() != health.HealthCheckResponse_SERVING {
		return fmt.Errorf("%s answered %s", serviceName(c), reply.GetStatus())
	}
	return nil
}

// serviceName names the service that a check requests.
func serviceName(c *cluster.Check) string {
	if c.Service == "" {
		return "the gRPC server"
	}
	return fmt.Sprintf("service %q", c.Service)
}

// grpcProblem explains an error without a health status.
func grpcProblem(c *cluster.Check, err error) error {
	s := status.Convert(err)
	switch s.Code() {
	case codes.Unimplemented:
		return fmt.Errorf("the gRPC server does not serve grpc.health.v1.Health: %s", clipped(s.Message()))
	case codes.NotFound:
		return fmt.Errorf("the gRPC server does not know %s", serviceName(c))
	}
	return fmt.Errorf("%s: %s", s.Code(), clipped(s.Message()))
}
