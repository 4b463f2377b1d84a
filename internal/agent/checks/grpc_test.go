package checks

import (
	"context"
	"crypto/tls"
	"net"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	serving "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/testkit"
)

// serveGRPC serves the standard health service on loopback, or none if of is nil, and returns the port.
func serveGRPC(t *testing.T, of *health.Server, options ...grpc.ServerOption) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(options...)
	if of != nil {
		serving.RegisterHealthServer(s, of)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(listener) // until it is stopped
	}()
	t.Cleanup(func() { s.Stop(); <-ended })
	return listener.Addr().(*net.TCPAddr).Port
}

func TestGRPC(t *testing.T) {
	t.Parallel()
	of := health.NewServer() // "" is SERVING
	of.SetServingStatus("shop.Cart", serving.HealthCheckResponse_SERVING)
	of.SetServingStatus("shop.Stock", serving.HealthCheckResponse_NOT_SERVING)
	keys := httptest.NewUnstartedServer(nil) // for its certificate, which no client trusts
	keys.StartTLS()
	t.Cleanup(keys.Close)
	certified := &tls.Config{Certificates: keys.TLS.Certificates, MinVersion: tls.VersionTLS12}
	page := httptest.NewServer(nil)
	t.Cleanup(page.Close)
	_, text, err := net.SplitHostPort(page.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	http, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	p := Prober{Host: "127.0.0.1", Ports: map[string]int{
		"plain":  serveGRPC(t, of),
		"tls":    serveGRPC(t, of, grpc.Creds(credentials.NewTLS(certified))),
		"mute":   serveGRPC(t, nil),
		"http":   http,
		"closed": 1,
	}}
	for name, test := range map[string]struct {
		check cluster.Check
		want  string // part of the complaint; empty: healthy
	}{
		"the server as a whole": {cluster.Check{Port: "plain"}, ""},
		"a service":             {cluster.Check{Port: "plain", Service: "shop.Cart"}, ""},
		"a service that is not serving": {
			cluster.Check{Port: "plain", Service: "shop.Stock"},
			`service "shop.Stock" answered NOT_SERVING`,
		},
		"an unknown service": {
			cluster.Check{Port: "plain", Service: "shop.Till"},
			`the gRPC server does not know service "shop.Till"`,
		},
		"over TLS":                  {cluster.Check{Port: "tls", TLS: true, Service: "shop.Cart"}, ""},
		"over TLS, not serving":     {cluster.Check{Port: "tls", TLS: true, Service: "shop.Stock"}, "NOT_SERVING"},
		"TLS is not spoken":         {cluster.Check{Port: "plain", TLS: true}, "Unavailable"},
		"nothing but TLS is spoken": {cluster.Check{Port: "tls"}, "Unavailable"},
		"no health service":         {cluster.Check{Port: "mute"}, "does not serve grpc.health.v1.Health"},
		"no gRPC":                   {cluster.Check{Port: "http"}, "Unavailable"},
		"nothing listens":           {cluster.Check{Port: "closed"}, "refused"},
		"no such port":              {cluster.Check{Port: "other"}, "no port"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			test.check.Type = cluster.CheckGRPC
			err := p.Probe(ctx, &test.check)
			switch {
			case test.want == "" && err != nil:
				t.Errorf("got %v, want no error", err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("got %v, want %q", err, test.want)
			case err != nil && len(err.Error()) > maxAnswer+100:
				t.Errorf("the complaint has %d bytes", len(err.Error()))
			}
		})
	}
}

// A probe of a server that accepts a connection and sends nothing ends with the check's own timeout.
func TestSilentGRPC(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	p := Prober{Host: "127.0.0.1", Ports: map[string]int{"a": listener.Addr().(*net.TCPAddr).Port}}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	watch := testkit.NewStopwatch()
	if err := p.Probe(ctx, &cluster.Check{Type: cluster.CheckGRPC, Port: "a"}); err == nil {
		t.Error("it was found healthy")
	}
	if took := watch.Elapsed(); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
}

func BenchmarkGRPC(b *testing.B) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	s := grpc.NewServer()
	serving.RegisterHealthServer(s, health.NewServer())
	go func() { _ = s.Serve(listener) }()
	defer s.Stop()
	p := Prober{Host: "127.0.0.1", Ports: map[string]int{"a": listener.Addr().(*net.TCPAddr).Port}}
	for b.Loop() {
		if err := p.Probe(b.Context(), &cluster.Check{Type: cluster.CheckGRPC, Port: "a"}); err != nil {
			b.Fatal(err)
		}
	}
}
