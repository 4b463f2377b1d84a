package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
)

// trouble is an object that is not as it should be: how it is, why, and what to do next.
type trouble struct {
	object string
	state  string
	cause  string
	next   string
	// task is the one that tells most of the cause, or nil.
	task *api.TaskView
}

// findTroubles returns what is not well: nodes first, for they are often the cause of the rest.
func findTroubles(all everything) []trouble {
	var found []trouble
	for _, n := range all.Nodes {
		if n.State == cluster.NodeDown || n.State == cluster.NodeSuspect {
			found = append(found, trouble{
				object: wordNode + "/" + n.Name, state: string(n.State), cause: oneLine(n.Reason),
				next: "berth node status " + n.Name,
			})
		}
	}
	for _, n := range all.Nodes {
		if p := pressureOf(n); p != nil {
			found = append(found, trouble{
				object: wordNode + "/" + n.Name, state: "pressure", cause: pressureText(p), next: "berth node status " +
					n.Name,
			})
		}
	}
	for _, n := range all.Nodes {
		if n.Used != nil && n.Used.DiskFull != nil {
			found = append(found, trouble{
				object: wordNode + "/" + n.Name, state: troubleFull, cause: oneLine(n.Used.DiskFull.Message),
				next: "berth image ls --node " + n.Name,
			})
		}
	}
	tasks := map[cluster.OwnerRef][]api.TaskView{}
	for _, t := range all.Tasks {
		tasks[t.Owner] = append(tasks[t.Owner], t)
	}
	var services []trouble
	for _, v := range all.Services {
		if t := serviceTrouble(v, tasks[v.Owner()]); t != nil {
			services = append(services, *t)
		}
	}
	slices.SortStableFunc(services, func(x, y trouble) int { return cmp.Compare(x.weight(), y.weight()) })
	found = append(found, services...)
	for _, v := range all.Jobs {
		if t := jobTrouble(v, tasks[v.Owner()]); t != nil {
			found = append(found, *t)
		}
	}
	return found
}

// States of troubles of services that no state of the server names.
const (
	troubleCrashLoop = "crash-loop"
	troubleRollout   = "rollout-failed"
	troubleCanary    = "canary" // they wait to be promoted
	troublePaused    = "paused"
	troubleMisplaced = "misplaced" // tasks of it are where they should not be
)

// weight orders the troubles of services: what needs somebody at once is before what waits for somebody's word.
func (t trouble) weight() int {
	switch t.state {
	case troubleCrashLoop:
		return 0
	case troubleRollout:
		return 1
	case troubleCanary, troublePaused, troubleMisplaced:
		return 3
	}
	return 2
}

// serviceTrouble returns what is wrong with a service, or nil.
func serviceTrouble(v api.ServiceView, tasks []api.TaskView) *trouble {
	if v.Status.State != "stopping" && v.Status.State != "stopped" && v.Status.State != "deleting" {
		if t := changeTrouble(v, tasks); t != nil {
			return t
		}
	}
	switch v.Status.State {
	case "healthy":
		return misplacedTrouble(serviceName(v), tasks)
	case "stopped", "stopping", "deleting":
		return nil
	case "starting", "rolling-out": // on its way, unless something holds it up
		if worst := worstTask(tasks); worst == nil || reasonOf(*worst) == "" {
			return nil
		}
	}
	n := name{wordService, v.Cluster, v.Name}
	counts := fmt.Sprintf("%d of %s healthy", v.Status.Healthy, count(v.Status.Desired, "task"))
	return explain(trouble{object: n.String(), state: v.Status.State, cause: oneLine(v.Status.Message)}, counts, tasks)
}

// misplacedTrouble says that tasks of a service that is healthy are where they should not be, as their nodes are now,
// or is nil.
func misplacedTrouble(n name, tasks []api.TaskView) *trouble {
	var first *api.TaskView
	found := 0
	for i := range tasks {
		if tasks[i].Misplaced == "" {
			continue
		}
		if found++; first == nil {
			first = &tasks[i]
		}
	}
	if first == nil {
		return nil
	}
	t := &trouble{
		object: n.String(), state: troubleMisplaced, task: first,
		next: "berth explain " + shortTask(first.ID),
	}
	t.cause = joinNonEmpty(": ", shortTask(first.ID), oneLine(first.Misplaced))
	if rest := found - 1; rest > 0 {
		t.cause += fmt.Sprintf("; and %s more", count(rest, "task"))
	}
	return t
}

