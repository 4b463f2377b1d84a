package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
)

func (a *app) newExplainCommand() *cobra.Command {
	var node string
	cmd := &cobra.Command{
		Use:   "explain SERVICE|TASK|job/NAME",
		Short: "Say why a service, a task or a job is as it is",
		Long: "Say why a service, a task or a job is as it is, the weightiest reason first: what it waits " +
			"for, what a stop waits for, why a\n" +
			"rollout holds, why a task moves away from a node that is short of memory, and how it ends " +
			"again and again.\n\n" +
			"Of a task also why it stands where it does, which nodes came next and why it is on no other; " +
			"of one that waits for a place the\n" +
			"smallest changes that would let it in, each of which is enough. With --node it tells of one node alone.",
		Args:              arguments(1, 1, "a service or a task, such as web or web.1.0"),
		ValidArgsFunction: a.completeNames(wordService, wordJob, wordTask),
		RunE: func(cmd *cobra.Command, args []string) error {
			text := args[0]
			if !strings.Contains(text, "/") {
				kind := wordService
				if strings.Contains(text, ".") { // names of services hold none
					kind = wordTask
				}
				text = kind + "/" + text
			}
			n, err := parseName(cmd, text, wordService, wordTask, wordJob)
			if err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			if node != "" && n.kind != wordTask {
				return &usageError{cmd.CommandPath(), "--node goes with a task, such as web.1.0"}
			}
			v, err := explanation(cmd.Context(), c, n, node)
			if err != nil {
				return err
			}
			return a.printExplanation(v)
		},
	}
	cmd.Flags().StringVar(&node, "node", "", "say of this node why the task is not there, or how it compares")
	_ = cmd.RegisterFlagCompletionFunc("node", a.completeNames(wordNode)) // it fails for a flag that is not there
	return cmd
}

// explanation asks the server about a service, a job or a task, and with a node's name about that.
func explanation(ctx context.Context, c *client.Client, n name, node string) (api.Explanation, error) {
	if n.kind == wordTask {
		t, err := findTask(ctx, c, n.name)
		if err != nil {
			return api.Explanation{}, err
		}
		if node != "" {
			return c.ExplainTaskOn(ctx, t.ID, node)
		}
		return c.ExplainTask(ctx, t.ID)
	}
	n, err := n.resolve(ctx, c)
	if err != nil {
		return api.Explanation{}, err
	}
	if n.kind == wordJob {
		return c.ExplainJob(ctx, n.cluster, n.name)
	}
	return c.ExplainService(ctx, n.cluster, n.name)
}

func (a *app) printExplanation(v api.Explanation) error {
	if a.data() {
		v.Because = emptyIsList(v.Because)
		return a.printData(v)
	}
	about := ownerName(v.Owner).String()
	if v.Task != "" {
		about = wordTask + "/" + shortTask(v.Task)
	}
	head := table{titles: []string{"", "", ""}, state: 1}
	room := 0
	if width := terminalWidth(a.stdout); width > 0 {
		room = width - len(about) - len(v.State) - len("  ")*2
	}
	for i, line := range wrapped(shortTasks(oneLine(v.Summary)), room) {
		if i == 0 {
			head.add(about, v.State, line)
		} else {
			head.add("", "", line)
		}
	}
	if err := a.printTable(head); err != nil {
		return err
	}
	for _, b := range v.Because {
		a.say("")
		if err := a.printBecause(b); err != nil {
			return err
		}
	}
	if err := a.printPlace(v.Place, v.State == string(cluster.StatePending)); err != nil {
		return err
	}
	a.printSuggestions(&v)
	return nil
}

// printBecause prints a reason, its times, and the last lines of what crashed.
func (a *app) printBecause(b api.Because) error {
	t := table{titles: []string{"", ""}, indent: "  "}
	for i, line := range wrapped(becauseText(b), terminalWidth(a.stdout)-len("  crash-loop  ")) {
		title := b.About
		if i > 0 {
			title = ""
		}
		t.add(title, line)
	}
	var more []string
	if b.Node != "" {
		more = append(more, "on "+b.Node)
	}
	if !b.Since.IsZero() {
		more = append(more, "for "+a.age(b.Since))
	}
	if left := b.Until.Sub(a.now()); !b.Until.IsZero() && left > 0 {
		more = append(more, span(left)+" left")
	}
	if len(more) > 0 {
		t.add("", strings.Join(more, ", "))
	}
	for _, l := range b.Log {
		t.add("", "| "+strings.TrimRight(l, "\n"))
	}
	return a.printTable(t)
}
