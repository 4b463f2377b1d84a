package controlplane

import (
	"maps"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/logic/watcher"
	"github.com/berthd/berth/internal/store"
)

// lookAtNodes is the longest time between two looks at all nodes. It is below the watcher's gap, or every look would
// start all silence again.
const lookAtNodes = 2 * time.Second

// watch keeps the watcher's verdicts of one reign.
type watch struct {
	config   Config
	options  watcher.Options
	armed    time.Duration
	last     time.Duration
	storm    bool
	verdicts map[string]watcher.Verdict
}

func newWatch(c Config) *watch {
	now := c.Clock()
	return &watch{
		config:   c,
		options:  watcher.DefaultOptions(),
		armed:    now,
		last:     now,
		verdicts: map[string]watcher.Verdict{},
	}
}

// judged is what a look at the nodes brought.
type judged struct {
	units []store.Unit
	// touched are the nodes whose tasks may mean something else now.
	touched []string
}

// judge looks at the nodes that changed, or at all when it is time, and returns how soon to look again.
func (w *watch) judge(snap *store.Snapshot, c store.Changes, wall time.Time) (judged, time.Duration) {
	var out judged
	now := w.config.Clock()
	all := c.Resync || now-w.last >= lookAtNodes/2 || len(w.verdicts) == 0
	if all {
		armed := watcher.Rearm(w.armed, w.last, now, w.options)
		if armed != w.armed {
			w.config.Logger.Warn("the watcher was away; silence counts anew", "gap", now-w.last)
		}
		w.armed, w.last = armed, now
		for e := range snap.NodeStatuses() {
			w.look(snap, e.Value.Name, now, wall, &out)
		}
		for e := range snap.Nodes() { // one whose registration was deleted is silent, not forgotten
			if _, ok := snap.NodeStatus(e.Value.Name); !ok {
				w.look(snap, e.Value.Name, now, wall, &out)
			}
		}
		for name := range w.verdicts { // order-free: each is forgotten by itself
			if !known(snap, name) {
				delete(w.verdicts, name)
				out.touched = append(out.touched, name)
			}
		}
		out.units = append(out.units, w.weather(now)...)
		return out, lookAtNodes / 2
	}
	for _, name := range slices.Sorted(maps.Keys(c.Nodes)) {
		if known(snap, name) {
			w.look(snap, name, now, wall, &out)
		}
	}
	return out, max(0, w.last+lookAtNodes/2-now)
}

// known reports whether a node has a record of its own or a registration.
func known(snap *store.Snapshot, name string) bool {
	_, registered := snap.NodeStatus(name)
	_, judged := snap.Node(name)
	return registered || judged
}

// weather finds out whether so many nodes are silent that the fault is likely elsewhere (P6.2).
func (w *watch) weather(now time.Duration) []store.Unit {
	verdicts := make([]watcher.Verdict, 0, len(w.verdicts))
	for _, v := range w.verdicts { // order-free: Storm sorts
		verdicts = append(verdicts, v)
	}
	storm := watcher.Storm(verdicts, now, w.options)
	if storm == w.storm {
		return nil
	}
	w.storm = storm
	w.config.Logger.Warn("mass silence of nodes", "on", storm)
	e := cluster.Event{
		Type: "node.mass-silence", Reason: cluster.ReasonNodeDown,
		Message: "many nodes fell silent within a minute: tasks are not replaced until they are heard, as the fault is likelier the network's",
	}
	if !storm {
		e = cluster.Event{Type: "node.mass-silence-over", Message: "enough nodes are heard again: tasks of silent ones are replaced"}
	}
	return []store.Unit{{Events: []cluster.Event{e}}}
}

func (w *watch) look(snap *store.Snapshot, name string, now time.Duration, wall time.Time, out *judged) {
	in := watcher.Input{Paused: w.storm, Armed: w.armed, Now: now, Wall: wall.UTC(), Options: w.options}
	var rev uint64
	if e, ok := snap.Node(name); ok {
		in.Node, rev = e.Value, e.Modified
	}
	if e, ok := snap.NodeStatus(name); ok {
		in.Status = e.Value
	}
	if e, ok := snap.Host(name); ok {
		in.Host = e.Value
	}
	if p, ok := w.config.Tables.Pulse(name); ok {
		in.Pulse = &p
	}
	v, ok := watcher.Look(in)
	if !ok || v.Node.Domain != w.config.Domain {
		return
	}
	was, had := w.verdicts[name]
	w.verdicts[name] = v
	if !had || was.Heard != v.Heard || was.Absence(false) != v.Absence(false) || was.Absence(true) != v.Absence(true) {
		out.touched = append(out.touched, name)
	}
	if !v.Changed {
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

// absence is what the watcher's verdict on a node means for a task on it.
func (w *watch) absence(node string, kind cluster.Kind) watcher.Absence {
	v, ok := w.verdicts[node]
	if !ok {
		return watcher.Present
	}
	return v.Absence(kind == cluster.KindJob)
}

// reported reports whether the node's full report is in under this leader.
func (w *watch) reported(node string) bool {
	v, ok := w.verdicts[node]
	return ok && v.Heard && v.Node.State != cluster.NodeJoining
}

// tasks gathers the attempts of an owner for the reconciler. Records that are another's or unreadable are mended first (P3.9).
func (l *loop) tasks(snap *store.Snapshot, o cluster.OwnerRef, units *[]store.Unit) []reconciler.Task {
	var out []reconciler.Task
	for row := range snap.Attempts(o) {
		if row.Unreadable {
			*units = append(*units, l.mend(snap, row)...)
		}
		if row.Number == 0 {
			*units = append(*units, l.clear(row)...)
			continue
		}
		out = append(out, reconciler.Task{Attempt: row.Attempt, Absence: l.watch.absence(row.Node, o.Kind)})
	}
	return out
}
