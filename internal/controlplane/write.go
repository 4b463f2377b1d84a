package controlplane

import (
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/store"
)

// decisionWriter turns the decision about one owner into units. Each unit compares the records that the decision rests
// on.
type decisionWriter struct {
	loop  *loop
	snap  *store.Snapshot
	owner cluster.OwnerRef
}

const (
	// maxDeletionsPerUnit bounds the deletions in one unit. maxConclusionsWithEvents bounds the conclusions that share
	// a unit with the events that follow from all of them. Consul takes 128 operations, and a conclusion has up to
	// eight.
	maxDeletionsPerUnit      = 50
	maxConclusionsWithEvents = 14
)

func (w *decisionWriter) writeDecision(d reconciler.Decision, units *[]store.Unit) error {
	if err := w.writeConclusions(d, units); err != nil {
		return err
	}
	for i := range d.Stops {
		u, err := w.stopUnit(&d.Stops[i])
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
		if row, ok := w.snap.Attempt(t.Task, t.Attempt); ok && row.PlanRev == 0 {
			var u store.Unit
			w.deleteOutcome(&u, row)
			*units = append(*units, u)
		}
	}
	if err := w.writeRollout(&d, units); err != nil {
		return err
	}
	if d.Expire {
		if err := w.expireJob(units); err != nil {
			return err
		}
	}
	if d.Remove {
		*units = append(*units, w.removalUnits()...)
	} else {
		w.deleteOrphans(units)
	}
	return nil
}

// expireJob deletes a job that was kept for long enough, as its user could.
func (w *decisionWriter) expireJob(units *[]store.Unit) error {
	e, ok := w.snap.Job(w.owner.Cluster, w.owner.Name)
	if !ok {
		return nil
	}
	job := *e.Value
	job.Deleted, job.Updated = true, w.loop.now.UTC()
	var u store.Unit
	key := w.prefix().Job(job.Cluster, job.Name)
	u.Compare(key, e.Modified)
	owner := w.owner
	u.Event(cluster.Event{
		Type: "job.expired", Cluster: owner.Cluster, Owner: &owner, Reason: cluster.ReasonDeleted,
		Message: "it ended longer ago than its cluster keeps jobs",
	})
	*units = append(*units, u)
	return (*units)[len(*units)-1].Put(key, &job)
}

// writeConclusions writes outcomes. Some events are true only once all outcomes are written, such as the end of a job:
// they share one unit with the outcomes. If that unit would be too large, the last outcomes and the events wait for the
// next cycle.
func (w *decisionWriter) writeConclusions(d reconciler.Decision, units *[]store.Unit) error {
	conclusions := d.Conclusions
	withEvents := len(d.Events) > 0 && len(conclusions) <= maxConclusionsWithEvents
	if len(d.Events) > 0 && !withEvents {
		conclusions = conclusions[:len(conclusions)-maxConclusionsWithEvents]
	}
	var combined store.Unit
	for i := range conclusions {
		u, err := w.conclusionUnit(&conclusions[i])
		if err != nil {
			return err
		}
		if !withEvents {
			*units = append(*units, u)
			continue
		}
		combined.Compares = append(combined.Compares, u.Compares...)
		combined.Ops = append(combined.Ops, u.Ops...)
		combined.Events = append(combined.Events, u.Events...)
	}
	if withEvents {
		combined.Events = append(combined.Events, d.Events...)
		*units = append(*units, combined)
	}
	return nil
}

func (w *decisionWriter) prefix() store.Prefix { return w.loop.config.Tables.Prefix() }

// token returns the token for the records that agents receive.
func (w *decisionWriter) token() cluster.Token {
	return cluster.Token{Incarnation: w.loop.fence.Incarnation, Epoch: w.loop.fence.Epoch}
}

// conclusionUnit writes an outcome, projects the attempt if that has not been done, and turns it into a stop (P4.2).
func (w *decisionWriter) conclusionUnit(c *reconciler.Conclusion) (store.Unit, error) {
	out := &c.Outcome
	var u store.Unit
	u.Compare(w.prefix().Outcome(out.Task, out.Attempt), 0)
	if out.Node != "" { // else it was never placed
		u.Compare(w.prefix().Observed(out.Node, out.Task), c.ObservedRev)
	}
	if err := u.Put(w.prefix().Outcome(out.Task, out.Attempt), out); err != nil {
		return u, err
	}
	row, _ := w.snap.Attempt(out.Task, out.Attempt)
	desired := c.Desired
	if desired == nil && row != nil && c.DesiredRev == 0 {
		desired = row.Desired
	}
	if desired != nil {
		if err := w.putDesired(&u, desired, c.DesiredRev, row); err != nil {
			return u, err
		}
	}
	if w.isNewest(out.Task, out.Attempt) {
		u.Delete(w.prefix().Scheduled(out.Task))
	}
	u.Event(c.Event)
	return u, nil
}

