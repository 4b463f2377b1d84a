package controlplane

import (
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

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
