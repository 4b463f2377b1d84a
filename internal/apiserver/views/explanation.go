package views

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/lifecycle"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/observe"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/taskview"
)

// importance returns the position of a subject in explanations; lower positions come first.
func importance(about api.ReasonSubject) int { return slices.Index(about.Values(), about) }

// explanation collects the reasons why a service, job or task is as it is. It holds equal reasons once.
type explanation struct {
	*Builder

	reasons []api.Because
	steps   *reconciler.StepObstacles // of the job that is explained; nil for a service
}

// ExplainService returns why a service is as it is.
func (b *Builder) ExplainService(e store.Entry[cluster.Service]) api.Explanation {
	b = b.Of(e.Value.Cluster)
	view, x := b.Service(e), explanation{Builder: b}
	for i := range view.Status.Crashing {
		x.addCrashLoop(&view.Status.Crashing[i])
	}
	if text := view.Status.MemoryTrouble; text != "" {
		x.add(api.Because{About: api.AboutHealth, Reason: cluster.ReasonOOM, Message: text})
	}
	x.addPending(e.Value.Owner())
	for _, t := range taskHistories(b.Snapshot, e.Value.Owner()) {
		for _, row := range t.attempts {
			x.addAttempt(row)
		}
	}
	x.addTaskWaits(e, "")
	x.addRollout(e)
	x.addScaling(e)
	return x.result(e.Value.Owner(), string(view.Status.State), view.Status.Message)
}

// ExplainJob returns why a job is as it is.
func (b *Builder) ExplainJob(e store.Entry[cluster.Job]) api.Explanation {
	b = b.Of(e.Value.Cluster)
	view, x := b.Job(e), explanation{Builder: b}
	x.steps = reconciler.StepObstaclesOf(b.JobInput(e))
	x.addPending(e.Value.Owner())
	x.addSkipped(&view)
	for row := range b.Snapshot.Attempts(e.Value.Owner()) {
		x.addAttempt(row)
	}
	return x.result(e.Value.Owner(), string(view.Status.State), view.Status.Message)
}

// ExplainTask returns why a task is as its view shows it.
func (b *Builder) ExplainTask(v *api.TaskView) api.Explanation {
	b = b.ofTask(v.ID)
	x := explanation{Builder: b}
	if v.State == cluster.StatePending {
		r := api.Because{About: api.AboutPlace, Reason: v.Reason, Message: v.Message, Task: v.ID}
		if p, ok := b.FindPending(v.Owner, v.ID); ok {
			r.Reason, r.Message = cmp.Or(r.Reason, p.Hold.Reason), cmp.Or(r.Message, p.Hold.Message)
			x.steps = b.stepsOf(v.Owner)
			r.Message += x.needText(&p)
			b.setStart(&r, &p)
		}
		x.add(r)
	} else if v.UUID == "" && v.Reason == cluster.ReasonNeeds { // its step is skipped
		x.add(api.Because{About: api.AboutPlace, Reason: v.Reason, Message: v.Message, Task: v.ID})
	}
	for row := range b.Snapshot.TaskAttempts(v.ID) {
		x.addAttempt(row)
	}
	if e, ok := b.Snapshot.Service(v.Owner.Cluster, v.Owner.Name); ok && v.Owner.Kind == cluster.KindService {
		for _, c := range b.Service(e).Status.Crashing {
			if c.Task == v.ID {
				x.addCrashLoop(&c)
			}
		}
		x.addTaskWaits(e, v.ID)
	}
	all := x.result(v.Owner, string(v.State), v.Message)
	all.Task = v.ID
	return all
}

// result returns the explanation with its reasons in order. Message is the status message, which may be empty; the most
// important reason then stands for it.
func (x *explanation) result(o cluster.OwnerRef, state, message string) api.Explanation {
	slices.SortStableFunc(x.reasons, func(r, s api.Because) int {
		return cmp.Compare(importance(r.About), importance(s.About))
	})
	if message == "" && len(x.reasons) > 0 {
		message = x.reasons[0].Message
	}
	return api.Explanation{Owner: o, State: state, Because: x.reasons, Summary: message}
}

