package nameserver

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/berthd/berth/internal/agent/addresses"
	"github.com/berthd/berth/internal/agent/node"
	"github.com/berthd/berth/internal/transport"
)

// Services and clients without recent questions are forgotten.
func TestUnusedNamesAreForgotten(t *testing.T) {
	now := time.Hour
	n := &node.Node{Volatile: true, Boot: func() time.Duration { return now }}
	s := New(n, Config{}, addresses.New(n), nil)
	for i := range 3 {
		if s.watch(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}),
			addresses.ServiceName{Cluster: "default", Service: fmt.Sprint("s", i)}) == nil {
			t.Fatalf("service %d was not followed", i)
		}
	}
	s.forgetUnused()
	if len(s.watched) != 3 || len(s.allowances) != 3 {
		t.Errorf("%d services and %d clients are left, want 3 of each", len(s.watched), len(s.allowances))
	}
	now += followTime + unknownFollowTime
	s.forgetUnused()
	if len(s.watched) != 0 || len(s.allowances) != 0 {
		t.Errorf("after long %d services and %d clients are left", len(s.watched), len(s.allowances))
	}
}

// BenchmarkAnswer measures the first answer for a service with 1,000 tasks after a change.
func BenchmarkAnswer(b *testing.B) {
	known := addresses.Service{Known: true}
	for i := range 1000 {
		known.Addresses = append(known.Addresses, transport.ServiceAddress{
			Task: fmt.Sprintf("default.web.1.%03d", i), Node: fmt.Sprintf("node-%d", i),
			Address: fmt.Sprintf("10.0.%d.%d", i/250, i%250), Ports: map[string]int{"http": 20000},
		})
	}
	s, w := &Server{}, &watchedName{}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		known.Stamp = fmt.Sprint(i % 2)
		if got := s.answer(w, &known); len(got.Addresses) != len(known.Addresses) {
			b.Fatal("addresses are missing")
		}
	}
}
