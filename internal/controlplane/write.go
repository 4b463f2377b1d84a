package controlplane

import (
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/store"
)

// write turns the decision about one owner into units, each of which compares the records that the decision looked at.
type write struct {
	loop  *loop
	snap  *store.Snapshot
	owner cluster.OwnerRef
}

const (
	// maxRemoved bounds the deletions in one unit, and maxTold the conclusions that stand in one with the events
	// that follow from all of them: Consul takes 128 operations, of which a conclusion has up to eight.
	maxRemoved = 50
	maxTold    = 14
)

func (w *write) decision(d reconciler.Decision, units *[]store.Unit) error {
	if err := w.conclusions(d, units); err != nil {
		return err
	}
	for i := range d.Stops {
		u, err := w.stop(&d.Stops[i])
		if err != nil {
			return err
		}
		*units = append(*units, u)
	}
	for i := range d.Adoptions {
		u, err := w.adoption(&d.Adoptions[i])
		if err != nil {
			return err
		}
		*units = append(*units, u)
	}
	for i := range d.Cleanups {
		if u, ok := w.cleanup(&d.Cleanups[i]); ok {
			*units = append(*units, u)
		}
	}
	for _, t := range d.Trims {
		if row, ok := w.snap.Attempt(t.Task, t.Attempt); ok && row.PlanRev == 0 {
			var u store.Unit
			w.trim(&u, row)
			*units = append(*units, u)
		}
	}
	if err := w.rollout(&d, units); err != nil {
		return err
	}
	if d.Expire {
		if err := w.expire(units); err != nil {
			return err
		}
	}
	if d.Remove {
		*units = append(*units, w.remove()...)
	} else {
		w.orphan(units)
	}
	return nil
}

// expire deletes a job that has been kept for long enough, as its user could.
func (w *write) expire(units *[]store.Unit) error {
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

// conclusions writes outcomes. Events that are true only once all of them are written, such as the end of a job,
// stand in one unit with them; where that would be too large, the last ones and the events wait for the next cycle.
func (w *write) conclusions(d reconciler.Decision, units *[]store.Unit) error {
	conclusions := d.Conclusions
	told := len(d.Events) > 0 && len(conclusions) <= maxTold
	if len(d.Events) > 0 && !told {
		conclusions = conclusions[:len(conclusions)-maxTold]
	}
	var whole store.Unit
	for i := range conclusions {
		u, err := w.conclusion(&conclusions[i])
		if err != nil {
			return err
		}
		if !told {
			*units = append(*units, u)
			continue
		}
		whole.Compares = append(whole.Compares, u.Compares...)
		whole.Ops = append(whole.Ops, u.Ops...)
		whole.Events = append(whole.Events, u.Events...)
	}
	if told {
		whole.Events = append(whole.Events, d.Events...)
		*units = append(*units, whole)
	}
	return nil
}

func (w *write) prefix() store.Prefix { return w.loop.config.Tables.Prefix() }

// token is the one that the control plane stamps on what agents are told.
func (w *write) token() cluster.Token {
	return cluster.Token{Incarnation: w.loop.fence.Incarnation, Epoch: w.loop.fence.Epoch}
}

// conclusion writes an outcome, projects the attempt where that has not been done, and turns it into a stop (P4.2).
func (w *write) conclusion(c *reconciler.Conclusion) (store.Unit, error) {
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
		if err := w.desired(&u, desired, c.DesiredRev, row); err != nil {
			return u, err
		}
	}
	if w.newest(out.Task, out.Attempt) {
		u.Delete(w.prefix().Scheduled(out.Task))
	}
	u.Event(c.Event)
	return u, nil
}

// desired adds the write of a desired record. One that is not projected yet compares its plan record (P3.4).
func (w *write) desired(u *store.Unit, d *cluster.Desired, rev uint64, row *store.AttemptRow) error {
	key := w.prefix().Desired(d.Node, d.Task)
	u.Compare(key, rev)
	if rev == 0 && row != nil && row.PlanRev != 0 {
		u.Compare(w.prefix().Plan(row.Plan), row.PlanRev)
	}
	record := *d
	record.Token = w.token()
	return u.Put(key, &record)
}

// newest reports whether no later attempt of the task has records.
func (w *write) newest(task cluster.TaskID, attempt int) bool {
	for row := range w.snap.TaskAttempts(task) {
		if row.Number > attempt {
			return false
		}
	}
	return true
}

func (w *write) stop(s *reconciler.Stop) (store.Unit, error) {
	var u store.Unit
	row, _ := w.snap.Attempt(s.Desired.Task, s.Desired.Attempt)
	if row == nil || row.Outcome == nil {
		u.Compare(w.prefix().Outcome(s.Desired.Task, s.Desired.Attempt), 0)
	}
	if row != nil && (s.Unbegun || s.Rev == 0 && row.ObservedRev != 0) {
		// or a late write brings it back
		u.Compare(w.prefix().Observed(s.Desired.Node, s.Desired.Task), row.ObservedRev)
	}
	if err := w.desired(&u, &s.Desired, s.Rev, row); err != nil {
		return u, err
	}
	u.Event(s.Event)
	return u, nil
}

// adoption writes the desired record of an attempt that has only a status.
func (w *write) adoption(a *reconciler.Adoption) (store.Unit, error) {
	var u store.Unit
	d := &a.Desired
	u.Compare(w.prefix().Outcome(d.Task, d.Attempt), 0)
	u.Compare(w.prefix().Observed(d.Node, d.Task), a.ObservedRev)
	u.Mark(w.prefix().Scheduled(d.Task))
	u.Event(a.Event)
	return u, w.desired(&u, d, 0, nil)
}

// cleanup deletes what stands of an ended attempt, unless its plan record still does (P3.4).
func (w *write) cleanup(c *reconciler.Cleanup) (store.Unit, bool) {
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

// trim deletes an outcome. It compares it: a deletion that arrives late must not take another's.
func (w *write) trim(u *store.Unit, row *store.AttemptRow) {
	key := w.prefix().Outcome(row.Task, row.Number)
	u.Compare(key, row.OutcomeRev)
	u.Delete(key)
}

// remove deletes the outcomes of a deleted owner, and in a later cycle, when none is left, the owner itself.
func (w *write) remove() []store.Unit {
	var units []store.Unit
	for row := range w.snap.Attempts(w.owner) {
		if row.Outcome == nil {
			continue
		}
		if len(units) == 0 || len(units[len(units)-1].Ops) == maxRemoved {
			units = append(units, store.Unit{})
		}
		w.trim(&units[len(units)-1], row)
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
	w.bereave(&u)
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
