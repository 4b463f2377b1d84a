// Package nodewatch judges the nodes of a domain for their leader: which report, are silent, drained or gone, by their
// reports and by the silence since (P6.2).
package nodewatch

import (
	"log/slog"
	"time"

	"github.com/berthd/berth/internal/clause"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/watcher"
	"github.com/berthd/berth/internal/observe"
	"github.com/berthd/berth/internal/store"
)

// staleSessionAge is the age above which a pulse is dropped if its session is newer than the registration in the
// tables. Digests of other servers overtake registrations, but not by that much. An older pulse belongs to a node that
// was forgotten and registered again.
const staleSessionAge = 5 * time.Second

// Config is what a Watch needs.
type Config struct {
	Tables *store.Tables
	Domain string
	Logger *slog.Logger
	// Clock reads the boot-time clock (P9).
	Clock func() time.Duration
	// Without switches clauses off, in proofs only.
	Without clause.Set
}

// Watch keeps the watcher's verdicts of one leadership term. Outside of a term it only takes note of attempts that
// live after KILL. It is for one goroutine.
type Watch struct {
	config       Config
	incarnation  uint64
	options      watcher.Options
	armed        time.Duration
	last         time.Duration
	massSilence  bool
	verdicts     map[string]*verdict
	sharedInputs sharedInputs
	// pulses marks the last change of pulses that was handled. deadlines holds when nodes are judged next, everyPass
	// the nodes that each pass judges, and silent the nodes that do not report.
	pulses            uint64
	deadlines         *deadlines
	everyPass, silent map[string]bool
	// sessions holds, by node, when its session was first seen. A registration is a sign of life, and the first pulse
	// after it may have to come from another server.
	sessions map[string]sessionStart
	// stuck says, by node, why tasks cannot be moved away from it. unkillable holds the node's attempts that live after
	// KILL.
	stuck      map[string]string
	unkillable map[string]map[store.AttemptKey]bool
	// pressed holds the nodes that are short of memory.
	pressed map[string]*pressedNode
	disks   disks
	// hasUnknownPlacements reports whether a plan is in flight or its result is unknown: it may name any node.
	hasUnknownPlacements func() bool
	// recovered says that the operator decided how to continue after the store went back (P1.7).
	recovered bool
	// held says that the leader waits for that decision.
	held bool
}

// sessionStart is when a session was first seen. record is the revision at which its registration was created: sessions
// of a node that was forgotten are counted again, in another record.
type sessionStart struct {
	session, record uint64
	at              time.Duration
}

// New returns a watch whose term begins now. hasUnknownPlacements reports whether a plan may name any node, as
// it is in flight or its result is unknown.
func New(c Config, incarnation uint64, hasUnknownPlacements func() bool) *Watch {
	now := c.Clock()
	return &Watch{
		config:               c,
		incarnation:          incarnation,
		options:              watcher.DefaultOptions(),
		armed:                now,
		last:                 now,
		verdicts:             map[string]*verdict{},
		deadlines:            newDeadlines(),
		everyPass:            map[string]bool{},
		silent:               map[string]bool{},
		sessions:             map[string]sessionStart{},
		stuck:                map[string]string{},
		unkillable:           map[string]map[store.AttemptKey]bool{},
		pressed:              map[string]*pressedNode{},
		disks:                disks{full: map[string]bool{}},
		hasUnknownPlacements: hasUnknownPlacements,
	}
}

// StartTerm begins another term. The watch keeps what it learnt from the tables. A leader has to observe silence
// itself.
func (w *Watch) StartTerm(incarnation uint64, hasUnknownPlacements func() bool) {
	unkillable := w.unkillable
	*w = *New(w.config, incarnation, hasUnknownPlacements)
	w.unkillable = unkillable
}

// SetRecovery notes whether the operator decided how to continue after the store went back, and whether the leader
// waits for that decision (P1.7).
func (w *Watch) SetRecovery(recovered, held bool) { w.recovered, w.held = recovered, held }

// RestartSilence starts all silence again, after the wall clock was set.
func (w *Watch) RestartSilence(now time.Duration) { w.armed = now }

// IgnoreGaps lets any time pass between two passes, for a caller that sets the time.
func (w *Watch) IgnoreGaps() { w.options.Gap = 1 << 62 }

// setLimits takes the limits of silence from the record of the domain.
func (w *Watch) setLimits(snap *store.Snapshot) {
	var silence *cluster.Silence
	if d, ok := snap.Domain(w.config.Domain); ok {
		silence = d.Value.Silence
	}
	gap := w.options.Gap
	w.options = watcher.OptionsOf(silence)
	w.options.Gap = gap
}

// SetStuck notes, by node, why tasks cannot be moved away from it.
func (w *Watch) SetStuck(stuck map[string]string) { w.stuck = stuck }

// Judged is the result of judging nodes.
type Judged struct {
	Units []store.Unit
	// Lost are the indices of the units by which a node becomes down.
	Lost []int
	// Touched are the nodes whose tasks may have to be decided again.
	Touched []string
}

