package fleetview

import (
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/observe"
	"github.com/berthd/berth/internal/store"
)

// updateKept brings the room that a service keeps to the tables. An attempt of it that is being placed holds the room
// in its place.
func (v *View) updateKept(snap *store.Snapshot, o cluster.OwnerRef) {
	if o.Kind != cluster.KindService {
		return
	}
	next, keeps := observe.KeptRoom(snap, o)
	if keeps && v.isPlacing(o) {
		keeps = false
	}
	was, kept := v.Fleet.Kept(o)
	switch {
	case keeps && (!kept || !was.Equal(&next)):
		v.Fleet.Keep(next)
		v.changed = true
	case kept && !keeps:
		v.Fleet.EndKeep(o)
		v.changed = true
	}
}

// isPlacing reports whether an attempt of an owner was placed that the tables do not show yet.
func (c *charges) isPlacing(o cluster.OwnerRef) bool {
	for key := range c.unconfirmed { // order-free: any suffices
		if of, ok := key.Task.Owner(); ok && of == o {
			return true
		}
	}
	return false
}

// LendKept gives the room that services keep to their own pending tasks, until the returned function takes it back from
// those that were not placed. Schedule does so by itself.
func (c *charges) LendKept(pending []cluster.Pending) (takeBack func()) {
	if !c.Fleet.KeepsRoom() {
		return func() {}
	}
	var lent []scheduler.KeptRoom
	for i := range pending {
		if pending[i].Hold != (cluster.Hold{}) {
			continue // it is not placed
		}
		if k, kept := c.Fleet.EndKeep(pending[i].Owner); kept {
			lent = append(lent, k)
		}
	}
	return func() {
		for _, k := range lent {
			if !c.isPlacing(k.Owner) {
				c.Fleet.Keep(k)
			}
		}
	}
}
