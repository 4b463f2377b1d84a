package network

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/berthd/berth/internal/cluster"
)

func TestTable(t *testing.T) {
	const gone = "add table ip b\ndelete table ip b\n"
	half := record{UUID: "h", Mode: cluster.NetworkBridge, Subnet: "10.213.0.0/20", Ports: []Port{{1, 2}}}
	none := record{UUID: "n", Mode: cluster.NetworkNone, Made: true}
	if got := table("b", []record{half, none}); got != gone {
		t.Errorf("without a task on the bridge: got %q", got)
	}
	got := table("b", []record{
		half, none,
		{
			UUID: "x", Mode: cluster.NetworkBridge, Subnet: "10.213.0.0/20", Address: "10.213.0.2", Made: true,
			Ports: []Port{{30001, 80}, {30002, 443}},
		},
		{UUID: "y", Mode: cluster.NetworkBridge, Subnet: "10.213.0.0/20", Address: "10.213.0.3", Made: true},
		{
			UUID: "z", Mode: cluster.NetworkBridge, Subnet: "10.9.0.0/24", Address: "10.9.0.2", Made: true,
			Ports: []Port{{30003, 80}},
		},
	})
	want := gone + `table ip b {
	chain guard {
		type filter hook prerouting priority -310; policy accept;
		iifname "b" ip daddr 127.0.0.0/8 drop
	}
	chain published {
		meta l4proto { tcp, udp } th dport 30001 dnat to 10.213.0.2:80
		meta l4proto { tcp, udp } th dport 30002 dnat to 10.213.0.2:443
		meta l4proto { tcp, udp } th dport 30003 dnat to 10.9.0.2:80
	}
	chain arriving {
		type nat hook prerouting priority -100; policy accept;
		fib daddr type local jump published
	}
	chain own {
		type nat hook output priority -100; policy accept;
		fib daddr type local jump published
	}
	chain leaving {
		type nat hook postrouting priority 100; policy accept;
		oifname "b" ct status dnat ip saddr { 127.0.0.0/8, 10.213.0.0/20, 10.9.0.0/24 } masquerade
		ip saddr { 10.213.0.0/20, 10.9.0.0/24 } oifname != "b" masquerade
	}
}
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestOverlap(t *testing.T) {
	all := []route{{netip.MustParsePrefix("192.168.1.0/24"), "eth0"}, {netip.MustParsePrefix("10.0.0.0/16"), ""}}
	for subnet, want := range map[string]string{
		"10.213.0.0/20":  "",
		"10.0.255.0/24":  "the node's route to 10.0.0.0/16;",
		"10.0.0.0/8":     "the node's route to 10.0.0.0/16;",
		"192.168.0.0/16": "the node's route to 192.168.1.0/24 of eth0;",
	} {
		got := overlap(netip.MustParsePrefix(subnet), all)
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", subnet, got, want)
		}
	}
}
