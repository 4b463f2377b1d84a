package names

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Port is where names are asked for.
const Port = 53

// Resolver is what a resolver file says (see resolv.conf(5)).
type Resolver struct {
	Servers []netip.Addr
	Search  []string
	Options []string
}

// ParseResolver reads a resolver file; what it does not understand it leaves out.
func ParseResolver(text []byte) (r Resolver) {
	for line := range strings.Lines(string(text)) {
		if at := strings.IndexAny(line, "#;"); at >= 0 {
			line = line[:at]
		}
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		switch words[0] {
		case "nameserver":
			if a, err := netip.ParseAddr(words[1]); err == nil {
				r.Servers = append(r.Servers, a.Unmap())
			}
		case "search", "domain":
			r.Search = words[1:]
		case "options":
			r.Options = append(r.Options, words[1:]...)
		}
	}
	return r
}

// Outward returns the servers that are not on the machine's loopback: those that others reach too, and that pass
// nothing back.
func (r Resolver) Outward() []netip.Addr {
	return slices.DeleteFunc(slices.Clone(r.Servers), func(a netip.Addr) bool {
		return a.IsLoopback() || a.IsUnspecified()
	})
}

// File returns the resolver file of tasks of a cluster: they ask the agent at an address, for names of their own
// cluster first.
func (r Resolver) File(agent netip.Addr, cluster string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Written by Berth: the node's agent answers for *.%s and passes other names on.\nnameserver %s\n",
		Zone, agent)
	search := []string{cluster + "." + Zone}
	for _, s := range r.Search {
		if s != "." && !slices.Contains(search, s) {
			search = append(search, s)
		}
	}
	// older libraries know six
	fmt.Fprintf(&b, "search %s\n", strings.Join(search[:min(len(search), 6)], " "))
	// not of another server
	options := slices.DeleteFunc(slices.Clone(r.Options), func(o string) bool { return o == "trust-ad" })
	if len(options) > 0 {
		fmt.Fprintf(&b, "options %s\n", strings.Join(options, " "))
	}
	return b.String()
}
