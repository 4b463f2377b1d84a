package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/bootstrap"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/serve/datadir"
	"github.com/berthd/berth/internal/setup"
	"github.com/berthd/berth/internal/wording"
)

// upgradeCommand is `berth node upgrade`.
type upgradeCommand struct {
	remote
	wave   int
	settle time.Duration
}

// NewNodeUpgradeCommand returns `berth node upgrade`.
func NewNodeUpgradeCommand(sess *session.Session) *cobra.Command {
	u := &upgradeCommand{remote: remote{Session: sess, parallel: 1}}
	cmd := &cobra.Command{
		Use: "upgrade [NODE...]", Short: "Replace the agents of nodes by this version, over SSH",
		Long: "Replaces the agents of nodes by this version of berth, or by that of --binary; without names, those\n" +
			"of all ready nodes that 'berth node add' made. Running tasks are not touched. Upgrade the servers\n" +
			"first.\n\n" +
			"The first node is upgraded alone, and the others in waves. A node passes when it is ready again, and\n" +
			"the tasks that ran there before run on, as healthy as before, for the time of --settle. Otherwise it\n" +
			"goes back to its agent before, and no other wave begins. A node also goes back by itself if nobody\n" +
			"confirms its upgrade, so a lost network or the end of this command leaves no node without an agent.",
		Args: session.Arguments(0, maxMachines, "the names of nodes"), RunE: u.run,
		ValidArgsFunction: sess.CompleteNames(wording.KindNode),
	}
	f := cmd.Flags()
	u.addFlags(f)
	u.addTimeoutFlag(f, 30*time.Second)
	f.BoolVar(&u.dryRun, "dry-run", false, "show which nodes would be upgraded, and change nothing")
	f.IntVar(&u.wave, "wave", 5, "number of nodes at a time, after the first")
	f.DurationVar(&u.settle, "settle", 15*time.Second, "time that the tasks of a node must be as well as before")
	return cmd
}

func (u *upgradeCommand) check(cmd *cobra.Command) error {
	var list session.Faults
	u.checkFlags(&list)
	if u.wave < 1 || u.wave > maxMachines {
		list.Add("--wave %d: want 1 to %d", u.wave, maxMachines)
	}
	if u.settle < 0 {
		list.Add("--settle %s: want no negative duration", u.settle)
	}
	return list.Err(cmd)
}

func (u *upgradeCommand) run(cmd *cobra.Command, args []string) error {
	if err := u.check(cmd); err != nil {
		return err
	}
	ctx := cmd.Context()
	canUpgrade := func(n *api.NodeView) error {
		switch {
		case n.Setup == nil:
			return fmt.Errorf("node %s was not made by 'berth node add': upgrade it the way it was installed", n.Name)
		case n.State != cluster.NodeReady:
			return fmt.Errorf("node %s is %s: only ready nodes are upgraded", n.Name, n.State)
		}
		return nil
	}
	return u.overNodes(ctx, args, canUpgrade, "No ready nodes that 'berth node add' made.",
		func(nodes []api.NodeView, tasks []setupTask) ([]*bootstrap.Result, error) {
			if err := u.open(len(nodes)); err != nil {
				return nil, err
			}
			return u.runWaves(ctx, nodes, tasks)
		})
}

// runWaves upgrades the first node, and then the others in waves. A failure ends it: the nodes after it are skipped.
func (u *upgradeCommand) runWaves(ctx context.Context, nodes []api.NodeView, all []setupTask) (
	results []*bootstrap.Result, err error,
) {
	c := bootstrap.UpgradeConfig{
		Config:       u.config(&control{client: u.client}),
		Gate:         &taskGate{client: u.client, limit: u.timeout, settle: u.settle},
		Confirmation: 2*u.timeout + u.settle + 15*time.Second,
	}
	size := 1
	if u.dryRun {
		size = u.wave
	}
	for len(results) < len(all) {
		wave := all[len(results):min(len(results)+size, len(all))]
		ended, err := u.forEach(ctx, wave, size, func(_ *setupTask, m bootstrap.Machine) *bootstrap.Result {
			return bootstrap.Upgrade(ctx, c, m)
		})
		if err != nil {
			return nil, fmt.Errorf("%w; nodes whose upgrade was not confirmed go back by themselves within %v", err,
				c.Confirmation)
		}
		first := len(results)
		results, size = append(results, ended...), u.wave
		failed := false
		for i, r := range ended {
			failed = failed || r.Err != nil
			if err := u.record(ctx, &nodes[first+i], r); err != nil {
				return nil, err
			}
		}
		if failed && !u.dryRun {
			break
		}
	}
	for _, t := range all[len(results):] {
		results = append(results, &bootstrap.Result{Name: t.name, Address: t.target.String(), Skipped: true})
	}
	return results, nil
}

