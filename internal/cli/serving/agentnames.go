package serving

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/internal/agent/nameserver"
	"github.com/berthd/berth/internal/cli/session"
)

// defaultDNSListen is the address of the agent's DNS server for programs of its machine. dnsListenOff disables it.
const (
	defaultDNSListen = "127.0.0.1:7053"
	dnsListenOff     = "off"
	dnsPort          = 53
)

// nameFlags configure the agent's DNS server.
type nameFlags struct {
	listen    string
	upstreams []string
	parsed    nameserver.Config
}

func (f *nameFlags) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.listen, "dns-listen", defaultDNSListen,
		"`ADDRESS:PORT` to serve the names of services on (DNS) for programs of this machine "+
			"and its resolver; "+dnsListenOff+" disables it. Tasks with network bridge do not need it")
	cmd.Flags().StringSliceVar(&f.upstreams, "dns-upstream", nil,
		"`ADDRESS` of a resolver for other names; may be given several times (default the resolvers of "+
			"/etc/resolv.conf, without loopback addresses)")
}

// check parses the flags and adds their faults to list.
func (f *nameFlags) check(list *session.Faults) {
	f.parsed = nameserver.Config{}
	if f.listen != dnsListenOff {
		at, err := netip.ParseAddrPort(f.listen)
		switch {
		case err != nil || at.Port() == 0:
			list.Add("--dns-listen %q: want an IP address with a port such as %s, or %s", f.listen, defaultDNSListen,
				dnsListenOff)
		case at.Addr().IsUnspecified():
			list.Add("--dns-listen %q: want one specific address, because answers must come from the "+
				"address of the query", f.listen)
		}
		f.parsed.Listen = at
	}
	for _, u := range session.SplitList(f.upstreams) {
		at, err := parseUpstream(u)
		if err != nil {
			list.Add("--dns-upstream %v", err)
			continue
		}
		if at == f.parsed.Listen {
			list.Add("--dns-upstream %s: it is the agent's own --dns-listen", u)
		}
		f.parsed.Upstreams = append(f.parsed.Upstreams, at)
	}
}

// parseUpstream reads the address of a resolver, with or without a port.
func parseUpstream(text string) (netip.AddrPort, error) {
	host, port := text, strconv.Itoa(dnsPort)
	if h, p, err := net.SplitHostPort(text); err == nil {
		host, port = h, p
	}
	addr, err := netip.ParseAddr(host)
	number, portErr := strconv.ParseUint(port, 10, 16)
	if err != nil || portErr != nil || number == 0 || addr.IsUnspecified() {
		return netip.AddrPort{}, fmt.Errorf("%q: want the IP address of a resolver, with a port unless that is %d",
			text, dnsPort)
	}
	return netip.AddrPortFrom(addr.Unmap(), uint16(number)), nil
}
