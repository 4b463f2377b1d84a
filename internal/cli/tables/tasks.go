package tables

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/fetch"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/taskview"
	"github.com/berthd/berth/internal/wording"
)

// ReadMixedVersions returns, by owner, the services that run several versions. The versions only label tasks, so errors
// are ignored.
func ReadMixedVersions(ctx context.Context, c *client.Client,
	tasks []api.TaskView,
) map[cluster.OwnerRef]api.ServiceView {
	first := map[cluster.OwnerRef]uint64{}
	mixed := map[cluster.OwnerRef]api.ServiceView{}
	for _, t := range tasks {
		if t.Owner.Kind != cluster.KindService || t.State.Terminal() {
			continue
		}
		switch g, ok := first[t.Owner]; {
		case !ok:
			first[t.Owner] = t.Generation
		case g != t.Generation:
			mixed[t.Owner] = api.ServiceView{}
		}
	}
	for o := range mixed {
		v, err := c.Service(ctx, o.Cluster, o.Name)
		if err != nil || len(v.Status.Versions) < 2 {
			delete(mixed, o)
			continue
		}
		mixed[o] = v
	}
	return mixed
}

// versionWord describes whether a task is of the newest version of its service, while there are several.
func versionWord(t api.TaskView, v api.ServiceView) string {
	i := slices.IndexFunc(v.Status.Versions, func(v api.VersionCount) bool { return v.Generation == t.Generation })
	switch {
	case t.State.Terminal() || len(v.Status.Versions) == 0:
		return ""
	case t.Generation != v.Generation && (i < 0 || !v.Status.Versions[i].Newest):
		return "old"
	case v.Update.Canaries != nil && v.Rollout.Promoted != v.Generation && !v.Status.Rollout.Ended():
		return "canary"
	}
	return "new"
}

// TaskOptions are what a table of tasks shows besides the tasks.
type TaskOptions struct {
	// Mixed are the services whose tasks show their version.
	Mixed map[cluster.OwnerRef]api.ServiceView
	// Labels, unless nil, are the labels of owners that the table shows, with those of the owners.
	Labels      *fetch.Labels
	OwnerLabels fetch.OwnerLabels
}

// PrintTasks prints tasks, those that need attention first.
func PrintTasks(sess *session.Session, tasks []api.TaskView, o TaskOptions) error {
	last := map[cluster.TaskID]int{}
	for _, t := range tasks {
		last[t.ID] = max(last[t.ID], t.Attempt)
	}
	urgency := func(t api.TaskView) int {
		if t.Attempt < last[t.ID] && t.State != cluster.StatePending {
			return replacedRank
		}
		return taskview.Severity(t)
	}
	slices.SortStableFunc(tasks, func(x, y api.TaskView) int {
		return cmp.Or(cmp.Compare(urgency(x), urgency(y)), session.CompareTasks(x, y),
			cmp.Compare(y.Attempt, x.Attempt))
	})
	none := "No tasks."
	if o.Labels != nil {
		none = o.Labels.EmptyText(none)
	}
	return session.PrintList(sess, tasks, none, func([]api.TaskView) output.Table {
		t := TaskTable(sess, tasks, o.Mixed)
		if o.Labels != nil {
			o.Labels.AddColumns(&t, func(row int) cluster.Labels { return o.OwnerLabels[tasks[row].Owner] })
		}
		return t
	})
}

// PrintCurrentTasks prints tasks like PrintTasks. Below the table it says how many ended tasks are not shown, and the
// way to show them.
func PrintCurrentTasks(sess *session.Session, list *fetch.CurrentTasks, o TaskOptions, way string) error {
	if err := PrintTasks(sess, list.Tasks, o); err != nil {
		return err
	}
	if text := list.HiddenText(way); text != "" && !sess.WantsData() {
		sess.Messagef("%s", text)
	}
	return nil
}

// replacedRank is the sort rank of attempts that have a newer attempt.
const replacedRank = 8

// TaskTable returns the table of tasks in the given order.
func TaskTable(sess *session.Session, tasks []api.TaskView, mixed map[cluster.OwnerRef]api.ServiceView) output.Table {
	t := output.Table{StateColumn: 1, Titles: []string{
		"TASK", "STATE", "NODE", "ADDRESS", "DEFINITION", "VERSION", "PARAMETERS", "TRY>", "RESTARTS>", "AGE>",
		"+STARTED", "+ATTEMPT ID", "MESSAGE",
	}}
	for _, v := range tasks {
		started := ""
		if !v.Started.IsZero() {
			started = output.FormatSecond(v.Started)
		}
		name := string(v.ID)
		if v.Further > 0 {
			name += fmt.Sprintf(" to %d", v.Index+v.Further)
		}
		t.Add(name, taskview.State(v), v.Node, addressesText(v), v.Definition.String(),
			versionWord(v, mixed[v.Owner]), parametersText(v), output.FormatAbove(v.Attempt, 1),
			output.FormatAbove(v.Restarts, 0), sess.Age(taskview.Since(v)), started, v.UUID,
			wording.OneLine(taskview.Reason(v)))
	}
	return t
}

// maxParameterWidth is how much of a parameter's value a table shows.
const maxParameterWidth = 40

// parametersText lists the parameters of a task.
func parametersText(v api.TaskView) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(v.Parameters)) {
		all = append(all, name+"="+output.Truncate(wording.OneLine(v.Parameters[name]), maxParameterWidth))
	}
	return strings.Join(all, " ")
}

// addressesText lists the addresses of a task's ports.
func addressesText(v api.TaskView) string {
	if v.State.Terminal() {
		return ""
	}
	var all []string
	for _, port := range slices.Sorted(maps.Keys(v.Ports)) {
		at := v.Address + ":" + strconv.Itoa(v.Ports[port])
		if len(v.Ports) > 1 {
			at = port + "=" + at
		}
		all = append(all, at)
	}
	return strings.Join(all, " ")
}
