package access

import (
	"sync"

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

// AddableDefinitions returns a function that reports whether the caller may add a version to the definitions of a name.
// A new version becomes the newest, which other writers may request without a number. So a caller with a limit adds
// versions only to names that its clusters alone use, and to names without versions. A name that nobody uses may be
// somebody's, unless all of its versions came from templates: references to those have numbers.
func (c *Caller) AddableDefinitions(snap *store.Snapshot) func(name string) bool {
	if c.Clusters == nil {
		return func(string) bool { return true }
	}
	type use struct{ here, elsewhere map[string]bool }
	uses := sync.OnceValue(func() use {
		u := use{map[string]bool{}, map[string]bool{}}
		note := func(in string, ref cluster.Ref) {
			if c.Sees(in) {
				u.here[ref.Name] = true
			} else {
				u.elsewhere[ref.Name] = true
			}
		}
		for o, ref := range snapshot.Definitions(snap, "") {
			note(o.Cluster, ref)
		}
		for e := range snap.Services("") {
			for _, v := range snapshot.VersionsOf(snap, e.Value) {
				note(e.Value.Cluster, v.Definition)
			}
		}
		for row := range snap.AllAttempts() {
			o, _ := row.Ref() // an attempt of an unknown owner is of no cluster of the caller
			if row.Desired != nil {
				note(o.Cluster, row.Desired.Definition)
			}
			if row.Outcome != nil {
				note(o.Cluster, row.Outcome.Definition)
			}
		}
		return u
	})
	return func(name string) bool {
		isNew, fromTemplates := true, true
		for e := range snap.Definitions(name) {
			isNew, fromTemplates = false, fromTemplates && e.Value.Inline
		}
		if isNew {
			return true
		}
		u := uses()
		return !u.elsewhere[name] && (u.here[name] || fromTemplates)
	}
}
