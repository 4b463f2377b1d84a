package writes

import (
	"fmt"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/store"
)

// decisionWriter turns the decision about one owner into units. Each unit compares the records that the decision rests
// on.
type decisionWriter struct {
	Builder
	owner cluster.OwnerRef
	last  *store.Unit // see AddDecision
}

const (
	// maxDeletionsPerUnit bounds the deletions in one unit. maxConclusionsWithEvents bounds the conclusions that share
	// a unit with the events that follow from all of them. Consul takes 128 operations, and a conclusion has up to
	// eight.
	maxDeletionsPerUnit      = 50
	maxConclusionsWithEvents = 14
)

// AddDecision adds the units of a decision about an owner. last, unless nil, is one more unit, to be committed once all
// of these are written.
func (b *Builder) AddDecision(o cluster.OwnerRef, d reconciler.Decision, units *[]store.Unit) (last *store.Unit,
	err error,
) {
	w := &decisionWriter{Builder: *b, owner: o}
	err = w.writeDecision(d, units)
	return w.last, err
}

func (w *decisionWriter) writeDecision(d reconciler.Decision, units *[]store.Unit) error {
	if err := w.writeConclusions(d, units); err != nil {
		return err
	}
	for i := range d.Reconnects {
		if u, ok := w.reconnectUnit(&d.Reconnects[i]); ok {
			*units = append(*units, u)
		}
	}
	for i := range d.Stops {
		u, err := w.StopUnit(&d.Stops[i])
		if err != nil {
			return err
		}
		*units = append(*units, u)
	}
	for i := range d.Adoptions {
		u, err := w.adoptionUnit(&d.Adoptions[i])
		if err != nil {
			return err
		}
		*units = append(*units, u)
	}
	for i := range d.Cleanups {
		if u, ok := w.cleanupUnit(&d.Cleanups[i]); ok {
			*units = append(*units, u)
		}
	}
	for _, t := range d.Trims {
		if row, ok := w.Snap.Attempt(t.Task, t.Attempt); ok && row.PlanRev == 0 {
			var u store.Unit
			w.deleteOutcome(&u, row)
			*units = append(*units, u)
		}
	}
	if err := w.writePacks(&d, units); err != nil {
		return err
	}
	if err := w.writeRollout(&d, units); err != nil {
		return err
	}
	if err := w.changeJob(d, units); err != nil {
		return err
	}
	if d.Remove {
		*units = append(*units, w.removalUnits()...)
	} else {
		w.deleteOrphans(units)
	}
	return nil
}

// changeJob deletes a job that was kept for long enough, cancels one that missed its deadline, as its user could, or
// notes that the needs of its run are met.
func (w *decisionWriter) changeJob(d reconciler.Decision, units *[]store.Unit) error {
	e, ok := w.Snap.Job(w.owner.Cluster, w.owner.Name)
	if !ok || !d.Expire && !d.Cancel && !d.Begin {
		return nil
	}
	job, owner := *e.Value, w.owner
	event := cluster.Event{Cluster: owner.Cluster, Owner: &owner}
	switch {
	case d.Expire:
		job.Deleted = true
		event.Type, event.Reason = "job.expired", cluster.ReasonDeleted
		event.Message = "it ended longer ago than it is kept"
	case d.Cancel:
		job.Cancelled, job.CancelReason = true, cluster.ReasonDeadline
		event.Type, event.Reason = "job.overdue", cluster.ReasonDeadline
		event.Message = fmt.Sprintf("it did not end within its deadline of %s", job.Deadline)
	default:
		job.NeedsMet = w.Now.UTC()
		event.Type, event.Message = "job.needs-met", "its needs are met: "+strings.Join(job.Needs, ", ")
	}
	job.Updated = w.Now.UTC()
	var u store.Unit
	key := w.Prefix.Job(job.Cluster, job.Name)
	u.Compare(key, e.Modified)
	u.Event(event)
	*units = append(*units, u)
	return (*units)[len(*units)-1].Put(key, &job)
}

