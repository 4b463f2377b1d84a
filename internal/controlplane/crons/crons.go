// Package crons makes, cancels and deletes the jobs of a domain's crons for a leader.
package crons

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/controlplane/queue"
	"github.com/berthd/berth/internal/logic/cron"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/store"
)

// maxJobsPerUnit is how many jobs of a cron one unit makes: Consul takes 128 operations. The next cycle makes the rest.
const maxJobsPerUnit = 8

// maxUnit is the largest unit of several jobs. It leaves room for the fence and the events within the limits of Consul.
var maxUnit = store.Limits{Operations: 100, Bytes: 256 << 10}

// maxFieldBytes is room for the fields that a job has beyond those of its cron, such as times, names and defaults.
const maxFieldBytes = 2048

// Crons makes the jobs of the domain's crons, and holds which crons are to be decided, and when. An owner of kind
// KindCron is the kind of a cron. No moment gets two jobs and none is lost, as the record that says so is written with
// the jobs. It is for one goroutine.
type Crons struct {
	prefix store.Prefix
	domain string
	logger *slog.Logger
	tables *Timetables
	marked map[cluster.OwnerRef]bool
	timers *queue.Timers
	owners *queue.Owners
}

// New returns crons without a mark. They mark jobs in the queue of owners.
func New(p store.Prefix, domain string, log *slog.Logger, t *Timetables, owners *queue.Owners) *Crons {
	return &Crons{
		prefix: p, domain: domain, logger: log, tables: t,
		marked: map[cluster.OwnerRef]bool{}, timers: queue.NewTimers(), owners: owners,
	}
}

func cronRef(inCluster, name string) cluster.OwnerRef {
	return cluster.OwnerRef{Kind: cluster.KindCron, Cluster: inCluster, Name: name}
}

// Learn marks the crons that a change may concern: all of them, or those whose jobs changed.
func (c *Crons) Learn(snap *store.Snapshot, changes store.Changes) {
	if changes.Crons || changes.Resync || changes.Clusters || changes.Domain || len(changes.Definitions) > 0 {
		c.markAll(snap)
		return
	}
	for o := range changes.Owners { // order-free: a set
		if o.Kind != cluster.KindJob {
			continue
		}
		if e, ok := snap.Job(o.Cluster, o.Name); ok && e.Value.Cron != "" {
			c.marked[cronRef(o.Cluster, e.Value.Cron)] = true
		}
	}
}

// markAll marks all crons, and those with only a status left.
func (c *Crons) markAll(snap *store.Snapshot) {
	for e := range snap.Crons("") {
		c.marked[cronRef(e.Value.Cluster, e.Value.Name)] = true
	}
	for e := range snap.AllFired("") {
		rest := strings.TrimPrefix(e.Key, string(c.prefix)+"fired/")
		if inCluster, name, ok := strings.Cut(rest, "/"); ok {
			c.marked[cronRef(inCluster, name)] = true
		}
	}
}

// IsEmpty reports whether no cron is marked.
func (c *Crons) IsEmpty() bool { return len(c.marked) == 0 }

// Next returns the next time at which a cron is due, and false if there is none.
func (c *Crons) Next() (time.Time, bool) { return c.timers.Next() }

// Fire decides the crons that changed or have a due moment, and returns them.
func (c *Crons) Fire(snap *store.Snapshot, now time.Time, units *[]store.Unit) []cluster.OwnerRef {
	for _, o := range c.timers.TakeDue(now) {
		c.marked[o] = true
	}
	if len(c.marked) == 0 {
		return nil
	}
	var all []cluster.OwnerRef
	for o := range c.marked { // order-free: sorted next
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b cluster.OwnerRef) int {
		return strings.Compare(a.Cluster+"/"+a.Name, b.Cluster+"/"+b.Name)
	})
	clear(c.marked)
	for _, o := range all {
		w := &writer{crons: c, snap: snap, now: now, ref: o}
		next, err := w.decide(units)
		if err != nil {
			c.logger.Error("a cron's decision cannot be written", "cron", o.Cluster+"/"+o.Name, "error", err)
		}
		c.timers.Set(o, next)
	}
	return all
}

