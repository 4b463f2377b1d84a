package controlplane

import (
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/store"
)

// markMissingSecrets marks tasks that use a secret which does not exist. They wait for the secret and are not placed.
func (l *loop) markMissingSecrets(snap *store.Snapshot, d *reconciler.Decision) {
	for i := range d.Pending {
		p := &d.Pending[i]
		if i > 0 && p.Definition == d.Pending[i-1].Definition { // the usual case
			p.MissingDependency = d.Pending[i-1].MissingDependency
			continue
		}
		p.MissingDependency = snap.Lacks(p)
	}
	for i := range d.Moves {
		d.Moves[i].Next.MissingDependency = snap.Lacks(&d.Moves[i].Next)
	}
}

// dirtySecretUsers marks the owners whose tasks use secrets, after a secret was created or deleted.
func (l *loop) dirtySecretUsers(snap *store.Snapshot) {
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
