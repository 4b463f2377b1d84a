package controlplane

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/cron"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/store"
)

// mostMade is how many jobs of a cron one unit makes: Consul takes 128 operations. What is left is made by the next
// cycle.
const mostMade = 8

// crons are the crons that are to be decided, and when. An owner of kind KindCron stands for one.
type crons struct {
	tables *timetables
	dirty  map[cluster.OwnerRef]bool
	looks  *agenda
}

func newCrons(t *timetables) *crons {
	return &crons{tables: t, dirty: map[cluster.OwnerRef]bool{}, looks: newAgenda()}
}

func cronRef(inCluster, name string) cluster.OwnerRef {
	return cluster.OwnerRef{Kind: cluster.KindCron, Cluster: inCluster, Name: name}
}

// learn marks the crons that a change may concern: all, or those whose jobs changed.
func (c *crons) learn(snap *store.Snapshot, changes store.Changes, prefix store.Prefix) {
	if changes.Crons || changes.Resync || changes.Clusters || changes.Domain || len(changes.Definitions) > 0 {
		c.all(snap, prefix)
		return
	}
	for o := range changes.Owners { // order-free: a set
		if o.Kind != cluster.KindJob {
			continue
		}
		if e, ok := snap.Job(o.Cluster, o.Name); ok && e.Value.Cron != "" {
			c.dirty[cronRef(o.Cluster, e.Value.Cron)] = true
		}
	}
}

// all marks all crons, and those of which only a status is left.
func (c *crons) all(snap *store.Snapshot, prefix store.Prefix) {
	for e := range snap.Crons("") {
		c.dirty[cronRef(e.Value.Cluster, e.Value.Name)] = true
	}
	for e := range snap.AllFired("") {
		rest := strings.TrimPrefix(e.Key, string(prefix)+"fired/")
		if inCluster, name, ok := strings.Cut(rest, "/"); ok {
			c.dirty[cronRef(inCluster, name)] = true
		}
	}
}

// fire decides the crons that changed or whose moment has come, and returns them.
func (l *loop) fire(snap *store.Snapshot, units *[]store.Unit) []cluster.OwnerRef {
	c := l.crons
	for _, o := range c.looks.due(l.now) {
		c.dirty[o] = true
	}
	if len(c.dirty) == 0 {
		return nil
	}
	var all []cluster.OwnerRef
	for o := range c.dirty { // order-free: sorted next
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b cluster.OwnerRef) int {
		return strings.Compare(a.Cluster+"/"+a.Name, b.Cluster+"/"+b.Name)
	})
	clear(c.dirty)
	for _, o := range all {
		w := &cronWrite{loop: l, snap: snap, ref: o}
		next, err := w.decide(units)
		if err != nil {
			l.config.Logger.Error("a cron's decision cannot be written", "cron", o.Cluster+"/"+o.Name, "error", err)
		}
		c.looks.set(o, next)
	}
	return all
}

// again marks crons whose decision may not have been written.
func (c *crons) again(all []cluster.OwnerRef) {
	for _, o := range all {
		c.dirty[o] = true
	}
}

// cronWrite turns the decision about one cron into units.
type cronWrite struct {
	loop  *loop
	snap  *store.Snapshot
	ref   cluster.OwnerRef
	spec  *cluster.Cron
	rev   uint64
	fired store.Entry[cluster.CronStatus]
}

func (w *cronWrite) prefix() store.Prefix { return w.loop.config.Tables.Prefix() }

