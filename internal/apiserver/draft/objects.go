package draft

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/strictjson"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// conflict is the fault of an object that cannot replace the present one. The answer is 409.
type conflict struct{ cluster.Fault }

// Error returns the fault's text.
func (c *conflict) Error() string { return c.Fault.String() }

// Conflictf returns the fault of an object that cannot replace the present one. The answer is 409.
func Conflictf(path, format string, args ...any) error {
	return &conflict{cluster.Fault{Path: path, Message: fmt.Sprintf(format, args...)}}
}

// Faultf returns a fault at a path of the object.
func Faultf(path, format string, args ...any) error {
	return cluster.Faults{{Path: path, Message: fmt.Sprintf(format, args...)}}
}

// SetCluster drafts the write of a cluster.
func (d *Draft) SetCluster(c *cluster.Cluster, pre Precondition) (api.Change, error) {
	change := api.Change{Kind: cluster.KindCluster, Name: c.Name, Action: api.ActionCreate}
	c.Deleted = false
	old, ok := d.Snap.Cluster(c.Name)
	if err := pre.Check(old.Modified); err != nil {
		return change, err
	}
	if err := d.grant(old.Value, c); err != nil {
		return change, err
	}
	if err := d.RequireDomain(c.Domain); err != nil {
		return change, err
	}
	if err := d.keepsDomain(old.Value, c); err != nil {
		return change, err
	}
	if ok {
		change.Revision = old.Modified
		change.Action, change.Fields = Compare(old.Value, c)
	}
	d.clusters.written[c.Name] = c
	d.Require(d.Prefix.Cluster(c.Name), old.Modified)
	if change.Action != api.ActionNone {
		d.Put(d.Prefix.Cluster(c.Name), c, old.Modified)
	}
	return change, nil
}

// SetService drafts the write of a service: it resolves the definition and sets the generation. The user's requests
// about the rollout stay, except with another definition. That starts a new rollout, which is paused if the old one
// was.
func (d *Draft) SetService(svc *cluster.Service, pre Precondition) (api.Change, error) {
	change := api.Change{Kind: cluster.KindService, Cluster: svc.Cluster, Name: svc.Name, Action: api.ActionCreate}
	old, ok := d.Snap.Service(svc.Cluster, svc.Name)
	if err := pre.Check(visible(ok && !old.Value.Deleted, old.Modified)); err != nil {
		return change, err
	}
	var had cluster.Ref
	if ok && !old.Value.Deleted {
		had = old.Value.Definition
	}
	field, inline, err := d.resolveDefinition(&svc.Definition, &svc.Template, had, "")
	if err != nil {
		return change, err
	}
	if def := d.Definition(svc.Definition); def != nil {
		if err := svc.CheckDefinition(def); err != nil {
			return change, err
		}
	}
	if err := d.requireOwnerName(svc.Owner()); err != nil {
		return change, err
	}
	var prev *cluster.Service
	var neededBefore []string
	if ok && !old.Value.Deleted {
		prev, neededBefore = old.Value, old.Value.Needs
	}
	faults := append(d.checkPermissions(svc.Cluster, svc.Definition, field),
		d.needs.check(svc.Owner(), svc.Needs, neededBefore, "needs")...)
	if len(faults) > 0 {
		return change, faults
	}
	svc.Lifespan = cluster.Lifespan{Created: d.Now, Updated: d.Now, Trace: d.Trace}
	svc.Rollout = cluster.RolloutWish{}
	keepCount(svc, prev)
	var names []string
	if prev != nil {
		names = prev.Inline
	}
	svc.Inline = inlineNames([]definitionField{field}, []cluster.Ref{svc.Definition}, []cluster.Ref{had}, names)
	if prev == nil {
		// The remains of an earlier service of the name do not belong to this one, even with the same definition.
		if svc.Generation = d.Snap.NextGeneration(svc.Owner()); svc.Generation > 1 {
			svc.Restarted = svc.Generation
		}
		d.forget(svc, ok)
	} else {
		svc.Recounted = prev.Recounted
		if svc.Count != prev.Count || (svc.Scaling == nil) != (prev.Scaling == nil) {
			svc.Recounted++
		}
		svc.Generation, svc.Restarted, svc.Created, svc.Rollout = prev.Generation, prev.Restarted, prev.Created,
			prev.Rollout
		if svc.Definition != prev.Definition {
			d.NextVersion(svc)
		}
		change.Revision = old.Modified
		change.Action, change.Fields = Compare(plainService(prev), plainService(svc))
		change.Fields = append(change.Fields, inline...)
	}
	change.Generation = svc.Generation
	change.Effect = serviceEffect(prev, svc, d.Definition(svc.Definition))
	if change.Action != api.ActionNone {
		d.Put(d.Prefix.Service(svc.Cluster, svc.Name), svc, old.Modified)
	}
	return change, nil
}

