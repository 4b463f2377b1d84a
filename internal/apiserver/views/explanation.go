package views

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/lifecycle"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/observe"
	"github.com/berthd/berth/internal/store"
)

// What reasons are about, the weightiest first.
const (
	aboutCrash   = "crash-loop"
	aboutPlace   = "place"
	aboutHealth  = "health"
	aboutNode    = "node"
	aboutRollout = "rollout"
	aboutGate    = "gate"
	aboutMove    = "move"
	aboutStop    = "stop"
	aboutScaling = "scaling"
)

func weight(about string) int {
	return slices.Index([]string{
		aboutCrash, aboutPlace, aboutHealth, aboutNode, aboutRollout, aboutGate, aboutMove,
		aboutStop, aboutScaling,
	}, about)
}

// reasonsWhy collects reasons. What concerns many tasks alike is told once.
type reasonsWhy struct{ all []api.Because }

func (r *reasonsWhy) add(b api.Because) {
	alike := func(other api.Because) bool {
		return other.About == b.About && other.Message == b.Message && other.Task == b.Task && other.Node == b.Node
	}
	if b.Message != "" && !slices.ContainsFunc(r.all, alike) {
		r.all = append(r.all, b)
	}
}

// ordered returns the reasons, the weightiest first.
func (r *reasonsWhy) ordered() []api.Because {
	slices.SortStableFunc(r.all, func(a, b api.Because) int { return cmp.Compare(weight(a.About), weight(b.About)) })
	return r.all
}

// ExplainService says why a service is as it is.
func (l *Builder) ExplainService(e store.Entry[cluster.Service]) api.Explanation {
	view := l.Service(e)
	var why reasonsWhy
	for i := range view.Status.Crashing {
		why.add(crashWhy(&view.Status.Crashing[i]))
	}
	if text := view.Status.MemoryTrouble; text != "" {
		why.add(api.Because{About: aboutHealth, Reason: cluster.ReasonOOM, Message: text})
	}
	l.placeWhy(e.Value.Owner(), &why)
	for _, t := range l.tasksOf(e.Value.Owner()) {
		for _, row := range t.attempts {
			l.attemptWhy(row, &why)
		}
	}
	l.waitsWhy(e, &why)
	rollout := l.Rollout(e)
	for _, b := range rollout.Waits {
		why.add(b)
	}
	if rollout.State == cluster.RolloutFailed || rollout.State == cluster.RolloutRolledBack {
		why.add(api.Because{
			About: aboutRollout, Reason: failedFor(rollout.Version), Since: rollout.Ended,
			Message: fmt.Sprintf(
				"the rollout of %s %s%s", rollout.Definition, strings.ReplaceAll(string(rollout.State), "-", " "),
				respond.Suffix(rollout.Message)),
		})
	}
	l.scalingWhy(e, &why)
	x := api.Explanation{Owner: e.Value.Owner(), State: view.Status.State, Because: why.ordered()}
	x.Summary = summary("service "+e.Value.Name, x.State, view.Status.Message, x.Because)
	return x
}

// failedFor returns the code of why a rollout failed. A record without it tells by its words.
func failedFor(v cluster.Version) cluster.ReasonCode {
	switch {
	case v.Reason != "":
		return v.Reason
	case strings.HasPrefix(v.Message, "gate "):
		return cluster.ReasonGate
	case strings.HasPrefix(v.Message, "attempt "):
		return cluster.ReasonExit
	}
	return cluster.ReasonDeadline
}

// ExplainJob says why a job is as it is.
func (l *Builder) ExplainJob(e store.Entry[cluster.Job]) api.Explanation {
	view := l.Job(e)
	var why reasonsWhy
	l.placeWhy(e.Value.Owner(), &why)
	for row := range l.Snapshot.Attempts(e.Value.Owner()) {
		l.attemptWhy(row, &why)
	}
	x := api.Explanation{Owner: e.Value.Owner(), State: view.Status.State, Because: why.ordered()}
	x.Summary = summary("job "+e.Value.Name, x.State, view.Status.Message, x.Because)
	return x
}

// ExplainTask says why a task is as it is, as its view shows it.
func (l *Builder) ExplainTask(v *api.TaskView) api.Explanation {
	var why reasonsWhy
	if v.State == cluster.StatePending {
		why.add(api.Because{About: aboutPlace, Reason: v.Reason, Message: v.Message, Task: v.ID})
	}
	for row := range l.Snapshot.TaskAttempts(v.ID) {
		l.attemptWhy(row, &why)
	}
	if e, ok := l.Snapshot.Service(v.Owner.Cluster, v.Owner.Name); ok && v.Owner.Kind == cluster.KindService {
		for _, c := range l.Service(e).Status.Crashing {
			if c.Task == v.ID {
				why.add(crashWhy(&c))
			}
		}
		var all reasonsWhy
		l.waitsWhy(e, &all)
		for _, b := range all.all {
			if b.Task == v.ID {
				why.add(b)
			}
		}
	}
	x := api.Explanation{Owner: v.Owner, Task: v.ID, State: string(v.State), Because: why.ordered()}
	x.Summary = summary(string(v.ID), x.State, v.Message, x.Because)
	return x
}

