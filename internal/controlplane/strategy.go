package controlplane

import (
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/store"
)

// fillStrategies sets the strategy of tasks whose service or step names none: that of their pool or cluster.
func (l *loop) fillStrategies(snap *store.Snapshot, o cluster.OwnerRef, d *reconciler.Decision) {
	name := func(p *cluster.Pending) {
		p.Placement.Strategy = snap.Strategy(l.config.Domain, o.Cluster, &p.Placement)
	}
	for i := range d.Pending {
		name(&d.Pending[i])
	}
	for i := range d.Moves {
		name(&d.Moves[i].Next)
	}
}