// hasRecords reports whether a node has a record of its own or a registration.
func hasRecords(snap *store.Snapshot, name string) bool {
	_, registered := snap.NodeStatus(name)
	_, judged := snap.Node(name)
	return registered || judged
}

// checkMassSilence finds out whether so many nodes are silent that the fault is likely elsewhere (P6.2).
func (w *Watch) checkMassSilence(now time.Duration) []store.Unit {
	massSilence := false
	if len(w.silent) > 0 {
		verdicts := make([]watcher.Verdict, 0, len(w.verdicts))
		for _, v := range w.verdicts { // order-free: IsMassSilence sorts
			verdicts = append(verdicts, v.Verdict)
		}
		massSilence = watcher.IsMassSilence(verdicts, now, w.options)
	}
	if massSilence == w.massSilence {
		return nil
	}
	w.massSilence = massSilence
	w.config.Logger.Warn("mass silence of nodes", "on", massSilence)
	e := cluster.Event{
		Type: "node.mass-silence", Reason: cluster.ReasonNodeDown,
		Message: "many nodes went silent within a minute: their tasks are not replaced until they report, because " +
			"the fault is more likely in the network",
	}
	if !massSilence {
		e = cluster.Event{
			Type:    "node.mass-silence-over",
			Message: "enough nodes report again: the tasks of silent nodes are replaced",
		}
	}
	return []store.Unit{{Events: []cluster.Event{e}}}
}

// isPaused reports whether tasks of silent nodes are not replaced: in a mass silence that the operator did not
// override.
func (w *Watch) isPaused(snap *store.Snapshot, wall time.Time) bool {
	if !w.massSilence {
		return false
	}
	d, ok := snap.Domain(w.config.Domain)
	return !ok || !wall.Before(d.Value.RescheduleUntil)
}

// input gathers the watcher's input on a node, and returns the revision of the node's record.
func (w *Watch) input(snap *store.Snapshot, name string, now time.Duration, wall time.Time) (in watcher.Input,
	rev uint64,
) {
	in = watcher.Input{
		Domain: w.config.Domain, Incarnation: w.incarnation, Paused: w.isPaused(snap, wall), Recovered: w.recovered,
		Held:  w.held,
		Armed: w.armed, Now: now, Wall: wall.UTC(), Options: w.options,
	}
	if e, ok := snap.Node(name); ok {
		in.Node, rev = e.Value, e.Modified
		if w.config.Without.Off(clause.Ownership) && in.Node.Domain != w.config.Domain {
			free := *in.Node
			free.Domain, in.Node = "", &free
		}
	}
	if e, ok := snap.NodeStatus(name); ok {
		in.Status = e.Value
		if b := w.sessions[name]; b.session != in.Status.Session || b.record != e.Created {
			w.sessions[name] = sessionStart{in.Status.Session, e.Created, now}
		}
		in.Armed = max(in.Armed, w.sessions[name].at)
	}
	if e, ok := snap.Host(name); ok {
		in.Host = e.Value
	}
	in.WantedDomain = snap.WantedDomain(name)
	if p, ok := w.config.Tables.Pulse(name); ok {
		in.Pulse = &p
		if in.Status != nil && p.Session > in.Status.Session && now-p.At > staleSessionAge {
			w.config.Tables.DropPulse(name)
			b := w.sessions[name] // the promised report still counts, in case the tables are late after all
			b.at = max(b.at, p.At+p.Next)
			w.sessions[name] = b
		}
	}
	for key := range w.unkillable[name] { // order-free: the first by name is taken
		if in.Unkillable == "" || key.Task < in.Unkillable {
			in.Unkillable = key.Task
		}
	}
	own := in.Node != nil && in.Node.Domain == w.config.Domain
	if in.Host != nil || in.Unkillable != "" || own && in.Node.Domain != cluster.DefaultDomain {
		in.Left, in.Stuck = w.countLeft(snap, name), w.stuck[name]
	}
	return in, rev
}

// countLeft counts the attempts that are on a node, and one more if a plan with an unknown result may name it.
func (w *Watch) countLeft(snap *store.Snapshot, name string) int {
	n := 0
	for row := range snap.NodeAttempts(name) {
		if _, ours := row.Ref(); ours && row.Standing() {
			n++
		}
	}
	if w.hasUnknownPlacements() {
		n++
	}
	return n
}

