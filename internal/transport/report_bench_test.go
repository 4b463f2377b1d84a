package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http/httptest"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// idle answers reports with nothing behind.
type idle struct{}

func (idle) Register(context.Context, Registration) (Welcome, error) {
	return Welcome{Session: 1, Wire: WireVersion}, nil
}

func (idle) Report(context.Context, Report) (ReportReply, error) {
	return ReportReply{Heartbeat: cluster.Duration(time.Minute)}, nil
}
func (idle) Assign(context.Context, AssignmentsRequest, func([]Message) error) error { return nil }
func (idle) Carry(context.Context, string, io.ReadWriter) error                      { return nil }

// BenchmarkReports measures the least cost of an agent's report for both ends together: HTTP/2 and TLS on loopback with
// an empty handler. 1,000 agents have a connection each, and 32 reports are in flight.
func BenchmarkReports(b *testing.B) {
	server := httptest.NewUnstartedServer(Handler(idle{}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	const agents, together = 1000, 32
	clients := make(chan *Client, agents)
	for range agents {
		c, err := NewClient(ClientConfig{
			Addresses: []string{server.URL},
			TLS:       &tls.Config{RootCAs: roots, ServerName: "example.com", MinVersion: tls.VersionTLS13},
		})
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Register(b.Context(), Registration{Node: "n1"}); err != nil {
			b.Fatal(err)
		}
		clients <- c
	}
	report := Report{
		Node: "n1", Session: 1, Seq: 1,
		Tasks: []cluster.Observed{{Task: "c.web.1.0", Attempt: 1, UUID: "u", State: cluster.StateRunning}},
	}
	began := used()
	b.ReportAllocs()
	b.ResetTimer()
	var all sync.WaitGroup
	turns := make(chan struct{}, together)
	for range together {
		all.Go(func() {
			for range turns {
				c := <-clients
				if _, err := c.Report(b.Context(), report); err != nil {
					b.Error(err)
				}
				clients <- c
			}
		})
	}
	for range b.N {
		turns <- struct{}{}
	}
	close(turns)
	all.Wait()
	b.ReportMetric(float64(used()-began)/float64(b.N), "cpu-ns/op")
}

// used is the processor time of this process.
func used() time.Duration {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