// putDesired adds the write of a desired record. If the attempt is not projected yet, the unit compares its plan record
// (P3.4).
func (w *decisionWriter) putDesired(u *store.Unit, d *cluster.Desired, rev uint64, row *store.AttemptRow) error {
	key := w.prefix().Desired(d.Node, d.Task)
	u.Compare(key, rev)
	if rev == 0 && row != nil && row.PlanRev != 0 {
		u.Compare(w.prefix().Plan(row.Plan), row.PlanRev)
	}
	record := *d
	record.Token = w.token()
	return u.Put(key, &record)
}

// isNewest reports whether no later attempt of the task has records.
func (w *decisionWriter) isNewest(task cluster.TaskID, attempt int) bool {
	for row := range w.snap.TaskAttempts(task) {
		if row.Number > attempt {
			return false
		}
	}
	return true
}

func (w *decisionWriter) stopUnit(s *reconciler.Stop) (store.Unit, error) {
	var u store.Unit
	row, _ := w.snap.Attempt(s.Desired.Task, s.Desired.Attempt)
	if row == nil || row.Outcome == nil {
		u.Compare(w.prefix().Outcome(s.Desired.Task, s.Desired.Attempt), 0)
	}
	if row != nil && (s.Unbegun || s.Rev == 0 && row.ObservedRev != 0) {
		// or a late write would bring it back
		u.Compare(w.prefix().Observed(s.Desired.Node, s.Desired.Task), row.ObservedRev)
	}
	if err := w.putDesired(&u, &s.Desired, s.Rev, row); err != nil {
		return u, err
	}
	u.Event(s.Event)
	return u, nil
}

// adoptionUnit writes the desired record of an attempt that has only a status.
func (w *decisionWriter) adoptionUnit(a *reconciler.Adoption) (store.Unit, error) {
	var u store.Unit
	d := &a.Desired
	u.Compare(w.prefix().Outcome(d.Task, d.Attempt), 0)
	u.Compare(w.prefix().Observed(d.Node, d.Task), a.ObservedRev)
	u.Mark(w.prefix().Scheduled(d.Task))
	u.Event(a.Event)
	return u, w.putDesired(&u, d, 0, nil)
}

// cleanupUnit deletes the records left of an ended attempt, unless its plan record still stands (P3.4).
func (w *decisionWriter) cleanupUnit(c *reconciler.Cleanup) (store.Unit, bool) {
	var u store.Unit
	if row, ok := w.snap.Attempt(c.Task, c.Attempt); ok && row.PlanRev != 0 {
		return u, false
	}
	if c.DesiredRev != 0 {
		key := w.prefix().Desired(c.Node, c.Task)
		u.Compare(key, c.DesiredRev)
		u.Delete(key)
	}
	if c.ObservedRev != 0 {
		key := w.prefix().Observed(c.Node, c.Task)
		u.Compare(key, c.ObservedRev)
		u.Delete(key)
	}
	return u, true
}

// deleteOutcome deletes an outcome and compares it: a late deletion must not take a newer one.
func (w *decisionWriter) deleteOutcome(u *store.Unit, row *store.AttemptRow) {
	key := w.prefix().Outcome(row.Task, row.Number)
	u.Compare(key, row.OutcomeRev)
	u.Delete(key)
}

// removalUnits deletes the outcomes of a deleted owner. Once none is left, in a later cycle, it deletes the owner
// itself.
func (w *decisionWriter) removalUnits() []store.Unit {
	var units []store.Unit
	for row := range w.snap.Attempts(w.owner) {
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
	key := w.prefix().Owner(w.owner)
	rev := uint64(0)
	if e, ok := w.snap.Service(w.owner.Cluster, w.owner.Name); ok && w.owner.Kind == cluster.KindService {
		rev = e.Modified
	}
	if e, ok := w.snap.Job(w.owner.Cluster, w.owner.Name); ok && w.owner.Kind == cluster.KindJob {
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
