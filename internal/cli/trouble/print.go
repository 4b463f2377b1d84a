// Package trouble prints the troubles that the server reports, and the last output of tasks.
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
	"github.com/berthd/berth/internal/taskview"
)

// List returns the troubles of one object.
func List(ctx context.Context, c *client.Client, n session.Name) ([]api.Trouble, error) {
	found, _, err := client.All(ctx, client.ListOptions{},
		func(ctx context.Context, o client.ListOptions) (api.Page[api.Trouble], error) {
			return c.Troubles(ctx, client.TroubleFilter{Kind: n.Kind, Cluster: n.Cluster, Name: n.Name}, o)
		})
	return found, err
}

// MostUrgent returns the most urgent trouble of one object, or nil.
func MostUrgent(ctx context.Context, c *client.Client, n session.Name) (*api.Trouble, error) {
	found, err := List(ctx, c, n)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

// Print prints troubles, each with its next step.
func Print(sess *session.Session, found []api.Trouble) error {
	t := output.Table{Titles: []string{"", "", ""}, Indent: "  ", StateColumn: 1}
	for _, tr := range found {
		t.Add(tr.Object, tr.State, tr.Cause)
		if tr.Next != "" {
			t.Add("", "", "→ "+tr.Next)
		}
	}
	return sess.PrintTable(t)
}

// PrintSection prints the troubles of one object below the object. If the next step is the running command itself, it
// becomes the object's events.
func PrintSection(sess *session.Session, n session.Name, found []api.Trouble, running string) error {
	if len(found) == 0 {
		return nil
	}
	found = slices.Clone(found)
	for i := range found {
		if found[i].Next == running {
			found[i].Next = "berth events --" + n.Kind + " " + n.Name
		}
	}
	sess.Printf("")
	sess.Printf("Trouble:")
	return Print(sess, found)
}

// tailLines is how many lines of a failed task's output are shown.
const tailLines = 10

// PrintTail prints the last lines of a task's output, from the failed attempt or from the node.
func PrintTail(ctx context.Context, sess *session.Session, c *client.Client, id cluster.TaskID, to io.Writer) {
	PrintLines(sess, to, id, ReadTail(ctx, c, id))
}

// ReadTail returns the last lines of a task's output, or nil if the task or its output is gone.
func ReadTail(ctx context.Context, c *client.Client, id cluster.TaskID) []string {
	t, err := c.Task(ctx, id)
	if err != nil {
		return nil // without output the cause is still printed
	}
	if t.State == cluster.StatePending { // the previous attempt has the output
		if attempts, err := fetch.ListAttempts(ctx, c, t); err == nil && len(attempts) > 1 {
			t = attempts[1]
		}
	}
	if t.LogTail != "" {
		lines := strings.Split(strings.TrimRight(t.LogTail, "\n"), "\n")
		return slices.Clone(lines[max(0, len(lines)-tailLines):])
	}
	var all []api.LogLine
	for line, err := range c.Logs(ctx, t.ID, client.LogOptions{Tail: tailLines}) {
		if err != nil {
			break
		}
		if line.Lost == 0 {
			all = append(all, line)
		}
	}
	var lines []string
	for _, line := range taskview.LastLines(all, taskview.FailedContainer(t), tailLines) {
		lines = append(lines, line.Text)
	}
	return lines
}

// PrintLines prints the last lines of a task's output, if there are any.
func PrintLines(sess *session.Session, to io.Writer, id cluster.TaskID, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(to, "\nLast output of %s:\n", sess.Shorten(string(id)))
	for _, l := range lines {
		fmt.Fprintf(to, "  | %s\n", l)
	}
}
