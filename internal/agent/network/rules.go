package network

import (
	"fmt"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// table returns the nft text that atomically replaces the published ports. If no record is on the bridge it only
// removes the old table.
//
// Traffic to a published number on any address of the node goes to the task. That holds for other machines, for the
// node itself, also over its loopback, and for tasks. Replies to the node and to tasks would bypass the node, so their
// connections get the bridge's address. Tasks reach other machines with the node's address. Nothing behind the bridge
// reaches a program that listens only on the node's loopback.
func table(name string, records []record) string {
	var b strings.Builder
	fmt.Fprintf(&b, "add table ip %[1]s\ndelete table ip %[1]s\n", name)
	var subnets, published []string
	for _, r := range records {
		if !r.Made || r.Mode != cluster.NetworkBridge {
			continue
		}
		if !slices.Contains(subnets, r.Subnet) {
			subnets = append(subnets, r.Subnet)
		}
		for _, p := range r.Ports {
			published = append(published,
				fmt.Sprintf("meta l4proto { tcp, udp } th dport %d dnat to %s:%d", p.Node, r.Address, p.Inside))
		}
	}
	if len(subnets) == 0 {
		return b.String()
	}
	chain := func(name, hook string, rules ...string) {
		fmt.Fprintf(&b, "\tchain %s {\n", name)
		if hook != "" {
			fmt.Fprintf(&b, "\t\ttype %s; policy accept;\n", hook)
		}
		for _, r := range rules {
			fmt.Fprintf(&b, "\t\t%s\n", r)
		}
		b.WriteString("\t}\n")
	}
	from := strings.Join(subnets, ", ")
	fmt.Fprintf(&b, "table ip %s {\n", name)
	chain("guard", "filter hook prerouting priority -310", fmt.Sprintf("iifname %q ip daddr 127.0.0.0/8 drop", name))
	chain("published", "", published...)
	chain("arriving", "nat hook prerouting priority -100", "fib daddr type local jump published")
	chain("own", "nat hook output priority -100", "fib daddr type local jump published")
	chain("leaving", "nat hook postrouting priority 100",
		fmt.Sprintf("oifname %q ct status dnat ip saddr { 127.0.0.0/8, %s } masquerade", name, from),
		fmt.Sprintf("ip saddr { %s } oifname != %q masquerade", from, name))
	b.WriteString("}\n")
	return b.String()
}