// record writes the end of an upgrade.
func (u *upgradeCommand) record(ctx context.Context, n *api.NodeView, r *bootstrap.Result) error {
	if u.dryRun || r.Version == "" {
		return nil
	}
	return u.changeSetup(ctx, n, func(s *cluster.HostSetup) bool {
		if r.Err != nil {
			s.FailedUpgrade = &cluster.FailedUpgrade{
				Binary: r.Version, At: time.Now().UTC().Truncate(time.Second),
				Problem: problemText(r),
			}
			return true
		}
		changed := s.Binary != r.Version || s.FailedUpgrade != nil
		s.Binary, s.FailedUpgrade = r.Version, nil
		return changed
	})
}

// problemText says where and why an upgrade failed, in a record's length.
func problemText(r *bootstrap.Result) string {
	text := strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return ' '
		}
		return c
	}, r.Step+": "+firstLine(session.ErrorText(r.Err)))
	return strings.ToValidUTF8(text[:min(len(text), cluster.MaxLabel)], "")
}

// newUpgradeCommands returns the commands of the machine's side of an upgrade.
func newUpgradeCommands(sess *session.Session) []*cobra.Command {
	revert := &cobra.Command{
		Use: "revert", Short: "Return to the agent before an upgrade that is not confirmed",
		Long: "Makes this machine run the agent before the last 'berth node upgrade', if its upgrade still waits\n" +
			"for a confirmation. The machine does the same by itself when the time for the confirmation has\n" +
			"passed. The command is for root.",
		Args: session.Arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return setup.NewUpgrades(setup.New()).Revert(cmd.Context())
		},
	}
	upgrade := &cobra.Command{
		Use: "upgrade", Hidden: true, Args: session.Arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error { return runUpgradeRequest(cmd.Context(), sess) },
	}
	upgrade.Flags().String("request", "-", "- for a request on standard input")
	confirm := &cobra.Command{
		Use: "confirm", Hidden: true, Args: session.Arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return setup.NewUpgrades(setup.New()).Confirm(cmd.Context())
		},
	}
	watch := &cobra.Command{
		Use: "watch-upgrade", Hidden: true, Args: session.Arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := datadir.NewLogger(cmd.ErrOrStderr(), "info")
			if err != nil {
				return err
			}
			return setup.NewUpgrades(setup.New()).Watch(cmd.Context(), log)
		},
	}
	return []*cobra.Command{revert, upgrade, confirm, watch}
}

// runUpgradeRequest replaces the agent of this machine for `berth node upgrade`.
func runUpgradeRequest(ctx context.Context, sess *session.Session) error {
	var request bootstrap.UpgradeRequest
	if err := readRequest(sess, &request); err != nil {
		return err
	}
	if request.Confirmation <= 0 {
		return errors.New("the request has no time for the confirmation")
	}
	return writeChanges(sess, func(report func(setup.Step)) error {
		return setup.NewUpgrades(setup.New()).Begin(ctx, request.Confirmation, report)
	})
}

// writeChanges writes what a setup changes, a line each, and that it is done.
func writeChanges(sess *session.Session, run func(report func(setup.Step)) error) error {
	out := json.NewEncoder(sess.Stdout)
	err := run(func(s setup.Step) {
		_ = out.Encode(bootstrap.ApplyReply{Step: &s}) // the connection may be lost; the setup goes on
	})
	if err != nil {
		return err
	}
	return out.Encode(bootstrap.ApplyReply{Done: true})
}
