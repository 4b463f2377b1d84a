package trouble

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/fetch"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
)

// PrintTroubles prints troubles, each with its next step below.
func PrintTroubles(sess *session.Session, found []Trouble) error {
	t := output.Table{Titles: []string{"", "", ""}, Indent: "  ", State: 1}
	objects, states := 0, 0
	for _, tr := range found {
		objects, states = max(objects, len(tr.Object)), max(states, len(tr.State))
	}
	room := 0
	if width := output.TerminalWidth(sess.Stdout); width > 0 {
		room = width - objects - states - len("  ")*3
	}
	for _, tr := range found {
		for i, line := range output.Wrap(session.ShortTasks(tr.Cause), room) {
			if i > 0 {
				tr.Object, tr.State = "", ""
			}
			t.Add(tr.Object, tr.State, line)
		}
		if tr.Next != "" {
			t.Add("", "", "→ "+tr.Next)
		}
	}
	return sess.PrintTable(t)
}

// tailLines is how much of a failed task's output is shown.
const tailLines = 10

// PrintTail prints the end of a task's output: what was kept with a failed attempt, or what its node has.
func PrintTail(ctx context.Context, sess *session.Session, c *client.Client, t api.TaskView, to io.Writer) {
	PrintLines(to, t.ID, TailOf(ctx, c, t))
}

// TailOf returns the last lines of a task's output, none where there is nothing to show.
func TailOf(ctx context.Context, c *client.Client, t api.TaskView) []string {
	var lines []string
	if t.State == cluster.StatePending { // it failed before
		if attempts, err := fetch.AttemptsOf(ctx, c, t); err == nil && len(attempts) > 1 {
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

// PrintLines prints the last lines of the output of a task; nothing for none.
func PrintLines(to io.Writer, id cluster.TaskID, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(to, "\nThe end of the output of %s:\n", session.ShortTask(id))
	for _, l := range lines {
		fmt.Fprintf(to, "  | %s\n", l)
	}
}

// PrintOwnTroubles prints what is wrong with one object, apart from the command that shows it already.
func PrintOwnTroubles(sess *session.Session, found []Trouble, shownBy string) error {
	if len(found) == 0 {
		return nil
	}
	for i := range found {
		if found[i].Next == shownBy {
			found[i].Next = "berth events --" + strings.SplitN(found[i].Object, "/", 2)[0] + " " +
				found[i].Object[strings.LastIndex(found[i].Object, "/")+1:]
		}
	}
	sess.Printf("")
	sess.Printf("Trouble:")
	return PrintTroubles(sess, found)
}
