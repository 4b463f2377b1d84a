package node

import (
	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/wording"
)

// dialCommand is `berth node dial`.
type dialCommand struct {
	*session.Session
	off bool
}

func newNodeDialCommand(sess *session.Session) *cobra.Command {
	d := &dialCommand{Session: sess}
	cmd := &cobra.Command{
		Use: "dial NODE ADDRESS", Short: "Let the servers dial the agent of a passive node",
		Long: "Makes a node a passive one: its agent opens no connection, and every server dials it. The agent\n" +
			"runs with --listen-for-servers. ADDRESS is HOST[:PORT], or ssh://[USER@]HOST[:PORT] for the SSH\n" +
			"server of the machine, which the servers use with the key of their flag --ssh-identity. The node\n" +
			"may be unknown so far. --off makes it a node whose agent dials the servers.",
		Args:              session.Arguments(1, 2, "the name of a node and an address, such as 10.0.0.5"),
		ValidArgsFunction: sess.CompleteNames(wording.KindNode),
		RunE:              d.run,
	}
	cmd.Flags().BoolVar(&d.off, "off", false, "dial the node no longer")
	return cmd
}

func (d *dialCommand) run(cmd *cobra.Command, args []string) error {
	if (len(args) > 1) == d.off {
		return &session.UsageError{
			Command: cmd.CommandPath(), Message: cmd.CommandPath() + " needs an address, or --off",
		}
	}
	var list session.Faults
	if !cluster.ValidNodeName(args[0]) {
		list.Add("%q is not the name of a node: want a lower-case host name", args[0])
	}
	address, done := "", "is dialed no longer: its agent dials the servers"
	if !d.off {
		address, done = args[1], "is dialed at "+args[1]
		_, err := cluster.ParseDialAddress(address)
		list.AddError("ADDRESS", err)
	}
	if err := list.Err(cmd); err != nil {
		return err
	}
	c, err := d.Connect()
	if err != nil {
		return err
	}
	v, err := c.DialNode(cmd.Context(), args[0], address, client.Condition{})
	if err != nil {
		return err
	}
	return printNode(d.Session, v, done)
}

// dialText says where the servers dial a passive node, and whether the answering one reaches it.
func dialText(n *api.NodeView) string {
	if n.DialProblem != "" {
		return n.Dial + ", not reached: " + n.DialProblem
	}
	return n.Dial
}
