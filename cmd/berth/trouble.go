package main

import (
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
	tasks := map[cluster.OwnerRef][]api.TaskView{}
	for _, t := range all.Tasks {
		tasks[t.Owner] = append(tasks[t.Owner], t)
	}
	for _, v := range all.Services {
		if t := serviceTrouble(v, tasks[v.Owner()]); t != nil {
			found = append(found, *t)
		}
	}
	for _, v := range all.Jobs {
		if t := jobTrouble(v, tasks[v.Owner()]); t != nil {
			found = append(found, *t)
		}
	}
	return found
}

// serviceTrouble returns what is wrong with a service, or nil.
func serviceTrouble(v api.ServiceView, tasks []api.TaskView) *trouble {
	switch v.Status.State {
	case "healthy", "stopped", "stopping", "deleting":
		return nil
	case "starting", "rolling-out": // on its way, unless something holds it up
		if v.Status.Message == "" {
			return nil
		}
	}
	n := name{wordService, v.Cluster, v.Name}
	cause := fmt.Sprintf("%d of %d healthy", v.Status.Healthy, v.Status.Desired)
	return explain(n, v.Status.State, cause, v.Status.Message, tasks)
}

// jobTrouble returns what is wrong with a job, or nil.
func jobTrouble(v api.JobView, tasks []api.TaskView) *trouble {
	s := v.Status
	held := s.Message != "" && (s.State == "pending" || s.State == "running")
	if s.State != "failed" && !held {
		return nil
	}
	n := name{wordJob, v.Cluster, v.Name}
	cause := fmt.Sprintf("%d of %s failed", s.Failed, count(s.Total, "task"))
	if held {
		cause = fmt.Sprintf("%d of %s done", s.Succeeded, count(s.Total, "task"))
	}
	return explain(n, s.State, cause, s.Message, tasks)
}

// explain finds the cause of an owner's trouble in its tasks.
func explain(n name, state, numbers, message string, tasks []api.TaskView) *trouble {
	t := &trouble{object: n.String(), state: state, cause: numbers}
	worst := worstTask(tasks)
	switch {
	case message != "":
		t.cause += ": " + oneLine(message)
	case worst != nil && reasonOf(*worst) != "":
		t.cause += fmt.Sprintf(": %s: %s", shortTask(worst.ID), oneLine(reasonOf(*worst)))
	}
	t.next = "berth status " + n.String()
	if worst == nil {
		return t
	}
	switch {
	case worst.State == cluster.StatePending:
		t.next = "berth node ls"
	case worst.Node != "":
		t.task = worst
		t.next = "berth logs " + shortTask(worst.ID)
	}
	return t
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
	t := table{titles: []string{"", "", ""}, indent: "  "}
	for _, tr := range found {
		t.add(tr.object, tr.state, tr.cause)
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
	var lines []string
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
	if len(lines) == 0 {
		return
	}
	lines = slices.Clone(lines[max(0, len(lines)-tailLines):])
	fmt.Fprintf(to, "\nThe end of the output of %s:\n", shortTask(t.ID))
	for _, l := range lines {
		fmt.Fprintf(to, "  | %s\n", l)
	}
}
