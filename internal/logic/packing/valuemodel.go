package packing

import "github.com/berthd/berth/internal/cluster"

// Sizes of the tables. A node beyond maxRoom is looked up as several smaller nodes.
const (
	limitSteps                       = 96                      // steps of CPU or memory
	roomSteps                        = 32                      // steps of devices
	roomStep                         = maxRoom / roomSteps     // thousandths of a device
	maxRoom                          = 8 * cluster.WholeDevice // the range of a table, in thousandths of a device
	ampleFactor                      = 2                       // see newValueTable
	stepParts                        = 1 << stepPartBits       // subdivisions of a step for interpolation
	stepPartBits                     = 8
	weightUnit                       = 1 << 16 // the sum of weights
	continueChance, continueChanceOf = 9, 10   // see ValueModel
	whole                            = int64(cluster.WholeDevice)
	thousandth                       = deviceUnits / cluster.WholeDevice // of a device, in deviceUnits
)

// ValueModel is the value of free resources to a mix. It does not change, and may be used concurrently. Mix.ValueModel
// makes one, also of an empty mix; the zero value is not usable.
//
// The task streams that fill its tables are finite: after each task the stream ends with a probability of 1/10. So a
// gap that only one task in a hundred would fill has little value. A gap that every second task fills has nearly its
// full value.
type ValueModel struct {
	tables     []*valueTable
	table      [64]uint8 // by model
	hasSeveral bool      // some demands request several devices

	meanCPU, meanMemory int64 // means of all demands; 0 if nothing is known
	learned, weight     int64 // the mix's number of tasks and its weight
}

// valueTable is for all device models that the same demands of the mix accept.
type valueTable struct {
	shareValue  [cluster.WholeDevice + 1]int32 // H: by free share, millionths of a device
	wholeValue  [MostDevices + 1]int64         // M: by number of whole devices, the same unit
	cpu, memory shortage
}

// lost returns the value that a device with a free share loses by giving up share; wholes is the number of whole
// devices on its node.
func (t *valueTable) lost(free, share, wholes int) int64 {
	free = min(free, cluster.WholeDevice)
	l := int64(t.shareValue[free] - t.shareValue[free-share])
	if free == cluster.WholeDevice && wholes > 0 {
		l += t.wholeValue[wholes] - t.wholeValue[wholes-1]
	}
	return l
}

// typicalDemand is a typical demand for devices, with its weight in parts of weightUnit.
type typicalDemand struct {
	weight, cpu, memory int64
	room                int64 // thousandths of a device, in all
	share, devices      int
}

// newValueTable returns the table for typical demands; an empty table if there are none.
func newValueTable(demands []typicalDemand) *valueTable {
	t := &valueTable{}
	var cpu, memory, room int64
	for i := range demands {
		k := &demands[i]
		cpu += k.weight * k.cpu
		memory += scale(k.weight, k.memory, weightUnit)
		room += k.weight * k.room
	}
	if room == 0 {
		return t
	}
	t.fillShareValues(demands)
	for n := range t.wholeValue {
		for i := range demands {
			if k := &demands[i]; k.devices > 1 {
				t.wholeValue[n] += k.weight * int64(n/k.devices) * k.room * thousandth / weightUnit
			}
		}
	}
	// CPU or memory beyond ampleFactor times the mean need of maxRoom counts as unlimited.
	t.cpu = newShortage(demands, scale(cpu, maxRoom*ampleFactor, room), func(k *typicalDemand) int64 { return k.cpu })
	maxMemory := scale(memory, maxRoom*ampleFactor, max(room/weightUnit, 1))
	t.memory = newShortage(demands, maxMemory, func(k *typicalDemand) int64 { return k.memory })
	return t
}

