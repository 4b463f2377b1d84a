// Package trouble finds the objects that are not as they should be, with the cause and the next step of each. It works
// on the views that the API shows, so that a trouble and the object's own view never disagree. It is pure.
package trouble

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/taskview"
	"github.com/berthd/berth/internal/wording"
)

// Objects are the views among which troubles are found.
type Objects struct {
	// Now is the time at which the views were built.
	Now      time.Time
	Nodes    []api.NodeView
	Services []api.ServiceView
	Jobs     []api.JobView
	Crons    []api.CronView
	// Tasks returns the newest attempt of each task of an owner that may need attention. Tasks that run undisturbed may
	// be left out. It is called for owners that are not well.
	Tasks func(cluster.OwnerRef) []api.TaskView
	// Misplaced returns the tasks of a service that run where they should not. It is called for healthy services.
	Misplaced func(cluster.OwnerRef) []api.TaskView
}

// Find returns the troubles among the objects: nodes first, because they are often the cause of the rest; then
// services, the most urgent first, and jobs; last crons, and services that run well but need a decision.
func Find(o *Objects) []api.Trouble {
	found := nodeTroubles(o)
	var services []api.Trouble
	for i := range o.Services {
		if t := ofService(o, &o.Services[i]); t != nil {
			services = append(services, *t)
		}
	}
	slices.SortStableFunc(services, func(x, y api.Trouble) int { return cmp.Compare(urgency(x), urgency(y)) })
	found = append(found, services...)
	for i := range o.Jobs {
		if t := ofJob(o, &o.Jobs[i]); t != nil {
			found = append(found, *t)
		}
	}
	for i := range o.Crons {
		if t := ofCron(&o.Crons[i]); t != nil {
			found = append(found, *t)
		}
	}
	listed := map[string]bool{}
	for _, t := range services {
		listed[t.Object] = true
	}
	for i := range o.Services {
		if t := ofHealthyService(&o.Services[i]); t != nil && !listed[t.Object] {
			found = append(found, *t)
		}
	}
	return found
}

// urgency orders the troubles of services: failures come before services that wait for a person.
func urgency(t api.Trouble) int {
	switch t.State {
	case api.TroubleCrashLoop:
		return 0
	case api.TroubleRolloutFailed:
		return 1
	case api.TroubleCanary, api.TroublePaused, api.TroubleMisplaced:
		return 3
	}
	return 2
}

// OfTask returns what keeps a task from running, or nil.
func OfTask(v api.TaskView) *api.Trouble {
	if taskview.Reason(v) == "" {
		return nil
	}
	t := api.Trouble{Object: v.Owner.String(), State: string(v.State)}
	explain(&t, "", []api.TaskView{v})
	own := "berth status " + t.Object
	t.Object = wording.KindTask + "/" + string(v.ID)
	switch {
	case v.State == cluster.StatePending:
		t.Next = "berth explain " + string(v.ID)
	case t.Next == own:
		t.Next = "berth events --task " + string(v.ID)
	}
	return &t
}

// explain sets the next step, the cause where the server's message has none, and the task that shows the cause. Counts
// says how many of the tasks are well.
func explain(t *api.Trouble, counts string, tasks []api.TaskView) {
	t.Next = "berth status " + t.Object
	worst := taskview.Worst(tasks)
	if named := taskview.Named(t.Cause, tasks); named != nil {
		worst = named
	}
	if t.Cause == "" {
		t.Cause = counts
		if worst != nil {
			t.Cause = wording.JoinNonEmpty(": ", counts, string(worst.ID), reasonLine(worst))
		}
	}
	if worst != nil {
		addReason(t, worst)
		setNext(t, worst)
	}
}

// setNext sets the next step about the worst task, and the task whose output or explanation shows the cause.
func setNext(t *api.Trouble, worst *api.TaskView) {
	switch {
	case noNodeTakes(worst) && worst.Reason != cluster.ReasonNoNodes:
		t.Next = "berth explain " + string(worst.ID)
	case noNodeTakes(worst):
		t.Next = "berth node ls"
	case taskview.Unreachable(*worst) && strings.Contains(worst.Message, cluster.ForgetCommand):
		t.Next = cluster.ForgetCommand + " " + worst.Node + "   (if the machine never comes back)"
	case taskview.Unreachable(*worst):
		t.Next = "berth node status " + worst.Node
	default:
		t.Task = worst.ID
		t.Next = "berth explain " + string(worst.ID)
		if !taskview.NeverRan(*worst) {
			t.Next = "berth logs " + string(worst.ID)
		}
	}
}

// addReason adds the reason of the worst task to a cause that only counts.
func addReason(t *api.Trouble, worst *api.TaskView) {
	why := reasonLine(worst)
	if why == "" || t.State == string(cluster.StateFailed) || noNodeTakes(worst) ||
		strings.Contains(t.Cause, why) || taskview.Names(t.Cause, worst.ID) {
		return
	}
	t.Cause += "; " + string(worst.ID) + ": " + why
}

func reasonLine(v *api.TaskView) string { return wording.OneLine(taskview.Reason(*v)) }

// noNodeTakes reports whether a task waits because no node takes it, and not because it failed before.
func noNodeTakes(t *api.TaskView) bool {
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
