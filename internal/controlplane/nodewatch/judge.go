package nodewatch

import (
	"maps"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/watcher"
	"github.com/berthd/berth/internal/store"
)

// maxPassInterval is the longest time between two passes over the nodes. It is below the watcher's gap; otherwise every
// pass would start all silence again.
const maxPassInterval = 2 * time.Second

// fullPassInterval is the time between two passes that judge all nodes, as a safeguard. Judging 5,000 nodes is as much
// work as a minute of judging those that report.
const fullPassInterval = 5 * time.Minute

// A pass judges only nodes whose verdict can have changed since the last pass: nodes that did something, and nodes that
// are due. The tables list the changed pulses, and deadlines list the due nodes. So healthy nodes that are silent
// within their interval cost nothing. The result must be the same as if all nodes were judged. A pass judges all nodes
// if one of the inputs that they share has changed, and every fullPassInterval.

// sharedInputs are the inputs that verdicts on all nodes depend on, as of the last pass over all nodes.
type sharedInputs struct {
	at, armed               time.Duration
	paused, recovered, held bool
}

// verdict is the watcher's verdict on a node, with what decides when the node is judged again.
type verdict struct {
	watcher.Verdict
	pulse cluster.Pulse // the pulse that was judged; zero for none
	// onlyDaemonsLeft says that the node is being drained and only tasks of daemons are left there.
	onlyDaemonsLeft bool
	// everyPass says that each pass judges the node. Its verdict depends on more than the node's records, its pulse and
	// the time, or was not written yet.
	everyPass bool
}

func newVerdict(v watcher.Verdict, in *watcher.Input) *verdict {
	out := &verdict{Verdict: v}
	if in.Pulse != nil {
		out.pulse = *in.Pulse
	}
	out.everyPass = pressureOf(in) != nil || v.Changed || v.Forget || v.Gone || v.Drain != nil || in.Unkillable != "" ||
		!v.Foreign && (!v.Heard || !v.Node.Until.IsZero()) ||
		in.Status != nil && out.pulse.Session > in.Status.Session // see staleSessionAge
	return out
}

// setVerdict makes v the verdict on a node.
func (w *Watch) setVerdict(name string, v *verdict) {
	w.verdicts[name] = v
	setMember(w.everyPass, name, v.everyPass)
	setMember(w.silent, name, !v.Heard && !v.Foreign)
	w.deadlines.set(name, v.NextDecision)
}

// dropNode forgets a node that has no records any more.
func (w *Watch) dropNode(name string) {
	delete(w.verdicts, name)
	delete(w.everyPass, name)
	delete(w.silent, name)
	delete(w.sessions, name)
	delete(w.pressed, name)
	delete(w.disks.freed, name)
	delete(w.disks.full, name)
	w.config.Tables.DropPulse(name)
}

// setMember adds a name to a set, or removes it.
func setMember(names map[string]bool, name string, in bool) {
	if in {
		names[name] = true
	} else {
		delete(names, name)
	}
}

// nextJudgementAt returns when the verdict on a node can change by time alone. 0 means never, or no verdict.
func (w *Watch) nextJudgementAt(name string) time.Duration {
	if v := w.verdicts[name]; v != nil {
		return v.NextDecision
	}
	return 0
}

// Judge judges the nodes that changed and, about once a second, those that are due. It returns the wait until the
// next call.
func (w *Watch) Judge(snap *store.Snapshot, c store.Changes, wall time.Time) (Judged, time.Duration) {
	var out Judged
	now := w.config.Clock()
	w.setLimits(snap)
	all := c.Resync || c.Domain || len(w.verdicts) == 0
	if !all && now-w.last < maxPassInterval/2 {
		for _, name := range slices.Sorted(maps.Keys(c.Nodes)) {
			if hasRecords(snap, name) {
				w.judgeNode(snap, name, now, wall, &out)
			} else if v := w.verdicts[name]; v != nil {
				v.everyPass, w.everyPass[name] = true, true // the next pass forgets it
			}
		}
		return out, max(0, w.last+maxPassInterval/2-now)
	}
	armed := watcher.Rearm(w.armed, w.last, now, w.options)
	if armed != w.armed {
		w.config.Logger.Warn("nodes were not judged for too long; all silence counts from now on", "gap", now-w.last)
	}
	w.armed, w.last = armed, now
	for _, name := range w.selectNodes(snap, c, all, wall) {
		if hasRecords(snap, name) {
			w.judgeNode(snap, name, now, wall, &out)
		} else if w.verdicts[name] != nil {
			w.dropNode(name)
			out.Touched = append(out.Touched, name)
		}
	}
	out.Units = append(out.Units, w.checkMassSilence(now)...)
	return out, maxPassInterval / 2
}

// selectNodes returns the nodes that a pass judges, in order: all of them, or those that changed or are due.
func (w *Watch) selectNodes(snap *store.Snapshot, c store.Changes, all bool, wall time.Time) []string {
	inputs := sharedInputs{
		at: w.sharedInputs.at, armed: w.armed, paused: w.isPaused(snap, wall), recovered: w.recovered, held: w.held,
	}
	names := map[string]bool{}
	pulses := w.config.Tables.PulsesSince(w.pulses)
	w.pulses = pulses.Mark
	if all || pulses.All || inputs != w.sharedInputs || w.last-w.sharedInputs.at >= fullPassInterval {
		inputs.at = w.last
		w.sharedInputs = inputs
		for e := range snap.NodeStatuses() {
			names[e.Value.Name] = true
		}
		for e := range snap.Nodes() { // a node whose registration was deleted is silent, not forgotten
			names[e.Value.Name] = true
		}
		for name := range w.verdicts { // order-free: sorted below
			names[name] = true
		}
		return slices.Sorted(maps.Keys(names))
	}
	maps.Copy(names, c.Nodes)
	maps.Copy(names, w.everyPass)
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
	w.deadlines.yieldDue(w.last, w.nextJudgementAt, func(name string) { names[name] = true })
	for name, of := range w.unkillable { // order-free: sorted below
		if len(of) > 0 && w.verdicts[name] != nil {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}