// forget removes the records of rollouts and scaling of an earlier service of the name, so that a new service never
// returns to an earlier version or count. While the earlier service is being deleted, no other writer may write these
// records.
func (d *Draft) forget(svc *cluster.Service, deleting bool) {
	drop := func(key string, modified uint64) {
		switch {
		case modified != 0:
			d.Put(key, nil, modified)
		case deleting:
			d.Require(key, 0)
		}
	}
	rollout, _ := d.Snap.Rollout(svc.Cluster, svc.Name)
	drop(d.Prefix.Rollout(svc.Cluster, svc.Name), rollout.Modified)
	scale, _ := d.Snap.Scale(svc.Cluster, svc.Name)
	drop(d.Prefix.Scale(svc.Cluster, svc.Name), scale.Modified)
}

// SetJob drafts the write of a job. A change of steps runs the job again, and so do the end of a cancellation and
// another key. A write with the key of the job is a repeated submission, which changes nothing, unless it names the
// revision that it changes.
func (d *Draft) SetJob(job *cluster.Job, pre Precondition) (api.Change, error) {
	change := api.Change{Kind: cluster.KindJob, Cluster: job.Cluster, Name: job.Name, Action: api.ActionCreate}
	job.Steps = slices.Clone(job.Steps) // references are completed
	old, ok := d.Snap.Job(job.Cluster, job.Name)
	if err := pre.Check(visible(ok && !old.Value.Deleted, old.Modified)); err != nil {
		return change, err
	}
	var had []cluster.Step
	var neededBefore []string
	if ok && !old.Value.Deleted {
		had, neededBefore = old.Value.Steps, old.Value.Needs
		if job.Key != "" && job.Key == old.Value.Key && pre.match == nil {
			change.Action, change.Revision = api.ActionNone, old.Modified
			change.Note = fmt.Sprintf("the key %q was submitted before", job.Key)
			return change, nil
		}
	}
	fields, inline, faults := d.resolveSteps(job.Steps, had, "steps")
	if len(faults) > 0 {
		return change, faults
	}
	if err := d.requireOwnerName(job.Owner()); err != nil {
		return change, err
	}
	faults = append(d.checkStepPermissions(job.Cluster, job.Steps, fields),
		d.needs.check(job.Owner(), job.Needs, neededBefore, "needs")...)
	if len(faults) > 0 {
		return change, faults
	}
	var prev *cluster.Job
	job.Cron, job.At, job.CancelReason, job.Submitted, job.Retried = "", time.Time{}, "", d.Now, cluster.JobRetries{}
	job.NeedsMet, job.SubmittedBy = time.Time{}, d.user()
	job.Lifespan = cluster.Lifespan{Created: d.Now, Updated: d.Now, Trace: d.Trace}
	switch {
	case !ok || old.Value.Deleted:
		job.Generation = d.Snap.NextGeneration(job.Owner())
	default:
		prev = old.Value
		job.Generation, job.Created, job.Cron, job.At = prev.Generation, prev.Created, prev.Cron, prev.At
		job.Submitted, job.NeedsMet, job.Retried = prev.Submitted, prev.NeedsMet, prev.Retried
		job.SubmittedBy = prev.SubmittedBy
		if job.Cancelled {
			job.CancelReason = prev.CancelReason
		}
		if steps, _ := Compare(stepsOf(prev), stepsOf(job)); steps != api.ActionNone ||
			prev.Cancelled && !job.Cancelled || job.Key != "" && job.Key != prev.Key {
			d.BeginRun(job)
			if faults := d.CheckRunNeeds(job); len(faults) > 0 {
				return change, faults
			}
		}
		change.Revision = old.Modified
		change.Action, change.Fields = Compare(prev.Plain(), job.Plain())
		change.Fields = append(change.Fields, inline...)
	}
	var names []string
	if prev != nil {
		names = prev.Inline
	}
	job.Inline = inlineNames(fields, definitionsOf(job.Steps), definitionsOf(had), names)
	change.Effect = jobEffect(prev, job)
	if change.Action == api.ActionNone {
		return change, nil
	}
	d.Put(d.Prefix.Job(job.Cluster, job.Name), job, old.Modified)
	return change, checkSize(job, "steps")
}

