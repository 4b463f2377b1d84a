package network

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
)

// namesPort is where tasks ask for names, at the bridge's own address.
const namesPort = 53

// Gateway returns the bridge's own address, at which the tasks behind it reach the node, and the subnet of theirs. The
// address is the machine's while there is a bridge.
func (s *Spaces) Gateway() (gateway netip.Addr, tasks netip.Prefix) {
	return s.Subnet.Addr().Next(), s.Subnet
}

// Bridged reports whether there is, or may be, a task behind the bridge.
func (s *Spaces) Bridged() bool { return s.bridged() }

// AnswerNames says that the agent answers at the gateway what tasks ask for names, and who is asked in its place while
// it does not, by the kernel alone: nobody where it is invalid. It may be called again with another one. A second
// resolver in the tasks' files would not do: some libraries ask all of them at once and take whichever answer is first.
func (s *Spaces) AnswerNames(ctx context.Context, instead netip.AddrPort) error {
	if !instead.Addr().Is4() || instead.Addr().IsLoopback() {
		instead = netip.AddrPort{}
	}
	s.rules.Lock()
	s.named, s.instead = true, instead
	s.rules.Unlock()
	if err := s.opened(); err != nil || !s.bridged() {
		return nil //nolint:nilerr // Facts says so
	}
	return s.publish(ctx)
}

func namesTable(bridge string) string { return bridge + "-names" }

// namesRules returns the text for nft that puts what becomes of questions for names in the place of what was; unless
// there are tasks on the bridge it only removes that. The rules come before those of published ports: no task takes the
// questions of others by publishing the number.
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
		fmt.Fprintf(&b, "\t\t%s socket wildcard 0 dnat to %s\n", question, own) // somebody listens there
		own = instead
	}
	fmt.Fprintf(&b, "\t\t%s dnat to %s\n", question, own)
	b.WriteString("\t}\n}\n")
	return b.String()
}

// publishNames brings the rules for names to what the records say. Where the kernel does not take them tasks find names
// only while the agent lives, which is said once. s.rules is held.
func (s *Spaces) publishNames(ctx context.Context, wanted bool) error {
	gateway, _ := s.Gateway()
	wanted = wanted && s.named
	text := namesRules(s.bridge, gateway, s.instead, wanted)
	if text == s.appliedNames {
		return nil
	}
	err := s.nft(ctx, text, "-f", "-")
	if err != nil && !wanted {
		return fmt.Errorf("remove the rules for names: %w", err)
	}
	if err != nil && ctx.Err() == nil {
		s.Logger.Warn("while the agent is not running tasks behind the bridge find no names: the kernel "+
			"does not take the rules for it; load the module nft_socket", "error", err)
	}
	if ctx.Err() == nil {
		s.appliedNames = text
	}
	return nil
}
