package views

import (
	"cmp"
	"slices"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/snapshot"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/lifecycle"
	"github.com/berthd/berth/internal/logic/watcher"
	"github.com/berthd/berth/internal/store"
)

// taskHistory is a task of a service with its attempts, oldest first.
type taskHistory struct {
	id       cluster.TaskID
	parts    cluster.TaskParts
	attempts []*store.AttemptRow
}

// tasksOf returns the tasks of an owner that have records, ordered by id.
func (l *Builder) tasksOf(o cluster.OwnerRef) (all []*taskHistory) {
	for row := range l.Snapshot.Attempts(o) {
		if n := len(all); n == 0 || all[n-1].id != row.Task {
			parts, ok := row.Task.Parts()
			if !ok {
				continue
			}
			all = append(all, &taskHistory{id: row.Task, parts: parts})
		}
		t := all[len(all)-1]
		t.attempts = append(t.attempts, row)
	}
	return all
}

// definition returns what the newest attempt of the task runs or ran.
func (t *taskHistory) definition() cluster.Ref {
	for _, row := range slices.Backward(t.attempts) {
		switch {
		case row.Desired != nil:
			return row.Desired.Definition
		case row.Outcome != nil:
			return row.Outcome.Definition
		case row.Observed != nil && row.Observed.Definition != (cluster.Ref{}):
			return row.Observed.Definition
		}
	}
	return cluster.Ref{}
}

// newestVersion reports whether a task is of what its service asks for now: an undo keeps the tasks of the version that
// it goes back to.
func (t *taskHistory) newestVersion(svc *cluster.Service) bool {
	return t.parts.Generation == svc.Generation || t.parts.Generation >= svc.Restarted &&
		t.definition() == svc.Definition
}

// counts reports whether an attempt of the task lives, runs, and is healthy and to stay.
func (l *Builder) counts(t *taskHistory) (lives, runs, healthy bool) {
	for _, row := range t.attempts {
		if !row.Standing() {
			continue
		}
		present := l.Records.Absence(row.Node, "") == watcher.Present
		lives = lives || row.Live()
		if !present || row.Desired != nil && row.Desired.Stop != nil {
			continue
		}
		o := row.Observed
		well := o.Healthy() && !o.Gone
		healthy = healthy || well
		runs = runs || well || lifecycle.Shown(row.Attempt).State == cluster.StateRunning
	}
	return lives, runs, healthy
}

// versions counts the tasks of each version of a service that runs, the newest first. Desired is how many tasks it
// wants.
func (l *Builder) versions(svc *cluster.Service, desired int) []api.VersionCount {
	type version struct {
		generation uint64
		definition cluster.Ref
	}
	newest := version{svc.Generation, svc.Definition}
	counts := map[version]*api.VersionCount{
		newest: {Generation: svc.Generation, Definition: svc.Definition, Newest: true, Desired: desired},
	}
	for _, t := range l.tasksOf(svc.Owner()) {
		lives, runs, healthy := l.counts(t)
		if !lives && !healthy { // one that moves has its outcome, and counts while it is healthy
			continue
		}
		v := newest
		if !t.newestVersion(svc) {
			v = version{t.parts.Generation, t.definition()}
		}
		c := counts[v]
		if c == nil {
			c = &api.VersionCount{Generation: v.generation, Definition: v.definition}
			counts[v] = c
		}
		c.Begun++
		if runs {
			c.Running++
		}
		if healthy {
			c.Healthy++
		}
	}
	all := make([]api.VersionCount, 0, len(counts))
	for _, c := range counts { // order-free: sorted below
		all = append(all, *c)
	}
	slices.SortFunc(all, func(a, b api.VersionCount) int {
		return cmp.Or(-cmp.Compare(a.Generation, b.Generation),
			cmp.Compare(a.Definition.String(), b.Definition.String()))
	})
	return all
}

// remembered returns the versions of a service that are known, the newest first: what it asks for now, the version that
// its rollout's record is about, and those before.
func (l *Builder) remembered(svc *cluster.Service) []cluster.Version {
	return snapshot.VersionsOf(l.Snapshot, svc)
}
