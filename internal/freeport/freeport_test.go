package freeport_test

import (
	"net"
	"net/netip"
	"testing"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/freeport"
)

// TestAddress finds addresses on which a server can listen, outside the ranges from which Linux gives ports by itself,
// and Berth to tasks.
func TestAddress(t *testing.T) {
	seen := map[string]bool{}
	for range 20 {
		address, err := freeport.Address(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if port := netip.MustParseAddrPort(address).Port(); port < 15000 || port >= cluster.FirstAutoPort {
			t.Errorf("%s is in a range that connections or tasks take ports from", address)
		}
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() }) // it stays, so that the next address is another one
		if seen[address] {
			t.Errorf("%s is given twice, though a server listens there", address)
		}
		seen[address] = true
	}
}
