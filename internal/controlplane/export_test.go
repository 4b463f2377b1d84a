package controlplane

import (
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/observe"
	"github.com/berthd/berth/internal/store"
)

// Observed returns the inputs of the leader's decisions and its fleet, or nil if this server does not lead or is still
// deciding. The loop must be idle.
func (p *Plane) Observed(snap *store.Snapshot) (*observe.Domain, *scheduler.Fleet) {
	l := p.term.Load()
	if l == nil || !l.hasCycled || l.term.hasUnknownPlacements() {
		return nil, nil
	}
	if e, ok := snap.Recovery(l.config.Domain); ok && e.Value.State == cluster.RecoveryNeeded {
		return nil, nil // the leader decides nothing then: there is no decision to compare views with
	}
	return l.observed(snap), l.view.Fleet
}
