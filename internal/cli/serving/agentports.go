package serving

import (
	"github.com/spf13/cobra"

	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
)

// portFlags name the ports of a machine that tasks never get.
type portFlags struct {
	text     string
	reserved []int // sorted, without duplicates
}

func (f *portFlags) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.text, "reserved-ports", "",
		"`PORTS` of this machine that no task gets, fixed or assigned, such as 22,8000-8100")
}

// check parses the flag and adds all its faults to list.
func (f *portFlags) check(list *session.Faults) {
	if f.text == "" {
		return
	}
	ranges := cluster.ParsePortRanges(f.text)
	asked := cluster.Host{Name: "n", ReservedPorts: ranges}
	for _, fault := range cluster.FaultsOf(asked.Validate()) {
		list.Add("--reserved-ports: %s", fault.Message)
	}
	f.reserved = cluster.Ports(ranges)
}
