package query

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/service"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/hinted"
	"github.com/berthd/berth/internal/wording"
)

// explainCommand is `berth explain`.
type explainCommand struct {
	*session.Session
	node string
}

// NewExplainCommand returns the command `berth explain`.
func NewExplainCommand(sess *session.Session) *cobra.Command {
	e := &explainCommand{Session: sess}
	cmd := &cobra.Command{
		Use:   "explain SERVICE|JOB|TASK",
		Short: "Explain the state of a service, a task or a job",
		Long: "Explain the state of a service, a task or a job, the most important reason first: what it waits for,\n" +
			"what delays a stop, why a rollout does not continue, why a task moves away from a node with little\n" +
			"memory, and why it ends repeatedly.\n\n" +
			"For a placed task, the answer shows why it is on its node, the next best nodes, and why other nodes\n" +
			"were refused. For a waiting task, it shows the smallest changes that would place it; one of them\n" +
			"suffices. --node limits the answer to one node.",
		Args:              session.Arguments(1, 1, "a service or a task, such as web or web.1.0"),
		ValidArgsFunction: sess.CompleteNames(wording.KindService, wording.KindJob, wording.KindTask),
		RunE:              e.run,
	}
	cmd.Flags().StringVar(&e.node, "node", "", "explain why the task is not on this node, or how the node compares")
	session.RegisterCompletion(cmd, "node", sess.CompleteNames(wording.KindNode))
	return cmd
}

func (e *explainCommand) run(cmd *cobra.Command, args []string) error {
	c, err := e.Connect()
	if err != nil {
		return err
	}
	n, err := e.FindObject(cmd, c, args[0], wording.KindService, wording.KindJob, wording.KindTask)
	if errors.Is(err, session.ErrUnknown) && session.ParseKind(args[0]) != "" {
		err = &hinted.Error{Err: err, Hint: "'berth fields' explains the fields of manifests."}
	}
	if err != nil {
		return err
	}
	if e.node != "" && n.Kind != wording.KindTask {
		return &session.UsageError{
			Command: cmd.CommandPath(),
			Message: "--node needs a task, such as web.1.0",
		}
	}
	v, err := e.readExplanation(cmd.Context(), c, n)
	if err != nil {
		return err
	}
	return printExplanation(e.Session, v)
}

// readExplanation asks the server to explain a service, a job or a task. With --node it explains that node for the
// task.
func (e *explainCommand) readExplanation(ctx context.Context, c *client.Client, n session.Name) (api.Explanation,
	error,
) {
	if n.Kind == wording.KindTask {
		t, err := e.FindTask(ctx, c, n.Name)
		if err != nil {
			return api.Explanation{}, err
		}
		if e.node != "" {
			return c.ExplainTaskOn(ctx, t.ID, e.node)
		}
		return c.ExplainTask(ctx, t.ID)
	}
	n, err := n.Resolve(ctx, c)
	if err != nil {
		return api.Explanation{}, err
	}
	if n.Kind == wording.KindJob {
		return c.ExplainJob(ctx, n.Cluster, n.Name)
	}
	return c.ExplainService(ctx, n.Cluster, n.Name)
}

func printExplanation(sess *session.Session, v api.Explanation) error {
	if sess.WantsData() {
		v.Because = output.EmptyIfNil(v.Because)
		return sess.PrintData(v)
	}
	about := sess.Shorten(session.OwnerName(v.Owner).String())
	if v.Task != "" {
		about = sess.Shorten(wording.KindTask + "/" + string(v.Task))
	}
	head := output.Table{Titles: []string{"", "", ""}, StateColumn: 1}
	room := 0
	if width := output.TerminalWidth(sess.Stdout); width > 0 {
		room = width - len(about) - len(v.State) - len("  ")*2
	}
	summary := v.Summary
	if len(v.Because) > 0 && summary == v.Because[0].Message {
		summary = "" // the first reason follows with its details
	}
	for i, line := range output.Wrap(sess.Shorten(wording.OneLine(summary)), room) {
		if i == 0 {
			head.Add(about, v.State, line)
		} else {
			head.Add("", "", line)
		}
	}
	if err := sess.PrintTable(head); err != nil {
		return err
	}
	for _, b := range v.Because {
		sess.Printf("")
		if err := printReason(sess, b); err != nil {
			return err
		}
		if b.Reason == cluster.ReasonPromotion {
			sess.Printf("           → berth promote %s", about)
		}
	}
	if err := printPlacement(sess, v.Place, v.State == string(cluster.StatePending)); err != nil {
		return err
	}
	printSuggestions(sess, &v)
	return nil
}

// printReason prints a reason with its times, and the last output lines of a crashed task.
func printReason(sess *session.Session, b api.Because) error {
	t := output.Table{Titles: []string{"", ""}, Indent: "  "}
	room := output.TerminalWidth(sess.Stdout) - len("  crash-looping  ")
	for i, line := range output.Wrap(service.ReasonText(b), room) {
		title := string(b.About)
		if i > 0 {
			title = ""
		}
		t.Add(title, line)
	}
	var more []string
	if b.Node != "" {
		more = append(more, "on "+b.Node)
	}
	if !b.Since.IsZero() {
		more = append(more, "for "+sess.Age(b.Since))
	}
	if left := b.Until.Sub(sess.Now()); !b.Until.IsZero() && left > 0 {
		more = append(more, wording.Span(left)+" left")
	}
	if b.Position > 0 {
		more = append(more, fmt.Sprintf("position %d of %d", b.Position, b.Of))
	}
	if b.Expected != nil {
		more = append(more, "expected "+expectedText(b.Expected, sess.Now(), "90 %: "))
	}
	if len(more) > 0 {
		t.Add("", strings.Join(more, ", ")+freeingText(b.Expected))
	}
	for _, l := range b.Log {
		t.Add("", "| "+strings.TrimRight(l, "\n"))
	}
	return sess.PrintTable(t)
}
