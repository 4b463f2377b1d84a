package main

import (
	"strings"

	"github.com/spf13/cobra"
)

// nodeFlags say what a node is like, whether `berth agent` or `berth dev` runs it.
type nodeFlags struct {
	executors executorConfig
	pressure  pressureFlags
	metrics   metricsFlags
	network   networkFlags
	names     nameFlags
	devices   deviceFlags
	images    imageFlags
	volumes   volumeFlags
	egress    egressFlags
	ports     portFlags

	metricsToken string
}

// flags adds the flags. local says that the node is its user's own machine, where tasks may do what the user may,
// unless a flag says otherwise.
func (f *nodeFlags) flags(cmd *cobra.Command, local bool) {
	f.executors.flags(cmd, local)
	f.pressure.flags(cmd)
	f.metrics.flags(cmd)
	f.network.flags(cmd)
	f.names.flags(cmd)
	f.devices.flags(cmd)
	f.images.flags(cmd)
	f.volumes.flags(cmd, local)
	f.ports.flags(cmd)
}

// check notes what is wrong with the flags.
func (f *nodeFlags) check(list *faults) {
	if err := f.executors.validate(); err != nil {
		for fault := range strings.SplitSeq(err.Error(), "\n") {
			list.add("--%s", fault)
		}
	}
	f.pressure.check(list)
	f.metricsToken = f.metrics.check(list)
	f.network.check(list)
	f.names.check(list)
	f.devices.check(list)
	f.images.check(list)
	f.volumes.check(list)
	f.egress.check(list)
	f.executors.egress = f.egress.parsed
	f.ports.check(list)
	f.executors.pulls, f.executors.cdi = f.images.pulls, f.devices.cdi
}

// configure writes what the flags say into a node's configuration.
func (f *nodeFlags) configure(c *nodeConfig) {
	c.pressureStall, c.pressureFree = f.pressure.stall, f.pressure.free
	c.imageHigh, c.imageLow = f.images.high, f.images.low
	c.metricsListen, c.metricsToken = f.metrics.listen, f.metricsToken
	c.finder, c.cpus = f.devices.finder, f.devices.cpus
	c.subnet, c.names = f.network.parsed, f.names.parsed
	c.egress = f.egress.parsed
	c.hostVolumes, c.hostPaths = f.volumes.volumes, f.volumes.lent
	c.reservedPorts = f.ports.reserved
}