// MarkAgain marks crons whose decision may not have been written.
func (c *Crons) MarkAgain(all []cluster.OwnerRef) {
	for _, o := range all {
		c.marked[o] = true
	}
}

// writer turns the decision about one cron into units.
type writer struct {
	crons *Crons
	snap  *store.Snapshot
	now   time.Time
	ref   cluster.OwnerRef
	spec  *cluster.Cron
	rev   uint64
	fired store.Entry[cluster.CronStatus]
}

// decide makes the decision about the cron. It returns when to decide again; the zero time for never.
func (w *writer) decide(units *[]store.Unit) (next time.Time, err error) {
	e, ok := w.snap.Cron(w.ref.Cluster, w.ref.Name)
	w.spec, w.rev = e.Value, e.Modified
	w.fired, _ = w.snap.Fired(w.ref.Cluster, w.ref.Name)
	if c, _ := w.snap.Cluster(w.ref.Cluster); c.Value.InDomain() != w.crons.domain {
		return next, nil
	}
	if !ok || w.spec.Deleted {
		w.removeCron(units)
		return next, nil
	}
	in := cron.Input{Spec: w.spec, Status: w.fired.Value, Now: w.now}
	table := w.crons.tables.table(w.spec.Zone, w.spec.Schedules...)
	if table == nil {
		return next, nil
	}
	since := w.momentsAfter()
	if in.Due, err = w.due(table.Between(since, in.Now, cluster.MaxMissed)); err != nil {
		return next, err
	}
	in.Jobs = w.jobs(in.Due)
	next = table.Next(later(since, in.Now))
	before := len(*units)
	err = w.write(in, units)
	if len(*units) > before { // decide again in case the units are refused
		next = in.Now.Add(time.Second)
	}
	return next, err
}

