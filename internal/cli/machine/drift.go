package machine

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/bootstrap"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/ssh"
	"github.com/berthd/berth/internal/wording"
)

// driftCommand is `berth node drift`, and `berth node repair`.
type driftCommand struct {
	remote
}

// NewNodeDriftCommand returns `berth node drift`.
func NewNodeDriftCommand(sess *session.Session) *cobra.Command {
	d := &driftCommand{remote{Session: sess, dryRun: true, profileOnly: true}}
	return d.command(&cobra.Command{
		Use: "drift [NODE...]", Short: "Show how nodes differ from their profiles, over SSH",
		Long: "Compares nodes with the profiles that they were added with; without names, all nodes that\n" +
			"'berth node add' made with a profile of the store. Nothing is changed. The command ends with 1 if a\n" +
			"node differs, and a difference is an event. 'berth node repair' changes the nodes.",
	})
}

// NewNodeRepairCommand returns `berth node repair`.
func NewNodeRepairCommand(sess *session.Session) *cobra.Command {
	d := &driftCommand{remote{Session: sess, profileOnly: true}}
	return d.command(&cobra.Command{
		Use: "repair [NODE...]", Short: "Make nodes what their profiles say again, over SSH",
		Long: "Applies the profiles that nodes were added with again; without names, those of all nodes that 'berth\n" +
			"node add' made with a profile of the store. What is as it should be stays. The agent and its tasks\n" +
			"are left alone; 'berth node add' replaces the agent, or gives a node another profile.",
	})
}

func (d *driftCommand) command(cmd *cobra.Command) *cobra.Command {
	cmd.Args = session.Arguments(0, maxMachines, "the names of nodes")
	cmd.ValidArgsFunction = d.CompleteNames(wording.KindNode)
	cmd.RunE = d.run
	d.addFlags(cmd.Flags())
	return cmd
}

func (d *driftCommand) run(cmd *cobra.Command, args []string) error {
	var list session.Faults
	d.checkFlags(&list)
	if err := list.Err(cmd); err != nil {
		return err
	}
	ctx := cmd.Context()
	var err error
	if d.client, err = d.Connect(); err != nil {
		return err
	}
	nodes, err := d.findNodes(ctx, args)
	if err != nil {
		return err
	}
	if len(nodes) == 0 {
		d.Printf("No nodes with a profile. 'berth node add --profile' makes them.")
		return nil
	}
	tasks, err := d.tasksOf(ctx, nodes)
	if err != nil {
		return err
	}
	results, err := d.runAll(ctx, tasks, nil)
	if err != nil {
		return err
	}
	for i, r := range results {
		if err := d.record(ctx, nodes[i], r); err != nil {
			return err
		}
	}
	if err := d.finish(results); err != nil {
		return err
	}
	if d.dryRun && slices.ContainsFunc(results, (*bootstrap.Result).Changed) {
		return &session.ExitError{Code: session.ExitNo}
	}
	return nil
}

// findNodes returns the named nodes, or all that have a profile. A named node without one is an error.
func (d *driftCommand) findNodes(ctx context.Context, names []string) (found []api.NodeView, err error) {
	all, err := session.ListNodes(ctx, d.client)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, name := range names {
		i := slices.IndexFunc(all, func(n api.NodeView) bool { return n.Name == name })
		switch {
		case i < 0:
			var known []string
			for _, n := range all {
				known = append(known, n.Name)
			}
			errs = append(errs, session.UnknownError(wording.KindNode, name, known))
		case all[i].Setup == nil || all[i].Setup.Profile == nil:
			errs = append(errs, fmt.Errorf("node %s has no profile: give it one with 'berth node add --profile'", name))
		default:
			found = append(found, all[i])
		}
	}
	if len(names) == 0 {
		for _, n := range all {
			if n.Setup != nil && n.Setup.Profile != nil {
				found = append(found, n)
			}
		}
	}
	return found, errors.Join(errs...)
}

// tasksOf returns the setups of nodes with their profiles, each of which is read once.
func (d *driftCommand) tasksOf(ctx context.Context, nodes []api.NodeView) (all []setupTask, err error) {
	profiles := map[cluster.Ref]*cluster.Profile{}
	var errs []error
	for _, n := range nodes {
		s := n.Setup
		t := setupTask{jumpTexts: s.Jump, machineAddress: machineAddress{name: n.Name}}
		if t.target, err = ssh.ParseTarget(s.Address, ownUser()); err != nil {
			errs = append(errs, fmt.Errorf("node %s: %w", n.Name, err))
		}
		if len(d.access.jumps) > 0 {
			t.jump, t.jumpTexts = d.access.jumps, d.access.jump
		} else {
			for _, text := range s.Jump {
				jump, err := ssh.ParseTarget(text, ownUser())
				errs = append(errs, err)
				t.jump = append(t.jump, jump)
			}
		}
		if profiles[*s.Profile] == nil {
			v, err := d.client.MachineProfile(ctx, *s.Profile)
			if client.StatusOf(err) == http.StatusNotFound {
				err = fmt.Errorf("node %s: its profile %s is not in the store: apply it with 'berth run'", n.Name,
					*s.Profile)
			}
			errs = append(errs, err)
			profiles[*s.Profile] = &v.Profile
		}
		t.profile = profiles[*s.Profile]
		all = append(all, t)
	}
	return all, errors.Join(errs...)
}

// record writes what a comparison or a repair found, if that is news. It writes nothing for a node that was set up
// again since its profile was read.
func (d *driftCommand) record(ctx context.Context, n api.NodeView, r *bootstrap.Result) error {
	if r.Err != nil {
		return nil // the result says it
	}
	var drift []string
	if d.dryRun {
		for _, difference := range r.Differences[:min(len(r.Differences), cluster.MaxDrift)] {
			drift = append(drift, difference.Item)
		}
	}
	const tries = 5
	for try := 1; ; try++ {
		is, err := d.client.Node(ctx, n.Name)
		if err != nil {
			return fmt.Errorf("record the drift of node %s: %w", n.Name, err)
		}
		if is.Setup == nil || !is.Setup.At.Equal(n.Setup.At) || slices.Equal(is.Setup.Drift, drift) {
			return nil
		}
		next := *is.Setup
		next.Drift = drift
		_, err = d.client.SetupNode(ctx, n.Name, api.NodeSetupRequest{Setup: next}, client.Condition{
			Revision: is.Revision,
		})
		if client.StatusOf(err) != http.StatusPreconditionFailed || try == tries {
			return err
		}
	}
}