// summary says all in a sentence: the status' own words, or else the weightiest reason.
func summary(what, state, message string, because []api.Because) string {
	if message == "" && len(because) > 0 {
		message = because[0].Message
	}
	switch state {
	case reconciler.Canary, reconciler.Paused, reconciler.RolloutFailed:
		// of the rollout, which the status' words are about as well
		return what + respond.Suffix(cmp.Or(message, "its rollout goes no further by itself"))
	}
	return what + " is " + strings.ReplaceAll(state, "-", " ") + respond.Suffix(message)
}

func crashWhy(c *api.CrashLoop) api.Because {
	return api.Because{
		About: aboutCrash, Reason: cluster.ReasonExit, Message: crashText(c), Task: c.Task, Node: c.Node,
		Since: c.Last, Log: c.Log,
	}
}

// placeWhy tells why tasks have no node: once for each sentence, with the first task that waits for it.
func (l *Builder) placeWhy(o cluster.OwnerRef, why *reasonsWhy) {
	first := map[string]*api.Because{}
	counts := map[string]int{}
	var order []string
	seen := l.owner(o)
	for i := range seen.pending {
		v := l.PendingTask(&seen.pending[i])
		text := cmp.Or(v.Message, "it waits to be looked at by the scheduler")
		if first[text] == nil {
			first[text] = &api.Because{About: aboutPlace, Reason: v.Reason, Task: v.ID}
			order = append(order, text)
		}
		counts[text]++
	}
	for _, text := range order {
		b := first[text]
		b.Message = fmt.Sprintf("%s has no place: %s", b.Task, text)
		if n := counts[text]; n > 1 {
			b.Message = fmt.Sprintf("%d tasks have no place, %s first: %s", n, b.Task, text)
		}
		why.add(*b)
	}
}

// attemptWhy tells of one attempt: that it moves, stops, is not well, or that its node is silent.
func (l *Builder) attemptWhy(row *store.AttemptRow, why *reasonsWhy) {
	if !observe.HoldsRoom(row) {
		return
	}
	b := api.Because{Task: row.Task, Attempt: row.Number, Node: row.Node}
	if o := row.Observed; o != nil {
		b.Since = o.Since
	}
	if node, ok := l.Snapshot.Node(row.Node); ok && row.Live() &&
		(node.Value.State == cluster.NodeDown || node.Value.State == cluster.NodeSuspect) {
		b.About, b.Reason, b.Since = aboutNode, cluster.ReasonNodeDown, node.Value.Since
		b.Message = fmt.Sprintf("node %s is %s%s", row.Node, node.Value.State, respond.Suffix(node.Value.Reason))
		why.add(b)
		return
	}
	if moves(row) {
		b.About, b.Reason = aboutMove, row.Outcome.Reason
		b.Message = fmt.Sprintf("%s moves off node %s%s; it runs until %s", row.Task, row.Node, movesFor(row),
			cmp.Or(successor(l.Snapshot, row), "its replacement is healthy"))
		why.add(b)
		return
	}
	if p := l.Records.Pressure(row); p != nil && row.Live() {
		about := b
		about.About, about.Reason, about.Since = aboutMove, cluster.ReasonPressure, p.Since
		about.Message = fmt.Sprintf("node %s is short of memory (%s), and %s is to move: %s", row.Node, p.Message,
			row.Task, cmp.Or(p.Why, "its agent suggests it"))
		why.add(about)
	}
	l.violationWhy(row, b, why)
	d := row.Desired
	if d != nil && d.Stop != nil && row.Live() {
		b.About, b.Reason = aboutStop, d.Stop.Reason
		b.Message = stopText(row)
		why.add(b)
		return
	}
	shown := lifecycle.Shown(row.Attempt)
	if full := l.diskFull(row.Node); full != nil && row.Live() && shown.State != cluster.StateRunning {
		why.add(api.Because{
			About: aboutNode, Reason: cluster.ReasonShortDisk, Since: full.Since, Node: row.Node,
			Message: "node " + row.Node + ": " + full.Message,
		})
	}
	switch {
	case !row.Live():
	case shown.Health == cluster.HealthFailing, shown.Health == cluster.HealthWarning:
		b.About, b.Reason = aboutHealth, cluster.ReasonUnhealthy
		b.Message = fmt.Sprintf("the checks of %s are %s on node %s%s", row.Task, shown.Health, row.Node,
			respond.Suffix(shown.Message))
		why.add(b)
	case shown.State == cluster.StateRunning && shown.Health == cluster.HealthUnknown && shown.Message != "":
		b.About, b.Reason = aboutHealth, cmp.Or(shown.Reason, cluster.ReasonUnhealthy)
		b.Message = fmt.Sprintf("%s runs on node %s and is not healthy yet%s", row.Task, row.Node,
			respond.Suffix(shown.Message))
		why.add(b)
	case shown.State != cluster.StateRunning && shown.Message != "":
		b.About, b.Reason = aboutHealth, shown.Reason
		b.Message = fmt.Sprintf("%s is %s on node %s%s", row.Task, shown.State, row.Node, respond.Suffix(shown.Message))
		why.add(b)
	}
}

