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

// A pass looks closely only at nodes whose verdict can be another than at the last look: at each that did something, and
// at each whose time has come. So nodes that are well cost a comparison each. That has to be as if all were looked at,
// which a pass does where what holds for all of them has changed, and now and then for good measure.

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
	// restless says that each pass looks: the verdict depends on more than the node's records, its pulse and the time, or it
	// was not written yet.
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

// due reports whether the verdict may be another now, though the node's records are the same.
func (v *verdict) due(pulse cluster.Pulse, now time.Duration) bool {
	return v.restless || v.pulse != pulse || v.NextLook != 0 && v.NextLook <= now
}

// judge looks at the nodes that changed and, when it is time, at those that are due, and returns how soon to look again.
func (w *watch) judge(snap *store.Snapshot, c store.Changes, wall time.Time) (judged, time.Duration) {
	var out judged
	now := w.config.Clock()
	anew := c.Resync || c.Domain || len(w.verdicts) == 0
	if !anew && now-w.last < lookAtNodes/2 {
		for _, name := range slices.Sorted(maps.Keys(c.Nodes)) {
			if known(snap, name) {
				w.look(snap, name, now, wall, &out)
			} else if v := w.verdicts[name]; v != nil {
				v.restless = true // the next pass forgets it
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
			delete(w.verdicts, name)
			delete(w.begun, name)
			delete(w.pressed, name)
			w.config.Tables.DropPulse(name)
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
	if anew || here != w.all || w.last-w.all.at >= lookAnyway {
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
	for name, v := range w.verdicts { // order-free: sorted below
		pulse, _ := w.config.Tables.Pulse(name)
		if v.due(pulse, w.last) || len(w.unkillable[name]) > 0 {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}
