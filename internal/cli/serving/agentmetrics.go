package serving

import (
	"net"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/serve/datadir"
)

// metricsFlags choose where an agent serves the metrics of its tasks. By default it does not serve them.
type metricsFlags struct{ listen, tokenFile string }

func (m *metricsFlags) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&m.listen, "metrics-listen", "",
		"`HOST:PORT` to serve Prometheus metrics of the node's tasks on, at /metrics; default none. An address "+
			"that other machines reach requires --metrics-token-file")
	cmd.Flags().StringVar(&m.tokenFile, "metrics-token-file", "",
		"`FILE` with the token that readers of the metrics must send, as \"Authorization: Bearer TOKEN\"")
}

// check adds the faults of the flags to list, and reads the token.
func (m *metricsFlags) check(list *session.Faults) (token string) {
	if m.listen == "" {
		if m.tokenFile != "" {
			list.Add("--metrics-token-file has an effect only with --metrics-listen")
		}
		return ""
	}
	host, port, err := net.SplitHostPort(m.listen)
	n, noNumber := strconv.Atoi(port)
	ip := net.ParseIP(host)
	switch {
	case err != nil || noNumber != nil || n < 0 || n > 65535 || host != "" && host != "localhost" && ip == nil:
		list.Add("--metrics-listen %q: want an IP address and a port, such as 127.0.0.1:7374 or :7374 for "+
			"all addresses", m.listen)
	case m.tokenFile == "" && host != "localhost" && (ip == nil || !ip.IsLoopback()):
		list.Add("--metrics-listen %q: other machines reach this address, so give --metrics-token-file too, "+
			"or listen on 127.0.0.1", m.listen)
	}
	if m.tokenFile == "" {
		return ""
	}
	token, err = datadir.ReadSecret("--metrics-token-file", m.tokenFile)
	list.AddError("--metrics-token-file", err)
	return token
}
