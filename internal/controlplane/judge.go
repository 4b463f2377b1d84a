package controlplane

import (
	"maps"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/watcher"
	"github.com/berthd/berth/internal/store"
)

// lookAtNodes is the longest time between two passes over the nodes. It is below the watcher's gap, or every pass would
// start all silence again.
const lookAtNodes = 2 * time.Second

// lookAtAll is how often all nodes are looked at, for good measure: a look at each of 5,000 is as much work as a minute
// of looks at those that report.
const lookAtAll = 5 * time.Minute

// A pass looks closely only at nodes whose verdict can be another than at the last look: at each that did something,
// and at each whose time has come. The tables tell whose pulses changed and the deadlines whose time it is, so nodes
// that are well and silent as agreed cost nothing. That has to be as if all were looked at, which a pass does where
// what holds for all of them has changed, and now and then for good measure.

// sight is what a verdict on any node depends on, as it was when all were looked at last.
type sight struct {
	at, armed               time.Duration
	paused, recovered, held bool
}

// verdict is what the watcher thinks of a node, and when it has to think again.
type verdict struct {
	watcher.Verdict
	pulse cluster.Pulse // the one that was looked at; zero for none
	// alone says that the node is to be emptied and that nothing but tasks of daemons is left there.
	alone bool
	// restless says that each pass looks: the verdict depends on more than the node's records, its pulse and the time,
	// or it was not written yet.
	restless bool
}

func newVerdict(v watcher.Verdict, in *watcher.Input) *verdict {
	out := &verdict{Verdict: v}
	if in.Pulse != nil {
		out.pulse = *in.Pulse
	}
	out.restless = pressureOf(in) != nil || v.Changed || v.Forget || v.Gone || v.Drain != nil || in.Unkillable != "" ||
		!v.Foreign && (!v.Heard || !v.Node.Until.IsZero()) ||
		in.Status != nil && out.pulse.Session > in.Status.Session // see laterLife
	return out
}

// keep makes v what is thought of a node.
func (w *watch) keep(name string, v *verdict) {
	w.verdicts[name] = v
	put(w.restless, name, v.restless)
	put(w.silent, name, !v.Heard && !v.Foreign)
	w.deadlines.set(name, v.NextLook)
}

// drop forgets a node that has no records any more.
func (w *watch) drop(name string) {
	delete(w.verdicts, name)
	delete(w.restless, name)
	delete(w.silent, name)
	delete(w.begun, name)
	delete(w.pressed, name)
	delete(w.disks.freed, name)
	delete(w.disks.full, name)
	w.config.Tables.DropPulse(name)
}

// put has a set of names hold the name or not.
func put(names map[string]bool, name string, in bool) {
	if in {
		names[name] = true
	} else {
		delete(names, name)
	}
}

// nextLook is when the verdict on a node can change by time alone; 0 for never, and for a node that is forgotten.
func (w *watch) nextLook(name string) time.Duration {
	if v := w.verdicts[name]; v != nil {
		return v.NextLook
	}
	return 0
}

// judge looks at the nodes that changed and, when it is time, at those that are due, and returns how soon to look
// again.
func (w *watch) judge(snap *store.Snapshot, c store.Changes, wall time.Time) (judged, time.Duration) {
	var out judged
	now := w.config.Clock()
	anew := c.Resync || c.Domain || len(w.verdicts) == 0
	if !anew && now-w.last < lookAtNodes/2 {
		for _, name := range slices.Sorted(maps.Keys(c.Nodes)) {
			if known(snap, name) {
				w.look(snap, name, now, wall, &out)
			} else if v := w.verdicts[name]; v != nil {
				v.restless, w.restless[name] = true, true // the next pass forgets it
			}
		}
		return out, max(0, w.last+lookAtNodes/2-now)
	}
	armed := watcher.Rearm(w.armed, w.last, now, w.options)
	if armed != w.armed {
		w.config.Logger.Warn("the watcher was away; silence counts anew", "gap", now-w.last)
	}
	w.armed, w.last = armed, now
	for _, name := range w.pass(snap, c, anew, wall) {
		if known(snap, name) {
			w.look(snap, name, now, wall, &out)
		} else if w.verdicts[name] != nil {
			w.drop(name)
			out.touched = append(out.touched, name)
		}
	}
	out.units = append(out.units, w.weather(now)...)
	return out, lookAtNodes / 2
}

// pass returns the nodes that a pass looks at, in order: all of them, or those that changed or are due.
func (w *watch) pass(snap *store.Snapshot, c store.Changes, anew bool, wall time.Time) []string {
	here := sight{at: w.all.at, armed: w.armed, paused: w.paused(snap, wall), recovered: w.recovered, held: w.held}
	names := map[string]bool{}
	pulses := w.config.Tables.PulsesSince(w.pulses)
	w.pulses = pulses.Mark
	if anew || pulses.All || here != w.all || w.last-w.all.at >= lookAtAll {
		here.at = w.last
		w.all = here
		for e := range snap.NodeStatuses() {
			names[e.Value.Name] = true
		}
		for e := range snap.Nodes() { // one whose registration was deleted is silent, not forgotten
			names[e.Value.Name] = true
		}
		for name := range w.verdicts { // order-free: sorted below
			names[name] = true
		}
		return slices.Sorted(maps.Keys(names))
	}
	maps.Copy(names, c.Nodes)
	maps.Copy(names, w.restless)
	for name, pulse := range pulses.Pulses { // order-free: sorted below
		if v := w.verdicts[name]; v != nil && v.pulse != pulse {
			names[name] = true
		}
	}
	for _, name := range pulses.Dropped {
		if v := w.verdicts[name]; v != nil && v.pulse != (cluster.Pulse{}) {
			names[name] = true
		}
	}
	w.deadlines.due(w.last, w.nextLook, func(name string) { names[name] = true })
	for name, of := range w.unkillable { // order-free: sorted below
		if len(of) > 0 && w.verdicts[name] != nil {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}
