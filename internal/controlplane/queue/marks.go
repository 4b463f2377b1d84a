package queue

import (
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// MarkAll marks all owners.
func (q *Owners) MarkAll(snap *store.Snapshot) {
	q.MarkPart(snap, func(string) bool { return true })
}

// MarkPart marks the owners whose names the filter accepts, and all services with only other records left.
func (q *Owners) MarkPart(snap *store.Snapshot, in func(name string) bool) {
	q.markOrphans(snap)
	for e := range snap.Services("") {
		if in(e.Value.Name) {
			q.Mark(e.Value.Owner())
		}
	}
	for e := range snap.Jobs("") {
		if in(e.Value.Name) {
			q.Mark(e.Value.Owner())
		}
	}
}

// markOrphans marks the services with only side records left.
func (q *Owners) markOrphans(snap *store.Snapshot) {
	mark := func(key, noun string) {
		rest := strings.TrimPrefix(key, string(q.prefix)+noun+"/")
		inCluster, name, ok := strings.Cut(rest, "/")
		if _, exists := snap.Service(inCluster, name); ok && !exists {
			q.Mark(cluster.OwnerRef{Kind: cluster.KindService, Cluster: inCluster, Name: name})
		}
	}
	for e := range snap.Rollouts() {
		mark(e.Key, "rollout")
	}
	for e := range snap.Scales() {
		mark(e.Key, "scale")
	}
}

// MarkUsers marks the owners that use a definition for which uses is true.
func (q *Owners) MarkUsers(snap *store.Snapshot, uses func(cluster.Ref) bool) {
	for e := range snap.Services("") {
		if uses(e.Value.Definition) {
			q.Mark(e.Value.Owner())
		}
	}
	for e := range snap.Jobs("") {
		for i := range e.Value.Steps {
			if uses(e.Value.Steps[i].Definition) {
				q.Mark(e.Value.Owner())
			}
		}
	}
}

// MarkSecretUsers marks the owners whose tasks use secrets, after a secret was created or deleted.
func (q *Owners) MarkSecretUsers(snap *store.Snapshot) {
	q.MarkUsers(snap, func(r cluster.Ref) bool {
		e, ok := snap.Definition(r)
		return ok && len(e.Value.Secrets()) > 0
	})
}

// MarkDaemons marks the services that run as daemons, after nodes came, went or changed.
func (q *Owners) MarkDaemons(snap *store.Snapshot) {
	for e := range snap.Services("") {
		if e.Value.Mode == cluster.ModeDaemon {
			q.Mark(e.Value.Owner())
		}
	}
}
