package query

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/wording"
)

// eventsCommand is `berth events`.
type eventsCommand struct {
	*session.Session
	options client.EventOptions
	follow  bool
	tail    int
}

// NewEventsCommand returns the command `berth events`.
func NewEventsCommand(sess *session.Session) *cobra.Command {
	e := &eventsCommand{Session: sess}
	cmd := &cobra.Command{
		Use:   "events [OBJECT]",
		Short: "Show events, the newest last",
		Long: "Show events, the newest last, or with --follow as they happen: all, or those about OBJECT, such as\n" +
			"web, job/squares, web.1.0 or node/n1. An event must match all given flags.\n" +
			"The events of an owner include those of its tasks; the events of a node include those of tasks on\n" +
			"it.",
		Args:              session.Arguments(0, 1, "at most one object, such as web or node/n1"),
		ValidArgsFunction: sess.CompleteObjects(1, subjectKinds()...),
		RunE:              e.run,
	}
	cmd.Flags().BoolVarP(&e.follow, "follow", "f", false, "wait for new events until interrupted")
	cmd.Flags().IntVar(&e.tail, "tail", 50, "number of newest events to begin with; -1 for all kept events")
	cmd.Flags().StringVar(&e.options.After, "after", "", "begin after the event of this `id`")
	cmd.Flags().StringSliceVar(&e.options.Types, "type", nil, "only events of these `types`, such as task.failed")
	cmd.Flags().StringSliceVar(&e.options.Reasons, "reason", nil, "only events with these `reasons`, such as oom")
	cmd.Flags().StringVar(&e.options.Service, "service", "", "only events about this `service` and its tasks")
	cmd.Flags().StringVar(&e.options.Job, "job", "", "only events about this `job` and its tasks")
	cmd.Flags().StringVar(&e.options.Cron, "cron", "", "only events about this `cron`, not those of its jobs")
	cmd.Flags().StringVar(&e.options.Task, "task", "", "only events about this `task`")
	cmd.Flags().StringVar(&e.options.Node, "node", "", "only events about this `node` and tasks on it")
	cmd.Flags().DurationVar(&e.options.Since, "since", 0,
		"only events of the last `duration`, such as 1h; all of them unless --tail is given")
	sess.CompleteFlags(cmd, map[string]string{
		"service": wording.KindService, "job": wording.KindJob, "cron": wording.KindCron, "task": wording.KindTask,
		"node": wording.KindNode,
	})
	session.RegisterCompletion(cmd, "type",
		cobra.FixedCompletions(eventTypes(), cobra.ShellCompDirectiveNoFileComp))
	session.RegisterCompletion(cmd, "reason",
		cobra.FixedCompletions(reasons(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// subjectKinds returns the kinds of objects whose events can be selected.
func subjectKinds() []string {
	return []string{
		wording.KindService, wording.KindJob, wording.KindCron, wording.KindTask, wording.KindNode, wording.KindCluster,
	}
}

// selectSubject sets the filter for the object of an argument. A flag for another object is refused.
func (e *eventsCommand) selectSubject(cmd *cobra.Command, c *client.Client, text string) error {
	f := &e.options.EventFilter
	if f.Service+f.Job+f.Cron+f.Task+f.Node != "" {
		return &session.UsageError{
			Command: cmd.CommandPath(),
			Message: fmt.Sprintf("%q and a flag both name an object: leave one of them out", text),
		}
	}
	n, err := e.FindObject(cmd, c, text, subjectKinds()...)
	if err != nil {
		return err
	}
	n.SelectEvents(f)
	return nil
}

func (e *eventsCommand) run(cmd *cobra.Command, args []string) error {
	c, err := e.Connect()
	if err != nil {
		return err
	}
	if len(args) > 0 {
		if err := e.selectSubject(cmd, c, args[0]); err != nil {
			return err
		}
	}
	if err := parseEventSubjects(e.Session, cmd, &e.options.EventFilter); err != nil {
		return err
	}
	for _, t := range e.options.Types {
		if !isEventType(t) {
			return &session.UsageError{Command: cmd.CommandPath(), Message: unknownTypeText(t)}
		}
	}
	if fault := checkReasons(e.options.Reasons); fault != "" {
		return &session.UsageError{Command: cmd.CommandPath(), Message: fault}
	}
	if e.options.Since > 0 && !cmd.Flags().Changed("tail") {
		e.tail = -1
	}
	return e.print(cmd.Context(), c)
}

// parseEventSubjects reads the values of the filter flags like arguments. "web.1.0" is a task of the current cluster.
func parseEventSubjects(sess *session.Session, cmd *cobra.Command, f *client.EventFilter) error {
	if err := sess.ParseFilterNames(cmd, &f.Cluster,
		session.FilterName{Kind: wording.KindService, Text: &f.Service},
		session.FilterName{Kind: wording.KindJob, Text: &f.Job},
		session.FilterName{Kind: wording.KindCron, Text: &f.Cron},
		session.FilterName{Kind: wording.KindNode, Text: &f.Node},
	); err != nil {
		return err
	}
	if f.Task == "" {
		return nil
	}
	text := strings.TrimPrefix(f.Task, wording.KindTask+"/")
	for _, id := range []string{text, cmp.Or(f.Cluster, sess.ClusterOfChange()) + "." + text} {
		if p, ok := cluster.TaskID(id).Parts(); ok {
			f.Task, f.Cluster = id, p.Cluster // the current cluster may be another one
			return nil
		}
	}
	return &session.UsageError{
		Command: cmd.CommandPath(),
		Message: fmt.Sprintf("--task %q is not a task: want a whole name such as web.1.0 or prod.web.1.0, as "+
			"'berth ps --all' lists them", f.Task),
	}
}

// print prints the newest events. With follow it then prints each new event.
func (e *eventsCommand) print(ctx context.Context, c *client.Client) error {
	o := e.options
	var kept []api.EventView
	for more := true; more; {
		page, err := c.Events(ctx, o, client.ListOptions{})
		if err != nil {
			return err
		}
		kept = append(kept, page.Items...)
		if len(page.Items) > 0 {
			o.After = page.Items[len(page.Items)-1].ID
		}
		if e.tail >= 0 && len(kept) > e.tail {
			kept = slices.Clone(kept[len(kept)-e.tail:])
		}
		more = page.Next != ""
	}
	if len(kept) == 0 { // the filter may name what does not exist
		f := session.Filter{
			Cluster: o.Cluster, Service: o.Service, Job: o.Job, Cron: o.Cron, Node: o.Node,
		}
		if err := f.CheckExists(ctx, c); err != nil {
			return err
		}
	}
	if e.WantsData() && !e.follow {
		return e.PrintData(output.EmptyIfNil(kept))
	}
	for _, v := range kept {
		if err := printEvent(e.Session, v); err != nil {
			return err
		}
	}
	if !e.follow {
		if len(kept) == 0 {
			e.Messagef("No matching events.")
		}
		return nil
	}
	o.Lost = func(err error) {
		e.Messagef("berth: the stream broke (%s); resuming", session.ErrorText(err))
	}
	o.Gap = func(g api.EventGap) {
		e.Messagef("berth: %s left out, because the client reads too slowly", wording.Count(g.Lost, "event"))
	}
	for v, err := range c.FollowEvents(ctx, o) {
		if err != nil {
			return session.EndOfStream(err)
		}
		if err := printEvent(e.Session, v); err != nil {
			return err
		}
	}
	return nil
}

func printEvent(sess *session.Session, e api.EventView) error {
	if sess.WantsData() {
		return sess.PrintItem(e)
	}
	at := output.FormatSecond(e.At)
	if sess.Format == output.OutputWide {
		at = e.ID + "  " + e.At.Local().Format("2006-01-02 15:04:05.000 MST")
	}
	word := fmt.Sprintf("%-20s", e.Type) // the width of the longest type, task.record-restored
	if sess.HasColors(sess.Stdout) {
		word = output.Colored(word, eventColor(e.Type))
	}
	_, err := fmt.Fprintf(sess.Stdout, "%s  %s  %s\n", at, word, sess.Shorten(strings.Join(eventDetails(e), "  ")))
	return err
}

// eventDetails returns the objects that an event is about, and its cause.
func eventDetails(e api.EventView) []string {
	var words []string
	subject := ""
	switch {
	case e.Task != "":
		subject = string(e.Task)
		if e.Attempt > 1 {
			subject += fmt.Sprintf(" try %d", e.Attempt)
		}
	case e.Owner != nil:
		subject = session.OwnerName(*e.Owner).String()
	case e.Cluster != "" && e.Node == "":
		subject = wording.KindCluster + "/" + e.Cluster
	}
	if e.Count > 1 {
		subject = strings.TrimSpace(subject + " " + wording.Count(e.Count, "task"))
	}
	if subject != "" {
		words = append(words, subject)
	}
	if e.Node != "" {
		words = append(words, "on "+e.Node)
	}
	switch {
	case e.Message != "":
		words = append(words, wording.OneLine(e.Message))
	case e.Reason != "":
		words = append(words, string(e.Reason))
	}
	if e.By != "" {
		words = append(words, "(by "+e.By+")")
	}
	return words
}

func eventColor(kind string) string {
	_, verb, _ := strings.Cut(kind, ".")
	switch verb {
	case string(cluster.StateFailed), string(cluster.StateLost), string(cluster.StateRejected),
		string(cluster.NodeDown), string(cluster.HealthFailing):
		return output.Red
	case string(cluster.HealthHealthy), string(cluster.NodeReady), string(cluster.StateSucceeded):
		return output.Green
	}
	return ""
}
