package serving

import (
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/internal/agent/network"
	"github.com/berthd/berth/internal/cli/session"
)

// networkFlags configure the network of tasks behind a bridge.
type networkFlags struct {
	subnet string
	parsed netip.Prefix
}

func (f *networkFlags) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.subnet, "bridge-subnet", network.DefaultSubnet,
		"`SUBNET` for the addresses of tasks with network bridge, on this machine only; it must not overlap the "+
			"machine's routes")
}

// check parses the flags and adds their faults to list.
func (f *networkFlags) check(list *session.Faults) {
	var err error
	f.parsed, err = network.ParseSubnet(f.subnet)
	list.AddError("--bridge-subnet", err)
}
