package admission

import (
	"maps"

	"github.com/berthd/berth/internal/cluster"
)

// amount is a sum of what tasks of jobs hold.
type amount struct {
	tasks   int
	demand  cluster.Demand
	devices map[string]int // in thousandths, by type; nil if none was ever held
}

func (a *amount) add(h *Holding, sign int) {
	a.tasks += sign
	if sign > 0 {
		a.demand = a.demand.Add(h.Demand)
	} else {
		a.demand = a.demand.Sub(h.Demand)
	}
	for i := range h.Devices {
		if a.devices == nil {
			a.devices = map[string]int{}
		}
		a.devices[typeOf(&h.Devices[i])] += sign * thousandths(&h.Devices[i])
	}
}

// userKey identifies a user of a cluster; with an empty user it is the cluster.
type userKey struct{ cluster, user string }

// shares are what the jobs of each cluster and of each of its users hold. The zero value is empty.
type shares map[userKey]*amount

// add counts an attempt of a job with a sign of 1, and no longer counts it with -1.
func (s *shares) add(h *Holding, sign int) {
	if h.Job == "" {
		return
	}
	if *s == nil {
		*s = shares{}
	}
	keys := [2]userKey{{cluster: h.Cluster}, {h.Cluster, h.User}}
	for i, key := range keys {
		if i > 0 && key == keys[0] { // the user is not known
			break
		}
		a := (*s)[key]
		if a == nil {
			a = &amount{}
			(*s)[key] = a
		}
		a.add(h, sign)
		if a.tasks == 0 {
			delete(*s, key)
		}
	}
}

func (s shares) clone() shares {
	c := make(shares, len(s))
	for key, a := range s { // order-free: a copy
		c[key] = &amount{a.tasks, a.demand, maps.Clone(a.devices)}
	}
	return c
}

// Capacity is what the nodes of a domain have together.
type Capacity struct {
	Demand  cluster.Demand
	Devices map[string]int // the number of devices by type
}

// Share returns how much of the capacity the jobs of a cluster hold, or those of one of its users: the dominant share,
// which is the largest among the shares of CPU, memory, disk and each type of devices (Ghodsi et al., "Dominant
// Resource Fairness: Fair Allocation of Multiple Resource Types", 2011). An empty user means the whole cluster. It is 0
// if they hold nothing, 1 if they hold all of a resource, and more while nodes are away whose tasks may still run.
func (d *Draft) Share(c *Capacity, name, user string) float64 {
	var none amount
	held, added := &none, &none
	if a := d.ledger.shares[userKey{name, user}]; a != nil {
		held = a
	}
	if a := d.added.shares[userKey{name, user}]; a != nil {
		added = a
	}
	return c.dominant(held, added)
}

// Share returns the dominant share of one task.
func (c *Capacity) Share(d cluster.Demand, devices []cluster.DeviceRequest) float64 {
	var one, none amount
	one.add(&Holding{Demand: d, Devices: devices}, 1)
	return c.dominant(&one, &none)
}

// Part returns the share of one resource: what is held of it as a part of what there is. It is 0 if there is none.
func Part(held, of int64) float64 {
	if of <= 0 {
		return 0
	}
	return float64(held) / float64(of)
}

// dominant returns the dominant share of two amounts together.
func (c *Capacity) dominant(a, b *amount) float64 {
	share := max(
		Part(int64(a.demand.CPU+b.demand.CPU), int64(c.Demand.CPU)),
		Part(int64(a.demand.Memory+b.demand.Memory), int64(c.Demand.Memory)),
		Part(int64(a.demand.Disk+b.demand.Disk), int64(c.Demand.Disk)),
	)
	for kind, n := range c.Devices { // order-free: a maximum
		share = max(share, Part(int64(a.devices[kind]+b.devices[kind]), int64(n)*cluster.WholeDevice))
	}
	return share
}
