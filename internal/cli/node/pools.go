package node

import (
	"context"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/session"
)

// NewPoolCommand returns the command `berth pool`.
func NewPoolCommand(sess *session.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use: "pool", Aliases: []string{"pools"}, Short: "List the pools of nodes",
		Args: cobra.ArbitraryArgs, RunE: session.RunGroup,
	}
	cmd.AddCommand(newPoolListCommand(sess))
	return cmd
}

// poolListCommand is `berth pool ls`.
type poolListCommand struct{ *session.Session }

func newPoolListCommand(sess *session.Session) *cobra.Command {
	p := &poolListCommand{sess}
	return &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the pools of nodes and their settings",
		Long: "List the pools of nodes: those with nodes and those with settings.\n\n" +
			"'berth node pool' puts a node into a pool. A manifest of the kind Pool sets the strategy for services\n" +
			"and steps that name the pool but no strategy; 'berth run' applies it. The strategy of a pool has\n" +
			"precedence over the strategy of the cluster.",
		Args: session.Arguments(0, 0, ""), RunE: sess.WithClient(p.run),
	}
}

func (p *poolListCommand) run(ctx context.Context, c *client.Client, _ []string) error {
	pools, _, err := client.All(ctx, client.ListOptions{}, c.Pools)
	if err != nil {
		return err
	}
	return session.PrintList(p.Session, pools, "No pools. Put a node into a pool with 'berth node pool NODE POOL'.",
		poolTable)
}

func poolTable(pools []api.PoolView) output.Table {
	t := output.Table{Titles: []string{"POOL", "NODES>", "STRATEGY"}}
	for _, p := range pools {
		t.Add(p.Name, strconv.Itoa(p.Status.Nodes), string(p.Strategy))
	}
	return t
}

// PrintPool prints one pool with its nodes.
func PrintPool(ctx context.Context, sess *session.Session, c *client.Client, name string) error {
	v, err := session.FindPool(ctx, c, name)
	if err != nil {
		return err
	}
	if sess.WantsData() {
		return sess.PrintData(v)
	}
	if err := sess.PrintTable(poolTable([]api.PoolView{v})); err != nil {
		return err
	}
	nodes, err := ListPoolNodes(ctx, c, name)
	if err != nil || len(nodes) == 0 {
		return err
	}
	sess.Printf("")
	return sess.PrintTable(nodeTable(sess, nodes, serverNames(ctx, sess, c)))
}

// ListPoolNodes returns the nodes of a pool. Nodes that are not ready come first.
func ListPoolNodes(ctx context.Context, c *client.Client, pool string) ([]api.NodeView, error) {
	nodes, err := session.ListNodes(ctx, c, "")
	return slices.DeleteFunc(nodes, func(n api.NodeView) bool { return n.Pool != pool }), err
}
