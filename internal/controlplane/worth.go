package controlplane

import (
	"cmp"
	"maps"
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/store"
)

// pricing is what this leader learns about what tasks ask of devices, for the worth that decides where they are taken
// from. It is soft: another leader begins with what stands.
type pricing struct {
	mix  scheduler.Mix
	knew bool // what stood when the reign began is learnt
	// given, unless nil, is the worth for good, as in a rehearsal of what the leader that it is of would do.
	given *scheduler.Worth
}

// arrived learns what tasks ask for that wait now and did not before.
func (p *pricing) arrived(before, now []cluster.Pending) {
	if !slices.ContainsFunc(now, func(t cluster.Pending) bool { return len(t.Devices) > 0 }) {
		return
	}
	known := make(map[cluster.TaskID]bool, len(before))
	for i := range before {
		known[before[i].Task] = true
	}
	for i := range now {
		if t := &now[i]; !known[t.Task] {
			p.mix.Learn(t.Demand, t.Devices, 1)
		}
	}
}

// stood learns from the tasks that hold devices, once in a reign.
func (p *pricing) stood(snap *store.Snapshot, fleet *scheduler.Fleet) {
	if p.knew {
		return
	}
	p.knew = true
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

// price gives the fleet another worth when enough was learnt since the last.
func (p *pricing) price(snap *store.Snapshot, fleet *scheduler.Fleet) *scheduler.Worth {
	if p.given != nil {
		if fleet.Worth() != p.given {
			fleet.SetWorth(p.given)
		}
		return p.given
	}
	p.stood(snap, fleet)
	if p.mix.Stale(fleet.Worth()) {
		fleet.SetWorth(p.mix.Worth())
	}
	return fleet.Worth()
}

// Worth returns what devices are worth to the leader on this server; nil where it does not lead, or has learnt of none.
// It may be called at any time from any goroutine.
func (p *Plane) Worth() *scheduler.Worth { return p.worth.Load() }
