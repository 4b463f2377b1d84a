package taskclass

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/devices"
)

// portDemand is the ports that the tasks of a class request.
type portDemand struct {
	Fixed           []int // ports that the tasks name
	Doubled         int   // a port that they name twice, or 0
	Auto, AutoFixed int   // ports to be assigned; fixed ports in the assignable range
}

// Any reports whether the tasks request a port.
func (d *portDemand) Any() bool { return len(d.Fixed)+d.Auto > 0 }

// add adds a port of the tasks; 0 is a port to be assigned.
func (d *portDemand) add(port int) {
	switch {
	case port == 0:
		d.Auto++
	case slices.Contains(d.Fixed, port):
		d.Doubled = port
	default:
		d.Fixed = append(d.Fixed, port)
		if port >= cluster.FirstAutoPort && port <= cluster.LastAutoPort {
			d.AutoFixed++
		}
	}
}

// deviceDemand is the devices that the tasks of a class request.
type deviceDemand struct {
	Requests       []cluster.DeviceRequest
	UsesValueModel bool          // the value of devices counts in the ranks
	Fits           *devices.Fits // nil until first used
	// Lacking says, by node class, that it lacks the devices even when unused; nil without requests.
	Lacking []bool
}
