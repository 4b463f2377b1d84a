// Package external is a leader's side of a scheduler outside of Berth, which reads the state of a domain and proposes
// placements. It keeps the state for its readers, answers proposals (Round), and notices the silence of
// the scheduler.
//
// A proposal changes nothing by itself: the leader's loop checks each command with the built-in scheduler, and commits
// what that would place there. So capacity, constraints, quotas and budgets hold whatever a scheduler proposes.
package external

import (
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/controlplane/fleetview"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/observe"
	"github.com/berthd/berth/internal/scheduling"
	"github.com/berthd/berth/internal/store"
)

const (
	// leaveTimeout is how long a task that is to move or to be evicted may stay, as its service's budget does not allow
	// it to leave. It is then forgotten, and the scheduler may propose it again.
	leaveTimeout = 30 * time.Second
	// maxPublishDelay is how long the state waits for decisions about owners whose tasks changed.
	maxPublishDelay = time.Second
	// maxNotes is the number of tasks of which the last refusal, or the scheduler's own reason, is kept.
	maxNotes = 20_000
	// never is the wait for what time alone does not bring.
	never = time.Duration(math.MaxInt64)
)

// Config is what New needs.
type Config struct {
	Domain string
	Prefix store.Prefix
	Logger *slog.Logger
	// Clock reads the boot-time clock (P9).
	Clock   func() time.Duration
	Mailbox *scheduling.Mailbox
	View    *fleetview.View
	// Waiting yields the owners with pending tasks.
	Waiting func(yield func(cluster.OwnerRef) bool)
	// Pending returns the pending tasks of an owner by the last decision about it. IsUndecided reports whether another
	// one is due.
	Pending     func(cluster.OwnerRef) []cluster.Pending
	IsUndecided func(cluster.OwnerRef) bool
	// BuiltinAlone has the built-in scheduler place the tasks of every domain: predictions know no other one.
	BuiltinAlone bool
	// MarkTask has the next cycle decide for the owner of a task.
	MarkTask func(cluster.TaskID)
}

// Scheduler is what a leader knows of the scheduler of its domain. All of it is soft state: the next leader begins
// without it, and readers get the whole state again. It is for one goroutine.
type Scheduler struct {
	config Config
	// feed is nil before the term began. mirror is nil while nobody reads the feed.
	feed   *scheduling.Feed
	mirror *mirror
	// published is when the state last was complete, on the boot-time clock.
	published time.Duration
	domainState
	// heard is when the scheduler was last heard, on the boot-time clock; 0 if it has not been heard. hasWarned says
	// that its silence was reported.
	heard     time.Duration
	hasWarned bool
	departures
	// records holds the keys of records that may be commands.
	records map[recordKey]bool
	// undecided are tasks with a stop that waits for reports of nodes: each cycle decides about their owners again.
	undecided map[cluster.TaskID]bool
	notes     map[cluster.TaskID]cluster.Waiting // why a pending task waits: see maxNotes
}

// domainState is the domain by its record, which says who places its tasks.
type domainState struct {
	config   *Config
	record   *cluster.Domain // nil for none
	revision uint64
}

// departures are the attempts that commands have leave their nodes. An attempt is forgotten once it has left, if it
// could not leave in time, or if its command was withdrawn. The leader then decides for its owner again.
type departures struct {
	config  *Config
	leaving map[string]*leaving // by UUID
	// expired holds the revisions of records whose tasks could not leave in time.
	expired map[recordKey]uint64
}

// leaving is an attempt that is to move or to be evicted.
type leaving struct {
	key   store.AttemptKey
	leave *reconciler.Leave
	since time.Duration
	// record, unless nil, is the record that commands it.
	record *store.AttemptRow
}

// New returns the scheduler of a future leader.
func New(c Config) *Scheduler {
	s := &Scheduler{
		config: c, notes: map[cluster.TaskID]cluster.Waiting{},
		departures: departures{leaving: map[string]*leaving{}, expired: map[recordKey]uint64{}},
		records:    map[recordKey]bool{}, undecided: map[cluster.TaskID]bool{},
	}
	s.domainState.config, s.departures.config = &s.config, &s.config
	return s
}

