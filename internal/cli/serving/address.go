package serving

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/berthd/berth/internal/serve/datadir"
)

// parseHostPort reads "HOST" or "HOST:PORT", an address for other machines. It refuses a scheme, an empty host and the
// address of all interfaces.
func parseHostPort(text string, port int) (string, error) {
	host, number := text, strconv.Itoa(port)
	if h, p, err := net.SplitHostPort(text); err == nil {
		host, number = h, p
	} else {
		host = strings.Trim(host, "[]")
	}
	ip := net.ParseIP(host)
	n, err := strconv.Atoi(number)
	switch {
	case host == "" || strings.ContainsAny(text, "/ @") || strings.Contains(host, ":") && ip == nil:
		return "", fmt.Errorf("%q: want HOST or HOST:PORT, such as 10.0.0.1 or db1.example:%d", text, port)
	case err != nil || n < 1 || n > 65535:
		return "", fmt.Errorf("%q: want a port between 1 and 65535", text)
	case ip != nil && ip.IsUnspecified():
		return "", fmt.Errorf("%q: want the address at which other machines reach this one, not the address of all "+
			"interfaces",
			text)
	}
	return net.JoinHostPort(host, number), nil
}

// checkListenAddress returns an error unless the text is "HOST:PORT" with an IP address or an empty HOST for all
// interfaces.
func checkListenAddress(text string) error {
	host, port, err := net.SplitHostPort(text)
	n, bad := strconv.Atoi(port)
	switch {
	case err != nil || bad != nil || n < 0 || n > 65535:
		return fmt.Errorf("%q: want HOST:PORT, such as 0.0.0.0:%d", text, datadir.PortPeers)
	case host != "" && net.ParseIP(host) == nil:
		return fmt.Errorf("%q: want an IP address of this machine, or no host for all addresses", text)
	}
	return nil
}
