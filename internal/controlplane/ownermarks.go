package controlplane

import (
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// markAll marks all owners.
func (q *ownerQueue) markAll(snap *store.Snapshot) {
	q.markPart(snap, func(string) bool { return true })
}

// markPart marks the owners whose names the filter accepts, and all services of which only other records are left.
func (q *ownerQueue) markPart(snap *store.Snapshot, in func(name string) bool) {
	q.markOrphans(snap)
	for e := range snap.Services("") {
		if in(e.Value.Name) {
			q.mark(e.Value.Owner())
		}
	}
	for e := range snap.Jobs("") {
		if in(e.Value.Name) {
			q.mark(e.Value.Owner())
		}
	}
}

// markOrphans marks the services of which only records beside them are left.
func (q *ownerQueue) markOrphans(snap *store.Snapshot) {
	mark := func(key, noun string) {
		rest := strings.TrimPrefix(key, string(q.prefix)+noun+"/")
		inCluster, name, ok := strings.Cut(rest, "/")
		if _, stands := snap.Service(inCluster, name); ok && !stands {
			q.mark(cluster.OwnerRef{Kind: cluster.KindService, Cluster: inCluster, Name: name})
		}
	}
	for e := range snap.Rollouts() {
		mark(e.Key, "rollout")
	}
	for e := range snap.Scales() {
		mark(e.Key, "scale")
	}
}

// markUsers marks the owners that use a definition for which uses is true.
func (q *ownerQueue) markUsers(snap *store.Snapshot, uses func(cluster.Ref) bool) {
	for e := range snap.Services("") {
		if uses(e.Value.Definition) {
			q.mark(e.Value.Owner())
		}
	}
	for e := range snap.Jobs("") {
		for i := range e.Value.Steps {
			if uses(e.Value.Steps[i].Definition) {
				q.mark(e.Value.Owner())
			}
		}
	}
}

// markSecretUsers marks the owners whose tasks use secrets, after a secret was created or deleted.
func (q *ownerQueue) markSecretUsers(snap *store.Snapshot) {
	q.markUsers(snap, func(r cluster.Ref) bool {
		e, ok := snap.Definition(r)
		return ok && len(e.Value.Secrets()) > 0
	})
}

// markDaemons marks the services that run as daemons, after nodes came, went or changed.
func (q *ownerQueue) markDaemons(snap *store.Snapshot) {
	for e := range snap.Services("") {
		if e.Value.Mode == cluster.ModeDaemon {
			q.mark(e.Value.Owner())
		}
	}
}