// StartTerm begins the term of a leader with the epoch.
func (s *Scheduler) StartTerm(epoch uint64) {
	s.feed = scheduling.NewFeed(epoch, s.config.Clock, s.config.Mailbox.Signal)
	s.config.Mailbox.Start(s.feed)
}

// EndTerm ends the term: proposals that wait are refused.
func (s *Scheduler) EndTerm() { s.config.Mailbox.End() }

// Places reports whether the external scheduler, or a program that writes records, places the domain's tasks, as of the
// last call of Advance.
func (d *domainState) Places() bool {
	r := d.record
	return !d.config.BuiltinAlone && (r.HasKVScheduler() || r.External() != nil && !r.TakenOver())
}

// Name returns the name of the scheduler that places the domain's tasks.
func (d *domainState) Name() string {
	if !d.Places() {
		return cluster.BuiltinScheduler
	}
	return d.record.SchedulerName()
}

// Advance takes the domain's record from a snapshot. If the external scheduler was silent for too long, it adds the
// take-over of the domain by Berth's own. It returns the wait until the next call.
func (s *Scheduler) Advance(snap *store.Snapshot, now time.Time, units *[]store.Unit) time.Duration {
	boot := s.config.Clock()
	for task := range s.undecided { // order-free: a set
		s.config.MarkTask(task)
	}
	clear(s.undecided)
	s.forgetWithdrawn(snap)
	s.expireLeaving(snap, boot)
	e, _ := snap.Domain(s.config.Domain)
	if e.Modified != s.revision || s.heard == 0 {
		s.record, s.revision = e.Value, e.Modified
		s.heard, s.hasWarned = max(1, boot), false // a claim is a sign of life, and a changed rule begins anew
		s.forgetLeaving()                          // an earlier claim asked for it
	}
	external := e.Value.External()
	if !e.Value.HasKVScheduler() {
		clear(s.records)
		clear(s.expired)
	}
	if !s.Places() {
		clear(s.notes)
	}
	if external == nil || !s.Places() {
		return s.nextExpiry(boot)
	}
	silent, limit := boot-s.heard, external.TakeOverAfter()
	switch {
	case silent >= limit:
		s.takeOver(e, now, silent, units)
		return min(limit, s.nextExpiry(boot))
	case silent >= limit/2 && !s.hasWarned:
		s.warn(e, limit, units)
	}
	next := limit - silent
	if !s.hasWarned {
		next = limit/2 - silent
	}
	return min(next, s.nextExpiry(boot))
}

// warn adds the event of half of the silence after which Berth's own scheduler takes over.
func (s *Scheduler) warn(e store.Entry[cluster.Domain], limit time.Duration, units *[]store.Unit) {
	s.hasWarned = true
	var u store.Unit
	u.Compare(e.Key, e.Modified)
	u.Event(cluster.Event{
		Type: "domain.scheduler-silent", Reason: cluster.ReasonScheduler,
		Message: fmt.Sprintf("the scheduler %s of the domain %s is silent; Berth's own takes over after %s",
			e.Value.Scheduler.Name, s.config.Domain, cluster.Duration(limit)),
	})
	*units = append(*units, u)
}

// takeOver adds the take-over of the domain by Berth's own scheduler.
func (s *Scheduler) takeOver(e store.Entry[cluster.Domain], now time.Time, silent time.Duration, units *[]store.Unit) {
	next := *e.Value
	reason := fmt.Sprintf("the scheduler %s was silent for %s", next.Scheduler.Name,
		cluster.Duration(silent.Truncate(time.Second)))
	if next.Claim == nil {
		reason = fmt.Sprintf("the scheduler %s did not claim the domain for %s", next.Scheduler.Name,
			cluster.Duration(silent.Truncate(time.Second)))
	}
	next.Claim = &cluster.SchedulerClaim{Holder: cluster.BuiltinScheduler, Since: now.UTC(), Reason: reason}
	var u store.Unit
	u.Compare(e.Key, e.Modified)
	if err := u.Put(e.Key, &next); err != nil {
		s.config.Logger.Error("the take-over of the domain cannot be written", "error", err)
		return
	}
	u.Event(cluster.Event{
		Type: "domain.taken-over", Reason: cluster.ReasonScheduler,
		Message: fmt.Sprintf("Berth's own scheduler places the tasks of the domain %s: %s", s.config.Domain, reason),
	})
	s.config.Logger.Warn("the built-in scheduler takes the domain over", "scheduler", next.Scheduler.Name)
	*units = append(*units, u)
}

