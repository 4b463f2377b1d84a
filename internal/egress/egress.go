// Package egress decides which addresses Berth itself may contact on behalf of a user.
//
// Users write addresses into manifests: of Prometheus servers, gates, artifacts and images. A server or an agent
// connects to them from its own place in the network. So such an address must not lead to services that only the
// machine may reach: its own loopback services, and the metadata services of clouds, which return the machine's
// credentials (server-side request forgery). A name is checked by its resolved addresses at the moment of the
// connection, so a later change of the name gains nothing. Redirects are checked, too.
//
// Connections use no proxy, because a proxy resolves names by itself. Pulls of images are the exception: networks exist
// in which only a proxy reaches registries. There the host of each request is checked before the proxy is asked.
package egress

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"
)

// ErrRefused says that an address may not be contacted. It is permanent: a retry is useless.
var ErrRefused = errors.New("the address may not be reached from what users write")

// builtin are the addresses that are refused unless the operator allows them. Addresses of metadata services outside of
// the link-local range are from the clouds' documentation (Amazon EC2, Google Compute Engine, Alibaba Cloud, Azure,
// Oracle Cloud).
var builtin = []struct {
	prefix netip.Prefix
	what   string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "this machine"},
	{netip.MustParsePrefix("::/128"), "this machine"},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},
	{netip.MustParsePrefix("::1/128"), "loopback"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local, where clouds serve a machine's credentials"},
	{netip.MustParsePrefix("fe80::/10"), "link-local"},
	{netip.MustParsePrefix("fd00:ec2::/32"), "services of Amazon EC2 for the machine"},
	{netip.MustParsePrefix("fd20:ce::254/128"), "the metadata service of Google Compute Engine"},
	{netip.MustParsePrefix("100.100.100.200/32"), "the metadata service of Alibaba Cloud"},
	{netip.MustParsePrefix("168.63.129.16/32"), "the platform service of Azure"},
	{netip.MustParsePrefix("192.0.0.192/32"), "the metadata service of Oracle Cloud"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("ff00::/8"), "multicast"},
	{netip.MustParsePrefix("255.255.255.255/32"), "broadcast"},
}

// Loopback are the addresses of the machine itself; the unspecified ones lead there too. A development server allows
// them.
func Loopback() []string { return []string{"127.0.0.0/8", "::1/128", "0.0.0.0/32", "::/128"} }

// WithLoopback returns the policy with the machine itself allowed, but for addresses that the operator denies.
func (p Policy) WithLoopback() Policy {
	for _, prefix := range Loopback() {
		p.allow = append(slices.Clip(p.allow), netip.MustParsePrefix(prefix))
	}
	return p
}

// Policy decides which addresses are refused: those that the operator denies, then the built-in ones that the operator
// does not allow. The zero Policy refuses the built-in ones. A Policy does not change and may be used concurrently.
type Policy struct {
	allow, deny []netip.Prefix
}

// New returns a policy. Each element is an address or a prefix such as "10.1.0.0/16". Addresses in deny are always
// refused; allow makes exceptions from the built-in list. The error names all invalid elements.
func New(allow, deny []string) (Policy, error) {
	var p Policy
	var faults []error
	read := func(flag string, list []string) (out []netip.Prefix) {
		for _, text := range list {
			prefix, err := netip.ParsePrefix(text)
			if addr, single := netip.ParseAddr(text); single == nil {
				prefix, err = netip.PrefixFrom(addr, addr.BitLen()), nil
			}
			if err != nil {
				faults = append(faults, fmt.Errorf("%s: %q is neither an address nor a prefix such as 10.1.0.0/16",
					flag, text))
				continue
			}
			out = append(out, prefix.Masked())
		}
		return out
	}
	p.allow, p.deny = read("allow", allow), read("deny", deny)
	return p, errors.Join(faults...)
}