// add adds a reason, unless it is empty or an equal one was added.
func (x *explanation) add(r api.Because) {
	isEqual := func(other api.Because) bool {
		return other.About == r.About && other.Message == r.Message && other.Task == r.Task && other.Node == r.Node
	}
	if r.Message != "" && !slices.ContainsFunc(x.reasons, isEqual) {
		x.reasons = append(x.reasons, r)
	}
}

func (x *explanation) addCrashLoop(c *api.CrashLoop) {
	x.add(api.Because{
		About: api.AboutCrash, Reason: cluster.ReasonExit, Message: taskview.CrashText(*c), Task: c.Task, Node: c.Node,
		Since: c.Last, Log: c.Log,
	})
}

// setStart sets the place of a pending task in the queue, and when it probably starts.
func (b *Builder) setStart(r *api.Because, p *cluster.Pending) {
	w := b.queue.waitingLine()
	if r.Position = w.position(p.Owner, p.Task); r.Position > 0 {
		r.Of = w.tasks
	}
	r.Expected = b.ExpectedStart(p)
}

// maxSentences is how many sentences of one reason an explanation has for the pending tasks of an owner. Tasks with
// further sentences are counted together.
const maxSentences = 10

// sentence is a group of pending tasks for which one sentence says why they have no node, or many similar ones.
type sentence struct {
	first   *cluster.Pending
	reason  cluster.ReasonCode
	text    string
	tasks   int
	similar bool // the tasks have several sentences of the reason, of which text is the first
}

// sentences groups the pending tasks of an owner by why they have no node.
func (x *explanation) sentences(o cluster.OwnerRef) (all []*sentence) {
	byText := map[string]*sentence{}
	similar := map[cluster.ReasonCode]*sentence{}
	ofReason := map[cluster.ReasonCode]int{}
	tasks := x.Pending(o)
	for i := range tasks {
		v, hold := x.PendingTask(&tasks[i]), tasks[i].Hold
		text := cmp.Or(v.Message, hold.Message, "not considered by the scheduler yet")
		reason := cmp.Or(v.Reason, hold.Reason)
		group := byText[text]
		if group == nil && ofReason[reason] >= maxSentences {
			group = similar[reason]
		}
		if group == nil {
			group = &sentence{first: &tasks[i], reason: reason, text: text}
			if all = append(all, group); ofReason[reason] < maxSentences {
				byText[text] = group
			} else {
				similar[reason], group.similar = group, true
			}
			ofReason[reason]++
		}
		group.tasks += tasks[i].Tasks()
	}
	return all
}

// addPending adds why tasks have no node, with the number of the tasks and the first.
func (x *explanation) addPending(o cluster.OwnerRef) {
	for _, s := range x.sentences(o) {
		task := s.first.Task
		r := api.Because{About: api.AboutPlace, Reason: s.reason, Task: task}
		switch {
		case s.similar && s.tasks > 1:
			r.Message = fmt.Sprintf("%d more tasks are pending for similar reasons, %s first: %s", s.tasks, task,
				s.text)
		case s.tasks > 1:
			r.Message = fmt.Sprintf("%d tasks are pending, %s first: %s", s.tasks, task, s.text)
		default:
			r.Message = fmt.Sprintf("%s is pending: %s", task, s.text)
		}
		r.Message += x.needText(s.first)
		x.setStart(&r, s.first)
		x.add(r)
	}
}

// addAttempt adds the reasons of one attempt: its node is silent, it moves, it is to stop, or it is not healthy.
func (x *explanation) addAttempt(row *store.AttemptRow) {
	if !observe.HoldsRoom(row) {
		return
	}
	base := api.Because{Task: row.Task, Attempt: row.Number, Node: row.Node}
	if o := row.Observed; o != nil {
		base.Since = o.Since
	}
	if x.addSilentNode(row, base) || x.addMove(row, base) {
		return
	}
	x.addPressure(row, base)
	x.addViolation(row, base)
	if !x.addStop(row, base) {
		x.addHealth(row, base)
	}
}

