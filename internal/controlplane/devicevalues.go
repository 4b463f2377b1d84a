package controlplane

import (
	"cmp"
	"maps"
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/store"
)

// deviceValues learns what tasks ask of devices, for the value model by which the scheduler chooses devices. It is
// soft: another leader begins with the tasks that hold devices.
type deviceValues struct {
	mix           scheduler.Mix
	learntHolders bool // the tasks that held devices when the term began are learnt
	// fixed, unless nil, is used in place of a learnt model: a rehearsal uses the leader's.
	fixed *scheduler.ValueModel
}

// learnArrivals learns the requests of tasks that wait now and did not wait before.
func (p *deviceValues) learnArrivals(before, now []cluster.Pending) {
	if !slices.ContainsFunc(now, func(t cluster.Pending) bool { return len(t.Devices) > 0 }) {
		return
	}
	known := cluster.IndexTasks(cluster.RangesOf(before))
	for i := range now {
		t := &now[i]
		if arrived := t.Tasks() - known.Overlap(t.Range()); arrived > 0 {
			p.mix.Learn(t.Demand, t.Devices, arrived)
		}
	}
}

// learnHolders learns from the tasks that hold devices, once in a term.
func (p *deviceValues) learnHolders(snap *store.Snapshot, fleet *scheduler.Fleet) {
	if p.learntHolders {
		return
	}
	p.learntHolders = true
	tasks := map[cluster.Ref]int{}
	for r := range fleet.Held { // order-free: counted
		if len(r.Devices) > 0 {
			tasks[r.Definition]++
		}
	}
	refs := slices.SortedFunc(maps.Keys(tasks), func(a, b cluster.Ref) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version))
	})
	for _, ref := range refs {
		if e, ok := snap.Definition(ref); ok {
			p.mix.Learn(e.Value.Demand(), e.Value.Devices(), tasks[ref])
		}
	}
}

// updateFleet gives the fleet a new value model if enough was learnt since the last one.
func (p *deviceValues) updateFleet(snap *store.Snapshot, fleet *scheduler.Fleet) *scheduler.ValueModel {
	if p.fixed != nil {
		if fleet.DeviceValueModel() != p.fixed {
			fleet.SetDeviceValueModel(p.fixed)
		}
		return p.fixed
	}
	p.learnHolders(snap, fleet)
	if p.mix.Stale(fleet.DeviceValueModel()) {
		fleet.SetDeviceValueModel(p.mix.ValueModel())
	}
	return fleet.DeviceValueModel()
}

// DeviceValueModel returns the value model of devices of the leader on this server. It is nil if this server does not
// lead, or has learnt of no devices. It may be called at any time from any goroutine.
func (p *Plane) DeviceValueModel() *scheduler.ValueModel { return p.valueModel.Load() }
