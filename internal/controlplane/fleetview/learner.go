package fleetview

import (
	"hash/fnv"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/controlplane/queue"
	"github.com/berthd/berth/internal/observe"
	"github.com/berthd/berth/internal/store"
)

const (
	// relearnInterval is the time after which a leader learns the next part of the view again. It also decides for the
	// owners in that part, though nothing changed. So a missed trigger is made up for within relearnParts intervals.
	relearnInterval = time.Minute
	// relearnParts is the number of parts of the view.
	relearnParts = 10
)

// relearning is the state of learning the view again, part by part.
type relearning struct {
	at   time.Time // time at which the last part was learnt
	part uint32    // number of the next part
}

// next returns a filter of names for the part whose turn it is, or nil if it is too early.
func (r *relearning) next(now time.Time) func(name string) bool {
	if now.Sub(r.at) < relearnInterval {
		return nil
	}
	part := r.part
	r.at, r.part = now, (part+1)%relearnParts
	return func(name string) bool {
		h := fnv.New32a()
		_, _ = h.Write([]byte(name)) // a hash returns no error
		return h.Sum32()%relearnParts == part
	}
}

// Learner takes what changed in the tables: it brings the fleet to a snapshot and marks the owners that a change may
// concern. It misses nothing for longer than relearnParts intervals, as it learns the whole view again, part by part.
type Learner struct {
	view       *View
	queue      *queue.Owners
	relearning relearning
}

// NewLearner returns a learner of a view that marks owners in the queue.
func NewLearner(view *View, queue *queue.Owners) *Learner {
	return &Learner{view: view, queue: queue}
}

// Learn takes the changes up to a snapshot.
func (l *Learner) Learn(snap *store.Snapshot, c store.Changes, now time.Time) {
	l.view.learnReservations(snap, c, now)
	if (c.Resync || c.Clusters) && observe.SetQuotas(l.view.Fleet, snap, l.view.domain) {
		l.view.changed = true
	}
	if c.Resync {
		l.relearning.at = now
		l.learnAll(snap)
		return
	}
	l.learnChanges(snap, c)
	if in := l.relearning.next(now); in != nil {
		l.learnPart(snap, in)
	}
}

// Postpone puts off learning the next part again, as the caller learns everything in another way.
func (l *Learner) Postpone(now time.Time) { l.relearning.at = now }

func (l *Learner) learnChanges(snap *store.Snapshot, c store.Changes) {
	eventful := map[cluster.OwnerRef]bool{}
	for key := range c.Attempts { // order-free: each attempt is charged by itself
		row := l.view.Charge(snap, key)
		if row == nil {
			row = &store.AttemptRow{Task: key.Task, Number: key.Number}
		}
		o, ok := row.Ref()
		if ok && !needsNoDecision(row) {
			eventful[o] = true
		}
		if ok {
			l.view.updateKept(snap, o)
		}
	}
	for name := range c.Nodes { // order-free: each node is set by itself
		l.view.setNode(snap, name)
	}
	for o := range c.Owners { // order-free: a set
		was, known := l.view.policies[o]
		l.view.updateCharges(snap, o)
		l.view.updateKept(snap, o)
		if o.Kind != cluster.KindJob || eventful[o] || !known || l.view.policies[o].Revision != was.Revision {
			l.queue.Mark(o)
		}
	}
	l.learnJobGroups(snap, c)
	if c.Clusters || c.Domain || c.Pools {
		l.view.Rechecks.all = true
		l.queue.MarkAll(snap)
	}
	if c.Secrets {
		l.queue.MarkSecretUsers(snap)
	}
	if len(c.Definitions) > 0 {
		l.queue.MarkUsers(snap, func(r cluster.Ref) bool { return c.Definitions[r] })
	}
}

// learnJobGroups learns the places of jobs in their concurrency groups, of those with a change.
func (l *Learner) learnJobGroups(snap *store.Snapshot, c store.Changes) {
	if c.Clusters {
		l.setJobGroups(snap, func(string) bool { return true })
		return
	}
	for o := range c.Owners { // order-free: each by itself
		if o.Kind == cluster.KindJob && observe.SetJobGroup(l.view.Fleet, snap, l.view.domain, o) {
			l.view.changed = true
		}
	}
}

// setJobGroups learns the places of all jobs whose names the filter accepts.
func (l *Learner) setJobGroups(snap *store.Snapshot, in func(name string) bool) {
	if observe.SetJobGroups(l.view.Fleet, snap, l.view.domain, in) {
		l.view.changed = true
	}
}

func (l *Learner) learnAll(snap *store.Snapshot) {
	l.view.grow(snap.AttemptCount())
	l.view.Rechecks.all = true
	l.learnPart(snap, func(string) bool { return true })
}

// learnPart learns the attempts, nodes and owners again whose names the filter accepts.
func (l *Learner) learnPart(snap *store.Snapshot, in func(name string) bool) {
	var last cluster.OwnerRef
	lastIn := false
	for r := range snap.AllAttempts() {
		o, ok := r.Ref()
		if !ok || o != last { // the attempts of an owner are adjacent
			lastIn, last = in(o.Name), o
			if ok && lastIn {
				l.queue.Mark(o)
				l.view.Rechecks.owners[o] = true
			}
		}
		if lastIn {
			l.view.chargeRow(snap, store.AttemptKey{Task: r.Task, Number: r.Number}, r)
		}
	}
	l.view.chargeGone(snap, in)
	l.setJobGroups(snap, in)
	for e := range snap.Services("") {
		if o := e.Value.Owner(); in(o.Name) {
			l.view.updateKept(snap, o)
		}
	}
	l.view.setNodes(snap, in)
	l.queue.MarkPart(snap, in)
}

// LearnVerdicts takes note of nodes with a new verdict. If marks is true, the owners of all tasks there are marked.
func (l *Learner) LearnVerdicts(snap *store.Snapshot, nodes []string, marks bool) {
	for _, name := range nodes {
		l.view.setNode(snap, name)
		if !marks {
			continue
		}
		for row := range snap.NodeAttempts(name) {
			if o, ok := row.Ref(); ok {
				l.queue.Mark(o)
			}
		}
	}
}

// needsNoDecision reports whether a row needs no decision, whatever it was before: an attempt of a job begins or runs
// as it should. Jobs have many tasks, and each decision covers all of them.
func needsNoDecision(row *store.AttemptRow) bool {
	d, o := row.Desired, row.Observed
	return d != nil && o != nil && row.Outcome == nil && !row.IsUnreadable() && !row.ForeignStatus && d.Batch() &&
		d.Stop == nil &&
		o.UUID == d.UUID && (o.State == cluster.StateStarting || o.State == cluster.StateRunning && d.TimeLimit == 0) &&
		!o.Gone && o.Restarts == 0 && o.Ask == "" && o.Health != cluster.HealthFailing
}