// momentsAfter returns the time after which the cron's moments count.
func (w *writer) momentsAfter() time.Time {
	switch status := w.fired.Value; {
	case status != nil:
		return later(w.spec.Created, status.Last)
	case w.spec.Created.IsZero():
		return w.now
	}
	return w.spec.Created
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// due leaves moments to later cycles if each gets its own job and one unit has no room for all of the jobs.
func (w *writer) due(moments []time.Time) ([]time.Time, error) {
	if w.spec.Missed == cluster.CronAll && w.spec.Concurrency == cluster.CronAllow && len(moments) > 1 {
		job, err := store.Encode(w.spec.NewJob(w.spec.JobName(moments[0])))
		if err != nil {
			return nil, err
		}
		// A made job has a few fields more.
		room := min(maxJobsPerUnit, max(1, maxUnit.Bytes/(len(job)+len(job)/8+maxFieldBytes)))
		moments = moments[:min(len(moments), room)]
	}
	return slices.DeleteFunc(moments, func(at time.Time) bool {
		_, taken := w.snap.Service(w.ref.Cluster, w.spec.JobName(at)) // names are unique in a cluster
		return taken
	}), nil
}

// jobs returns the cron's jobs, and other jobs that have the names of jobs for the moments.
func (w *writer) jobs(due []time.Time) []cron.Job {
	var out []cron.Job
	for e := range w.snap.CronJobs(w.ref.Cluster, w.ref.Name) {
		out = append(out, w.jobState(e.Value))
	}
	for _, at := range due {
		if e, ok := w.snap.Job(w.ref.Cluster, w.spec.JobName(at)); ok && e.Value.Cron != w.ref.Name {
			out = append(out, w.jobState(e.Value))
		}
	}
	return out
}

// jobState returns the state of a job.
func (w *writer) jobState(job *cluster.Job) cron.Job {
	in := reconciler.JobInput{Owner: job.Owner(), Spec: job, Now: w.now}
	for e := range w.snap.PackedTasks(in.Owner) {
		in.Packed = append(in.Packed, reconciler.Packed{Tasks: e.Value, Rev: e.Modified})
	}
	for row := range w.snap.Attempts(job.Owner()) {
		if !row.IsForeign() {
			in.Tasks = append(in.Tasks, reconciler.Task{Attempt: row.Attempt})
		}
	}
	st := reconciler.StatusOfJob(in)
	out := cron.Job{
		Spec: job, Done: st.State.Ended(), Failed: st.State.Ended() && st.State != cluster.JobSucceeded,
		Finished: st.Finished,
	}
	if out.Done && out.Finished.IsZero() { // the job was cancelled before any of its tasks began
		out.Finished = job.Updated
	}
	return out
}

// write decides and writes the result. The new jobs and the cron's status share one unit. So no moment fires twice and
// none is lost, whenever a server dies. The unit also cancels the jobs that are replaced, if it has room for them. If
// not, they are cancelled in units of their own, and a later cycle makes the new job: a cancelled job stays cancelled.
func (w *writer) write(in cron.Input, units *[]store.Unit) error {
	d := w.decision(in)
	u, err := w.mainUnit(&d)
	if err != nil {
		return err
	}
	switch need := store.SizeOf([]store.Group{{Compares: u.Compares, Ops: u.Ops}}); {
	case len(d.Cancel) > 0 && !maxUnit.Hold(need):
		for _, name := range d.Cancel {
			var u store.Unit
			u.Compare(w.crons.prefix.Cron(w.ref.Cluster, w.ref.Name), w.rev)
			if err := w.changeJob(&u, name, cancel); err != nil {
				return err
			}
			*units = append(*units, u)
		}
	case len(u.Ops)+len(u.Events) > 0:
		*units = append(*units, u)
	}
	for _, name := range d.Delete { // in units of their own: deletions are not urgent
		var u store.Unit
		if err := w.changeJob(&u, name, func(j *cluster.Job) { j.Deleted = true }); err != nil {
			return err
		}
		*units = append(*units, u)
	}
	return nil
}

func cancel(j *cluster.Job) { j.Cancelled = true }

// mainUnit returns the unit of all that a decision writes together.
func (w *writer) mainUnit(d *cron.Decision) (u store.Unit, err error) {
	u.Compare(w.crons.prefix.Cron(w.ref.Cluster, w.ref.Name), w.rev)
	for _, job := range d.Make {
		if err := w.addJob(&u, job); err != nil {
			return u, err
		}
	}
	for _, name := range d.Cancel {
		if err := w.changeJob(&u, name, cancel); err != nil {
			return u, err
		}
	}
	if d.Status != nil {
		key := w.crons.prefix.Fired(w.ref.Cluster, w.ref.Name)
		u.Compare(key, w.fired.Modified)
		if err := u.Put(key, d.Status); err != nil {
			return u, err
		}
	}
	u.Events = append(u.Events, d.Events...)
	return u, nil
}

// decision returns the decision. If no job can be made at all, as when a definition is gone, the moments are skipped.
func (w *writer) decision(in cron.Input) cron.Decision {
	reason, why := w.obstacle()
	if why == "" || len(in.Due) == 0 || w.spec.Suspended {
		return cron.Decide(in)
	}
	due := in.Due
	in.Due = nil
	d := cron.Decide(in)
	var status cluster.CronStatus
	if w.fired.Value != nil {
		status = *w.fired.Value
	}
	if d.Status != nil {
		status = *d.Status
	}
	status.Last, status.Message = later(status.Last, due[len(due)-1]), why
	d.Status = &status
	d.Events = append(d.Events, cluster.Event{
		Type: cron.EventSkipped, Cluster: w.ref.Cluster, Owner: &w.ref, Reason: reason,
		Count:   len(due),
		Message: fmt.Sprintf("no job was made for %s: %s", status.Last.Format(time.RFC3339), why),
	})
	return d
}

// obstacle returns why no job of the cron can be made; an empty sentence if one can.
func (w *writer) obstacle() (cluster.ReasonCode, string) {
	c, ok := w.snap.Cluster(w.ref.Cluster)
	switch {
	case !ok:
		return cluster.ReasonNoDefinition, "there is no cluster " + w.ref.Cluster
	case c.Value.Deleted:
		return cluster.ReasonNoDefinition, "cluster " + w.ref.Cluster + " is being deleted"
	}
	var missing []string
	for i := range w.spec.Job.Steps {
		ref := w.spec.Job.Steps[i].Definition
		if _, ok := w.resolve(&ref); !ok {
			return cluster.ReasonNoDefinition, "there is no task definition " + w.spec.Job.Steps[i].Definition.String()
		}
		definition, _ := w.snap.Definition(ref)
		for _, fault := range c.Value.CheckPermissions("", definition.Value) {
			if !slices.Contains(missing, fault.Message) { // steps may share a definition
				missing = append(missing, fault.Message)
			}
		}
	}
	return cluster.ReasonPermission, strings.Join(missing, "; ")
}

// resolve fills in the newest version if a reference names none. Then it returns the revision of the record that holds
// the newest version; 0 if the reference names one.
func (w *writer) resolve(ref *cluster.Ref) (newest uint64, ok bool) {
	if ref.Version == 0 {
		if *ref, newest, ok = w.snap.NewestDefinition(ref.Name); !ok {
			return 0, false
		}
	}
	e, ok := w.snap.Definition(*ref)
	return newest, ok && !e.Value.Deleted
}

// addJob adds a job as the API server writes it. The unit compares its cluster, its definitions, and that its name is
// free.
func (w *writer) addJob(u *store.Unit, job *cluster.Job) error {
	c, _ := w.snap.Cluster(w.ref.Cluster)
	made := *job
	made.Cluster = w.ref.Cluster
	made.Steps = slices.Clone(job.Steps)
	made.SetDefaults()
	u.Compare(w.crons.prefix.Cluster(w.ref.Cluster), c.Modified)
	seen := map[cluster.Ref]bool{}
	for i := range made.Steps {
		ref := &made.Steps[i].Definition
		asked := *ref
		newest, _ := w.resolve(ref)
		if seen[asked] {
			continue
		}
		seen[asked] = true
		if newest != 0 {
			u.Compare(w.crons.prefix.NewestDefinition(ref.Name), newest)
		}
		definition, _ := w.snap.Definition(*ref)
		u.Compare(w.crons.prefix.Definition(*ref), definition.Modified)
	}
	now := w.now.UTC()
	made.Submitted, made.SubmittedBy = now, "cron/"+w.ref.Name
	made.Lifespan = cluster.Lifespan{Generation: w.snap.NextGeneration(made.Owner()), Created: now, Updated: now}
	u.Compare(w.crons.prefix.Job(made.Cluster, made.Name), 0)
	u.Compare(w.crons.prefix.Service(made.Cluster, made.Name), 0)
	return u.Put(w.crons.prefix.Job(made.Cluster, made.Name), &made)
}

// changeJob adds a change of one of the cron's jobs.
func (w *writer) changeJob(u *store.Unit, name string, change func(*cluster.Job)) error {
	e, ok := w.snap.Job(w.ref.Cluster, name)
	if !ok || e.Value.Cron != w.ref.Name {
		return nil
	}
	job := *e.Value
	change(&job)
	job.Updated = w.now.UTC()
	key := w.crons.prefix.Job(w.ref.Cluster, name)
	u.Compare(key, e.Modified)
	return u.Put(key, &job)
}

// removeCron deletes a cron that is marked as deleted, and its status. Its jobs stay, and expire as other jobs do.
func (w *writer) removeCron(units *[]store.Unit) {
	for e := range w.snap.CronJobs(w.ref.Cluster, w.ref.Name) {
		w.crons.owners.Mark(e.Value.Owner())
	}
	var u store.Unit
	key := w.crons.prefix.Cron(w.ref.Cluster, w.ref.Name)
	u.Compare(key, w.rev)
	if w.spec != nil {
		u.Delete(key)
		owner := w.ref
		u.Event(cluster.Event{
			Type: "cron.removed", Cluster: owner.Cluster, Owner: &owner, Reason: cluster.ReasonDeleted,
			Message: "it was deleted; its jobs stay",
		})
	}
	if w.fired.Value != nil {
		fired := w.crons.prefix.Fired(w.ref.Cluster, w.ref.Name)
		u.Compare(fired, w.fired.Modified)
		u.Delete(fired)
	}
	if len(u.Ops) > 0 {
		*units = append(*units, u)
	}
}
