package names

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Port is the port of DNS.
const Port = 53

// Resolver is the content of a resolver file, see resolv.conf(5).
type Resolver struct {
	Servers []netip.Addr
	Search  []string
	Options []string
}

// ParseResolver reads a resolver file and skips unknown lines.
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

// Outward returns the servers that are not on the machine's loopback. Other machines reach them, too, and they do not
// forward questions back to this node.
func (r Resolver) Outward() []netip.Addr {
	return slices.DeleteFunc(slices.Clone(r.Servers), func(a netip.Addr) bool {
		return a.IsLoopback() || a.IsUnspecified()
	})
}

// File returns the resolver file of a cluster's tasks: they ask the agent at its address and search names of their own
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
	// Older libraries read at most six search domains.
	fmt.Fprintf(&b, "search %s\n", strings.Join(search[:min(len(search), 6)], " "))
	// The option trust-ad holds for the server of the file only.
	options := slices.DeleteFunc(slices.Clone(r.Options), func(o string) bool { return o == "trust-ad" })
	if len(options) > 0 {
		fmt.Fprintf(&b, "options %s\n", strings.Join(options, " "))
	}
	return b.String()
}
