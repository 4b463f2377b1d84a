// Package taskclass groups pending tasks with equal requests, and prepares what nodes are asked about them: the
// feasibility filter, ports, devices, images, and the terms that depend on other tasks (spreads, distincts, relations,
// anti-affinity). Views count the tasks that those terms depend on.
package taskclass

import (
	"math"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/devices"
	"github.com/berthd/berth/internal/logic/scheduler/feasibility"
	"github.com/berthd/berth/internal/logic/scheduler/index"
	"github.com/berthd/berth/internal/logic/scheduler/rank"
)

// Class is the pending tasks with equal requests: what is found out about a node holds for all of them. The classifier
// sets the requests, the preparer the filter and the terms. Nothing changes these afterwards, except that a decision
// trace leaves out the nodes that it has listed, while it searches for the next.
type Class struct {
	Task     *cluster.Pending // one of the tasks
	Group    *Group
	Strategy cluster.Strategy
	Affinity cluster.AntiAffinity
	Now      time.Time
	Demand   cluster.Demand
	Need     cluster.Demand // demand, with the least integer for resources that are not requested
	Ports    portDemand
	Devices  deviceDemand
	Images   imageDemand
	// Excluded are nodes with an earlier attempt, Penalized nodes where attempts failed.
	Excluded, Penalized []int32

	Left     int  // undecided tasks
	prepared bool // filter and terms are complete
	Filter   *feasibility.Filter
	terms
	Found rank.SearchState

	Refusals []cluster.RefusalCount
	Sentence string
}

// needOf returns what a node must have free. For resources that are not requested, a node may be overcommitted.
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

// AsksOnlyRoom reports whether the class requests only room on nodes of feasible node classes.
func (c *Class) AsksOnlyRoom() bool {
	return c.Affinity != cluster.AntiAffinityDemand &&
		len(c.Filter.PerNode)+len(c.Ports.Fixed)+c.Ports.Auto+len(c.Excluded)+len(c.Devices.Requests)+
			len(c.Distincts)+len(c.Spreads)+len(c.Relations)+len(c.Exclusions) == 0
}

// NeedsSuit reports whether nodes with enough room may still refuse the class or have individual scores.
func (c *Class) NeedsSuit() bool {
	return c.Group.IsCounted && (c.Group.counts != nil || c.Group.MaxNodes() > 0) || c.Ports.Any() ||
		len(c.Excluded)+len(c.Penalized)+len(c.Filter.PerNode)+len(c.AffinityScored)+len(c.Images.Nodes)+
			len(c.Devices.Requests)+len(c.Distincts)+len(c.Spreads)+len(c.Relations)+len(c.Exclusions) > 0
}

// FitsByDeviceClass reports whether the class gets equal devices on all nodes of a device class.
func (c *Class) FitsByDeviceClass() bool { return !devices.ShareOneType(c.Devices.Requests) }

// MinFill returns a lower bound of the rank's fill on the nodes of a page, after a task that adds so much.
func (c *Class) MinFill(s *index.Span, more index.Shares) uint64 {
	images := uint64(0) // nodes with rare images are judged one by one elsewhere
	if c.Images.Common {
		images = c.Images.Bonus(len(c.Images.Nodes))
	}
	if c.Strategy == cluster.StrategySpread {
		return s.MinFill + more.Fill()<<index.TaskBits + c.Images.Bonus(len(c.Images.Nodes)) - images
	}
	fill := uint64(1<<index.LevelShift-1) - (s.MaxFill + more.Fill()<<index.TaskBits) - images
	if c.Strategy == cluster.StrategyWhole {
		low, high := int(s.MinBalance)+more.Balance(), int(s.MaxBalance)+more.Balance()
		fill |= uint64(max(low, -high, 0)) << index.LevelShift
	}
	return fill
}
