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

func newNodeTaintCommand(sess *session.Session) *cobra.Command {
	return &cobra.Command{
		Use: "taint NODE KEY[=VALUE][:EFFECT]...", Short: "Keep tasks away from a node that do not tolerate it",
		Long: "Gives a node taints: tasks that do not tolerate one are kept away. The effect is " +
			"no-schedule, the default (no new tasks), avoid (only\n" +
			"where there is no other node) or evict (no new tasks, and those that run there are to leave). " +
			"A node has one taint of a key and an\n" +
			"effect: its value is replaced. `berth node untaint` takes taints away.",
		Args:              session.Arguments(2, -1, "the name of a node and a taint, as key=value:effect"),
		ValidArgsFunction: sess.CompleteNames(wording.KindNode),
		RunE: func(cmd *cobra.Command, args []string) error {
			taints, err := parseTaints(cmd, args[1:])
			if err != nil {
				return err
			}
			return changeNode(sess, cmd, args[0], func(c *client.Client, n api.NodeView) error {
				v, err := c.TaintNode(cmd.Context(), n.Name, taints, client.Condition{})
				if err != nil {
					return err
				}
				return printNode(sess, v, "has "+taintsText(v.Taints))
			})
		},
	}
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

func newNodeUntaintCommand(sess *session.Session) *cobra.Command {
	return &cobra.Command{
		Use: "untaint NODE KEY[:EFFECT]...", Short: "Take taints from a node",
		Long: "Takes taints from a node: those of a key, or with an effect only that one. A taint that the " +
			"node does not have is no fault.",
		Args:              session.Arguments(2, -1, "the name of a node and the key of a taint"),
		ValidArgsFunction: sess.CompleteNodeThen(-1, session.TaintKeys),
		RunE: func(cmd *cobra.Command, args []string) error {
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
			return changeNode(sess, cmd, args[0], func(c *client.Client, n api.NodeView) error {
				v, err := c.UntaintNode(cmd.Context(), n.Name, keys, client.Condition{})
				if err != nil {
					return err
				}
				if !sess.WantsData() {
					for _, k := range keys {
						had := slices.ContainsFunc(n.Taints, func(t cluster.Taint) bool {
							return t.Key == k.Key && (k.Effect == "" || k.Effect == t.Effect)
						})
						if !had {
							sess.Messagef("%s had no taint %s", n.Name,
								strings.TrimSuffix(k.Key+":"+string(k.Effect), ":"))
						}
					}
				}
				return printNode(sess, v, "has "+taintsText(v.Taints))
			})
		},
	}
}

func newNodePoolCommand(sess *session.Session) *cobra.Command {
	none := false
	cmd := &cobra.Command{
		Use: "pool NODE [POOL]", Short: "Put a node into a pool",
		Long: "Puts a node into a pool, or with --none takes it out of the one that it is in. A node is in " +
			"one pool at most. Services and steps that\n" +
			"name a pool (placement.pool) run on its nodes alone; those that name none run on all. Tasks " +
			"that run there stay.",
		Args:              session.Arguments(1, 2, "the name of a node and of a pool"),
		ValidArgsFunction: sess.CompleteNodeThen(2, session.PoolNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) == 2) == none {
				return &session.UsageError{
					Command: cmd.CommandPath(),
					Message: cmd.CommandPath() + " needs the name of a pool, or --none",
				}
			}
			pool := ""
			if len(args) == 2 {
				pool = args[1]
			}
			return changeNode(sess, cmd, args[0], func(c *client.Client, n api.NodeView) error {
				v, err := c.PoolNode(cmd.Context(), n.Name, pool, client.Condition{})
				if err != nil {
					return err
				}
				if v.Pool == "" {
					return printNode(sess, v, "is in no pool")
				}
				return printNode(sess, v, "is in the pool "+v.Pool)
			})
		},
	}
	cmd.Flags().BoolVar(&none, "none", false, "take the node out of its pool")
	return cmd
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
