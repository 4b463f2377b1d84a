package projection

import (
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// sealUnits records the revision from which records of attempts carry a seal, once all servers write seals. It removes
// the record when a server of an older build has joined (P3.9).
func (p *Projector) sealUnits(snap *store.Snapshot) ([]store.Unit, error) {
	fence := p.fence
	e, exists := snap.Seals(p.config.Domain)
	var u store.Unit
	u.Compare(p.config.Tables.Prefix().Seals(p.config.Domain), e.Modified)
	if !snap.AllSeal() {
		if !exists {
			return nil, nil
		}
		u.Delete(e.Key)
		return []store.Unit{u}, nil
	}
	next := cluster.Seals{Incarnation: fence.Incarnation, Epoch: fence.Epoch, After: snap.Revision()}
	if exists && e.Value.Incarnation == fence.Incarnation && e.Value.Epoch+1 >= fence.Epoch {
		next.After = e.Value.After
	}
	if exists && *e.Value == next {
		return nil, nil
	}
	err := u.Put(p.config.Tables.Prefix().Seals(p.config.Domain), &next)
	return []store.Unit{u}, err
}