// Publish brings the feed to the leader's view. next returns what the next attempts of an owner's tasks would request.
// The feed is kept only while it has readers.
func (s *Scheduler) Publish(next func(cluster.OwnerRef) map[cluster.TaskID]cluster.Pending) {
	if !s.feed.IsRead() {
		if s.mirror != nil {
			s.mirror = nil
			s.config.View.Observe(nil)
			s.feed.Clear()
		}
		return
	}
	if s.mirror == nil {
		s.mirror = newMirror()
		s.config.View.Observe(s.mirror)
		for o := range s.config.Waiting { // order-free: a set
			s.mirror.owners[o] = true
		}
	}
	if boot := s.config.Clock(); !s.mirror.hasUndecided(s.config.IsUndecided) {
		s.published = boot
	} else if boot-s.published < maxPublishDelay {
		return // a placed task would show on its node, and as pending
	}
	set, remove := s.mirror.collect(source{
		fleet: s.config.View.Fleet, pending: s.config.Pending, next: next, isUndecided: s.config.IsUndecided,
	}, s.feed.Next())
	set["domain"] = encode(&cluster.SchedulingLine{Domain: &cluster.SchedulingDomain{
		Name: s.config.Domain, Revision: s.revision, Scheduler: s.Name(), Claim: s.claim(),
	}})
	s.feed.Publish(set, remove)
}

// NoteOwner takes note of an owner whose pending tasks changed.
func (s *Scheduler) NoteOwner(o cluster.OwnerRef) {
	if s.mirror != nil {
		s.mirror.owners[o] = true
	}
}

func (d *domainState) claim() *cluster.SchedulerClaim {
	if d.record == nil {
		return nil
	}
	return d.record.Claim
}

// LeaveReason returns why an attempt is to leave its node, or has left it, by a command; nil if no command concerns it.
func (d *departures) LeaveReason(row *store.AttemptRow) *reconciler.Leave {
	if len(d.leaving) == 0 || row.Outcome != nil && row.Outcome.Reason != cluster.ReasonRebalance {
		return nil
	}
	if l := d.leaving[observe.UUID(row)]; l != nil && l.key.Task == row.Task {
		return l.leave
	}
	return nil
}

// expireLeaving forgets attempts that could not leave in time, or have left. That a task is to go to another node is
// kept until it has a place.
func (d *departures) expireLeaving(snap *store.Snapshot, boot time.Duration) {
	for uuid, l := range d.leaving { // order-free: each by itself
		row, ok := snap.Attempt(l.key.Task, l.key.Number)
		left := !ok || row.Outcome != nil && l.leave.To == ""
		if _, placed := snap.Attempt(l.key.Task, l.key.Number+1); left || placed || boot-l.since >= leaveTimeout {
			delete(d.leaving, uuid)
			d.config.MarkTask(l.key.Task)
			if l.record != nil && !left && !placed {
				d.expired[recordKey{l.record.Node, l.record.Task}] = l.record.DesiredRev
			}
		}
	}
}

// forgetLeaving has all attempts stay that have not left.
func (d *departures) forgetLeaving() {
	for uuid, l := range d.leaving { // order-free: each by itself
		delete(d.leaving, uuid)
		d.config.MarkTask(l.key.Task)
	}
}

// Requires returns the preconditions of placements: the record of the domain, if it has one, is as it was when the
// leader looked. So a leader that learns late of a claim carries out no proposal of an earlier one, and the
// built-in scheduler places nothing once the external one has claimed the domain.
func (d *domainState) Requires() []store.Compare {
	if d.config.BuiltinAlone || d.record == nil {
		return nil
	}
	return []store.Compare{{Key: d.config.Prefix.Domain(d.config.Domain), Modified: d.revision}}
}

// RequiresToLeave returns the preconditions of the stops and moves of an owner: those of placements if a command has
// one of its attempts leave, and that the records which command moves are as they were.
func (s *Scheduler) RequiresToLeave(o cluster.OwnerRef) (requires []store.Compare) {
	leaves := false
	for _, l := range s.leaving { // order-free: a set of compares
		if of, ok := l.key.Task.Owner(); !ok || of != o {
			continue
		}
		leaves = true
		if r := l.record; r != nil && r.IsForeign() {
			requires = append(requires,
				store.Compare{Key: s.config.Prefix.Desired(r.Node, r.Task), Modified: r.DesiredRev})
		}
	}
	if leaves {
		requires = append(requires, s.Requires()...)
	}
	return requires
}

