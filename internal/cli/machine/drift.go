package machine

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/bootstrap"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
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
	d.addParallelFlag(cmd.Flags())
	d.timeout = time.Minute // for no wait: no agent is started
	return cmd
}

func (d *driftCommand) run(cmd *cobra.Command, args []string) error {
	var list session.Faults
	d.checkFlags(&list)
	if err := list.Err(cmd); err != nil {
		return err
	}
	ctx, differs := cmd.Context(), false
	hasProfile := func(n *api.NodeView) error {
		if n.Setup == nil || n.Setup.Profile == nil {
			return fmt.Errorf("node %s has no profile: give it one with 'berth node add --profile'", n.Name)
		}
		return nil
	}
	err := d.overNodes(ctx, args, hasProfile, "No nodes with a profile. 'berth node add --profile' makes them.",
		func(nodes []api.NodeView, tasks []setupTask) ([]*bootstrap.Result, error) {
			results, err := d.compare(ctx, nodes, tasks)
			differs = slices.ContainsFunc(results, (*bootstrap.Result).Changed)
			return results, err
		})
	if err == nil && d.dryRun && differs {
		return &session.ExitError{Code: session.ExitNo}
	}
	return err
}

// compare compares nodes with their profiles, or applies these, and records what it finds.
func (d *driftCommand) compare(ctx context.Context, nodes []api.NodeView, tasks []setupTask) (
	results []*bootstrap.Result, err error,
) {
	if err := d.readProfiles(ctx, nodes, tasks); err != nil {
		return nil, err
	}
	results, err = d.runAll(ctx, tasks, nil)
	if err != nil {
		return nil, err
	}
	for i, r := range results {
		if r.Err != nil {
			continue // the summary says it
		}
		if err := d.record(ctx, &nodes[i], r); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// record writes what a comparison or a repair found, if that is news. It writes nothing for a node that was set up
// again since its profile was read.
func (d *driftCommand) record(ctx context.Context, n *api.NodeView, r *bootstrap.Result) error {
	var drift []string
	if d.dryRun {
		for _, difference := range r.Differences[:min(len(r.Differences), cluster.MaxDrift)] {
			drift = append(drift, difference.Item)
		}
	}
	return d.changeSetup(ctx, n, func(s *cluster.HostSetup) bool {
		was := s.Drift
		s.Drift = drift
		return !slices.Equal(was, drift)
	})
}

// readProfiles reads the profiles of nodes, each once.
func (d *driftCommand) readProfiles(ctx context.Context, nodes []api.NodeView, tasks []setupTask) error {
	profiles := map[cluster.Ref]*cluster.Profile{}
	var errs []error
	for i, n := range nodes {
		ref := *n.Setup.Profile
		if profiles[ref] == nil {
			v, err := d.client.MachineProfile(ctx, ref)
			if client.StatusOf(err) == http.StatusNotFound {
				err = fmt.Errorf("node %s: its profile %s is not in the store: apply it with 'berth run'", n.Name, ref)
			}
			errs = append(errs, err)
			profiles[ref] = &v.Profile
		}
		tasks[i].profile = profiles[ref]
	}
	return errors.Join(errs...)
}
