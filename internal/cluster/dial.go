package cluster

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// PassivePort is the port of the agent of a passive node, unless another one is chosen. Behind SSH it is always this
// port of the machine's loopback.
const PassivePort = 7073

// maxDial limits the length of a dial address in bytes.
const maxDial = 255

// DialAddress is where servers reach the agent of a passive node.
type DialAddress struct {
	// SSH, unless empty, is the SSH server of the machine, "[user@]host[:port]", through which a server reaches
	// PassivePort on the machine's loopback.
	SSH string
	// TCP, unless empty, is the "host:port" of the agent.
	TCP string
}

// ParseDialAddress reads "HOST:PORT", "HOST" for PassivePort of that host, or "ssh://[USER@]HOST[:PORT]".
func ParseDialAddress(text string) (DialAddress, error) {
	wrong := func(why string) (DialAddress, error) {
		return DialAddress{}, fmt.Errorf("%q is not an address of a passive node (%s): want HOST[:PORT] or "+
			"ssh://[USER@]HOST[:PORT]", clip(text), why)
	}
	machine, overSSH := strings.CutPrefix(text, "ssh://")
	address := machine
	if overSSH {
		if user, rest, ok := strings.Cut(machine, "@"); ok {
			if address = rest; user == "" || strings.ContainsAny(user, ":/ \t") {
				return wrong("the user is missing or has a strange letter")
			}
		}
	}
	host, port, ok := splitAddress(address)
	if !ok {
		return wrong("an IPv6 address with a port has brackets")
	}
	if strings.HasSuffix(address, ":") {
		return wrong("the port is missing")
	}
	if n, err := strconv.Atoi(port); port != "" && (err != nil || n < 1 || n > 65535) {
		return wrong("the port is not a number from 1 to 65535")
	}
	switch {
	case len(text) > maxDial:
		return wrong("it is too long")
	case host == "" || strings.HasPrefix(host, "-") || strings.ContainsFunc(host, isStrangeInHost):
		return wrong("the host is missing or has a strange letter")
	case overSSH:
		return DialAddress{SSH: machine}, nil
	case port == "":
		port = strconv.Itoa(PassivePort)
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return DialAddress{TCP: host + ":" + port}, nil
}

// splitAddress splits "host", "host:port", "ipv6" or "[ipv6]:port".
func splitAddress(text string) (host, port string, ok bool) {
	if inside, isIP := strings.CutPrefix(text, "["); isIP {
		var rest string
		if host, rest, ok = strings.Cut(inside, "]"); !ok {
			return "", "", false
		}
		port, ok = strings.CutPrefix(rest, ":")
		return host, port, ok || rest == ""
	}
	if strings.Count(text, ":") < 2 {
		host, port, _ = strings.Cut(text, ":")
		return host, port, true
	}
	_, err := netip.ParseAddr(text)
	return text, "", err == nil
}

// isStrangeInHost reports whether a letter is neither part of a name nor of an IP address.
func isStrangeInHost(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune(".-_:%", r)
}
