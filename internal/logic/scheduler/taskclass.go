package scheduler

import (
	"math"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// taskClass is the pending tasks with equal requests: what is found out about a node holds for all of them. The
// classifier sets the requests, the preparer the filter and the terms; nothing changes these afterwards.
type taskClass struct {
	task     *cluster.Pending // one of the tasks
	group    *group
	strategy cluster.Strategy
	affinity cluster.AntiAffinity
	now      time.Time
	demand   cluster.Demand
	need     cluster.Demand // demand, with the least integer for resources that are not asked for
	ports    portDemand
	devices  deviceDemand
	images   imageDemand
	// excluded are nodes with an earlier attempt, penalized nodes where attempts failed.
	excluded, penalized []int32

	left     int  // undecided tasks
	prepared bool // filter and terms are complete
	filter   *feasibilityFilter
	terms
	found searchState

	refusals []cluster.RefusalCount
	sentence string
}

// portDemand is the ports that the tasks of a class ask for.
type portDemand struct {
	fixed           []int // ports that the tasks name
	doubled         int   // a port that they name twice, or 0
	auto, autoFixed int   // ports to be assigned; fixed ports in the assignable range
}

// any reports whether the tasks ask for a port.
func (d *portDemand) any() bool { return len(d.fixed)+d.auto > 0 }

// add adds a port of the tasks; 0 is a port to be assigned.
func (d *portDemand) add(port int) {
	switch {
	case port == 0:
		d.auto++
	case slices.Contains(d.fixed, port):
		d.doubled = port
	default:
		d.fixed = append(d.fixed, port)
		if port >= cluster.FirstAutoPort && port <= cluster.LastAutoPort {
			d.autoFixed++
		}
	}
}

// deviceDemand is the devices that the tasks of a class ask for.
type deviceDemand struct {
	requests       []cluster.DeviceRequest
	usesValueModel bool        // the value of devices counts in the ranks
	fits           *deviceFits // nil until first used
	// lacking says, by node class, that it lacks the devices even when unused; nil without requests.
	lacking []bool
}

// needOf returns what a node must have free. For resources that are not asked for, a node may be overcommitted.
func needOf(d cluster.Demand) cluster.Demand {
	if d.CPU == 0 {
		d.CPU = math.MinInt64
	}
	if d.Memory == 0 {
		d.Memory = math.MinInt64
	}
	if d.Disk == 0 {
		d.Disk = math.MinInt64
	}
	return d
}

// asksOnlyRoom reports whether the class asks for nothing but room on nodes of feasible node classes.
func (c *taskClass) asksOnlyRoom() bool {
	return c.affinity != cluster.AntiAffinityDemand &&
		len(c.filter.perNode)+len(c.ports.fixed)+c.ports.auto+len(c.excluded)+len(c.devices.requests)+
			len(c.distincts)+len(c.spreads)+len(c.relations)+len(c.exclusions) == 0
}

// needsSuit reports whether nodes with enough room may still refuse the class or have individual scores.
func (c *taskClass) needsSuit() bool {
	return c.group.isCounted && (c.group.counts != nil || c.group.maxNodes() > 0) || c.ports.any() ||
		len(c.excluded)+len(c.penalized)+len(c.filter.perNode)+len(c.affinityScored)+len(c.images.nodes)+
			len(c.devices.requests)+len(c.distincts)+len(c.spreads)+len(c.relations)+len(c.exclusions) > 0
}

// fitsByDeviceClass reports whether the class gets equal devices on all nodes of a device class.
func (c *taskClass) fitsByDeviceClass() bool { return !shareOneType(c.devices.requests) }

// minFill returns a lower bound of the rank's fill on the nodes of a page, after a task that adds so much.
func (c *taskClass) minFill(s *span, more shares) uint64 {
	images := uint64(0) // nodes with rare images are judged one by one elsewhere
	if c.images.common {
		images = c.images.bonus(len(c.images.nodes))
	}
	if c.strategy == cluster.StrategySpread {
		return s.minFill + more.fill()<<taskBits + c.images.bonus(len(c.images.nodes)) - images
	}
	fill := uint64(1<<levelShift-1) - (s.maxFill + more.fill()<<taskBits) - images
	if c.strategy == cluster.StrategyWhole {
		low, high := int(s.minBalance)+more.balance(), int(s.maxBalance)+more.balance()
		fill |= uint64(max(low, -high, 0)) << levelShift
	}
	return fill
}