// forgetWithdrawn has attempts stay whose record commands nothing any more, unless their next attempt is placed. A stop
// that is written stays.
func (d *departures) forgetWithdrawn(snap *store.Snapshot) {
	for uuid, l := range d.leaving { // order-free: each by itself
		if l.record == nil || isStanding(snap, l.record) {
			continue
		}
		row, ok := snap.Attempt(l.key.Task, l.key.Number)
		if l.leave.To == "" && ok && (row.Outcome != nil || row.Desired != nil && row.Desired.Stop != nil) {
			continue
		}
		delete(d.leaving, uuid)
		d.config.MarkTask(l.key.Task)
	}
	for key, revision := range d.expired { // order-free: each by itself
		if row, ok := snap.ForeignRow(key.node, key.task); !ok || row.DesiredRev != revision {
			if at, known := liveAt(snap, key); !known || at.DesiredRev != revision {
				delete(d.expired, key)
			}
		}
	}
}

// isStanding reports whether a record of another program is as it was.
func isStanding(snap *store.Snapshot, record *store.AttemptRow) bool {
	row, ok := snap.Attempt(record.Task, record.Number)
	if record.IsForeign() {
		row, ok = snap.ForeignRow(record.Node, record.Task)
	}
	return ok && row.IsUnreadable() && row.DesiredRev == record.DesiredRev
}

// liveAt returns the attempt of a task on a node that has not ended.
func liveAt(snap *store.Snapshot, key recordKey) (*store.AttemptRow, bool) {
	for row := range snap.TaskAttempts(key.task) {
		if !row.IsForeign() && row.Node == key.node && row.Live() {
			return row, true
		}
	}
	return nil, false
}

// nextExpiry returns the wait until the next attempt is forgotten.
func (d *departures) nextExpiry(boot time.Duration) time.Duration {
	next := never
	for _, l := range d.leaving { // order-free: a minimum
		next = min(next, l.since+leaveTimeout-boot)
	}
	return next
}

// Reasons returns why pending tasks wait that the external scheduler is to place.
func (s *Scheduler) Reasons(pending []cluster.Pending) []cluster.Waiting {
	noted := make([]cluster.TaskID, 0, len(s.notes))
	for task := range s.notes { // order-free: a set
		noted = append(noted, task)
	}
	general := fmt.Sprintf("the scheduler %s of the domain has not placed it yet", s.Name())
	if s.record.HasKVScheduler() {
		general = "no program has written a record that starts it: state/<node>/<task> in the store"
	} else if c := s.claim(); c == nil || c.Holder != s.Name() {
		general = fmt.Sprintf("the scheduler %s has not claimed the domain yet", s.Name())
	}
	split := cluster.Isolate(pending, noted)
	out := make([]cluster.Waiting, 0, len(split))
	kept := map[cluster.TaskID]cluster.Waiting{}
	for i := range split {
		p := &split[i]
		if held := heldText(p); held != "" {
			code := p.Hold.Reason
			if code == "" {
				code = cluster.ReasonHold
			}
			out = append(out, waitingFor(p, code, held))
			continue
		}
		if w, ok := s.notes[p.Task]; ok && p.Further == 0 {
			kept[p.Task] = w
			out = append(out, w)
			continue
		}
		out = append(out, waitingFor(p, cluster.ReasonScheduler, general))
	}
	s.notes = kept // those of tasks that are pending no longer are forgotten
	return out
}

// waitingFor returns a reason that concerns no node.
func waitingFor(p *cluster.Pending, code cluster.ReasonCode, text string) cluster.Waiting {
	return cluster.Waiting{
		Task: p.Task, Further: p.Further, Sentence: text,
		Refusals: []cluster.RefusalCount{{Refusal: cluster.Refusal{Code: code, Detail: text}}},
	}
}

// note keeps why a task waits.
func (s *Scheduler) note(w cluster.Waiting) {
	if len(s.notes) < maxNotes {
		s.notes[w.Task] = w
	}
}
