package access

import (
	"github.com/berthd/berth/internal/apiserver/snapshot"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// VisibleDefinitions returns a function that reports whether the caller sees a task definition. A caller with a limit
// sees the definitions that services (with their remembered versions), jobs, crons and attempts of its clusters use.
// Environments and files of other definitions may hold secrets of other clusters.
func (c *Caller) VisibleDefinitions(snap *store.Snapshot) func(cluster.Ref) bool {
	if c.Clusters == nil {
		return func(cluster.Ref) bool { return true }
	}
	used := map[cluster.Ref]bool{}
	for _, in := range c.Clusters {
		for o := range snapshot.Owners(snap, in) {
			for row := range snap.Attempts(o) {
				if row.Desired != nil {
					used[row.Desired.Definition] = true
				}
				if row.Outcome != nil {
					used[row.Outcome.Definition] = true
				}
			}
		}
		for e := range snap.Services(in) {
			for _, v := range snapshot.VersionsOf(snap, e.Value) {
				used[v.Definition] = true
			}
		}
		for _, ref := range snapshot.Definitions(snap, in) {
			used[ref] = true
		}
	}
	return func(ref cluster.Ref) bool { return used[ref] }
}