// judgeNode judges a node and adds to out what follows from a new verdict.
func (w *Watch) judgeNode(snap *store.Snapshot, name string, now time.Duration, wall time.Time, out *Judged) {
	in, rev := w.input(snap, name, now, wall)
	v, ok := watcher.Judge(in)
	if !ok {
		return
	}
	was, had := w.verdicts[name]
	w.setVerdict(name, newVerdict(v, &in))
	w.verdicts[name].onlyDaemonsLeft = v.Drain != nil && !v.Foreign && observe.OnlyDaemons(snap, name)
	if !v.Foreign && v.Heard { // a silent node keeps its last report
		w.notePressure(snap, name, &in, out)
		w.noteDisks(snap, name, &in, out)
	}
	if !had || was.Heard != v.Heard || was.Absence(false) != v.Absence(false) || was.Absence(true) != v.Absence(true) ||
		!sameDrain(was.Drain, v.Drain) || was.onlyDaemonsLeft != w.verdicts[name].onlyDaemonsLeft ||
		was.Foreign != v.Foreign || was.Node.State != v.Node.State {
		out.Touched = append(out.Touched, name)
	}
	switch {
	case v.Foreign:
		return
	case v.Forget:
		out.Units = append(out.Units, w.forget(snap, name))
		return
	case !v.Changed:
		return
	}
	var u store.Unit
	key := w.config.Tables.Prefix().Node(name)
	u.Compare(key, rev)
	if err := u.Put(key, &v.Node); err != nil {
		w.config.Logger.Error("a verdict cannot be written", "node", name, "error", err)
		return
	}
	if v.Event.Type != "" {
		u.Event(v.Event)
	}
	if v.Node.State == cluster.NodeDown && (in.Node == nil || in.Node.State != cluster.NodeDown) {
		out.Lost = append(out.Lost, len(out.Units))
	}
	out.Units = append(out.Units, u)
}

func sameDrain(a, b *cluster.Drain) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Force == b.Force && a.Deadline.Equal(b.Deadline)
}

// forget removes the records of a node that is gone and has no attempts left.
func (w *Watch) forget(snap *store.Snapshot, name string) store.Unit {
	prefix := w.config.Tables.Prefix()
	var u store.Unit
	remove := func(key string, rev uint64) {
		u.Compare(key, rev)
		if rev != 0 {
			u.Delete(key)
		}
	}
	var node, status, host uint64
	if e, ok := snap.Node(name); ok {
		node = e.Modified
	}
	if e, ok := snap.NodeStatus(name); ok {
		status = e.Modified
	}
	if e, ok := snap.Host(name); ok {
		host = e.Modified
	}
	remove(prefix.Node(name), node)
	remove(prefix.NodeStatus(name), status)
	message := "it is gone and has no tasks left: its records were removed"
	if e, ok := snap.Host(name); ok && e.Value.Released != 0 {
		u.Compare(prefix.Host(name), host) // it refuses the agent until the node is adopted again (P7.2)
		message = "it was released, and no record of its tasks is left"
	} else {
		remove(prefix.Host(name), host)
	}
	u.Event(cluster.Event{Type: "node.forgotten", Node: name, Message: message})
	return u
}

// AbsenceOf returns what the verdict on a node means for a task on it.
func (w *Watch) AbsenceOf(node string, kind cluster.Kind) watcher.Absence {
	v, ok := w.verdicts[node]
	if !ok {
		return watcher.Present
	}
	return v.Absence(kind == cluster.KindJob)
}

// DrainOf returns the drain of a node, or nil.
func (w *Watch) DrainOf(node string) *cluster.Drain {
	if v, ok := w.verdicts[node]; ok && !v.Foreign && !v.Gone {
		return v.Drain
	}
	return nil
}

// HasReported reports whether the node has sent a full report under this leader.
func (w *Watch) HasReported(node string) bool {
	v, ok := w.verdicts[node]
	return ok && v.Heard && v.Node.State != cluster.NodeJoining
}

// IsGone reports whether the node is known never to come back.
func (w *Watch) IsGone(node string) bool {
	v, ok := w.verdicts[node]
	return ok && v.Gone
}

// IsDraining reports whether a node is being drained and not drained yet.
func (w *Watch) IsDraining(node string) bool {
	v := w.verdicts[node]
	return v != nil && v.Node.State == cluster.NodeDraining
}

// DaemonFacts is what decides whether daemons run on a node, besides what the fleet knows of it.
type DaemonFacts struct {
	// Gone says that the node is known never to come back, Silent that it does not report.
	Gone, Silent bool
	// OnlyDaemonsLeft says that the node is being drained and only tasks of daemons are left there.
	OnlyDaemonsLeft bool
}

// DaemonFactsOf returns the facts that follow from the verdict on a node. A node without a verdict is not silent.
func (w *Watch) DaemonFactsOf(name string) DaemonFacts {
	v, ok := w.verdicts[name]
	if !ok {
		return DaemonFacts{}
	}
	return DaemonFacts{Gone: v.Gone, Silent: !v.Heard, OnlyDaemonsLeft: v.onlyDaemonsLeft}
}

// NoteUnkillable takes note of whether an attempt lives after KILL; row is nil for an attempt without records.
func (w *Watch) NoteUnkillable(key store.AttemptKey, row *store.AttemptRow) {
	if row == nil {
		for _, of := range w.unkillable { // order-free: it is in one of them at most
			delete(of, key)
		}
		return
	}
	lives := row.Observed != nil && row.Observed.Reason == cluster.ReasonUnkillable && !row.Observed.Gone &&
		!row.Observed.State.Terminal()
	of := w.unkillable[row.Node]
	switch {
	case lives && of == nil:
		w.unkillable[row.Node] = map[store.AttemptKey]bool{key: true}
	case lives:
		of[key] = true
	default:
		delete(of, key)
	}
}
