// Package rank defines the order of feasible nodes, and the structures that find the first of many: a tournament of all
// nodes, and a heap of candidates with lower bounds.
package rank

import (
	"github.com/berthd/berth/internal/logic/packing"
)

// Rank is the rank of a feasible node. The lowest rank wins; of equal ranks the node name that sorts first. A rank is
// made of these parts, from the most to the least important:
//
//   - whether attempts of the task failed on the node: those nodes come last
//   - whether the node has a taint with the effect avoid that is not tolerated: those come last
//   - the preferences, the highest sum first: the weights of affinities and relations that the node meets, and a part
//     of the weight of each spread: the share of its target by which the node's value has too few tasks
//   - with anti-affinity "prefer": the number of tasks of the same group on the node
//   - with strategy "whole", and where the owner names none: the value that the devices lose, in ten-thousandths of a
//     device. It says how much less of them the likely tasks would fill. Tasks without devices also cost value where
//     they take the CPU that devices need. See package packing
//   - with strategy "whole": the distance between free CPU and free memory, in steps of 1/32 of a node, because one is
//     of little use without the other
//   - the fill: millionths of CPU, memory and disk, added up; emptiest first for spread, fullest first for binpack and
//     whole. Images on the node count for up to 50,000 millionths, see package taskclass
//   - the number of tasks on the node: fewest first for spread, else most first. It decides for tasks without demands
//
// The fill is the present usage plus the task's demand, each rounded down to millionths of the node's shape, see
// index.ShapeOf. So the nodes of a node class have the same order for every task.
//
// An owner that does not set anti-affinity gets "prefer" with spread, and else none: jobs would be spread otherwise.
// All parts are integers, so that every server finds the same order.
type Rank struct {
	Tier uint64 // the parts before the fill
	Fill uint64 // fill, balance and tasks, as the strategy orders them
}

// Refused is the rank of a node that refuses the task.
func Refused() Rank { return Rank{1<<64 - 1, 1<<64 - 1} }

// The bits of a tier. PenaltyBit is that of nodes where attempts of the task failed.
const (
	PenaltyBit = 1 << 63

	// Parts of a tier, from the lowest bits: loss of device value, tasks of the group, preferences from highest to
	// lowest, and the penalty of a taint.
	GroupTasksShift     = packing.LossBits
	preferenceShift     = GroupTasksShift + 17
	MaxGroupTasks       = 1<<(preferenceShift-GroupTasksShift) - 1
	preferenceBits      = 24
	maxPreferencePoints = 1<<(preferenceBits-1) - 1
	taintPenaltyBit     = 1 << (preferenceShift + preferenceBits)
	EmptyTier           = maxPreferencePoints<<preferenceShift | packing.NoLoss
)

// TierOf returns the tier of a node without tasks of the group and without loss.
func TierOf(points int64, avoid bool) uint64 {
	points = min(max(points, -maxPreferencePoints), maxPreferencePoints)
	tier := uint64(maxPreferencePoints-points)<<preferenceShift | packing.NoLoss
	if avoid {
		tier |= taintPenaltyBit
	}
	return tier
}

// Less reports whether r ranks before o.
func (r Rank) Less(o Rank) bool { return r.Tier < o.Tier || r.Tier == o.Tier && r.Fill < o.Fill }

// RankedNode is a node with its rank.
type RankedNode struct {
	Rank Rank
	Slot int32
}