// fillShareValues computes what tasks fill of a free share. Each task that fits is taken, and the stream continues with
// the probability γ = continueChance/continueChanceOf. The expectation solves H(x) = Σ fit·(share + γ·H(x-share)) +
// (1-Σ fit)·γ·H(x).
func (t *valueTable) fillShareValues(demands []typicalDemand) {
	for x := 1; x <= cluster.WholeDevice; x++ {
		var sum, fit int64
		for i := range demands {
			k := &demands[i]
			if k.share > x {
				continue
			}
			rest := int64(t.shareValue[x-k.share])
			sum += k.weight * (int64(k.share)*thousandth*continueChanceOf + continueChance*rest)
			fit += k.weight
		}
		if fit > 0 {
			t.shareValue[x] = int32(sum / (continueChanceOf*weightUnit - continueChance*(weightUnit-fit)))
		}
	}
}

// shortage is how much less of free devices is filled because CPU or memory is limited.
type shortage struct {
	step int64 // of the limit; 0 if the mix requests none of it
	less [limitSteps + 1][roomSteps + 1]int32
}

// newShortage computes how much of free devices, treated as one piece, a stream of tasks fills with a limit; see
// fillShareValues. It stores the difference to the fill with the largest limit. The values are forced to be monotonic:
// a greedy stream may fill less of more.
func newShortage(demands []typicalDemand, most int64, of func(*typicalDemand) int64) shortage {
	if most <= 0 {
		return shortage{}
	}
	s := shortage{step: most/limitSteps + 1}
	type step struct{ weight, limit, room, gain int64 }
	steps := make([]step, len(demands))
	for i := range demands {
		k := &demands[i]
		steps[i] = step{
			k.weight, min(scale(of(k), stepParts, s.step), (limitSteps+1)*stepParts), k.room * stepParts / roomStep,
			k.room * thousandth,
		}
	}
	fill := &s.less
	for c := range fill {
		for g := 1; g < len(fill[c]); g++ {
			limit, room := int64(c)*stepParts, int64(g)*stepParts
			all := int64(g) * roomStep * thousandth
			var sum, fit int64
			for i := range steps {
				k := &steps[i]
				switch {
				case k.limit > limit:
					continue
				case k.room > room: // a larger task takes what is left
					sum += k.weight * all * continueChanceOf
				default:
					rest := between(fill, limit-k.limit, room-k.room)
					sum += k.weight * (k.gain*continueChanceOf + continueChance*rest)
				}
				fit += k.weight
			}
			if fit > 0 {
				fill[c][g] = int32(min(sum/(continueChanceOf*weightUnit-continueChance*(weightUnit-fit)), all))
			}
			fill[c][g] = max(fill[c][g], fill[c][g-1], fill[max(c-1, 0)][g])
		}
	}
	for c := range fill {
		for g := range fill[c] {
			fill[c][g] = fill[limitSteps][g] - fill[c][g]
		}
	}
	return s
}

// short returns what stays unfilled of the devices for want of the limit, in millionths of a device. The room is in
// thousandths of a device.
func (s *shortage) short(limit, room int64) int64 {
	if s.step == 0 || room <= 0 {
		return 0
	}
	pieces := (room + maxRoom - 1) / maxRoom
	x := min(scale(limit, stepParts, s.step*pieces), limitSteps*stepParts)
	return pieces * between(&s.less, x, room*stepParts/(roomStep*pieces))
}

// between interpolates in a table. Both coordinates are in units of 1/stepParts, and within the table.
func between(t *[limitSteps + 1][roomSteps + 1]int32, x, y int64) int64 {
	i, j, p, q := x>>stepPartBits, y>>stepPartBits, x&(stepParts-1), y&(stepParts-1)
	k, l := min(i+1, limitSteps), min(j+1, roomSteps)
	low := int64(t[i][j])*(stepParts-q) + int64(t[i][l])*q
	high := int64(t[k][j])*(stepParts-q) + int64(t[k][l])*q
	return (low*(stepParts-p) + high*p) >> (2 * stepPartBits)
}
