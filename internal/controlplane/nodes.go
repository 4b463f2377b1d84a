package controlplane

import (
	"time"

	"github.com/berthd/berth/internal/clause"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/logic/watcher"
	"github.com/berthd/berth/internal/store"
)

// laterLife is how old a sign of life may be that is of a newer session than the registration that the tables hold:
// another server's digest overtakes them. One that stays so is of a node that was forgotten and registered anew.
const laterLife = 5 * time.Second

// watch keeps the watcher's verdicts of one reign.
type watch struct {
	config      Config
	incarnation uint64
	options     watcher.Options
	armed       time.Duration
	last        time.Duration
	storm       bool
	verdicts    map[string]*verdict
	all         sight
	// pulses is up to which change of pulses nodes were looked at, deadlines when they are to be looked at next,
	// restless are those that each pass looks at, and silent those that are not heard.
	pulses           uint64
	deadlines        *deadlines
	restless, silent map[string]bool
	// begun is, by node, when its session was first seen: a registration is a sign of life, and the pulse that goes
	// with it may have to come from another server.
	begun map[string]begin
	// stuck says, by node, why tasks cannot be moved away from it; unkillable which of its attempts live after KILL.
	stuck      map[string]string
	unkillable map[string]map[store.AttemptKey]bool
	// pressed are the nodes that are short of memory.
	pressed map[string]*press
	disks   disks
	// busy says that a plan is on its way, or its result is not known: it may name any node.
	busy func() bool
	// recovered says that the operator decided how to go on after the store went back (P1.7).
	recovered bool
	// held says that this decision is awaited.
	held bool
}

// begin is when a session was first seen. Where the node was forgotten, the record is another, and sessions are counted
// anew.
type begin struct {
	session, record uint64
	at              time.Duration
}

func newWatch(c Config, incarnation uint64, busy func() bool) *watch {
	now := c.Clock()
	return &watch{
		config:      c,
		incarnation: incarnation,
		options:     watcher.DefaultOptions(),
		armed:       now,
		last:        now,
		verdicts:    map[string]*verdict{},
		deadlines:   newDeadlines(),
		restless:    map[string]bool{},
		silent:      map[string]bool{},
		begun:       map[string]begin{},
		stuck:       map[string]string{},
		unkillable:  map[string]map[store.AttemptKey]bool{},
		pressed:     map[string]*press{},
		disks:       disks{full: map[string]bool{}},
		busy:        busy,
	}
}

// judged is what a look at the nodes brought.
type judged struct {
	units []store.Unit
	// touched are the nodes whose tasks may mean something else now.
	touched []string
}

// known reports whether a node has a record of its own or a registration.
func known(snap *store.Snapshot, name string) bool {
	_, registered := snap.NodeStatus(name)
	_, judged := snap.Node(name)
	return registered || judged
}

// weather finds out whether so many nodes are silent that the fault is likely elsewhere (P6.2).
func (w *watch) weather(now time.Duration) []store.Unit {
	storm := false
	if len(w.silent) > 0 {
		verdicts := make([]watcher.Verdict, 0, len(w.verdicts))
		for _, v := range w.verdicts { // order-free: Storm sorts
			verdicts = append(verdicts, v.Verdict)
		}
		storm = watcher.Storm(verdicts, now, w.options)
	}
	if storm == w.storm {
		return nil
	}
	w.storm = storm
	w.config.Logger.Warn("mass silence of nodes", "on", storm)
	e := cluster.Event{
		Type: "node.mass-silence", Reason: cluster.ReasonNodeDown,
		Message: "many nodes fell silent within a minute: tasks are not replaced until they are heard, as " +
			"the fault is likelier the network's",
	}
	if !storm {
		e = cluster.Event{
			Type:    "node.mass-silence-over",
			Message: "enough nodes are heard again: tasks of silent ones are replaced",
		}
	}
	return []store.Unit{{Events: []cluster.Event{e}}}
}

// paused reports whether tasks of silent nodes are not replaced: in a mass silence that the operator did not override.
func (w *watch) paused(snap *store.Snapshot, wall time.Time) bool {
	if !w.storm {
		return false
	}
	d, ok := snap.Domain(w.config.Domain)
	return !ok || !wall.Before(d.Value.RescheduleUntil)
}

