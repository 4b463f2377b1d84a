package fleet

import "github.com/berthd/berth/internal/logic/admission"

// Capacity returns what the nodes have together, whether tasks may be placed there now or not.
func (f *Fleet) Capacity() admission.Capacity {
	c := admission.Capacity{Devices: map[string]int{}}
	for i := range f.slots {
		if !f.slots[i].set {
			continue
		}
		c.Demand = c.Demand.Add(f.slots[i].node.Capacity)
		for j := range f.slots[i].node.Devices {
			c.Devices[f.slots[i].node.Devices[j].Type]++
		}
	}
	return c
}