// changeTrouble returns what is wrong with a service beyond its counts, or nil: tasks that end again and again, a
// rollout that failed, or one that waits for somebody.
func changeTrouble(v api.ServiceView, tasks []api.TaskView) *trouble {
	n := serviceName(v)
	s := v.Status
	t := trouble{object: n.String(), cause: shortTasks(oneLine(s.Message))}
	switch {
	case len(s.Crashing) > 0:
		loop := s.Crashing[0]
		t.state, t.cause = troubleCrashLoop, crashText(loop)
		if rest := len(s.Crashing) - 1; rest > 0 {
			t.cause += fmt.Sprintf("; and %s more", count(rest, "task"))
		}
		t.next = "berth logs " + shortTask(loop.Task)
		if i := slices.IndexFunc(tasks, func(v api.TaskView) bool { return v.ID == loop.Task }); i >= 0 {
			t.task = &tasks[i]
			if neverRan(tasks[i]) { // there is no output of it
				t.next = "berth explain " + n.argument()
			}
		}
	case s.Rollout == cluster.RolloutFailed:
		t.state, t.next = troubleRollout, "berth rollout status "+n.argument()
		t.cause = cmp.Or(t.cause, "the rollout of "+v.Definition.String()+" failed")
	case s.Rollout == cluster.RolloutCanary && !s.Paused:
		t.state, t.next = troubleCanary, "berth promote "+n.argument()
		t.cause = "the canaries of " + v.Definition.String() + " are healthy and wait to be promoted"
	case s.Paused && !s.Rollout.Ended() && s.Rollout != "":
		t.state, t.next = troublePaused, "berth rollout resume "+n.argument()
		t.cause = "the rollout of " + v.Definition.String() + " is paused"
	default:
		return nil
	}
	return &t
}

// crashText says how a task ends again and again.
func crashText(l api.CrashLoop) string {
	text := shortTask(l.Task) + " ended " + count(l.Times, "time")
	switch {
	case l.Restarts > 0 && l.Times == 0:
		text = shortTask(l.Task) + " was restarted " + count(l.Restarts, "time")
	case l.Restarts > 0:
		text += ", its newest attempt restarted " + count(l.Restarts, "time")
	}
	return joinNonEmpty(": ", text, oneLine(l.Message))
}

// pressureOf returns the shortage of memory that a node reports, or nil.
func pressureOf(n api.NodeView) *cluster.Pressure {
	if n.Used == nil {
		return nil
	}
	return n.Used.Pressure
}

// pressureText says what a node is short of, and what its agent suggests to move away.
func pressureText(p *cluster.Pressure) string {
	text := oneLine(p.Message)
	if p.Task != "" {
		text = joinNonEmpty("; ", text, joinNonEmpty(": ", shortTask(p.Task)+" is to move away", oneLine(p.Why)))
	}
	return text
}

// jobTrouble returns what is wrong with a job, or nil.
func jobTrouble(v api.JobView, tasks []api.TaskView) *trouble {
	s := v.Status
	switch s.State {
	case "failed":
	case "pending", "running": // tasks that wait for others to end are no trouble
		worst := worstTask(tasks)
		if worst == nil || reasonOf(*worst) == "" || s.Running > 0 && !heldUp(*worst) {
			return nil
		}
	default:
		return nil
	}
	n := name{wordJob, v.Cluster, v.Name}
	counts := fmt.Sprintf("%d of %s failed", s.Failed, count(s.Total, "task"))
	return explain(trouble{object: n.String(), state: s.State, cause: oneLine(s.Message)}, counts, tasks)
}

// heldUp reports whether a task that is being prepared has failed at it, and its node tries again.
func heldUp(t api.TaskView) bool {
	return t.State == cluster.StatePreparing && strings.Contains(t.Message, "; trying again after ")
}

// explain adds the next step and, where the server told no cause, the counts with what the worst task tells.
func explain(t trouble, counts string, tasks []api.TaskView) *trouble {
	t.next = "berth status " + t.object
	worst := worstTask(tasks)
	if told := namedTask(t.cause, tasks); told != nil {
		worst = told
	}
	if t.cause == "" {
		t.cause = counts
		if worst != nil {
			t.cause = joinNonEmpty(": ", counts, shortTask(worst.ID), oneLine(reasonOf(*worst)))
		}
	}
	if worst != nil {
		t.cause = withCause(t, *worst)
	}
	switch {
	case worst == nil:
	case notPlaced(*worst):
		t.next = "berth node ls"
	case unreachable(*worst) && strings.Contains(worst.Message, "berth node forget"):
		t.next = "berth node forget " + worst.Node + "   (if the machine never comes back)"
	case unreachable(*worst):
		t.next = "berth node status " + worst.Node
	default:
		t.task = worst
		t.next = "berth explain " + shortTask(worst.ID)
		if !neverRan(*worst) {
			t.next = "berth logs " + shortTask(worst.ID)
		}
	}
	return &t
}

// withCause adds what holds a task up to a message that only counts.
func withCause(t trouble, worst api.TaskView) string {
	why := oneLine(reasonOf(worst))
	if why == "" || t.state == string(cluster.StateFailed) || notPlaced(worst) ||
		strings.Contains(t.cause, why) || names(t.cause, worst.ID) {
		return t.cause
	}
	return t.cause + "; " + shortTask(worst.ID) + ": " + why
}