// input gathers what the watcher looks at, and returns the revision of the node's record.
func (w *watch) input(snap *store.Snapshot, name string, now time.Duration, wall time.Time) (in watcher.Input,
	rev uint64,
) {
	in = watcher.Input{
		Domain: w.config.Domain, Incarnation: w.incarnation, Paused: w.paused(snap, wall), Recovered: w.recovered,
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
		if b := w.begun[name]; b.session != in.Status.Session || b.record != e.Created {
			w.begun[name] = begin{in.Status.Session, e.Created, now}
		}
		in.Armed = max(in.Armed, w.begun[name].at)
	}
	if e, ok := snap.Host(name); ok {
		in.Host = e.Value
	}
	if p, ok := w.config.Tables.Pulse(name); ok {
		in.Pulse = &p
		if in.Status != nil && p.Session > in.Status.Session && now-p.At > laterLife {
			w.config.Tables.DropPulse(name)
			b := w.begun[name] // what it promised stands, should the tables be late after all
			b.at = max(b.at, p.At+p.Next)
			w.begun[name] = b
		}
	}
	for key := range w.unkillable[name] { // order-free: the first by name is told
		if in.Unkillable == "" || key.Task < in.Unkillable {
			in.Unkillable = key.Task
		}
	}
	own := in.Node != nil && in.Node.Domain == w.config.Domain
	if in.Host != nil || in.Unkillable != "" || own && in.Node.Domain != cluster.DefaultDomain {
		in.Left, in.Stuck = w.left(snap, name), w.stuck[name]
	}
	return in, rev
}

// left counts the attempts that stand on a node, or may in a plan whose result is not known.
func (w *watch) left(snap *store.Snapshot, name string) int {
	n := 0
	for row := range snap.NodeAttempts(name) {
		if _, ours := row.Ref(); ours && row.Standing() {
			n++
		}
	}
	if w.busy() {
		n++
	}
	return n
}

func (w *watch) look(snap *store.Snapshot, name string, now time.Duration, wall time.Time, out *judged) {
	in, rev := w.input(snap, name, now, wall)
	v, ok := watcher.Look(in)
	if !ok {
		return
	}
	was, had := w.verdicts[name]
	w.keep(name, newVerdict(v, &in))
	w.verdicts[name].alone = v.Drain != nil && !v.Foreign && onlyDaemons(snap, name)
	if !v.Foreign && v.Heard { // of a silent one the last word stands
		w.feel(snap, name, &in, out)
		w.sweeps(snap, name, &in, out)
	}
	if !had || was.Heard != v.Heard || was.Absence(false) != v.Absence(false) || was.Absence(true) != v.Absence(true) ||
		!sameDrain(was.Drain, v.Drain) || was.alone != w.verdicts[name].alone || was.Foreign != v.Foreign ||
		was.Node.State != v.Node.State {
		out.touched = append(out.touched, name)
	}
	switch {
	case v.Foreign:
		return
	case v.Forget:
		out.units = append(out.units, w.forget(snap, name))
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
	out.units = append(out.units, u)
}

func sameDrain(a, b *cluster.Drain) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Force == b.Force && a.Deadline.Equal(b.Deadline)
}

// forget removes the records of a node that is gone and on which nothing stands.
func (w *watch) forget(snap *store.Snapshot, name string) store.Unit {
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
	remove(prefix.Host(name), host)
	u.Event(cluster.Event{
		Type: "node.forgotten", Node: name,
		Message: "it is gone and nothing stands on it any more: its records were removed",
	})
	return u
}

// absence is what the watcher's verdict on a node means for a task on it.
func (w *watch) absence(node string, kind cluster.Kind) watcher.Absence {
	v, ok := w.verdicts[node]
	if !ok {
		return watcher.Present
	}
	return v.Absence(kind == cluster.KindJob)
}

// drain is what the node is to be emptied by, or nil.
func (w *watch) drain(node string) *cluster.Drain {
	if v, ok := w.verdicts[node]; ok && !v.Foreign && !v.Gone {
		return v.Drain
	}
	return nil
}

// reported reports whether the node's full report is in under this leader.
func (w *watch) reported(node string) bool {
	v, ok := w.verdicts[node]
	return ok && v.Heard && v.Node.State != cluster.NodeJoining
}

// gone reports whether the node is known never to come back.
func (w *watch) gone(node string) bool {
	v, ok := w.verdicts[node]
	return ok && v.Gone
}

// told keeps what an attempt's status says of its node.
func (w *watch) told(key store.AttemptKey, row *store.AttemptRow) {
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

// tasks gathers the attempts of an owner for the reconciler. Records that are another's or unreadable are mended first
// (P3.9).
func (l *loop) tasks(snap *store.Snapshot, o cluster.OwnerRef, units *[]store.Unit) []reconciler.Task {
	var out []reconciler.Task
	for row := range snap.Attempts(o) {
		if row.Unreadable {
			*units = append(*units, l.mend(snap, row)...)
		}
		if row.Number == 0 {
			*units = append(*units, l.clear(snap, row)...)
			continue
		}
		if row.Obscured && row.Observed != nil {
			*units = append(*units, l.restoreStatus(row)...)
		}
		out = append(out, l.task(snap, o, row))
	}
	return out
}

// task is what the reconciler looks at of an attempt.
func (l *loop) task(snap *store.Snapshot, o cluster.OwnerRef, row *store.AttemptRow) reconciler.Task {
	return reconciler.Task{
		Attempt: row.Attempt, Absence: l.watch.absence(row.Node, o.Kind), Drain: l.watch.drain(row.Node),
		Leave:    l.leaveOf(snap, row),
		Reported: l.watch.reported(row.Node) && (row.Desired != nil || !pinned(snap, row.Task)),
	}
}
