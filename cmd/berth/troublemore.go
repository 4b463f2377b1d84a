package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// How long a node may take before it is in trouble: to be ready once it has registered, and to be empty once it is
// drained.
const (
	joinPatience  = time.Minute
	drainPatience = 10 * time.Minute
)

// States of troubles of nodes, crons and services that no state of the server names.
const (
	troubleLost    = "lost-device"
	troubleHeld    = "drain-held"
	troubleMissed  = "missed"
	troubleNoMore  = "no-moments"
	troubleGivenUp = "given-up"
	troubleHungry  = "hungry"
	troubleFull    = "disk-full"
)

// lingering returns what is wrong with nodes that are not silent: those that stay on their way for too long, and lost
// devices.
func lingering(n api.NodeView, now time.Time) (found []trouble) {
	object, next := wordNode+"/"+n.Name, "berth node status "+n.Name
	for _, d := range n.LostDevices {
		found = append(found, trouble{
			object: object, state: troubleLost, next: "berth explain " + shortTask(d.Task),
			cause: fmt.Sprintf("device %s is gone while %s holds it", d.ID, shortTask(d.Task)),
		})
	}
	switch {
	case n.State == cluster.NodeJoining && now.Sub(n.Since) > joinPatience && !n.Since.IsZero():
		cause := oneLine(n.Reason)
		if cause == "" {
			cause = "its agent registered and has not told yet what runs there"
		}
		found = append(found, trouble{object: object, state: string(n.State), cause: cause, next: next})
	case n.State == cluster.NodeDraining && n.Drain != nil && len(n.Drain.Left) > 0 &&
		now.Sub(n.Drain.Since) > drainPatience && !n.Drain.Since.IsZero():
		left := n.Drain.Left[0]
		cause := fmt.Sprintf("it is emptied for %s and still has %s: %s", span(now.Sub(n.Drain.Since)),
			count(len(n.Drain.Left), "task"),
			joinNonEmpty(": ", shortTask(left.ID), oneLine(left.Why)))
		found = append(found, trouble{
			object: object, state: troubleHeld, cause: cause,
			next: "berth explain " + shortTask(left.ID),
		})
	}
	return found
}

// cronTrouble returns what is wrong with a cron, or nil: its last moment has no job, or it has no moments any more.
// That a job of it failed is told of the job.
func cronTrouble(v api.CronView) *trouble {
	n := cronName(v)
	switch {
	case v.Status.State == "suspended" || v.Status.State == "deleting":
		return nil
	case v.Status.Message != "":
		return &trouble{
			object: n.String(), state: troubleMissed, cause: shortTasks(oneLine(v.Status.Message)),
			next: "berth cron history " + n.argument(),
		}
	case len(v.Status.Next) == 0 && v.Status.State == "waiting":
		return &trouble{
			object: n.String(), state: troubleNoMore, next: "berth cron status " + n.argument(),
			cause: "none of its schedules has a next moment: " + strings.Join(v.Schedules, "; "),
		}
	}
	return nil
}

// quietTrouble returns what is wrong with a service that is otherwise as it should be, or nil: tasks that are not tried
// again, and those that want more memory.
func quietTrouble(v api.ServiceView) *trouble {
	n := serviceName(v)
	switch s := v.Status; {
	case len(s.GivenUp) > 0:
		cause := shortTask(s.GivenUp[0])
		if rest := len(s.GivenUp) - 1; rest > 0 {
			cause += fmt.Sprintf(" and %s more", count(rest, "task"))
		}
		return &trouble{
			object: n.String(), state: troubleGivenUp,
			cause: cause + ": not tried again until the service changes", next: "berth explain " + n.argument(),
		}
	case s.MemoryTrouble != "":
		return &trouble{
			object: n.String(), state: troubleHungry, cause: shortTasks(oneLine(s.MemoryTrouble)),
			next: "berth explain " + n.argument(),
		}
	}
	return nil
}

// allTroubles returns everything that is not well: nodes, services and jobs first, then what can wait.
func (a *app) allTroubles(all everything) []trouble {
	var nodes, later []trouble
	for _, n := range all.Nodes {
		nodes = append(nodes, lingering(n, a.now())...)
	}
	found := append(nodes, findTroubles(all)...)
	for _, v := range all.Crons {
		if t := cronTrouble(v); t != nil {
			later = append(later, *t)
		}
	}
	told := map[string]bool{}
	for _, t := range found {
		told[t.object] = true
	}
	for _, v := range all.Services {
		if t := quietTrouble(v); t != nil && !told[t.object] {
			later = append(later, *t)
		}
	}
	return append(found, later...)
}

// printOwnTroubles prints what is wrong with one object, apart from the command that shows it already.
func (a *app) printOwnTroubles(found []trouble, shownBy string) error {
	if len(found) == 0 {
		return nil
	}
	for i := range found {
		if found[i].next == shownBy {
			found[i].next = "berth events --" + strings.SplitN(found[i].object, "/", 2)[0] + " " +
				found[i].object[strings.LastIndex(found[i].object, "/")+1:]
		}
	}
	a.say("")
	a.say("Trouble:")
	return a.printTroubles(found)
}

// nodeTroubles returns all that is wrong with one node.
func (a *app) nodeTroubles(n api.NodeView) []trouble {
	return a.allTroubles(everything{Nodes: []api.NodeView{n}})
}

// nextForTask says what to do about a task that is not well, or nothing.
func nextForTask(t api.TaskView) string {
	tr := taskTrouble(t)
	switch {
	case rank(t) > 3 || tr == nil:
		return ""
	case t.State == cluster.StatePending:
		return "berth explain " + shortTask(t.ID)
	case tr.next == "berth status "+tr.object:
		return "berth events --task " + shortTask(t.ID)
	}
	return tr.next
}
