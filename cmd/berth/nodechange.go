package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
)

// nodeCommand returns a command about one node, which is found by its name or the beginning of it.
func (a *app) nodeCommand(use, short, long string,
	do func(cmd *cobra.Command, c *client.Client, n api.NodeView) error,
) *cobra.Command {
	return &cobra.Command{
		Use: use + " NODE", Short: short, Long: long, Args: arguments(1, 1, "the name of a node"),
		ValidArgsFunction: a.completeNames(wordNode),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.toNode(cmd, args[0], func(c *client.Client, n api.NodeView) error { return do(cmd, c, n) })
		},
	}
}

// toNode does something to the node of a name.
func (a *app) toNode(cmd *cobra.Command, name string, do func(*client.Client, api.NodeView) error) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	n, err := wholeNode(cmd.Context(), c, name)
	if err != nil {
		return err
	}
	return do(c, n)
}

// wholeNode returns the node of a name. What is done to a node is meant for it: its whole name is demanded.
func wholeNode(ctx context.Context, c *client.Client, text string) (api.NodeView, error) {
	nodes, err := allNodes(ctx, c)
	if err != nil {
		return api.NodeView{}, err
	}
	text = strings.TrimPrefix(text, wordNode+"/")
	n, err := pickNode(nodes, text)
	if err == nil && n.Name != text {
		err = unknown(wordNode, text, []string{n.Name})
	}
	return n, err
}

func (a *app) newNodeCordonCommand() *cobra.Command {
	return a.nodeCommand("cordon", "Keep new tasks away from a node", "",
		func(cmd *cobra.Command, c *client.Client, n api.NodeView) error {
			v, err := c.CordonNode(cmd.Context(), n.Name, client.Condition{})
			if err != nil {
				return err
			}
			return a.tellNode(v, "takes no new tasks; those that run there stay")
		})
}

func (a *app) newNodeUncordonCommand() *cobra.Command {
	return a.nodeCommand("uncordon", "Let new tasks come to a node again, and end a drain", "",
		func(cmd *cobra.Command, c *client.Client, n api.NodeView) error {
			if n.Drain != nil {
				if _, err := c.UndrainNode(cmd.Context(), n.Name, client.Condition{}); err != nil {
					return err
				}
			}
			v, err := c.UncordonNode(cmd.Context(), n.Name, client.Condition{})
			if err != nil {
				return err
			}
			return a.tellNode(v, "takes tasks again")
		})
}

func (a *app) newNodeDrainCommand() *cobra.Command {
	var how api.NodeAction
	var deadline time.Duration
	var wait bool
	cmd := a.nodeCommand("drain", "Move a node's tasks away, and keep new ones from it",
		"Moves a node's tasks away and keeps new ones from it. Tasks of services are replaced elsewhere "+
			"first, as many at a time as their\n"+
			"services bear; tasks of jobs run to their end. With --deadline what is left by then is "+
			"stopped; with --force everything is\n"+
			"stopped at once. `berth node uncordon` ends it.",
		func(cmd *cobra.Command, c *client.Client, n api.NodeView) error {
			if deadline < 0 {
				return &usageError{cmd.CommandPath(), fmt.Sprintf("--deadline %v: want a time from now", deadline)}
			}
			how.Deadline = cluster.Duration(deadline)
			v, err := c.DrainNode(cmd.Context(), n.Name, how, client.Condition{})
			if err != nil {
				return err
			}
			if !wait {
				return a.tellNode(v, "is drained: "+drainText(v))
			}
			return a.waitDrained(cmd.Context(), c, v)
		})
	cmd.Flags().DurationVar(&deadline, "deadline", 0,
		"stop what is left after this long, whatever it costs its services; default never")
	cmd.Flags().BoolVar(&how.Force, "force", false, "stop everything at once")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the node is empty, and tell what holds it up")
	return cmd
}

// drainText says how far a drain got.
func drainText(v api.NodeView) string {
	switch {
	case v.State == cluster.NodeDrained || v.Drain != nil && len(v.Drain.Left) == 0:
		return "nothing is left on it"
	case v.Drain == nil:
		return "it begins"
	}
	first := v.Drain.Left[0]
	text := count(len(v.Drain.Left), "task") + " left, such as " + shortTask(first.ID)
	if first.Why != "" {
		text += " (" + oneLine(first.Why) + ")"
	}
	return text
}

// waitDrained tells how a drain goes on until the node is empty.
func (a *app) waitDrained(ctx context.Context, c *client.Client, v api.NodeView) error {
	told := ""
	for {
		if text := drainText(v); text != told && !a.data() {
			a.tell("%s: %s", v.Name, text)
			told = text
		}
		switch {
		case v.State == cluster.NodeDrained:
			return a.tellNode(v, "is empty")
		case v.Drain == nil:
			return &exitError{exitNo, fmt.Errorf("%s: somebody ended the drain", v.Name)}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
		next, err := c.Node(ctx, v.Name)
		switch {
		case err == nil:
			v = next
		case client.StatusOf(err) == http.StatusNotFound:
			return fmt.Errorf("the node %s is forgotten", v.Name)
		case errors.Is(err, client.ErrUnreachable): // the next try tells; another server may be asked
		default:
			return err
		}
	}
}

func (a *app) newNodeForgetCommand() *cobra.Command {
	var force bool
	cmd := a.nodeCommand("forget", "Declare that a machine never comes back",
		"Declares that a machine never comes back: its tasks are replaced at once, also those that wait for "+
			"their node (on_disconnect: wait),\n"+
			"and its records are removed. If it does come back after all, two of the same task may have "+
			"run. A node that is not known to be\n"+
			"down is forgotten only with --force.",
		func(cmd *cobra.Command, c *client.Client, n api.NodeView) error {
			v, err := c.ForgetNode(cmd.Context(), n.Name, force, client.Condition{})
			if client.StatusOf(err) == http.StatusConflict && !force {
				return &hintedError{err, "If the machine is gone for certain, say so with --force."}
			}
			if err != nil {
				return err
			}
			return a.tellNode(v, "is forgotten: its tasks are replaced, then its records go")
		})
	cmd.Flags().BoolVar(&force, "force", false, "also a node that is not known to be down")
	return cmd
}

// tellNode says what became of a node.
func (a *app) tellNode(v api.NodeView, text string) error {
	if a.data() {
		return a.printData(v)
	}
	a.say("%s %s", v.Name, text)
	return nil
}
