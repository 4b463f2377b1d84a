package serving

import (
	"fmt"
	"net"
	"strconv"

	"github.com/berthd/berth/internal/serve/datadir"
)

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
