package serving

import (
	"net"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/serve/datadir"
	"github.com/berthd/berth/internal/serve/node"
)

// noHostSocket is the value of --host-socket for no socket.
const noHostSocket = "none"

// hostFlags choose where the API of the node itself is served.
type hostFlags struct{ socket, group, listen string }

func (h *hostFlags) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&h.socket, "host-socket", "",
		"unix socket for the API of this node, which `berth host` uses; none for no such API (default "+
			datadir.HostSocketText+")")
	cmd.Flags().StringVar(&h.group, "host-group", "",
		"`GROUP` whose members may use the API of this node; default only this user and root")
	cmd.Flags().StringVar(&h.listen, "host-listen", "",
		"`HOST:PORT` to serve the API of this node on with mutual TLS; default none")
}

// check adds the faults of the flags to list.
func (h *hostFlags) check(list *session.Faults) {
	if h.socket == noHostSocket && h.group != "" {
		list.Add("--host-group has no effect with --host-socket none")
	}
	if h.listen == "" {
		return
	}
	host, port, err := net.SplitHostPort(h.listen)
	n, noNumber := strconv.Atoi(port)
	if err != nil || noNumber != nil || n < 0 || n > 65535 || host != "" && net.ParseIP(host) == nil {
		list.Add("--host-listen %q: want an IP address and a port, such as 10.0.0.5:7073 or :7073 for all addresses",
			h.listen)
	}
}

// configure sets the fields of a node's configuration. The agent's folder is a folder of the data directory.
func (h *hostFlags) configure(c *node.Config) {
	c.Host.Group, c.Host.Listen = h.group, h.listen
	c.Host.Required = h.socket != "" || h.group != ""
	switch h.socket {
	case noHostSocket:
	case "":
		c.Host.Socket = datadir.HostSocketOf(filepath.Dir(c.DataDir))
	default:
		c.Host.Socket = h.socket
	}
}
