package network

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
)

// namesPort is the port for DNS questions of tasks, at the bridge's address.
const namesPort = 53

// Gateway returns the bridge's address, at which tasks behind it reach the node, and the subnet of the tasks. The
// machine has this address while the bridge exists.
func (s *Spaces) Gateway() (gateway netip.Addr, tasks netip.Prefix) {
	return s.Subnet.Addr().Next(), s.Subnet
}

// Bridged reports whether a task is, or may be, behind the bridge.
func (s *Spaces) Bridged() bool { return s.records.bridged() }

// AnswerNames makes the agent answer tasks' DNS questions at the gateway. While the agent does not run, the kernel
// redirects them to instead, or nowhere if instead is invalid. It may be called again with another resolver. A second
// resolver in the tasks' files would not work: some libraries query all resolvers concurrently and use the first
// answer.
func (s *Spaces) AnswerNames(ctx context.Context, instead netip.AddrPort) error {
	if !instead.Addr().Is4() || instead.Addr().IsLoopback() {
		instead = netip.AddrPort{}
	}
	s.filter.answerNames(instead)
	if err := s.records.opened(); err != nil || !s.records.bridged() {
		return nil //nolint:nilerr // Facts reports it
	}
	return s.filter.publish(ctx)
}

func namesTable(bridge string) string { return bridge + "-names" }

// namesRules returns the nft text that atomically replaces the rules for DNS questions. If no task is on the bridge it
// only removes the old rules. They precede the rules of published ports, so that no task receives questions of others
// by publishing the number.
func namesRules(bridge string, gateway netip.Addr, instead netip.AddrPort, wanted bool) string {
	name := namesTable(bridge)
	var b strings.Builder
	fmt.Fprintf(&b, "add table ip %[1]s\ndelete table ip %[1]s\n", name)
	if !wanted {
		return b.String()
	}
	question := fmt.Sprintf("iifname %q ip daddr %s meta l4proto { tcp, udp } th dport %d", bridge, gateway, namesPort)
	fmt.Fprintf(&b, "table ip %s {\n\tchain asking {\n\t\ttype nat hook prerouting priority -110; policy accept;\n",
		name)
	own := netip.AddrPortFrom(gateway, namesPort)
	if instead.IsValid() {
		fmt.Fprintf(&b, "\t\t%s socket wildcard 0 dnat to %s\n", question, own) // a program listens there
		own = instead
	}
	fmt.Fprintf(&b, "\t\t%s dnat to %s\n", question, own)
	b.WriteString("\t}\n}\n")
	return b.String()
}