// decide asks for what follows for the cron, and returns when to look at it again; the zero time for never.
func (w *cronWrite) decide(units *[]store.Unit) (next time.Time, err error) {
	e, ok := w.snap.Cron(w.ref.Cluster, w.ref.Name)
	w.spec, w.rev = e.Value, e.Modified
	w.fired, _ = w.snap.Fired(w.ref.Cluster, w.ref.Name)
	if domainOf(w.snap, w.ref.Cluster) != w.loop.config.Domain {
		return next, nil
	}
	if !ok || w.spec.Deleted {
		w.remove(units)
		return next, nil
	}
	in := cron.Input{Spec: w.spec, Status: w.fired.Value, Now: w.loop.now}
	table := w.loop.crons.tables.table(w.spec.Zone, w.spec.Schedules...)
	if table == nil {
		return next, nil
	}
	since := w.since()
	in.Due = w.due(table.Between(since, in.Now, cluster.MaxMissed))
	in.Jobs = w.jobs(in.Due)
	next = table.Next(later(since, in.Now))
	before := len(*units)
	err = w.write(in, units)
	if len(*units) > before { // should they be refused, it is decided anew
		next = in.Now.Add(time.Second)
	}
	return next, err
}

// since is what the cron's moments come after.
func (w *cronWrite) since() time.Time {
	switch status := w.fired.Value; {
	case status != nil:
		return later(w.spec.Created, status.Last)
	case w.spec.Created.IsZero():
		return w.loop.now
	}
	return w.spec.Created
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// due leaves to later cycles what one unit has no room for, where each moment gets its own job.
func (w *cronWrite) due(moments []time.Time) []time.Time {
	if w.spec.Missed == cluster.CronAll && w.spec.Concurrency == cluster.CronAllow && len(moments) > mostMade {
		moments = moments[:mostMade]
	}
	return slices.DeleteFunc(moments, func(at time.Time) bool {
		_, taken := w.snap.Service(w.ref.Cluster, w.spec.JobName(at)) // the names in a cluster are distinct
		return taken
	})
}

// jobs returns the cron's jobs, and those that stand in the way of jobs for the moments.
func (w *cronWrite) jobs(due []time.Time) []cron.Job {
	var out []cron.Job
	for e := range w.snap.CronJobs(w.ref.Cluster, w.ref.Name) {
		out = append(out, w.standing(e.Value))
	}
	for _, at := range due {
		if e, ok := w.snap.Job(w.ref.Cluster, w.spec.JobName(at)); ok && e.Value.Cron != w.ref.Name {
			out = append(out, w.standing(e.Value))
		}
	}
	return out
}

// standing returns how a job stands.
func (w *cronWrite) standing(job *cluster.Job) cron.Job {
	in := reconciler.JobInput{Owner: job.Owner(), Spec: job, Now: w.loop.now}
	for row := range w.snap.Attempts(job.Owner()) {
		if row.Number != 0 {
			in.Tasks = append(in.Tasks, reconciler.Task{Attempt: row.Attempt})
		}
	}
	st := reconciler.StatusOfJob(in)
	out := cron.Job{
		Spec: job, Done: st.Done(), Failed: st.Done() && st.State != reconciler.Succeeded,
		Finished: st.Finished,
	}
	if out.Done && out.Finished.IsZero() { // it was cancelled before anything of it began
		out.Finished = job.Updated
	}
	return out
}

// write decides, and writes what follows: the jobs and how far the cron has come stand in one unit, so that no moment
// fires twice and none is lost, whoever dies when.
func (w *cronWrite) write(in cron.Input, units *[]store.Unit) error {
	d := w.judge(in)
	var u store.Unit
	u.Compare(w.prefix().Cron(w.ref.Cluster, w.ref.Name), w.rev)
	for _, job := range d.Make {
		if err := w.make(&u, job); err != nil {
			return err
		}
	}
	for _, name := range d.Cancel {
		if err := w.change(&u, name, func(j *cluster.Job) { j.Cancelled = true }); err != nil {
			return err
		}
	}
	if d.Status != nil {
		key := w.prefix().Fired(w.ref.Cluster, w.ref.Name)
		u.Compare(key, w.fired.Modified)
		if err := u.Put(key, d.Status); err != nil {
			return err
		}
	}
	u.Events = append(u.Events, d.Events...)
	if len(u.Ops)+len(u.Events) > 0 {
		*units = append(*units, u)
	}
	for _, name := range d.Delete { // each by itself: none of them is in a hurry
		var u store.Unit
		if err := w.change(&u, name, func(j *cluster.Job) { j.Deleted = true }); err != nil {
			return err
		}
		*units = append(*units, u)
	}
	return nil
}

// judge is the decision. What keeps every job from being made, such as a definition that is gone, has the moments
// skipped.
func (w *cronWrite) judge(in cron.Input) cron.Decision {
	why := w.hindrance()
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
		Type: cron.EventSkipped, Cluster: w.ref.Cluster, Owner: &w.ref, Reason: cluster.ReasonNoDefinition,
		Count:   len(due),
		Message: fmt.Sprintf("no job was made for %s: %s", status.Last.Format(time.RFC3339), why),
	})
	return d
}

