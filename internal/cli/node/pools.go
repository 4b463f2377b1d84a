package node

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
)

// poolView is an element of the list of pools.
type poolView struct {
	Name     string           `json:"name"`
	Nodes    int              `json:"nodes"`
	Strategy cluster.Strategy `json:"strategy,omitempty"`
}

// poolsCommand is `berth node pools`.
type poolsCommand struct {
	*session.Session
	strategy string
}

func newNodePoolsCommand(sess *session.Session) *cobra.Command {
	p := &poolsCommand{Session: sess}
	cmd := &cobra.Command{
		Use: "pools [POOL]", Short: "List node pools, or set the strategy of a pool",
		Long: "Lists the node pools. With a pool and --strategy, sets the strategy for services and steps that name\n" +
			"the pool but no strategy: binpack, spread or whole. An empty value removes it. The strategy of a\n" +
			"pool has precedence over the strategy of the cluster.",
		Args: session.Arguments(0, 1, "the name of a pool"), ValidArgsFunction: sess.CompleteNames(session.KindPool),
		RunE: p.run,
	}
	cmd.Flags().StringVar(&p.strategy, "strategy", "",
		"strategy that ranks nodes: binpack, spread or whole; empty for the strategy of the cluster")
	return cmd
}

func (p *poolsCommand) run(cmd *cobra.Command, args []string) error {
	set := cmd.Flags().Changed("strategy")
	if set != (len(args) == 1) {
		return &session.UsageError{
			Command: cmd.CommandPath(),
			Message: cmd.CommandPath() + " needs a pool and --strategy together, or neither",
		}
	}
	c, err := p.Connect()
	if err != nil {
		return err
	}
	domain, err := c.Domain(cmd.Context())
	if err != nil {
		return err
	}
	if set {
		return setPool(cmd.Context(), p.Session, c, domain,
			cluster.PoolSettings{Name: args[0], Strategy: cluster.Strategy(p.strategy)})
	}
	return listPools(cmd.Context(), p.Session, c, domain)
}

// setPool writes the strategy of one pool.
func setPool(ctx context.Context, sess *session.Session, c *client.Client, domain api.DomainView,
	pool cluster.PoolSettings,
) error {
	pools := slices.DeleteFunc(domain.Pools, func(p cluster.PoolSettings) bool { return p.Name == pool.Name })
	if pool.Strategy != "" {
		pools = append(pools, pool)
	}
	slices.SortFunc(pools, func(x, y cluster.PoolSettings) int { return strings.Compare(x.Name, y.Name) })
	domain.Pools = pools
	if _, err := c.PutDomain(ctx, domain.DomainSettings, client.Condition{Revision: domain.Revision}); err != nil {
		return err
	}
	sess.Messagef("the strategy of the pool %s is %s", pool.Name, cmp.Or(string(pool.Strategy), "that of the cluster"))
	return nil
}

// listPools prints the pools that have nodes or settings.
func listPools(ctx context.Context, sess *session.Session, c *client.Client, domain api.DomainView) error {
	nodes, err := session.ListNodes(ctx, c)
	if err != nil {
		return err
	}
	pools := map[string]poolView{}
	for _, p := range domain.Pools {
		pools[p.Name] = poolView{Name: p.Name, Strategy: p.Strategy}
	}
	for _, n := range nodes {
		if n.Pool != "" {
			p := pools[n.Pool]
			p.Name, p.Nodes = n.Pool, p.Nodes+1
			pools[n.Pool] = p
		}
	}
	list := slices.SortedFunc(maps.Values(pools), func(x, y poolView) int { return strings.Compare(x.Name, y.Name) })
	return session.PrintList(sess, list, "No pools. Put a node into a pool with 'berth node pool NODE POOL'.",
		func([]poolView) output.Table {
			t := output.Table{Titles: []string{"POOL", "NODES>", "STRATEGY"}}
			for _, p := range list {
				t.Add(p.Name, strconv.Itoa(p.Nodes), string(p.Strategy))
			}
			return t
		})
}