// checkSize returns a fault of the field if the record of a job or a cron is too large for the store.
func checkSize(record any, field string) error {
	value, err := store.Encode(record)
	if err != nil {
		return err
	}
	if len(value) > store.MaxJobBytes {
		return Faultf(field, "take %d KiB in the store, at most %d KiB are allowed: shorten names and placements, or "+
			"make several jobs that need each other", (len(value)+1023)>>10, store.MaxJobBytes>>10)
	}
	return nil
}

// BeginRun makes the job begin anew, in its next generation.
func (d *Draft) BeginRun(job *cluster.Job) {
	job.Generation = d.Snap.NextGeneration(job.Owner())
	job.Submitted, job.NeedsMet, job.Retried, job.CancelReason = d.Now, time.Time{}, cluster.JobRetries{}, ""
	job.SubmittedBy = d.user()
}

// user returns who requests the write, as one user of fair queues.
func (d *Draft) user() string {
	if d.Caller == nil {
		return ""
	}
	return d.Caller.User()
}

// SetHost drafts the write of the operator's settings of a node. It keeps a drain, the mark of a forgotten node,
// how the machine was added, and where a passive node is dialed unless the settings say it.
func (d *Draft) SetHost(h *cluster.Host, pre Precondition) error {
	old, ok := d.Snap.Host(h.Name)
	if err := pre.Check(old.Modified); err != nil {
		return err
	}
	if err := d.RequireDomain(h.Domain); err != nil {
		return err
	}
	h.Generation = 0
	d.DateTaints(h)
	if ok {
		h.Generation, h.Drain, h.Gone = old.Value.Generation, old.Value.Drain, old.Value.Gone
		h.Setup = old.Value.Setup
		if h.Dial == "" { // settings that do not name it must not cut off the node
			h.Dial = old.Value.Dial
		}
		if action, _ := Compare(old.Value, h); action == api.ActionNone {
			return nil
		}
	}
	d.Put(d.Prefix.Host(h.Name), h, old.Modified)
	return nil
}

// visible returns the revision of an object that exists for users, else 0.
func visible(exists bool, modified uint64) uint64 {
	if exists {
		return modified
	}
	return 0
}

