package serving

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/serve/node"
)

// nodeFlags describe a node. `berth agent`, `berth standalone` and `berth dev` share them.
type nodeFlags struct {
	executors node.ExecutorConfig
	pressure  pressureFlags
	metrics   metricsFlags
	network   networkFlags
	names     nameFlags
	devices   deviceFlags
	images    imageFlags
	volumes   volumeFlags
	egress    egressFlags
	objects   objectFlags
	ports     portFlags
	discovery discoveryFlags
	host      hostFlags

	metricsToken string
}

// addFlags adds the flags. With local, the machine belongs to its user, and tasks may do what the user may unless a
// flag restricts them.
func (f *nodeFlags) addFlags(cmd *cobra.Command, local bool) {
	addExecutorFlags(&f.executors, cmd, local)
	f.pressure.addFlags(cmd)
	f.metrics.addFlags(cmd)
	f.network.addFlags(cmd)
	f.names.addFlags(cmd)
	f.devices.addFlags(cmd)
	f.images.addFlags(cmd)
	f.volumes.addFlags(cmd, local)
	f.objects.addFlags(cmd)
	f.ports.addFlags(cmd)
	f.discovery.addFlags(cmd)
	f.host.addFlags(cmd)
}

// check adds the faults of the flags to list.
func (f *nodeFlags) check(list *session.Faults) {
	if err := f.executors.Validate(); err != nil {
		for fault := range strings.SplitSeq(err.Error(), "\n") {
			list.Add("--%s", fault)
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
	f.executors.Egress = f.egress.parsed
	f.objects.check(list)
	f.ports.check(list)
	f.discovery.check(list)
	f.host.check(list)
	f.executors.MaxPulls, f.executors.CDI = f.images.pulls, f.devices.cdi
}

// configure sets the fields of a node's configuration from the flags.
func (f *nodeFlags) configure(c *node.Config) {
	c.PressureStall, c.PressureFree = f.pressure.stall, f.pressure.free
	c.ImageHigh, c.ImageLow = f.images.high, f.images.low
	c.MetricsListen, c.MetricsToken = f.metrics.listen, f.metricsToken
	c.Finder, c.CPUs = f.devices.finder, f.devices.cpus
	c.Subnet, c.Names = f.network.parsed, f.names.parsed
	c.Egress, c.ObjectStore = f.egress.parsed, f.objects.ObjectStore
	c.HostVolumes, c.HostPaths = f.volumes.volumes, f.volumes.hostPaths
	c.ReservedPorts, c.Discovery = f.ports.reserved, f.discovery.parsed
	f.host.configure(c)
}
