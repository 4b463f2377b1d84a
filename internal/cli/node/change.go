package node

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cli/wait"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/wording"
)

// nodeCommand returns a command about the node that its first argument names.
func nodeCommand(sess *session.Session, use, short, long string,
	do func(cmd *cobra.Command, c *client.Client, n api.NodeView) error,
) *cobra.Command {
	return &cobra.Command{
		Use: use + " NODE", Short: short, Long: long, Args: session.Arguments(1, 1, "the name of a node"),
		ValidArgsFunction: sess.CompleteNames(wording.KindNode),
		RunE: func(cmd *cobra.Command, args []string) error {
			return changeNode(sess, cmd, args[0], func(c *client.Client, n api.NodeView) error { return do(cmd, c, n) })
		},
	}
}

// changeNode applies a change to the node with this name.
func changeNode(sess *session.Session, cmd *cobra.Command, name string,
	do func(*client.Client, api.NodeView) error,
) error {
	c, err := sess.Connect()
	if err != nil {
		return err
	}
	n, err := findExactNode(cmd.Context(), c, name)
	if err != nil {
		return err
	}
	return do(c, n)
}

// findExactNode returns the node with this exact name. A change must not reach a node by a prefix of its name.
func findExactNode(ctx context.Context, c *client.Client, text string) (api.NodeView, error) {
	nodes, err := session.ListNodes(ctx, c, "")
	if err != nil {
		return api.NodeView{}, err
	}
	text = strings.TrimPrefix(text, wording.KindNode+"/")
	n, err := findNode(nodes, text)
	if err == nil && n.Name != text {
		err = session.UnknownError(wording.KindNode, text, []string{n.Name})
	}
	return n, err
}

func newNodeCordonCommand(sess *session.Session) *cobra.Command {
	return nodeCommand(sess, "cordon", "Keep new tasks away from a node", "",
		func(cmd *cobra.Command, c *client.Client, n api.NodeView) error {
			v, err := c.CordonNode(cmd.Context(), n.Name, client.Condition{})
			if err != nil {
				return err
			}
			return printNode(sess, v, "takes no new tasks; running tasks stay")
		})
}

func newNodeUncordonCommand(sess *session.Session) *cobra.Command {
	return nodeCommand(sess, "uncordon", "Let a node accept new tasks again, and end a drain", "",
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
			return printNode(sess, v, "takes tasks again")
		})
}

// drainCommand is `berth node drain`.
type drainCommand struct {
	*session.Session
	request    api.NodeAction
	deadline   time.Duration
	untilEmpty bool
}

func newNodeDrainCommand(sess *session.Session) *cobra.Command {
	d := &drainCommand{Session: sess}
	cmd := nodeCommand(sess, "drain", "Move a node's tasks away and keep new tasks away",
		"Moves the tasks of a node away and keeps new tasks away. Service tasks are replaced on other nodes\n"+
			"first, as many at a time as the update policy and the minimum of the service allow. Job tasks run to\n"+
			"their end. With --deadline, the remaining tasks are stopped at that time; with --now, all tasks are\n"+
			"stopped immediately, before they run elsewhere. `berth node uncordon` ends the drain.",
		d.run)
	cmd.Flags().DurationVar(&d.deadline, "deadline", 0,
		"stop the remaining tasks after this duration, even below the minimum of their services; default never")
	cmd.Flags().BoolVar(&d.request.Force, "now", false, "stop all tasks immediately, before they run elsewhere")
	cmd.Flags().BoolVar(&d.untilEmpty, "wait", false, "wait until the node is empty, and show what delays it")
	return cmd
}

func (d *drainCommand) run(cmd *cobra.Command, c *client.Client, n api.NodeView) error {
	if d.deadline < 0 {
		return &session.UsageError{
			Command: cmd.CommandPath(),
			Message: fmt.Sprintf("--deadline %v: want a positive duration", d.deadline),
		}
	}
	d.request.Deadline = cluster.Duration(d.deadline)
	v, err := c.DrainNode(cmd.Context(), n.Name, d.request, client.Condition{})
	if err != nil {
		return err
	}
	if !d.untilEmpty {
		return printNode(d.Session, v, drainState(v)+": "+d.progress(v))
	}
	return waitDrained(cmd.Context(), d.Session, c, v)
}

