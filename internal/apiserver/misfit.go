package apiserver

import (
	"fmt"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/store"
)

// misfit says why an attempt should not stand on its node any more, as that is now, or nil, and whether it is to leave
// for that. Of tasks of daemons nothing is said: they end where they do not belong.
func (l *look) misfit(row *store.AttemptRow) (why *reconciler.Leave, leaves bool) {
	o, ok := row.Ref()
	if !ok || !row.Standing() {
		return nil, false
	}
	t := l.standing(o, row.Task)
	if t == nil {
		return nil, false
	}
	n := l.node(row.Node)
	if n == nil {
		return nil, false
	}
	return reconciler.FindViolation(*t, n)
}

// standing is what an owner's spec demands for a task, or nil.
func (l *look) standing(o cluster.OwnerRef, task cluster.TaskID) *reconciler.PlacedTask {
	var t reconciler.PlacedTask
	if c, ok := l.snap.Cluster(o.Cluster); ok {
		t.Common = c.Value.Constraints
	}
	if o.Kind == cluster.KindJob {
		e, ok := l.snap.Job(o.Cluster, o.Name)
		parts, named := task.Parts()
		if !ok || !named || e.Value.Step(parts.Step) == nil {
			return nil
		}
		t.Placement, t.Job = &e.Value.Step(parts.Step).Placement, true
		return &t
	}
	e, ok := l.snap.Service(o.Cluster, o.Name)
	if !ok || e.Value.Mode == cluster.ModeDaemon {
		return nil
	}
	t.Placement, t.OnViolation = &e.Value.Placement, e.Value.OnViolation
	return &t
}

// node returns what placement looks at of a node, or nil.
func (l *look) node(name string) *scheduler.Node {
	if n, ok := l.nodes[name]; ok {
		return n
	}
	var made *scheduler.Node
	if e, ok := l.snap.Node(name); ok {
		h, _ := l.snap.Host(name)
		status, _ := l.snap.NodeStatus(name)
		n := scheduler.NodeOf(h.Value, e.Value, status.Value)
		made = &n
	}
	l.nodes[name] = made
	return made
}

// misplaced says in a sentence that an attempt stands where it should not, and what becomes of it; empty where it fits.
func (l *look) misplaced(row *store.AttemptRow) string {
	if !row.Live() || row.Desired == nil || row.Desired.Stop != nil {
		return ""
	}
	why, leaves := l.misfit(row)
	switch {
	case why == nil:
		return ""
	case why.From.After(l.now):
		return fmt.Sprintf("%s: it may stay for %s more", why.Message, cluster.Duration(why.From.Sub(l.now).Round(1e9)))
	case leaves && why.Now:
		return why.Message + ": it ends there and is tried again elsewhere"
	case leaves:
		return why.Message + ": it moves" + l.nowhere(row)
	case row.Desired.Batch():
		return why.Message + ": it runs to its end there"
	}
	return why.Message + ": it stays, as on_violation is keep"
}

// nowhere says why an attempt that is to move has no other place, empty where that is not known.
func (l *look) nowhere(row *store.AttemptRow) string {
	if l.reasons == nil {
		return ""
	}
	w, ok := l.reasons.Waiting(row.Task)
	if !ok {
		return ""
	}
	return " once there is a place for it, and there is none: " + w.Sentence
}

// misfitWhy tells that an attempt stands where it should not.
func (l *look) misfitWhy(row *store.AttemptRow, b api.Because, why *reasonsWhy) {
	text := l.misplaced(row)
	if text == "" {
		return
	}
	reason, leaves := l.misfit(row)
	b.About, b.Reason, b.Since = aboutPlace, reason.Reason, reason.Since
	if leaves {
		b.About = aboutMove
	}
	b.Message = fmt.Sprintf("%s: %s", row.Task, text)
	why.add(b)
}
