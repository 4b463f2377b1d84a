package dispatcher_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/berthd/berth/internal/boottime"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/dispatcher"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
	"github.com/berthd/berth/internal/transport"
)

// BenchmarkHeartbeat measures the dispatcher's path for the heartbeat of an idle node: HTTP/2 with TLS on loopback,
// with many nodes connected. It includes both ends. cpu-µs/op is the CPU time of both together, which depends less on
// other work of the machine than the clock.
func BenchmarkHeartbeat(b *testing.B) {
	stats := &cluster.NodeStats{At: time.Now().UTC(), CPU: 40, Memory: cluster.GiB, Disk: 40 * cluster.GiB, Load: 0.1}
	for name, usage := range map[string]*cluster.NodeStats{"at-rest": nil, "with-statistics": stats} {
		b.Run(name, func(b *testing.B) { heartbeat(b, usage) })
	}
}

func heartbeat(b *testing.B, usage *cluster.NodeStats) {
	b.Helper()
	const nodes = 256
	clients := heartbeats(b, nodes)
	seq := make([]uint64, nodes)
	before := cpuTime(b)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		n := i % nodes
		seq[n]++
		_, err := clients[n].Report(b.Context(),
			transport.Report{Node: "n" + strconv.Itoa(n), Session: 1, Seq: seq[n], Stats: usage})
		if err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/float64(b.N), "cpu-µs/op")
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// heartbeats starts a dispatcher behind TLS, and nodes that have registered and keep their streams open.
func heartbeats(b *testing.B, nodes int) []*transport.Client {
	b.Helper()
	log := slog.New(slog.DiscardHandler)
	engine := memory.New(memory.Options{})
	tables := store.NewTables(store.TablesConfig{Engine: engine, Logger: log})
	d := dispatcher.New(dispatcher.Config{
		Engine: engine, Tables: tables, Logger: log, Clock: boottime.Now,
	})
	ctx, cancel := context.WithCancel(b.Context())
	var parts sync.WaitGroup
	parts.Go(func() { _ = tables.Run(ctx) })
	parts.Go(func() { _ = d.Run(ctx) })
	serverTLS, clientTLS := certificates(b)
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := &http.Server{Handler: transport.Handler(d), ReadHeaderTimeout: time.Second}
	transport.ConfigureServer(server)
	parts.Go(func() { _ = server.Serve(tls.NewListener(listener, serverTLS)) })
	b.Cleanup(func() {
		cancel()
		_ = server.Close()
		parts.Wait()
	})
	clients := make([]*transport.Client, nodes)
	for i := range clients {
		c, err := transport.NewClient(
			transport.ClientConfig{Addresses: []string{"https://" + listener.Addr().String()}, TLS: clientTLS})
		if err != nil {
			b.Fatal(err)
		}
		clients[i] = c
		name := "n" + strconv.Itoa(i)
		if _, err := c.Register(ctx, transport.Registration{Node: name, Facts: machine}); err != nil {
			b.Fatal(err)
		}
		stream, err := c.Assignments(ctx, transport.AssignmentsRequest{Node: name, Session: 1})
		if err != nil {
			b.Fatal(err)
		}
		parts.Go(func() {
			for err := error(nil); err == nil; {
				_, err = stream.Next(ctx)
			}
			_ = stream.Close()
			c.Close()
		})
	}
	return clients
}

func certificates(b *testing.B) (server, client *tls.Config) {
	b.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		b.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		b.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	pair := tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}},
		&tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool}
}
