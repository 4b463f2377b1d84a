package trouble

import (
	"fmt"
	"strings"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cli/fetch"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/session"
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
	troubleFull = "disk-full"
)

// lingering returns what is wrong with nodes that are not silent: those that stay on their way for too long, and lost
// devices.
func lingering(n api.NodeView, now time.Time) (found []Trouble) {
	object, next := session.KindNode+"/"+n.Name, "berth node status "+n.Name
	for _, d := range n.LostDevices {
		found = append(found, Trouble{
			Object: object, State: output.TroubleLost, Next: "berth explain " + session.ShortTask(d.Task),
			Cause: fmt.Sprintf("device %s is gone while %s holds it", d.ID, session.ShortTask(d.Task)),
		})
	}
	switch {
	case n.State == cluster.NodeJoining && now.Sub(n.Since) > joinPatience && !n.Since.IsZero():
		cause := output.OneLine(n.Reason)
		if cause == "" {
			cause = "its agent registered and has not told yet what runs there"
		}
		found = append(found, Trouble{Object: object, State: string(n.State), Cause: cause, Next: next})
	case n.State == cluster.NodeDraining && n.Drain != nil && len(n.Drain.Left) > 0 &&
		now.Sub(n.Drain.Since) > drainPatience && !n.Drain.Since.IsZero():
		left := n.Drain.Left[0]
		cause := fmt.Sprintf("it is emptied for %s and still has %s: %s", output.Span(now.Sub(n.Drain.Since)),
			output.Count(len(n.Drain.Left), "task"),
			output.JoinNonEmpty(": ", session.ShortTask(left.ID), output.OneLine(left.Why)))
		found = append(found, Trouble{
			Object: object, State: output.TroubleHeld, Cause: cause,
			Next: "berth explain " + session.ShortTask(left.ID),
		})
	}
	return found
}

// CronTrouble returns what is wrong with a cron, or nil: its last moment has no job, or it has no moments any more.
// That a job of it failed is told of the job.
func CronTrouble(v api.CronView) *Trouble {
	n := session.CronName(v)
	switch {
	case v.Status.State == "suspended" || v.Status.State == "deleting":
		return nil
	case v.Status.Message != "":
		return &Trouble{
			Object: n.String(), State: output.TroubleMissed,
			Cause: session.ShortTasks(output.OneLine(v.Status.Message)),
			Next:  "berth cron history " + n.Argument(),
		}
	case len(v.Status.Next) == 0 && v.Status.State == "waiting":
		return &Trouble{
			Object: n.String(), State: output.TroubleNoMore, Next: "berth cron status " + n.Argument(),
			Cause: "none of its schedules has a next moment: " + strings.Join(v.Schedules, "; "),
		}
	}
	return nil
}

// QuietTrouble returns what is wrong with a service that is otherwise as it should be, or nil: tasks that are not tried
// again, and those that want more memory.
func QuietTrouble(v api.ServiceView) *Trouble {
	n := session.ServiceName(v)
	switch s := v.Status; {
	case len(s.GivenUp) > 0:
		cause := session.ShortTask(s.GivenUp[0])
		if rest := len(s.GivenUp) - 1; rest > 0 {
			cause += fmt.Sprintf(" and %s more", output.Count(rest, "task"))
		}
		return &Trouble{
			Object: n.String(), State: output.TroubleGivenUp,
			Cause: cause + ": not tried again until the service changes", Next: "berth explain " + n.Argument(),
		}
	case s.MemoryTrouble != "":
		return &Trouble{
			Object: n.String(), State: output.TroubleHungry, Cause: session.ShortTasks(output.OneLine(s.MemoryTrouble)),
			Next: "berth explain " + n.Argument(),
		}
	}
	return nil
}

// AllTroubles returns everything that is not well: nodes, services and jobs first, then what can wait.
func AllTroubles(sess *session.Session, all fetch.Everything) []Trouble {
	var nodes, later []Trouble
	for _, n := range all.Nodes {
		nodes = append(nodes, lingering(n, sess.Now())...)
	}
	found := append(nodes, findTroubles(all)...)
	for _, v := range all.Crons {
		if t := CronTrouble(v); t != nil {
			later = append(later, *t)
		}
	}
	told := map[string]bool{}
	for _, t := range found {
		told[t.Object] = true
	}
	for _, v := range all.Services {
		if t := QuietTrouble(v); t != nil && !told[t.Object] {
			later = append(later, *t)
		}
	}
	return append(found, later...)
}

// NodeTroubles returns all that is wrong with one node.
func NodeTroubles(sess *session.Session, n api.NodeView) []Trouble {
	return AllTroubles(sess, fetch.Everything{Nodes: []api.NodeView{n}})
}

// NextForTask says what to do about a task that is not well, or nothing.
func NextForTask(t api.TaskView) string {
	tr := TaskTrouble(t)
	switch {
	case Rank(t) > 3 || tr == nil:
		return ""
	case t.State == cluster.StatePending:
		return "berth explain " + session.ShortTask(t.ID)
	case tr.Next == "berth status "+tr.Object:
		return "berth events --task " + session.ShortTask(t.ID)
	}
	return tr.Next
}