// hindrance says why no job of the cron can be made; empty if one can.
func (w *cronWrite) hindrance() string {
	c, ok := w.snap.Cluster(w.ref.Cluster)
	switch {
	case !ok:
		return "there is no cluster " + w.ref.Cluster
	case c.Value.Deleted:
		return "cluster " + w.ref.Cluster + " is being deleted"
	}
	for i := range w.spec.Job.Steps {
		ref := w.spec.Job.Steps[i].Definition
		if _, ok := w.resolved(&ref); !ok {
			return "there is no task definition " + w.spec.Job.Steps[i].Definition.String()
		}
	}
	return ""
}

// resolved fills in the newest version where a reference names none, and returns the revision of the record that says
// which it is, 0 where the reference says it.
func (w *cronWrite) resolved(ref *cluster.Ref) (newest uint64, ok bool) {
	if ref.Version == 0 {
		if *ref, newest, ok = w.snap.NewestDefinition(ref.Name); !ok {
			return 0, false
		}
	}
	e, ok := w.snap.Definition(*ref)
	return newest, ok && !e.Value.Deleted
}

// make adds a job as the API server writes one, resting on its cluster, on its definitions and on its name being free.
func (w *cronWrite) make(u *store.Unit, job *cluster.Job) error {
	c, _ := w.snap.Cluster(w.ref.Cluster)
	made := *job
	made.Cluster = w.ref.Cluster
	made.Steps = slices.Clone(job.Steps)
	made.SetDefaults()
	u.Compare(w.prefix().Cluster(w.ref.Cluster), c.Modified)
	seen := map[cluster.Ref]bool{}
	for i := range made.Steps {
		ref := &made.Steps[i].Definition
		asked := *ref
		newest, _ := w.resolved(ref)
		if seen[asked] {
			continue
		}
		seen[asked] = true
		if newest != 0 {
			u.Compare(w.prefix().NewestDefinition(ref.Name), newest)
		}
		definition, _ := w.snap.Definition(*ref)
		u.Compare(w.prefix().Definition(*ref), definition.Modified)
	}
	now := w.loop.now.UTC()
	made.Lifespan = cluster.Lifespan{Generation: w.snap.NextGeneration(made.Owner()), Created: now, Updated: now}
	u.Compare(w.prefix().Job(made.Cluster, made.Name), 0)
	u.Compare(w.prefix().Service(made.Cluster, made.Name), 0)
	return u.Put(w.prefix().Job(made.Cluster, made.Name), &made)
}

// change adds a change of one of the cron's jobs.
func (w *cronWrite) change(u *store.Unit, name string, change func(*cluster.Job)) error {
	e, ok := w.snap.Job(w.ref.Cluster, name)
	if !ok || e.Value.Cron != w.ref.Name {
		return nil
	}
	job := *e.Value
	change(&job)
	job.Updated = w.loop.now.UTC()
	key := w.prefix().Job(w.ref.Cluster, name)
	u.Compare(key, e.Modified)
	return u.Put(key, &job)
}

// remove deletes a cron that is to go, and how far it has come. Its jobs stay.
func (w *cronWrite) remove(units *[]store.Unit) {
	var u store.Unit
	key := w.prefix().Cron(w.ref.Cluster, w.ref.Name)
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
		fired := w.prefix().Fired(w.ref.Cluster, w.ref.Name)
		u.Compare(fired, w.fired.Modified)
		u.Delete(fired)
	}
	if len(u.Ops) > 0 {
		*units = append(*units, u)
	}
}
