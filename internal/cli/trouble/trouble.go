package trouble

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cli/fetch"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
)

// Trouble is an object that is not as it should be: how it is, why, and what to do next.
type Trouble struct {
	Object string
	State  string
	Cause  string
	Next   string
	// Task is the one that tells most of the cause, or nil.
	Task *api.TaskView
}

// findTroubles returns what is not well: nodes first, for they are often the cause of the rest.
func findTroubles(all fetch.Everything) []Trouble {
	var found []Trouble
	for _, n := range all.Nodes {
		if n.State == cluster.NodeDown || n.State == cluster.NodeSuspect {
			found = append(found, Trouble{
				Object: session.KindNode + "/" + n.Name, State: string(n.State), Cause: output.OneLine(n.Reason),
				Next: "berth node status " + n.Name,
			})
		}
	}
	for _, n := range all.Nodes {
		if p := PressureOf(n); p != nil {
			found = append(found, Trouble{
				Object: session.KindNode + "/" +
					n.Name, State: "pressure", Cause: PressureText(p), Next: "berth node status " +
					n.Name,
			})
		}
	}
	for _, n := range all.Nodes {
		if n.Used != nil && n.Used.DiskFull != nil {
			found = append(found, Trouble{
				Object: session.KindNode + "/" +
					n.Name, State: troubleFull, Cause: output.OneLine(n.Used.DiskFull.Message),
				Next: "berth image ls --node " + n.Name,
			})
		}
	}
	tasks := map[cluster.OwnerRef][]api.TaskView{}
	for _, t := range all.Tasks {
		tasks[t.Owner] = append(tasks[t.Owner], t)
	}
	var services []Trouble
	for _, v := range all.Services {
		if t := ServiceTrouble(v, tasks[v.Owner()]); t != nil {
			services = append(services, *t)
		}
	}
	slices.SortStableFunc(services, func(x, y Trouble) int { return cmp.Compare(x.weight(), y.weight()) })
	found = append(found, services...)
	for _, v := range all.Jobs {
		if t := JobTrouble(v, tasks[v.Owner()]); t != nil {
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
func (t Trouble) weight() int {
	switch t.State {
	case troubleCrashLoop:
		return 0
	case troubleRollout:
		return 1
	case troubleCanary, troublePaused, troubleMisplaced:
		return 3
	}
	return 2
}

// ServiceTrouble returns what is wrong with a service, or nil.
func ServiceTrouble(v api.ServiceView, tasks []api.TaskView) *Trouble {
	if v.Status.State != "stopping" && v.Status.State != "stopped" && v.Status.State != "deleting" {
		if t := changeTrouble(v, tasks); t != nil {
			return t
		}
	}
	switch v.Status.State {
	case "healthy":
		return misplacedTrouble(session.ServiceName(v), tasks)
	case "stopped", "stopping", "deleting":
		return nil
	case "starting", "rolling-out": // on its way, unless something holds it up
		if worst := WorstTask(tasks); worst == nil || ReasonOf(*worst) == "" {
			return nil
		}
	}
	n := session.Name{Kind: session.KindService, Cluster: v.Cluster, Name: v.Name}
	counts := fmt.Sprintf("%d of %s healthy", v.Status.Healthy, output.Count(v.Status.Desired, "task"))
	return explain(Trouble{Object: n.String(), State: v.Status.State, Cause: output.OneLine(v.Status.Message)}, counts,
		tasks)
}

// misplacedTrouble says that tasks of a service that is healthy are where they should not be, as their nodes are now,
// or is nil.
func misplacedTrouble(n session.Name, tasks []api.TaskView) *Trouble {
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
	t := &Trouble{
		Object: n.String(), State: troubleMisplaced, Task: first,
		Next: "berth explain " + session.ShortTask(first.ID),
	}
	t.Cause = output.JoinNonEmpty(": ", session.ShortTask(first.ID), output.OneLine(first.Misplaced))
	if rest := found - 1; rest > 0 {
		t.Cause += fmt.Sprintf("; and %s more", output.Count(rest, "task"))
	}
	return t
}

// changeTrouble returns what is wrong with a service beyond its counts, or nil: tasks that end again and again, a
// rollout that failed, or one that waits for somebody.
func changeTrouble(v api.ServiceView, tasks []api.TaskView) *Trouble {
	n := session.ServiceName(v)
	s := v.Status
	t := Trouble{Object: n.String(), Cause: session.ShortTasks(output.OneLine(s.Message))}
	switch {
	case len(s.Crashing) > 0:
		loop := s.Crashing[0]
		t.State, t.Cause = troubleCrashLoop, crashText(loop)
		if rest := len(s.Crashing) - 1; rest > 0 {
			t.Cause += fmt.Sprintf("; and %s more", output.Count(rest, "task"))
		}
		t.Next = "berth logs " + session.ShortTask(loop.Task)
		if i := slices.IndexFunc(tasks, func(v api.TaskView) bool { return v.ID == loop.Task }); i >= 0 {
			t.Task = &tasks[i]
			if NeverRan(tasks[i]) { // there is no output of it
				t.Next = "berth explain " + n.Argument()
			}
		}
	case s.Rollout == cluster.RolloutFailed:
		t.State, t.Next = troubleRollout, "berth rollout status "+n.Argument()
		t.Cause = cmp.Or(t.Cause, "the rollout of "+v.Definition.String()+" failed")
	case s.Rollout == cluster.RolloutCanary && !s.Paused:
		t.State, t.Next = troubleCanary, "berth promote "+n.Argument()
		t.Cause = "the canaries of " + v.Definition.String() + " are healthy and wait to be promoted"
	case s.Paused && !s.Rollout.Ended() && s.Rollout != "":
		t.State, t.Next = troublePaused, "berth rollout resume "+n.Argument()
		t.Cause = "the rollout of " + v.Definition.String() + " is paused"
	default:
		return nil
	}
	return &t
}

// crashText says how a task ends again and again.
func crashText(l api.CrashLoop) string {
	text := session.ShortTask(l.Task) + " ended " + output.Count(l.Times, "time")
	switch {
	case l.Restarts > 0 && l.Times == 0:
		text = session.ShortTask(l.Task) + " was restarted " + output.Count(l.Restarts, "time")
	case l.Restarts > 0:
		text += ", its newest attempt restarted " + output.Count(l.Restarts, "time")
	}
	return output.JoinNonEmpty(": ", text, output.OneLine(l.Message))
}

// PressureOf returns the shortage of memory that a node reports, or nil.
func PressureOf(n api.NodeView) *cluster.Pressure {
	if n.Used == nil {
		return nil
	}
	return n.Used.Pressure
}

// PressureText says what a node is short of, and what its agent suggests to move away.
func PressureText(p *cluster.Pressure) string {
	text := output.OneLine(p.Message)
	if p.Task != "" {
		text = output.JoinNonEmpty("; ", text,
			output.JoinNonEmpty(": ", session.ShortTask(p.Task)+" is to move away", output.OneLine(p.Why)))
	}
	return text
}

// JobTrouble returns what is wrong with a job, or nil.
func JobTrouble(v api.JobView, tasks []api.TaskView) *Trouble {
	s := v.Status
	switch s.State {
	case "failed":
	case "pending", "running": // tasks that wait for others to end are no trouble
		worst := WorstTask(tasks)
		if worst == nil || ReasonOf(*worst) == "" || s.Running > 0 && !heldUp(*worst) {
			return nil
		}
	default:
		return nil
	}
	n := session.Name{Kind: session.KindJob, Cluster: v.Cluster, Name: v.Name}
	counts := fmt.Sprintf("%d of %s failed", s.Failed, output.Count(s.Total, "task"))
	return explain(Trouble{Object: n.String(), State: s.State, Cause: output.OneLine(s.Message)}, counts, tasks)
}

// heldUp reports whether a task that is being prepared has failed at it, and its node tries again.
func heldUp(t api.TaskView) bool {
	return t.State == cluster.StatePreparing && strings.Contains(t.Message, "; trying again after ")
}

// explain adds the next step and, where the server told no cause, the counts with what the worst task tells.
func explain(t Trouble, counts string, tasks []api.TaskView) *Trouble {
	t.Next = "berth status " + t.Object
	worst := WorstTask(tasks)
	if told := NamedTask(t.Cause, tasks); told != nil {
		worst = told
	}
	if t.Cause == "" {
		t.Cause = counts
		if worst != nil {
			t.Cause = output.JoinNonEmpty(": ", counts, session.ShortTask(worst.ID), output.OneLine(ReasonOf(*worst)))
		}
	}
	if worst != nil {
		t.Cause = withCause(t, *worst)
	}
	switch {
	case worst == nil:
	case notPlaced(*worst):
		t.Next = "berth node ls"
	case Unreachable(*worst) && strings.Contains(worst.Message, "berth node forget"):
		t.Next = "berth node forget " + worst.Node + "   (if the machine never comes back)"
	case Unreachable(*worst):
		t.Next = "berth node status " + worst.Node
	default:
		t.Task = worst
		t.Next = "berth explain " + session.ShortTask(worst.ID)
		if !NeverRan(*worst) {
			t.Next = "berth logs " + session.ShortTask(worst.ID)
		}
	}
	return &t
}

// withCause adds what holds a task up to a message that only counts.
func withCause(t Trouble, worst api.TaskView) string {
	why := output.OneLine(ReasonOf(worst))
	if why == "" || t.State == string(cluster.StateFailed) || notPlaced(worst) ||
		strings.Contains(t.Cause, why) || names(t.Cause, worst.ID) {
		return t.Cause
	}
	return t.Cause + "; " + session.ShortTask(worst.ID) + ": " + why
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

// NamedTask returns the task that a message of the server is about, or nil: what is shown beside it is to be of the
// same one.
func NamedTask(message string, tasks []api.TaskView) *api.TaskView {
	for i := range tasks {
		if Rank(tasks[i]) < 5 && names(message, tasks[i].ID) {
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

// NeverRan reports whether nothing of an attempt has begun, so that it has no output. One that waits after
// an earlier attempt is taken for one that ran if its reason is how a program ends.
func NeverRan(t api.TaskView) bool {
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

// WorstTask returns the task that most needs attention, the latest of several, or nil if all are well.
func WorstTask(tasks []api.TaskView) *api.TaskView {
	var worst *api.TaskView
	for i := range tasks {
		t := &tasks[i]
		if Rank(*t) > 4 && t.Restarts == 0 {
			continue
		}
		if worst == nil || Rank(*t) < Rank(*worst) || Rank(*t) == Rank(*worst) && Since(*t).After(Since(*worst)) {
			worst = t
		}
	}
	return worst
}