// writeConclusions writes outcomes. Some events are true only once all outcomes are written, such as the end of a job:
// they share one unit with the outcomes. If that unit would be too large, it has the last outcomes only, and is
// committed once the others are written.
func (w *decisionWriter) writeConclusions(d reconciler.Decision, units *[]store.Unit) error {
	alone := len(d.Conclusions) // the number of those in units of their own
	if len(d.Events) > 0 {
		alone = max(0, alone-maxConclusionsWithEvents)
	}
	var combined store.Unit
	for i := range d.Conclusions {
		u, err := w.ConclusionUnit(&d.Conclusions[i])
		if err != nil {
			return err
		}
		if i < alone {
			*units = append(*units, u)
			continue
		}
		combined.Compares = append(combined.Compares, u.Compares...)
		combined.Ops = append(combined.Ops, u.Ops...)
		combined.Events = append(combined.Events, u.Events...)
	}
	if len(d.Events) == 0 {
		return nil
	}
	combined.Events = append(combined.Events, d.Events...)
	if alone == 0 {
		*units = append(*units, combined)
	} else {
		w.last = &combined
	}
	return nil
}

// writePacks writes and deletes records of packed tasks. Outcomes whose plan records still exist are packed later: a
// plan record without the outcome would stand for an attempt that has not begun.
func (w *decisionWriter) writePacks(d *reconciler.Decision, units *[]store.Unit) error {
	for i := range d.Packs {
		p := &d.Packs[i]
		var u store.Unit
		planned := false
		for _, t := range p.Outcomes {
			row, ok := w.Snap.Attempt(t.Task, t.Attempt)
			if !ok || row.Packed || row.PlanRev != 0 {
				planned = true
				break
			}
			w.deleteOutcome(&u, row)
		}
		if planned {
			continue
		}
		key := w.Prefix.Packed(p.Tasks)
		u.Compare(key, p.Rev)
		if err := u.Put(key, p.Tasks); err != nil {
			return err
		}
		*units = append(*units, u)
	}
	for i := range d.Unpacks {
		var u store.Unit
		key := w.Prefix.Packed(d.Unpacks[i].Tasks)
		u.Compare(key, d.Unpacks[i].Rev)
		u.Delete(key)
		*units = append(*units, u)
	}
	return nil
}

// removalUnits deletes the outcomes of a deleted owner. Once none is left, in a later cycle, it deletes the owner
// itself.
func (w *decisionWriter) removalUnits() []store.Unit {
	var units []store.Unit
	for row := range w.Snap.Attempts(w.owner) {
		if row.Outcome == nil {
			continue
		}
		if len(units) == 0 || len(units[len(units)-1].Ops) == maxDeletionsPerUnit {
			units = append(units, store.Unit{})
		}
		w.deleteOutcome(&units[len(units)-1], row)
	}
	if len(units) > 0 {
		return units
	}
	var u store.Unit
	key := w.Prefix.Owner(w.owner)
	rev := uint64(0)
	if e, ok := w.Snap.Service(w.owner.Cluster, w.owner.Name); ok && w.owner.Kind == cluster.KindService {
		rev = e.Modified
	}
	if e, ok := w.Snap.Job(w.owner.Cluster, w.owner.Name); ok && w.owner.Kind == cluster.KindJob {
		rev = e.Modified
	}
	u.Compare(key, rev)
	u.Delete(key)
	w.deleteSideRecords(&u)
	owner := w.owner
	kind := "service.removed"
	if owner.Kind == cluster.KindJob {
		kind = "job.removed"
	}
	u.Event(cluster.Event{
		Type: kind, Cluster: owner.Cluster, Owner: &owner, Reason: cluster.ReasonDeleted,
		Message: "it was deleted and nothing of it runs any more",
	})
	return []store.Unit{u}
}