// progress describes how many tasks the drain has to move, or stops immediately.
func (d *drainCommand) progress(v api.NodeView) string {
	if d.request.Force && v.Drain != nil && len(v.Drain.Left) > 0 {
		return wording.Count(len(v.Drain.Left), "task") + " are stopped immediately"
	}
	return drainProgress(v)
}

// drainState says whether a drain has ended.
func drainState(v api.NodeView) string {
	if v.State == cluster.NodeDrained {
		return "is drained"
	}
	return "is draining"
}

// drainProgress describes how many tasks a drain still has to move.
func drainProgress(v api.NodeView) string {
	switch {
	case v.State == cluster.NodeDrained || v.Drain != nil && len(v.Drain.Left) == 0:
		return "no tasks are left on it"
	case v.Drain == nil:
		return "draining begins"
	}
	first := v.Drain.Left[0]
	text := wording.Count(len(v.Drain.Left), "task") + " left, such as " + string(first.ID)
	if first.Why != "" {
		text += " (" + wording.OneLine(first.Why) + ")"
	}
	return text
}

// waitDrained shows the progress of a drain until the node is empty.
func waitDrained(ctx context.Context, sess *session.Session, c *client.Client, v api.NodeView) error {
	shown := ""
	loop := wait.Loop{
		Session: sess, Changes: wait.ChangesOf(c, []session.Name{{Kind: wording.KindNode, Name: v.Name}}),
		Read: func(ctx context.Context) (bool, error) {
			next, err := c.Node(ctx, v.Name)
			switch {
			case client.StatusOf(err) == http.StatusNotFound:
				return false, fmt.Errorf("the node %s was forgotten", v.Name)
			case err != nil:
				return true, err
			}
			v = next
			if text := drainProgress(v); text != shown && !sess.WantsData() {
				sess.Messagef("%s: %s", v.Name, text)
				shown = text
			}
			return v.State != cluster.NodeDrained && v.Drain != nil, nil
		},
	}
	if err := loop.Run(ctx); err != nil {
		return sess.StoppedWaiting(ctx, err, "the drain continues. 'berth node uncordon "+v.Name+"' ends it.")
	}
	if v.State != cluster.NodeDrained {
		return &session.ExitError{Code: session.ExitNo, Err: fmt.Errorf("%s: the drain was ended by another "+
			"command", v.Name)}
	}
	return printNode(sess, v, "is empty")
}

// forgetCommand is `berth node forget`.
type forgetCommand struct {
	*session.Session
	force bool
}

func newNodeForgetCommand(sess *session.Session) *cobra.Command {
	f := &forgetCommand{Session: sess}
	cmd := nodeCommand(sess, "forget", "Remove the node of a machine that never returns",
		"Declares that a machine never returns. Its tasks are replaced immediately, even those that wait for\n"+
			"their node (on_disconnect: wait), and its records are removed. If the machine returns after all, two\n"+
			"attempts of the same task may have run at the same time. A node that is not known to be down\n"+
			"requires --force.",
		f.run)
	cmd.Flags().BoolVar(&f.force, "force", false, "forget the node even if it is not known to be down")
	return cmd
}

func (f *forgetCommand) run(cmd *cobra.Command, c *client.Client, n api.NodeView) error {
	v, err := c.ForgetNode(cmd.Context(), n.Name, f.force, client.Condition{})
	if !f.force {
		err = session.HintOn(err, http.StatusConflict, "If the machine is certainly gone, confirm with --force.")
	}
	if err != nil {
		return err
	}
	return printNode(f.Session, v, "is forgotten: its tasks are replaced, then its records are removed")
}

// printNode prints what happened to a node.
func printNode(sess *session.Session, v api.NodeView, text string) error {
	if sess.WantsData() {
		return sess.PrintData(v)
	}
	sess.Printf("%s %s", v.Name, text)
	return nil
}
