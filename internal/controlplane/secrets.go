package controlplane

import (
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/store"
)

// nameSecrets says of tasks that are handed a secret which does not exist that they lack it: they wait for it, and are
// not placed.
func (l *loop) nameSecrets(snap *store.Snapshot, d *reconciler.Decision) {
	for i := range d.Pending {
		p := &d.Pending[i]
		if i > 0 && p.Definition == d.Pending[i-1].Definition { // as a rule
			p.Lacks = d.Pending[i-1].Lacks
			continue
		}
		p.Lacks = snap.Lacks(p)
	}
	for i := range d.Moves {
		d.Moves[i].Next.Lacks = snap.Lacks(&d.Moves[i].Next)
	}
}

// dirtySecretive marks the owners whose tasks use secrets: one came, or went.
func (l *loop) dirtySecretive(snap *store.Snapshot) {
	uses := func(r cluster.Ref) bool {
		e, ok := snap.Definition(r)
		return ok && len(e.Value.Secrets()) > 0
	}
	for e := range snap.Services("") {
		if uses(e.Value.Definition) {
			l.dirty[e.Value.Owner()] = true
		}
	}
	for e := range snap.Jobs("") {
		for i := range e.Value.Steps {
			if uses(e.Value.Steps[i].Definition) {
				l.dirty[e.Value.Owner()] = true
			}
		}
	}
}