// Check returns an error that is ErrRefused for a forbidden address. An IPv6 address that carries an IPv4 address,
// which a gateway or the kernel unpacks, is checked as both.
func (p Policy) Check(addr netip.Addr) error {
	addr = addr.WithZone("")
	for _, a := range append(carried(addr), addr.Unmap()) {
		within := func(prefix netip.Prefix) bool { return prefix.Contains(a) }
		if slices.ContainsFunc(p.deny, within) {
			return fmt.Errorf("%w: %s is denied by the operator", ErrRefused, addr)
		}
		if slices.ContainsFunc(p.allow, within) {
			continue
		}
		for _, b := range builtin {
			if b.prefix.Contains(a) {
				return fmt.Errorf("%w: %s (%s); the operator can allow it with --egress-allow", ErrRefused, addr,
					b.what)
			}
		}
	}
	return nil
}

// carried returns the IPv4 addresses inside of an IPv6 address: those that a gateway or the kernel may unpack.
func carried(addr netip.Addr) (found []netip.Addr) {
	if !addr.Is6() || addr.Is4In6() {
		return nil
	}
	b := addr.As16()
	add := func(b0, b1, b2, b3 byte) { found = append(found, netip.AddrFrom4([4]byte{b0, b1, b2, b3})) }
	in := func(prefix string) bool { return netip.MustParsePrefix(prefix).Contains(addr) }
	switch {
	case in("64:ff9b::/96"): // NAT64, RFC 6052
		add(b[12], b[13], b[14], b[15])
	case in("64:ff9b:1::/48"): // NAT64 of the network, RFC 8215
		return carriedLocally(b)
	case in("2002::/16"): // 6to4, RFC 3056
		add(b[2], b[3], b[4], b[5])
	case in("2001::/32"): // Teredo, RFC 4380
		add(b[4], b[5], b[6], b[7])         // the server
		add(^b[12], ^b[13], ^b[14], ^b[15]) // the client
	case in("::/96") && addr != netip.IPv6Loopback() && !addr.IsUnspecified(): // the compatible form, RFC 4291
		add(b[12], b[13], b[14], b[15])
	}
	// An ISATAP interface identifier (RFC 5214) may follow any prefix. The first byte marks a globally unique address.
	if b[8]&^2 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe {
		add(b[12], b[13], b[14], b[15])
	}
	return found
}

// carriedLocally returns what an address of the local NAT64 prefix may carry. A network chooses the length of its own
// prefix below it, so the place of the IPv4 address is unknown (RFC 6052, section 2.2). An address of 0.0.0.0/8 is an
// empty place.
func carriedLocally(b [16]byte) (found []netip.Addr) {
	for _, place := range [][4]byte{
		{b[6], b[7], b[9], b[10]},
		{b[7], b[9], b[10], b[11]},
		{b[9], b[10], b[11], b[12]},
		{b[12], b[13], b[14], b[15]},
	} {
		if place[0] != 0 {
			found = append(found, netip.AddrFrom4(place))
		}
	}
	return found
}

// Dialer returns a dialer that refuses each resolved address by the policy before it connects.
func (p Policy) Dialer(timeout time.Duration) *net.Dialer {
	return &net.Dialer{Timeout: timeout, Control: func(_, address string, _ syscall.RawConn) error {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrRefused, err)
		}
		host, _, _ = strings.Cut(host, "%")
		addr, err := netip.ParseAddr(host)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrRefused, err)
		}
		return p.Check(addr)
	}}
}

// Transport returns a transport for addresses that users write: it dials by the policy and uses no proxy. The caller
// sets further limits.
func (p Policy) Transport(timeout time.Duration) *http.Transport {
	return &http.Transport{
		DialContext: p.Dialer(timeout).DialContext, TLSHandshakeTimeout: timeout, ForceAttemptHTTP2: true,
		MaxIdleConnsPerHost: 2, IdleConnTimeout: 30 * time.Second,
	}
}