// violationWhy tells that an attempt stands where it should not.
func (l *Builder) violationWhy(row *store.AttemptRow, b api.Because, why *reasonsWhy) {
	text := l.misplaced(row)
	if text == "" {
		return
	}
	reason, leaves := l.Records.Violation(row)
	b.About, b.Reason, b.Since = aboutPlace, reason.Reason, reason.Since
	if leaves {
		b.About = aboutMove
	}
	b.Message = fmt.Sprintf("%s: %s", row.Task, text)
	why.add(b)
}

// movesFor says why an attempt moves, as the middle of a sentence.
func movesFor(row *store.AttemptRow) string {
	switch row.Outcome.Reason {
	case cluster.ReasonPressure:
		return ", which is short of memory"
	case cluster.ReasonTaint:
		return ", which has a taint that it does not tolerate"
	case cluster.ReasonConstraint:
		return ", which does not meet its demands any more"
	case cluster.ReasonRebalance:
		return ", as it is better placed elsewhere"
	case cluster.ReasonReplaced:
		return ""
	}
	return ", which is emptied"
}

// stopText says what the stop of an attempt waits for, as far as its records tell (P5.2).
func stopText(row *store.AttemptRow) string {
	stop := row.Desired.Stop
	text := fmt.Sprintf("%s on node %s is to stop%s", row.Task, row.Node,
		respond.Suffix(cmp.Or(stop.Message, string(stop.Reason))))
	ask := ""
	if o := row.Observed; o != nil && o.UUID == row.Desired.UUID {
		ask = o.Ask
	}
	switch {
	case stop.Class != cluster.StopVoluntary:
		return text
	case ask != "" && ask == stop.Permit:
		return text + "; its agent has the permit for it"
	case ask != "":
		return text + "; its agent asked for a permit, which is given once enough others are healthy"
	case stop.Permit == "":
		return text + "; its agent has not asked for a permit yet"
	}
	return text
}

// waitsWhy tells what the reconciler knows of what stops, batches and tasks wait for.
func (l *Builder) waitsWhy(e store.Entry[cluster.Service], why *reasonsWhy) {
	in := l.ServiceInput(e)
	for _, w := range reconciler.Waits(in) {
		if w.Task != "" { // what concerns the whole is the rollout's, see rolloutWaits
			why.add(because(w))
		}
	}
}

// because puts what the reconciler says into a reason.
func because(w reconciler.Wait) api.Because {
	b := api.Because{
		About: aboutStop, Reason: w.Code, Message: w.Message, Task: w.Task, Attempt: w.Attempt,
		Node: w.Node,
	}
	switch w.Code {
	case cluster.ReasonGate:
		b.About = aboutGate
	case cluster.ReasonPressure, cluster.ReasonDrain, cluster.ReasonRebalance, cluster.ReasonTaint,
		cluster.ReasonConstraint, cluster.ReasonReserved, cluster.ReasonPreempted:
		b.About = aboutMove
	case cluster.ReasonRescheduled:
		b.About = aboutCrash
	case cluster.ReasonPermit, cluster.ReasonScaleDown:
	default:
		if w.Task == "" || w.Attempt == 0 {
			b.About = aboutRollout
		}
	}
	return b
}

// scalingWhy tells what autoscaling wants and why it does not do it.
func (l *Builder) scalingWhy(e store.Entry[cluster.Service], why *reasonsWhy) {
	if e.Value.Scaling == nil || e.Value.Mode == cluster.ModeDaemon {
		return
	}
	v := l.Scale(e)
	b := api.Because{About: aboutScaling, Reason: cluster.ReasonScaling, Since: v.At}
	switch {
	case v.Suspended:
		b.Message = fmt.Sprintf("scaling is suspended: the count stays %d", v.Count)
	case v.Message != "":
		b.Message = fmt.Sprintf("scaling keeps the count at %d, from %d to %d allowed: %s", v.Count, *v.Min, *v.Max,
			v.Message)
	default:
		b.Message = fmt.Sprintf("scaling has not changed the count of %d, from %d to %d allowed", v.Count, *v.Min,
			*v.Max)
	}
	why.add(b)
}