// addSilentNode adds that the node of a live attempt is suspect or down, and reports whether it is.
func (x *explanation) addSilentNode(row *store.AttemptRow, r api.Because) bool {
	node, ok := x.Snapshot.Node(row.Node)
	if !ok || !row.Live() || node.Value.State != cluster.NodeDown && node.Value.State != cluster.NodeSuspect {
		return false
	}
	r.About, r.Reason, r.Since = api.AboutNode, cluster.ReasonNodeDown, node.Value.Since
	r.Message = fmt.Sprintf("node %s is %s%s", row.Node, node.Value.State, respond.Suffix(node.Value.Reason))
	x.add(r)
	return true
}

// addMove adds that an attempt moves off its node, and reports whether it does.
func (x *explanation) addMove(row *store.AttemptRow, r api.Because) bool {
	if !isMoving(row) {
		return false
	}
	r.About, r.Reason = api.AboutMove, row.Outcome.Reason
	r.Message = fmt.Sprintf("%s moves off node %s%s; it runs until %s", row.Task, row.Node, moveCause(row),
		cmp.Or(replacementText(x.Snapshot, row), "its replacement is healthy"))
	x.add(r)
	return true
}

// moveCause returns why an attempt moves, as the middle of a sentence.
func moveCause(row *store.AttemptRow) string {
	switch row.Outcome.Reason {
	case cluster.ReasonPressure:
		return " (short of memory)"
	case cluster.ReasonTaint:
		return " (taint)"
	case cluster.ReasonConstraint:
		return " (its constraints are no longer met)"
	case cluster.ReasonRebalance:
		return " (rebalancing)"
	case cluster.ReasonReplaced:
		return ""
	}
	return " (drain)"
}

func (x *explanation) addPressure(row *store.AttemptRow, r api.Because) {
	p := x.Records.Pressure(row)
	if p == nil || !row.Live() {
		return
	}
	r.About, r.Reason, r.Since = api.AboutMove, cluster.ReasonPressure, p.Since
	r.Message = fmt.Sprintf("node %s is short of memory (%s); %s will move away: %s", row.Node, p.Message, row.Task,
		cmp.Or(p.Why, "chosen by its agent"))
	x.add(r)
}

func (x *explanation) addViolation(row *store.AttemptRow, r api.Because) {
	text := x.violationText(row)
	if text == "" {
		return
	}
	why, leaves := x.Records.Violation(row)
	r.About, r.Reason, r.Since = api.AboutPlace, why.Reason, why.Since
	if leaves {
		r.About = api.AboutMove
	}
	r.Message = fmt.Sprintf("%s: %s", row.Task, text)
	x.add(r)
}

// addStop adds what the stop of a live attempt waits for, and reports whether it is to stop.
func (x *explanation) addStop(row *store.AttemptRow, r api.Because) bool {
	if row.Desired == nil || row.Desired.Stop == nil || !row.Live() {
		return false
	}
	r.About, r.Reason = api.AboutStop, row.Desired.Stop.Reason
	r.Message = stopText(row)
	x.add(r)
	return true
}

// stopText describes what the stop of an attempt waits for, as far as its records hold it (P5.2).
func stopText(row *store.AttemptRow) string {
	stop := row.Desired.Stop
	text := fmt.Sprintf("%s on %s is to stop%s", row.Task, row.Node,
		respond.Suffix(cmp.Or(stop.Message, string(stop.Reason))))
	ask := ""
	if o := row.Observed; o != nil && o.UUID == row.Desired.UUID {
		ask = o.Ask
	}
	switch {
	case stop.Class != cluster.StopVoluntary:
		return text
	case ask != "" && ask == stop.Permit:
		return text + "; its agent has the permit"
	case ask != "":
		return text + "; waiting for enough other healthy tasks"
	case stop.Permit == "":
		return text + "; its agent has not requested the permit yet"
	}
	return text
}

