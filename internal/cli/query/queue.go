package query

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/wording"
)

// queueCommand is `berth queue`.
type queueCommand struct {
	*session.Session
	limit int
}

// NewQueueCommand returns the command `berth queue`.
func NewQueueCommand(sess *session.Session) *cobra.Command {
	q := &queueCommand{Session: sess}
	cmd := &cobra.Command{
		Use:   "queue [SERVICE|JOB]",
		Short: "List the tasks that wait for placement, in their order",
		Long: "List the tasks that wait for placement, the first in line first, with the reason. Tasks of a service\n" +
			"or step that are next to each other and wait for the same reason are one row. POSITION counts the\n" +
			"tasks of all clusters. Held tasks, such as those of a step that needs another one, are not in line\n" +
			"and come last. EXPECTED is when the first task of the row probably starts: the median, and in\n" +
			"parentheses the times between which it starts with a probability of 90 %. STARTS BY is the promise to\n" +
			"the first task that lacks room: when the tasks that hold it will have ended, by their time limits. It\n" +
			"is unknown if one of them has no time limit.\n\n" +
			"If tasks wait in fair queues, a second list has the shares of their users, in the order in which\n" +
			"these are served. A share is the largest part of the CPU, memory, disk or devices of all nodes.",
		Args:              session.Arguments(0, 1, "at most one service or job, such as job/nightly"),
		ValidArgsFunction: sess.CompleteObjects(1, wording.KindService, wording.KindJob),
		RunE:              q.run,
	}
	cmd.Flags().IntVar(&q.limit, "limit", api.DefaultQueueLimit, "print at most this number of rows, up to 10000")
	return cmd
}

func (q *queueCommand) run(cmd *cobra.Command, args []string) error {
	if q.limit < 1 || q.limit > api.MaxQueueLimit {
		return &session.UsageError{
			Command: cmd.CommandPath(), Message: fmt.Sprintf("--limit is %d, want 1 to %d", q.limit, api.MaxQueueLimit),
		}
	}
	c, err := q.Connect()
	if err != nil {
		return err
	}
	filter := client.QueueFilter{Cluster: q.ChosenCluster(), Limit: q.limit}
	if len(args) > 0 {
		n, err := q.FindObject(cmd, c, args[0], wording.KindService, wording.KindJob)
		if err != nil {
			return err
		}
		if filter.Cluster = n.Cluster; n.Kind == wording.KindService {
			filter.Service = n.Name
		} else {
			filter.Job = n.Name
		}
	}
	v, err := c.Queue(cmd.Context(), filter)
	if err != nil {
		return err
	}
	err = session.PrintList(q.Session, v.Entries, "No task waits for placement.", func([]api.QueueEntry) output.Table {
		t := output.Table{Titles: []string{
			"POSITION>", "OWNER", "STEP", "TASKS>", "PRIORITY>", "WAITING>", "EXPECTED", "STARTS BY", "MESSAGE",
		}}
		for _, e := range v.Entries {
			waiting := ""
			if !e.Since.IsZero() {
				waiting = q.Age(e.Since)
			}
			step, message := e.Step, wording.OneLine(e.Message)
			if e.Steps > 1 {
				step = fmt.Sprintf("%d steps", e.Steps)
				message = fmt.Sprintf("step %s: %s; the others are similar", e.Step, message)
			}
			t.Add(positionText(e), session.OwnerName(e.Owner).String(), step, strconv.Itoa(e.Tasks),
				strconv.Itoa(e.Priority), waiting, expectedText(e.Expected, q.Now(), ""), promiseText(e.Promise),
				message+freeingText(e.Expected))
		}
		return t
	})
	if err == nil && v.LeftOut > 0 {
		q.Messagef("--limit leaves out %s behind these rows; a service or job can be named, too",
			wording.Count(v.LeftOut, "task"))
	}
	if err != nil || len(v.Shares) == 0 || q.WantsData() || q.Format == output.OutputName {
		return err
	}
	fmt.Fprintln(q.Stdout)
	return q.PrintTable(sharesTable(v.Shares))
}

// sharesTable is what the users hold who have tasks in fair queues.
func sharesTable(shares []api.QueueShare) output.Table {
	t := output.Table{Titles: []string{"CLUSTER", "WEIGHT>", "OF CLUSTER>", "USER", "OF USER>", "WAITING>"}}
	for _, s := range shares {
		t.Add(s.Cluster, strconv.Itoa(s.Weight), percent(s.OfCluster), s.User, percent(s.OfUser),
			strconv.Itoa(s.Waiting))
	}
	return t
}

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

// expectedText returns when a task probably starts: "15:40 (15:31–16:05)". The part in parentheses begins with note. It
// is left out if it says the same.
func expectedText(e *api.Expected, now time.Time, note string) string {
	switch {
	case e == nil:
		return ""
	case e.Median.IsZero():
		return "later than " + output.FormatClock(e.From, now)
	}
	median := output.FormatClock(e.Median, now)
	if e.To.IsZero() {
		return median + " (" + note + "later than " + output.FormatClock(e.From, e.Median) + ")"
	}
	if from, to := output.FormatClock(e.From, e.To), output.FormatClock(e.To, e.From); from != to {
		return median + " (" + note + from + "–" + to + ")"
	}
	return median
}

// freeingText says, as the end of a sentence, which nodes free the room of a task. It is empty if that is not known.
func freeingText(e *api.Expected) string {
	if e == nil || len(e.Nodes) == 0 {
		return ""
	}
	last := len(e.Nodes) - 1
	switch {
	case last == 0:
		return "; node " + e.Nodes[0] + " frees the room"
	case e.Gang:
		return "; nodes " + strings.Join(e.Nodes[:last], ", ") + " and " + e.Nodes[last] + " free the room"
	}
	return "; node " + strings.Join(e.Nodes[:last], ", ") + " or " + e.Nodes[last] + " frees the room"
}

// promiseText returns when a task starts at the latest.
func promiseText(p *api.Promise) string {
	switch {
	case p == nil:
		return ""
	case p.At.IsZero():
		return "unknown"
	}
	return output.FormatMinute(p.At)
}

// positionText returns the positions of an entry: "3", "3-7" for several tasks, or "3 …" if others are between them.
func positionText(e api.QueueEntry) string {
	switch {
	case e.Position == 0:
		return "held"
	case e.Tasks == 1:
		return strconv.Itoa(e.Position)
	case e.Fair:
		return strconv.Itoa(e.Position) + " …"
	}
	return fmt.Sprintf("%d-%d", e.Position, e.Position+e.Tasks-1)
}
