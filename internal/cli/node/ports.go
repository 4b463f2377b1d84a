package node

import (
	"context"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/fetch"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/wording"
)

// reservePortsCommand is `berth node reserve-ports`.
type reservePortsCommand struct{ *session.Session }

func newNodeReservePortsCommand(sess *session.Session) *cobra.Command {
	p := &reservePortsCommand{sess}
	return &cobra.Command{
		Use: "reserve-ports NODE PORTS...", Short: "Keep ports of a node from tasks",
		Long: "Keeps ports of a node from tasks, fixed or assigned, beside those that are reserved already. PORTS\n" +
			"are numbers and ranges such as 22,8000-8100. A task that has one of the ports keeps it until it leaves\n" +
			"the node. The agent can reserve further ports with its flag --reserved-ports.",
		Args:              session.Arguments(2, -1, "the name of a node and ports, such as 22,8000-8100"),
		ValidArgsFunction: sess.CompleteNames(wording.KindNode),
		RunE:              p.run,
	}
}

func (p *reservePortsCommand) run(cmd *cobra.Command, args []string) error {
	ports, err := parsePorts(cmd, args[1:])
	if err != nil {
		return err
	}
	return changeNode(p.Session, cmd, args[0], func(c *client.Client, n api.NodeView) error {
		v, err := c.ReservePorts(cmd.Context(), n.Name, ports, client.Condition{})
		if err != nil {
			return err
		}
		if err := printNode(p.Session, v, portsText(v)); err != nil || p.WantsData() {
			return err
		}
		return p.noteUsers(cmd.Context(), c, v)
	})
}

// noteUsers lists the tasks of the node that have ports which the operator reserved.
func (p *reservePortsCommand) noteUsers(ctx context.Context, c *client.Client, n api.NodeView) error {
	list := fetch.CurrentTasks{Now: p.Now()}
	if err := list.Read(ctx, c, client.TaskFilter{Node: n.Name}); err != nil {
		return err
	}
	reserved := cluster.Ports(n.ReservedPorts)
	for _, t := range list.Tasks {
		if t.State.Terminal() || t.Node != n.Name {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(t.Ports)) {
			if _, found := slices.BinarySearch(reserved, t.Ports[name]); found {
				p.Messagef("port %d stays with %s until that task leaves %s", t.Ports[name], string(t.ID),
					n.Name)
			}
		}
	}
	return nil
}

// unreservePortsCommand is `berth node unreserve-ports`.
type unreservePortsCommand struct {
	*session.Session
	all bool
}

func newNodeUnreservePortsCommand(sess *session.Session) *cobra.Command {
	p := &unreservePortsCommand{Session: sess}
	cmd := &cobra.Command{
		Use: "unreserve-ports NODE [PORTS...]", Short: "Allow ports of a node to tasks again",
		Long: "Allows ports of a node to tasks again, or with --all all that an operator reserved. Ports that the\n" +
			"agent's flag --reserved-ports names stay reserved. The command ignores a port that is not reserved.",
		Args:              session.Arguments(1, -1, "the name of a node and ports, such as 22,8000-8100"),
		ValidArgsFunction: sess.CompleteNames(wording.KindNode),
		RunE:              p.run,
	}
	cmd.Flags().BoolVar(&p.all, "all", false, "all ports that an operator reserved")
	return cmd
}

func (p *unreservePortsCommand) run(cmd *cobra.Command, args []string) error {
	if (len(args) > 1) == p.all {
		return &session.UsageError{Command: cmd.CommandPath(), Message: cmd.CommandPath() + " needs ports, or --all"}
	}
	ports, err := parsePorts(cmd, args[1:])
	if err != nil {
		return err
	}
	return changeNode(p.Session, cmd, args[0], func(c *client.Client, n api.NodeView) error {
		if p.all {
			ports = n.ReservedPorts
		}
		v := n
		if len(ports) > 0 {
			if v, err = c.UnreservePorts(cmd.Context(), n.Name, ports, client.Condition{}); err != nil {
				return err
			}
		}
		return printNode(p.Session, v, portsText(v))
	})
}

// parsePorts reads ports from arguments. The error lists all faults.
func parsePorts(cmd *cobra.Command, args []string) (ports []cluster.PortRange, err error) {
	var list session.Faults
	for _, arg := range args {
		ports = append(ports, cluster.ParsePortRanges(arg)...)
	}
	for _, r := range ports {
		if _, _, err := r.Bounds(); err != nil {
			list.Add("%s", err)
		}
	}
	return ports, list.Err(cmd)
}

// portsText names the ports that an operator reserved.
func portsText(v api.NodeView) string {
	if len(v.ReservedPorts) == 0 {
		return "has no ports reserved by an operator"
	}
	return "has the ports " + cluster.JoinPortRanges(v.ReservedPorts) + " reserved by an operator"
}
