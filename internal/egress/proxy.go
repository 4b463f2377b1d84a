package egress

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
)

// lookupLimit is how long a name may take to resolve before the decision is left to the proxy.
const lookupLimit = 5 * time.Second

// metadataNames are names of services for the machine alone. A proxy in a cloud may resolve them where an agent cannot.
// They are from the clouds' documentation (Google Compute Engine, Amazon EC2, Azure, Tencent Cloud).
var metadataNames = []string{
	"metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal",
	"metadata.azure.internal", "metadata.azure.com", "metadata.tencentyun.com",
}

// ProxyFunc chooses the proxy of a request, as the field Proxy of http.Transport does. A nil URL means no proxy.
type ProxyFunc func(*http.Request) (*url.URL, error)

// Resolver finds the addresses of a name. *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// LimitProxy returns a ProxyFunc that refuses requests whose host is forbidden before the chosen proxy is asked. The
// host is forbidden if it is a forbidden address or a name with one among its addresses. A name that does not resolve
// here is left to the proxy, unless it names this machine or a metadata service. The proxy resolves the name again, so
// the operator of a proxy must limit it against names that change in between.
func (p Policy) LimitProxy(choose ProxyFunc, names Resolver) ProxyFunc {
	return func(req *http.Request) (*url.URL, error) {
		proxy, err := choose(req)
		if proxy == nil || err != nil {
			return proxy, err
		}
		if err := p.checkHost(req.Context(), req.URL.Hostname(), names); err != nil {
			return nil, err
		}
		return proxy, nil
	}
}

// checkHost returns an error that is ErrRefused for a forbidden host. Without an answer of the resolver it decides by
// the name.
func (p Policy) checkHost(ctx context.Context, host string, names Resolver) error {
	if addr, err := netip.ParseAddr(host); err == nil {
		return p.Check(addr)
	}
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	if err := checkName(name); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, lookupLimit)
	defer cancel()
	addrs, err := names.LookupNetIP(limited, "ip", host)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return nil // only the proxy can resolve it
	}
	for _, addr := range addrs {
		if err := p.Check(addr); err != nil {
			return fmt.Errorf("%s: %w", host, err)
		}
	}
	return nil
}

// checkName refuses names that lead to a forbidden address in the eyes of a proxy, whatever the resolver here says.
func checkName(name string) error {
	last := name[strings.LastIndex(name, ".")+1:]
	switch {
	case strings.ContainsFunc(name, func(r rune) bool { return r > 0x7f }):
		// The transport would turn other digits and dots into those of an address.
		return fmt.Errorf("%w: the host %q has letters outside of ASCII", ErrRefused, name)
	case last == "" || isNumber(last):
		// No name ends in a number, but many systems read 0x7f.1 and 2130706433 as addresses.
		return fmt.Errorf("%w: the host %q is neither a name nor an address in the usual form", ErrRefused, name)
	case last == "localhost":
		return fmt.Errorf("%w: %s is the proxy's own machine", ErrRefused, name)
	case slices.Contains(metadataNames, name):
		return fmt.Errorf("%w: %s is a metadata service, which serves a machine's credentials", ErrRefused, name)
	}
	return nil
}

// isNumber reports whether the last label of a host makes it an address for some systems: it is decimal, octal or
// hexadecimal.
func isNumber(label string) bool {
	hex, isHex := strings.CutPrefix(label, "0x")
	if isHex {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}
