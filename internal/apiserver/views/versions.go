package views

import (
	"cmp"
	"slices"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/lifecycle"
	"github.com/berthd/berth/internal/logic/watcher"
	"github.com/berthd/berth/internal/observe"
	"github.com/berthd/berth/internal/store"
)

// taskHistory is a task of a service with its attempts, oldest first.
type taskHistory struct {
	id       cluster.TaskID
	parts    cluster.TaskParts
	attempts []*store.AttemptRow
}

// taskHistories returns the tasks of an owner that have records, ordered by id.
func taskHistories(snap *store.Snapshot, o cluster.OwnerRef) (all []*taskHistory) {
	for row := range snap.Attempts(o) {
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

// definition returns the definition of the task's newest attempt.
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

// isNewestVersion reports whether the task belongs to the version that its service requests now. An undo keeps the
// tasks of the earlier version that it requests.
func (t *taskHistory) isNewestVersion(svc *cluster.Service) bool {
	return t.parts.Generation == svc.Generation || t.parts.Generation >= svc.Restarted &&
		t.definition() == svc.Definition
}

// counts reports whether the task has an attempt that is live, one that runs, and one that is healthy. Attempts that
// are to stop count as live only.
func (t *taskHistory) counts(records *observe.Records) (live, running, healthy bool) {
	for _, row := range t.attempts {
		if !row.Standing() {
			continue
		}
		present := records.Absence(row.Node, "") == watcher.Present
		live = live || row.Live()
		if !present || row.Desired != nil && row.Desired.Stop != nil {
			continue
		}
		o := row.Observed
		well := o.Healthy() && !o.Gone
		healthy = healthy || well
		running = running || well || lifecycle.Shown(row.Attempt).State == cluster.StateRunning
	}
	return live, running, healthy
}

// versions counts the tasks of each version of a service, the newest version first. Desired is how many tasks the
// service wants.
func (in *inputs) versions(svc *cluster.Service, desired int) []api.VersionCount {
	type version struct {
		generation uint64
		definition cluster.Ref
	}
	newest := version{svc.Generation, svc.Definition}
	counts := map[version]*api.VersionCount{
		newest: {Generation: svc.Generation, Definition: svc.Definition, Newest: true, Desired: desired},
	}
	for _, t := range taskHistories(in.Snapshot, svc.Owner()) {
		live, running, healthy := t.counts(in.Records)
		if !live && !healthy { // a moving attempt has its outcome, and counts while it is healthy
			continue
		}
		v := newest
		if !t.isNewestVersion(svc) {
			v = version{t.parts.Generation, t.definition()}
		}
		c := counts[v]
		if c == nil {
			c = &api.VersionCount{Generation: v.generation, Definition: v.definition}
			counts[v] = c
		}
		c.Begun++
		if running {
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
	slices.SortFunc(all, func(x, y api.VersionCount) int {
		return cmp.Or(-cmp.Compare(x.Generation, y.Generation),
			cmp.Compare(x.Definition.String(), y.Definition.String()))
	})
	return all
}
