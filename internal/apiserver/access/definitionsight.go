package access

import (
	"github.com/berthd/berth/internal/apiserver/snapshot"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// VisibleDefinitions returns which task definitions a caller sees: with a limit those that services (also in versions
// that they remember), jobs, crons and attempts of its clusters use, for the others may hold in environment and files
// what only their own clusters are to know.
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
			used[e.Value.Definition] = true
			for _, v := range snapshot.VersionsOf(snap, e.Value) {
				used[v.Definition] = true
			}
		}
		for e := range snap.Crons(in) {
			for i := range e.Value.Job.Steps {
				used[e.Value.Job.Steps[i].Definition] = true
			}
		}
		for e := range snap.Jobs(in) {
			for i := range e.Value.Steps {
				used[e.Value.Steps[i].Definition] = true
			}
		}
	}
	return func(ref cluster.Ref) bool { return used[ref] }
}