// addHealth adds why a live attempt does not run or is not healthy.
func (x *explanation) addHealth(row *store.AttemptRow, r api.Because) {
	if !row.Live() {
		return
	}
	shown := lifecycle.Shown(row.Attempt)
	suffix := respond.Suffix(shown.Message)
	stats := x.Records.Stats(row.Node)
	if stats != nil && stats.DiskFull != nil && shown.State != cluster.StateRunning {
		x.add(api.Because{
			About: api.AboutNode, Reason: cluster.ReasonShortDisk, Since: stats.DiskFull.Since, Node: row.Node,
			Message: "node " + row.Node + ": " + stats.DiskFull.Message,
		})
	}
	r.About = api.AboutHealth
	switch {
	case shown.Health == cluster.HealthFailing, shown.Health == cluster.HealthWarning:
		r.Reason = cluster.ReasonUnhealthy
		r.Message = fmt.Sprintf("checks of %s are %s on %s%s", row.Task, shown.Health, row.Node, suffix)
	case shown.State == cluster.StateRunning && shown.Health == cluster.HealthUnknown && shown.Message != "":
		r.Reason = cmp.Or(shown.Reason, cluster.ReasonUnhealthy)
		r.Message = fmt.Sprintf("%s runs on %s and is not healthy yet%s", row.Task, row.Node, suffix)
	case shown.State != cluster.StateRunning && shown.Message != "":
		r.Reason = shown.Reason
		r.Message = fmt.Sprintf("%s is %s on %s%s", row.Task, shown.State, row.Node, suffix)
	}
	x.add(r)
}

// addTaskWaits adds what the reconciler waits for with tasks of a service, or with one of them if task is not empty.
// Waits of the whole service are part of the rollout, see rolloutWaits.
func (x *explanation) addTaskWaits(e store.Entry[cluster.Service], task cluster.TaskID) {
	for _, w := range reconciler.Waits(x.ServiceInput(e)) {
		if w.Task != "" && (task == "" || w.Task == task) {
			x.add(waitReason(w))
		}
	}
}

// waitReason returns the reason for a wait of the reconciler.
func waitReason(w reconciler.Wait) api.Because {
	r := api.Because{
		About: api.AboutStop, Reason: w.Code, Message: w.Message, Task: w.Task, Attempt: w.Attempt,
		Node: w.Node,
	}
	switch w.Code {
	case cluster.ReasonGate:
		r.About = api.AboutGate
	case cluster.ReasonPressure, cluster.ReasonDrain, cluster.ReasonRebalance, cluster.ReasonTaint,
		cluster.ReasonConstraint, cluster.ReasonReserved, cluster.ReasonPreempted:
		r.About = api.AboutMove
	case cluster.ReasonRescheduled:
		r.About = api.AboutCrash
	case cluster.ReasonPermit, cluster.ReasonScaleDown:
	default:
		if w.Task == "" || w.Attempt == 0 {
			r.About = api.AboutRollout
		}
	}
	return r
}

// addRollout adds what the rollout of a service waits for, or why it failed.
func (x *explanation) addRollout(e store.Entry[cluster.Service]) {
	rollout := x.Rollout(e)
	for _, r := range rollout.Waits {
		x.add(r)
	}
	if rollout.State == cluster.RolloutFailed || rollout.State == cluster.RolloutRolledBack {
		x.add(api.Because{
			About: api.AboutRollout, Reason: rollout.Version.Reason, Since: rollout.Ended,
			Message: fmt.Sprintf("rollout of %s failed%s", rollout.Definition, respond.Suffix(rollout.Message)),
		})
	}
}

// addScaling adds the count that scaling wants, and why it does not change the count.
func (x *explanation) addScaling(e store.Entry[cluster.Service]) {
	if e.Value.Scaling == nil || e.Value.Mode == cluster.ModeDaemon {
		return
	}
	v := x.Scale(e)
	r := api.Because{About: api.AboutScaling, Reason: cluster.ReasonScaling, Since: v.At}
	switch {
	case v.Suspended:
		r.Message = fmt.Sprintf("scaling is suspended: count stays %d", v.Count)
	case v.Message != "":
		r.Message = fmt.Sprintf("scaling keeps count %d (min %d, max %d): %s", v.Count, *v.Min, *v.Max,
			v.Message)
	default:
		r.Message = fmt.Sprintf("scaling keeps count %d (min %d, max %d)", v.Count, *v.Min,
			*v.Max)
	}
	x.add(r)
}
