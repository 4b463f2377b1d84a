package packing

import "github.com/berthd/berth/internal/cluster"

// Sizes of the tables. A larger node is looked up as several of its part.
const (
	limitSteps  = 96                         // of CPU or memory
	roomSteps   = 32                         // of devices
	roomStep    = mostRoom / roomSteps       // thousandths of a device
	mostRoom    = 8 * cluster.WholeDevice    // what a table reaches to
	ample       = 2                          // times what mostRoom needs on the mean is as good as endless
	sub         = 1 << subBits               // a step is interpolated in so many
	subBits     = 8                          //
	unit        = 1 << 16                    // the sum of weights
	keep, keeps = 9, 10                      // see Worth
	whole       = int64(cluster.WholeDevice) //
	thousandth  = fine / cluster.WholeDevice // of a device
)

// Worth is what rooms are worth to a mix. It does not change, and may be used concurrently. The zero value is not
// usable: Mix.Worth makes one, also of an empty mix.
//
// The streams that fill its tables do not last for ever: between two tasks it ends with a chance of one in ten. So a
// hole that only one in a hundred tasks would fill is worth little, and one that every second task fills is worth
// nearly all of it.
type Worth struct {
	tables  []*table
	table   [64]uint8 // by model
	several bool      // some ask for several devices at once

	meanCPU, meanMemory int64 // of all demands; 0 while nothing is known
	learned, weight     int64 // tasks that the mix had learned, and its weight
}

// table is for the models that the same demands of the mix accept.
type table struct {
	hole        [cluster.WholeDevice + 1]int32 // what a free share comes to hold, in millionths of a device
	sets        [MostDevices + 1]int64         // what whole devices together are worth beyond that
	cpu, memory shortage
}

// lost returns what a device with a free share loses by a share of it; wholes is how many of its node are whole.
func (t *table) lost(free, share, wholes int) int64 {
	free = min(free, cluster.WholeDevice)
	l := int64(t.hole[free] - t.hole[free-share])
	if free == cluster.WholeDevice && wholes > 0 {
		l += t.sets[wholes] - t.sets[wholes-1]
	}
	return l
}

// want is a typical demand for devices, with its weight in parts of unit.
type want struct {
	weight, cpu, memory int64
	room                int64 // thousandths of a device, all together
	share, devices      int
}

// newTable returns the table for typical demands; an empty one if there are none.
func newTable(wants []want) *table {
	t := &table{}
	var cpu, memory, room int64
	for i := range wants {
		k := &wants[i]
		cpu += k.weight * k.cpu
		memory += scale(k.weight, k.memory, unit)
		room += k.weight * k.room
	}
	if room == 0 {
		return t
	}
	t.fillHoles(wants)
	for n := range t.sets {
		for i := range wants {
			if k := &wants[i]; k.devices > 1 {
				t.sets[n] += k.weight * int64(n/k.devices) * k.room * thousandth / unit
			}
		}
	}
	t.cpu = newShortage(wants, scale(cpu, mostRoom*ample, room), func(k *want) int64 { return k.cpu })
	t.memory = newShortage(wants, scale(memory, mostRoom*ample, max(room/unit, 1)), func(k *want) int64 {
		return k.memory
	})
	return t
}

// fillHoles computes what tasks fill of a free share: each that fits is taken, the stream goes on with the chance
// keep/keeps. The expectation solves H(x) = Σ fit·(share + γ·H(x-share)) + (1-Σ fit)·γ·H(x).
func (t *table) fillHoles(wants []want) {
	for x := 1; x <= cluster.WholeDevice; x++ {
		var sum, fit int64
		for i := range wants {
			k := &wants[i]
			if k.share > x {
				continue
			}
			sum += k.weight * (int64(k.share)*thousandth*keeps + keep*int64(t.hole[x-k.share]))
			fit += k.weight
		}
		if fit > 0 {
			t.hole[x] = int32(sum / (keeps*unit - keep*(unit-fit)))
		}
	}
}

// shortage says how much less of free devices is filled because what goes with them, CPU or memory, is limited.
type shortage struct {
	step int64 // of the limit; 0 where the mix asks for none of it
	less [limitSteps + 1][roomSteps + 1]int32
}

// newShortage computes how much of free devices, taken as one piece, a stream of tasks fills with a limit, as fillHoles
// does with a share, and keeps the difference to what it fills with the most of it. More of either is never worth less,
// though a stream that takes whatever comes may fill less of more.
func newShortage(wants []want, most int64, of func(*want) int64) shortage {
	if most <= 0 {
		return shortage{}
	}
	s := shortage{step: most/limitSteps + 1}
	type step struct{ weight, limit, room, gain int64 }
	steps := make([]step, len(wants))
	for i := range wants {
		k := &wants[i]
		steps[i] = step{
			k.weight, min(scale(of(k), sub, s.step), (limitSteps+1)*sub), k.room * sub / roomStep,
			k.room * thousandth,
		}
	}
	fill := &s.less
	for c := range fill {
		for g := 1; g < len(fill[c]); g++ {
			limit, room := int64(c)*sub, int64(g)*sub
			all := int64(g) * roomStep * thousandth
			var sum, fit int64
			for i := range steps {
				k := &steps[i]
				switch {
				case k.limit > limit:
					continue
				case k.room > room: // takes what is left
					sum += k.weight * all * keeps
				default:
					sum += k.weight * (k.gain*keeps + keep*between(fill, limit-k.limit, room-k.room))
				}
				fit += k.weight
			}
			if fit > 0 {
				fill[c][g] = int32(min(sum/(keeps*unit-keep*(unit-fit)), all))
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

// short returns what is not filled of so many thousandths of devices for want of the limit, in millionths of a device.
func (s *shortage) short(limit, room int64) int64 {
	if s.step == 0 || room <= 0 {
		return 0
	}
	pieces := (room + mostRoom - 1) / mostRoom
	x := min(scale(limit, sub, s.step*pieces), limitSteps*sub)
	return pieces * between(&s.less, x, room*sub/(roomStep*pieces))
}

// between interpolates; both coordinates are in parts of sub, and within the table.
func between(t *[limitSteps + 1][roomSteps + 1]int32, x, y int64) int64 {
	i, j, p, q := x>>subBits, y>>subBits, x&(sub-1), y&(sub-1)
	k, l := min(i+1, limitSteps), min(j+1, roomSteps)
	low := int64(t[i][j])*(sub-q) + int64(t[i][l])*q
	high := int64(t[k][j])*(sub-q) + int64(t[k][l])*q
	return (low*(sub-p) + high*p) >> (2 * subBits)
}