// requireOwnerName adds preconditions on the owner's cluster, creating the default cluster, and on the absence of an
// object of the other kind with the name: the names of tasks hold no kind.
func (d *Draft) requireOwnerName(o cluster.OwnerRef) error {
	if err := d.RequireCluster(o.Cluster); err != nil {
		return err
	}
	name := o.Cluster + "/" + o.Name
	if kind, ok := d.owners[name]; ok && kind != o.Kind {
		return Conflictf("name", "%s is the name of a service and of a job; the names in a cluster are distinct",
			o.Name)
	}
	d.owners[name] = o.Kind
	other, kind := cluster.OwnerRef{Kind: cluster.KindJob, Cluster: o.Cluster, Name: o.Name}, "job"
	_, taken := d.Snap.Job(o.Cluster, o.Name)
	if o.Kind == cluster.KindJob {
		other.Kind, kind = cluster.KindService, "service"
		_, taken = d.Snap.Service(o.Cluster, o.Name)
	}
	if taken {
		return Conflictf("name", "%s is the name of a %s of cluster %s; the names of services and jobs in a "+
			"cluster are distinct", o.Name, kind, o.Cluster)
	}
	d.Require(d.Prefix.Owner(other), 0)
	if o.Kind == cluster.KindService {
		return d.requireServiceName(o)
	}
	return nil
}

// RequireCluster adds a cluster as a precondition, and creates the default cluster if it does not exist.
func (s *clusters) RequireCluster(name string) error {
	if s.written[name] != nil {
		return nil
	}
	if c, ok := s.Snap.Cluster(name); ok {
		if c.Value.Deleted {
			return Conflictf("cluster", "cluster %s is being deleted", name)
		}
		// The exact revision is needed: a deletion writes the record first, and must see every object that is made
		// later.
		s.Require(s.Prefix.Cluster(name), c.Modified)
		return nil
	}
	if name != cluster.DefaultCluster {
		return Faultf("cluster", "there is no cluster %s", name)
	}
	c := &cluster.Cluster{Name: name, Permissions: s.permissions}
	c.SetDefaults()
	s.written[name] = c
	s.Put(s.Prefix.Cluster(name), c, 0)
	return nil
}

// NextVersion raises a service's generation and clears the user's requests about its rollout. A paused rollout stays
// paused.
func (d *Draft) NextVersion(svc *cluster.Service) {
	svc.Generation = d.Snap.NextGeneration(svc.Owner())
	svc.Rollout = cluster.RolloutWish{Paused: svc.Rollout.Paused}
}

func plainService(s *cluster.Service) *cluster.Service {
	plain := *s
	plain.Lifespan, plain.Rollout = cluster.Lifespan{}, cluster.RolloutWish{}
	return &plain
}

func stepsOf(j *cluster.Job) any { return map[string]any{"steps": j.Steps} }

// jobEffect returns the effect of a write as a sentence; old is nil for a new job.
func jobEffect(old, job *cluster.Job) string {
	tasks := 0
	for i := range job.Steps {
		tasks += job.Steps[i].Count
	}
	switch {
	case job.Cancelled && (old == nil || !old.Cancelled):
		return "cancels the job"
	case job.Cancelled:
		return ""
	case old == nil:
		return "runs " + respond.Plural(tasks, "task")
	case job.Generation != old.Generation:
		return "restarts all " + respond.Plural(tasks, "task")
	}
	return ""
}

// Compare returns the changes of a write to an object, field by field.
func Compare(old, next any) (api.Action, []api.FieldChange) {
	a, _ := json.Marshal(old)  // records always
	b, _ := json.Marshal(next) // marshal
	fields := strictjson.Diff(a, b)
	if len(fields) == 0 {
		return api.ActionNone, nil
	}
	return api.ActionUpdate, fields
}

// DateTaints sets the time since which the node has each taint: now, or the earlier time of an equal taint.
func (d *Draft) DateTaints(h *cluster.Host) {
	old, _ := d.Snap.Host(h.Name)
	for i := range h.Taints {
		t := &h.Taints[i]
		t.Since = d.Now
		if old.Value == nil {
			continue
		}
		for _, had := range old.Value.Taints {
			if had.Key == t.Key && had.Value == t.Value && had.Effect == t.Effect {
				t.Since = had.Since
			}
		}
	}
}