// notPlaced reports whether a task waits because no node takes it, and not because it has failed before.
func notPlaced(t api.TaskView) bool {
	if t.State != cluster.StatePending {
		return false
	}
	switch t.Reason {
	case cluster.ReasonNoNodes, cluster.ReasonNodeNotReady, cluster.ReasonCordoned, cluster.ReasonConstraint,
		cluster.ReasonShortCPU, cluster.ReasonShortMemory, cluster.ReasonShortDisk, cluster.ReasonPort,
		cluster.ReasonPortsSpent, cluster.ReasonAntiAffinity, cluster.ReasonNoExecutor, "":
		return true
	}
	return false
}

// namedTask returns the task that a message of the server is about, or nil: what is shown beside it is to be of the
// same one.
func namedTask(message string, tasks []api.TaskView) *api.TaskView {
	for i := range tasks {
		if rank(tasks[i]) < 5 && names(message, tasks[i].ID) {
			return &tasks[i]
		}
	}
	return nil
}

// names reports whether a text names a task.
func names(text string, id cluster.TaskID) bool {
	for word := range strings.FieldsSeq(text) {
		if strings.Trim(word, ":;,.") == string(id) {
			return true
		}
	}
	return false
}

// neverRan reports whether nothing of an attempt has begun, so that it has no output. One that waits after
// an earlier attempt is taken for one that ran if its reason is how a program ends.
func neverRan(t api.TaskView) bool {
	if !t.Started.IsZero() || t.Exit != nil || t.LogTail != "" {
		return false
	}
	switch t.State {
	case cluster.StateRunning, cluster.StateSucceeded:
		return false
	default:
	}
	switch t.Reason {
	case cluster.ReasonExit, cluster.ReasonOOM, cluster.ReasonTimeLimit, cluster.ReasonRestartLimit,
		cluster.ReasonUnknownExit,
		cluster.ReasonBootChanged:
		return false
	}
	return true
}

// worstTask returns the task that most needs attention, the latest of several, or nil if all are well.
func worstTask(tasks []api.TaskView) *api.TaskView {
	var worst *api.TaskView
	for i := range tasks {
		t := &tasks[i]
		if rank(*t) > 4 && t.Restarts == 0 {
			continue
		}
		if worst == nil || rank(*t) < rank(*worst) || rank(*t) == rank(*worst) && since(*t).After(since(*worst)) {
			worst = t
		}
	}
	return worst
}

// printTroubles prints troubles, each with its next step below.
func (a *app) printTroubles(found []trouble) error {
	t := table{titles: []string{"", "", ""}, indent: "  ", state: 1}
	objects, states := 0, 0
	for _, tr := range found {
		objects, states = max(objects, len(tr.object)), max(states, len(tr.state))
	}
	room := 0
	if width := terminalWidth(a.stdout); width > 0 {
		room = width - objects - states - len("  ")*3
	}
	for _, tr := range found {
		for i, line := range wrapped(shortTasks(tr.cause), room) {
			if i > 0 {
				tr.object, tr.state = "", ""
			}
			t.add(tr.object, tr.state, line)
		}
		if tr.next != "" {
			t.add("", "", "→ "+tr.next)
		}
	}
	return a.printTable(t)
}

// tailLines is how much of a failed task's output is shown.
const tailLines = 10

// printTail prints the end of a task's output: what was kept with a failed attempt, or what its node has.
func (a *app) printTail(ctx context.Context, c *client.Client, t api.TaskView, to io.Writer) {
	printLines(to, t.ID, tailOf(ctx, c, t))
}

// tailOf returns the last lines of a task's output, none where there is nothing to show.
func tailOf(ctx context.Context, c *client.Client, t api.TaskView) []string {
	var lines []string
	if t.State == cluster.StatePending { // it failed before
		if attempts, err := attemptsOf(ctx, c, t); err == nil && len(attempts) > 1 {
			t = attempts[1]
		}
	}
	if t.LogTail != "" {
		lines = strings.Split(strings.TrimRight(t.LogTail, "\n"), "\n")
	} else {
		for line, err := range c.Logs(ctx, t.ID, client.LogOptions{Tail: tailLines}) {
			if err != nil {
				break // there is no output to show; the cause is told without it
			}
			if line.Lost == 0 {
				lines = append(lines, line.Text)
			}
		}
	}
	return slices.Clone(lines[max(0, len(lines)-tailLines):])
}

func printLines(to io.Writer, id cluster.TaskID, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(to, "\nThe end of the output of %s:\n", shortTask(id))
	for _, l := range lines {
		fmt.Fprintf(to, "  | %s\n", l)
	}
}
