package trouble

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/taskview"
	"github.com/berthd/berth/internal/wording"
)

// ofService returns the trouble of a service, or nil.
func ofService(o *Objects, v *api.ServiceView) *api.Trouble {
	object := wording.Object(wording.KindService, v.Cluster, v.Name)
	switch v.Status.State {
	case cluster.ServiceStopped, cluster.ServiceStopping, cluster.ServiceDeleting:
		return nil
	}
	if t := ofChange(o, v); t != nil {
		return t
	}
	if v.Status.Unmet != "" {
		return ofNeeds(object, string(v.Status.State), v.Status.Unmet)
	}
	if v.Status.State == cluster.ServiceHealthy {
		return ofMisplaced(object, o.Misplaced(v.Owner()))
	}
	tasks := o.Tasks(v.Owner())
	switch v.Status.State {
	case cluster.ServiceStarting, cluster.ServiceRollingOut: // no trouble unless a task is held up
		if worst := taskview.Worst(tasks); worst == nil || taskview.Reason(*worst) == "" {
			return nil
		}
	}
	t := api.Trouble{Object: object, State: string(v.Status.State), Cause: wording.OneLine(v.Status.Message)}
	explain(&t, fmt.Sprintf("%d/%d healthy", v.Status.Healthy, v.Status.Desired), tasks)
	return &t
}

// ofNeeds says what a service or job waits for before its first task.
func ofNeeds(object, state, unmet string) *api.Trouble {
	return &api.Trouble{Object: object, State: state, Cause: unmet, Next: "berth explain " + object}
}

// ofMisplaced says that tasks of a healthy service run where they should not, as their nodes are now; nil for no tasks.
func ofMisplaced(object string, tasks []api.TaskView) *api.Trouble {
	if len(tasks) == 0 {
		return nil
	}
	first := &tasks[0]
	t := api.Trouble{
		Object: object, State: api.TroubleMisplaced, Task: first.ID,
		Cause: wording.JoinNonEmpty(": ", string(first.ID), wording.OneLine(first.Misplaced)),
		Next:  "berth explain " + string(first.ID),
	}
	t.Cause += andMore(len(tasks) - 1)
	return &t
}

// andMore adds to a cause of one task how many tasks share it.
func andMore(rest int) string {
	if rest <= 0 {
		return ""
	}
	return fmt.Sprintf("; and %d more", rest)
}

// ofChange returns the trouble of a service beyond its counts, or nil: a crash loop, a rollout that failed, or one that
// waits for a person.
func ofChange(o *Objects, v *api.ServiceView) *api.Trouble {
	s := &v.Status
	object := wording.Object(wording.KindService, v.Cluster, v.Name)
	t := api.Trouble{Object: object, Cause: wording.OneLine(s.Message)}
	switch {
	case len(s.Crashing) > 0:
		loop := s.Crashing[0]
		t.State = api.TroubleCrashLoop
		t.Cause = wording.OneLine(taskview.CrashText(loop)) + andMore(len(s.Crashing)-1)
		t.Next = "berth logs " + string(loop.Task)
		tasks := o.Tasks(v.Owner())
		if i := slices.IndexFunc(tasks, func(v api.TaskView) bool { return v.ID == loop.Task }); i >= 0 {
			t.Task = tasks[i].ID
			if taskview.NeverRan(tasks[i]) {
				t.Next = "berth explain " + object
			}
		}
	case s.Rollout == cluster.RolloutFailed:
		t.State, t.Next = api.TroubleRolloutFailed, "berth rollout status "+object
		t.Cause = cmp.Or(t.Cause, "rollout of "+v.Definition.String()+" failed")
	case s.Rollout == cluster.RolloutCanary && !s.Paused:
		t.State, t.Next = api.TroubleCanary, "berth promote "+object
		t.Cause = "canaries of " + v.Definition.String() + " healthy, waiting for promotion"
	case s.Paused && !s.Rollout.Ended() && s.Rollout != "":
		t.State, t.Next = api.TroublePaused, "berth rollout resume "+object
		t.Cause = "rollout of " + v.Definition.String() + " is paused"
	default:
		return nil
	}
	return &t
}

// ofHealthyService returns the trouble of a service that has none by ofService, or nil: tasks that get no further
// attempt, or tasks that need more memory.
func ofHealthyService(v *api.ServiceView) *api.Trouble {
	s := &v.Status
	switch s.State {
	case cluster.ServiceStopped, cluster.ServiceStopping, cluster.ServiceDeleting:
		return nil
	}
	object := wording.Object(wording.KindService, v.Cluster, v.Name)
	t := api.Trouble{Object: object, Next: "berth explain " + object}
	switch {
	case len(s.GivenUp) > 0:
		t.State, t.Cause = api.TroubleGivenUp, string(s.GivenUp[0])
		if rest := len(s.GivenUp) - 1; rest > 0 {
			t.Cause += fmt.Sprintf(" and %d more", rest)
		}
		t.Cause += ": not retried until the service changes"
	case s.MemoryTrouble != "":
		t.State, t.Cause = api.TroubleHungry, wording.OneLine(s.MemoryTrouble)
	default:
		return nil
	}
	return &t
}

// ofJob returns the trouble of a job, or nil.
func ofJob(o *Objects, v *api.JobView) *api.Trouble {
	s, object := &v.Status, wording.Object(wording.KindJob, v.Cluster, v.Name)
	if s.Unmet != "" {
		return ofNeeds(object, string(s.State), s.Unmet)
	}
	var tasks []api.TaskView
	switch s.State {
	case cluster.JobFailed:
		tasks = o.Tasks(v.Owner())
	case cluster.JobPending, cluster.JobRunning: // no trouble while other tasks run, unless the preparation failed
		tasks = o.Tasks(v.Owner())
		worst := taskview.Worst(tasks)
		if worst == nil || taskview.Reason(*worst) == "" || s.Running > 0 && !preparesAgain(worst) {
			return nil
		}
	default:
		return nil
	}
	t := api.Trouble{
		Object: object, State: string(s.State), Cause: wording.OneLine(s.Message),
	}
	explain(&t, fmt.Sprintf("%d/%d failed", s.Failed, s.Total), tasks)
	return &t
}

// preparesAgain reports whether the preparation of a task failed and its node tries it again.
func preparesAgain(t *api.TaskView) bool {
	return t.State == cluster.StatePreparing && strings.Contains(t.Message, cluster.MessageTriesAgain)
}

// ofCron returns the trouble of a cron, or nil: its last moment has no job, or its schedules have no further moment.
// A job that failed is a trouble of the job.
func ofCron(v *api.CronView) *api.Trouble {
	object := wording.Object(wording.KindCron, v.Cluster, v.Name)
	t := api.Trouble{Object: object}
	switch {
	case v.Status.State == api.CronSuspended:
		return nil
	case v.Status.Message != "":
		t.State, t.Next = api.TroubleMissed, "berth cron history "+object
		t.Cause = wording.OneLine(v.Status.Message)
	case len(v.Status.Next) == 0 && v.Status.State == api.CronWaiting:
		t.State, t.Next = api.TroubleNoMoments, "berth cron status "+object
		t.Cause = "no schedule has a next moment: " + strings.Join(v.Schedules, "; ")
	default:
		return nil
	}
	return &t
}
