package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/enum"
)

func (a *app) newPsCommand() *cobra.Command {
	var f client.TaskFilter
	var cron string
	cmd := &cobra.Command{
		Use:   "ps",
		Short: "List tasks, trouble first",
		Long: "List tasks, trouble first. While a service has tasks of several versions it says of each " +
			"whether it is of the new one, an old one\n" +
			"or a canary.",
		Args: arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			tasks, err := allTasks(cmd.Context(), c, f)
			if err != nil {
				return err
			}
			if len(tasks) == 0 {
				if err := inQuery(cmd.Context(), c, f.Node, f.Cluster); err != nil {
					return err
				}
			}
			if cron != "" {
				if tasks, err = tasksOfCron(cmd, c, tasks, cron); err != nil {
					return err
				}
			}
			return a.printTasks(tasks, versionsOf(cmd.Context(), c, tasks))
		},
	}
	cmd.Flags().StringVar(&f.Cluster, "cluster", "", "only tasks of this `cluster`")
	cmd.Flags().StringVar(&f.Service, "service", "", "only tasks of this `service`")
	cmd.Flags().StringVar(&f.Job, "job", "", "only tasks of this `job`")
	cmd.Flags().StringVar(&cron, "cron", "", "only tasks of the jobs that this `cron` made")
	cmd.Flags().StringVar(&f.Node, "node", "", "only tasks on this `node`")
	cmd.Flags().StringVar(&f.State, "state", "", "only tasks in this `state`, such as running")
	cmd.Flags().BoolVarP(&f.All, "all", "a", false, "attempts that have ended too")
	a.completeFlags(cmd, map[string]string{
		"cluster": wordCluster, "service": wordService, "job": wordJob,
		"cron": wordCron, "node": wordNode,
	})
	mustComplete(cmd, "state",
		cobra.FixedCompletions(enum.Words(reflect.TypeFor[cluster.State]()), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// tasksOfCron keeps the tasks of jobs that a cron made.
func tasksOfCron(cmd *cobra.Command, c *client.Client, tasks []api.TaskView, text string) ([]api.TaskView, error) {
	n, err := parseName(cmd, text, wordCron)
	if err != nil {
		return nil, err
	}
	v, err := n.cron(cmd.Context(), c)
	if err != nil {
		return nil, err
	}
	jobs, err := jobsOf(cmd.Context(), c, v)
	if err != nil {
		return nil, err
	}
	made := map[cluster.OwnerRef]bool{}
	for _, j := range jobs {
		made[j.Owner()] = true
	}
	return slices.DeleteFunc(tasks, func(t api.TaskView) bool { return !made[t.Owner] }), nil
}

// versionsOf returns the status of services of which several versions run, by owner. It is there to tell versions
// apart, so a server that does not answer is no fault.
func versionsOf(ctx context.Context, c *client.Client, tasks []api.TaskView) map[cluster.OwnerRef]api.ServiceView {
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

// versionWord says whether a task is of its service's newest version, while there are several.
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

// printTasks prints tasks, trouble first, with their version where their service is among those given.
func (a *app) printTasks(tasks []api.TaskView, mixed map[cluster.OwnerRef]api.ServiceView) error {
	last := map[cluster.TaskID]int{}
	for _, t := range tasks {
		last[t.ID] = max(last[t.ID], t.Attempt)
	}
	urgency := func(t api.TaskView) int {
		if t.Attempt < last[t.ID] && t.State != cluster.StatePending {
			return replaced
		}
		return rank(t)
	}
	slices.SortStableFunc(tasks, func(x, y api.TaskView) int {
		return cmp.Or(cmp.Compare(urgency(x), urgency(y)), compareTasks(x, y), cmp.Compare(y.Attempt, x.Attempt))
	})
	if a.data() {
		return a.printData(emptyIsList(tasks))
	}
	if len(tasks) == 0 {
		a.tell("No tasks.")
		return nil
	}
	return a.printTable(a.taskTable(tasks, mixed))
}

// replaced is the rank of attempts that a newer one stands for.
const replaced = 8

// rank orders tasks by how much they need somebody's attention.
func rank(t api.TaskView) int {
	switch {
	case t.State == cluster.StateFailed || t.State == cluster.StateRejected || t.State == cluster.StateLost:
		return 0
	case unreachable(t), t.State == cluster.StateRunning && t.Health == cluster.HealthFailing:
		return 1
	case t.State == cluster.StateRunning && t.Health == cluster.HealthWarning:
		return 2
	case t.State == cluster.StatePending:
		return 3
	case t.State == cluster.StateRunning && t.Health == cluster.HealthHealthy:
		return 6
	case t.State == cluster.StateRunning:
		return 5
	case t.State.Terminal():
		return 7
	}
	return 4
}

// taskTable shows tasks in the order given.
func (a *app) taskTable(tasks []api.TaskView, mixed map[cluster.OwnerRef]api.ServiceView) table {
	t := table{state: 1, titles: []string{
		"TASK", "STATE", "NODE", "ADDRESS", "DEFINITION", "VERSION", "TRY>", "RESTARTS>", "AGE>", "+STARTED",
		"+ATTEMPT ID", "MESSAGE",
	}}
	for _, v := range tasks {
		started := ""
		if !v.Started.IsZero() {
			started = v.Started.UTC().Format("2006-01-02T15:04:05Z")
		}
		t.add(shortTask(v.ID), shownState(v), v.Node, addresses(v), v.Definition.String(),
			versionWord(v, mixed[v.Owner]), above(v.Attempt, 1),
			above(v.Restarts, 0), a.age(since(v)), started, v.UUID, oneLine(reasonOf(v)))
	}
	return t
}

// unreachable reports whether a task's node fell silent, so that nobody knows how the task does.
func unreachable(t api.TaskView) bool {
	return !t.State.Terminal() && t.State != cluster.StatePending && t.Reason == cluster.ReasonNodeDown
}

// shownState is a task's health while it runs, else its state.
func shownState(v api.TaskView) string {
	if unreachable(v) {
		return "unreachable"
	}
	if v.State == cluster.StateRunning && v.Health != "" && v.Health != cluster.HealthUnknown {
		return string(v.Health)
	}
	return string(v.State)
}

// addresses returns where a task's ports are reached.
func addresses(v api.TaskView) string {
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

// reasonOf says in a sentence why a task is as it is; nothing while it is well.
func reasonOf(v api.TaskView) string {
	switch {
	case v.Message != "":
		return v.Message
	case v.Exit != nil && v.State == cluster.StateFailed:
		return exitText(*v.Exit)
	case v.State == cluster.StateRunning, v.State == cluster.StateSucceeded:
		return ""
	}
	return string(v.Reason)
}

func exitText(e cluster.Exit) string {
	switch {
	case e.Unknown:
		return "nobody saw how it ended"
	case e.OOM:
		return "killed by the kernel: out of its memory limit"
	case e.Signal != 0:
		return fmt.Sprintf("ended by signal %d", e.Signal)
	}
	return fmt.Sprintf("exit code %d", e.Code)
}

// since is when the newest part of a task's life began.
func since(v api.TaskView) time.Time {
	switch {
	case !v.Finished.IsZero():
		return v.Finished
	case !v.Started.IsZero():
		return v.Started
	}
	return v.Placed
}

// above returns a number as text if it is more than usual.
func above(n, usual int) string {
	if n <= usual {
		return ""
	}
	return strconv.Itoa(n)
}

// oneLine joins the lines of a text.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// emptyIsList makes an empty list of nil, so that programs read [] and not null.
func emptyIsList[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// tasksOf returns the tasks of an owner.
func tasksOf(ctx context.Context, c *client.Client, n name, all bool) ([]api.TaskView, error) {
	f := client.TaskFilter{Cluster: n.cluster, All: all}
	if n.kind == wordJob {
		f.Job = n.name
	} else {
		f.Service = n.name
	}
	return allTasks(ctx, c, f)
}
