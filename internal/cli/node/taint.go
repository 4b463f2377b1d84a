package node

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/wording"
)

// taintCommand is `berth node taint`.
type taintCommand struct{ *session.Session }

func newNodeTaintCommand(sess *session.Session) *cobra.Command {
	t := &taintCommand{sess}
	return &cobra.Command{
		Use: "taint NODE KEY[=VALUE][:EFFECT]...", Short: "Add taints to a node",
		Long: "Adds taints to a node. A taint keeps tasks away that do not tolerate it. The effect no-schedule, the\n" +
			"default, allows no new tasks; avoid allows them only if no other node fits; evict allows no new\n" +
			"tasks and moves running tasks away. A node has one taint for each key and effect: a new value\n" +
			"replaces the old one. `berth node untaint` removes taints.",
		Args:              session.Arguments(2, -1, "the name of a node and a taint, as key=value:effect"),
		ValidArgsFunction: sess.CompleteNames(wording.KindNode),
		RunE:              t.run,
	}
}

func (t *taintCommand) run(cmd *cobra.Command, args []string) error {
	taints, err := parseTaints(cmd, args[1:])
	if err != nil {
		return err
	}
	return changeNode(t.Session, cmd, args[0], func(c *client.Client, n api.NodeView) error {
		v, err := c.TaintNode(cmd.Context(), n.Name, taints, client.Condition{})
		if err != nil {
			return err
		}
		return printNode(t.Session, v, "has "+taintsText(v.Taints))
	})
}

// parseTaints reads taints from arguments. The error lists all faults.
func parseTaints(cmd *cobra.Command, args []string) ([]cluster.Taint, error) {
	var list session.Faults
	var taints []cluster.Taint
	for _, arg := range args {
		t, err := cluster.ParseTaint(arg)
		if err != nil {
			list.Add("%s", session.ErrorText(err))
			continue
		}
		taints = append(taints, t)
	}
	return taints, list.Err(cmd)
}

// untaintCommand is `berth node untaint`.
type untaintCommand struct{ *session.Session }

func newNodeUntaintCommand(sess *session.Session) *cobra.Command {
	u := &untaintCommand{sess}
	return &cobra.Command{
		Use: "untaint NODE KEY[:EFFECT]...", Short: "Remove taints from a node",
		Long: "Removes taints from a node: all of a key, or only the one with the given effect.\n" +
			"The command ignores a taint that the node does not have.",
		Args:              session.Arguments(2, -1, "the name of a node and the key of a taint"),
		ValidArgsFunction: sess.CompleteNodeThen(-1, session.TaintKeys),
		RunE:              u.run,
	}
}

func (u *untaintCommand) run(cmd *cobra.Command, args []string) error {
	taints, err := parseTaints(cmd, args[1:])
	if err != nil {
		return err
	}
	keys := make([]api.TaintKey, len(taints))
	for i, t := range taints {
		if t.Value != "" {
			return &session.UsageError{
				Command: cmd.CommandPath(),
				Message: fmt.Sprintf("%q has a value: want the key alone, or key:effect", args[1+i]),
			}
		}
		keys[i] = api.TaintKey{Key: t.Key, Effect: t.Effect}
	}
	return changeNode(u.Session, cmd, args[0], func(c *client.Client, n api.NodeView) error {
		v, err := c.UntaintNode(cmd.Context(), n.Name, keys, client.Condition{})
		if err != nil {
			return err
		}
		if !u.WantsData() {
			for _, k := range keys {
				had := slices.ContainsFunc(n.Taints, func(t cluster.Taint) bool {
					return t.Key == k.Key && (k.Effect == "" || k.Effect == t.Effect)
				})
				if !had {
					u.Messagef("%s had no taint %s", n.Name,
						strings.TrimSuffix(k.Key+":"+string(k.Effect), ":"))
				}
			}
		}
		return printNode(u.Session, v, "has "+taintsText(v.Taints))
	})
}

// poolCommand is `berth node pool`.
type poolCommand struct {
	*session.Session
	none bool
}

func newNodePoolCommand(sess *session.Session) *cobra.Command {
	p := &poolCommand{Session: sess}
	cmd := &cobra.Command{
		Use: "pool NODE [POOL]", Short: "Put a node into a pool",
		Long: "Puts a node into a pool. With --none, removes it from its pool. A node is in at most one pool.\n" +
			"Services and steps with a pool (placement.pool) run only on nodes of the pool; others run on all\n" +
			"nodes. Running tasks stay.",
		Args:              session.Arguments(1, 2, "the name of a node and of a pool"),
		ValidArgsFunction: sess.CompleteNodeThen(2, session.PoolNames),
		RunE:              p.run,
	}
	cmd.Flags().BoolVar(&p.none, "none", false, "remove the node from its pool")
	return cmd
}

func (p *poolCommand) run(cmd *cobra.Command, args []string) error {
	if (len(args) == 2) == p.none {
		return &session.UsageError{
			Command: cmd.CommandPath(),
			Message: cmd.CommandPath() + " needs the name of a pool, or --none",
		}
	}
	pool := ""
	if len(args) == 2 {
		pool = args[1]
	}
	return changeNode(p.Session, cmd, args[0], func(c *client.Client, n api.NodeView) error {
		v, err := c.PoolNode(cmd.Context(), n.Name, pool, client.Condition{})
		if err != nil {
			return err
		}
		if v.Pool == "" {
			return printNode(p.Session, v, "is in no pool")
		}
		return printNode(p.Session, v, "is in the pool "+v.Pool)
	})
}

// taintsText names the taints of a node in a sentence.
func taintsText(taints []cluster.Taint) string {
	switch len(taints) {
	case 0:
		return "no taints"
	case 1:
		return "the taint " + taints[0].String()
	}
	return "the taints " + taintList(taints)
}

func taintList(taints []cluster.Taint) string {
	texts := make([]string, len(taints))
	for i, t := range taints {
		texts[i] = t.String()
	}
	return strings.Join(texts, ", ")
}
