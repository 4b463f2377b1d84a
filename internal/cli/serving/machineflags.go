package serving

import (
	"net"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/serve/datadir"
	"github.com/berthd/berth/internal/serve/node"
)

// machineFlags name a node and what others see of it. `berth agent` and `berth standalone` share them.
type machineFlags struct {
	name, address, secretsDir string
	labels                    []string
	parsedLabels              cluster.Labels
}

func (f *machineFlags) addFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.name, "name", datadir.MachineName(), "name of the node (default the host name)")
	fs.StringVar(&f.address, "address", "",
		"`IP` address at which others reach the node's ports; default the address of the interface to the network")
	fs.StringArrayVar(&f.labels, "label", nil, "label of the node, key=value; may be given several times")
	fs.StringVar(&f.secretsDir, "secrets-dir", "",
		"`FOLDER` in memory (tmpfs) for the secrets of tasks; default a folder in memory below /run, the user's "+
			"run directory or /dev/shm")
	session.HideDefaults(cmd, "name")
}

// check parses the flags and adds their faults to list.
func (f *machineFlags) check(list *session.Faults) {
	if !cluster.ValidNodeName(f.name) {
		list.Add("--name %q: want lower-case letters, digits, \"-\" and \".\"", f.name)
	}
	if f.address != "" && net.ParseIP(f.address) == nil {
		list.Add("--address %q: want an IP address", f.address)
	}
	var err error
	if f.parsedLabels, err = session.ParseLabels(f.labels); err != nil {
		list.Add("--label %v", err)
	}
}

// configure sets the fields of a node's configuration from the flags.
func (f *machineFlags) configure(c *node.Config) {
	c.Name, c.Address, c.Labels, c.SecretsDir = f.name, f.address, f.parsedLabels, f.secretsDir
}
