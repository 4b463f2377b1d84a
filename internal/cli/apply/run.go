// Package apply implements the commands that read, write and delete objects as manifests, such as run, plan, edit and
// delete.
package apply

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cli/wait"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/manifest"
	"github.com/berthd/berth/internal/wording"
)

// runCommand is `berth run`.
type runCommand struct {
	*session.Session
	files   files
	detach  bool
	timeout time.Duration
	prune   prune
	yes     bool // confirms the deletions of --prune
	key     string
}

// NewRunCommand returns the command `berth run`.
func NewRunCommand(sess *session.Session) *cobra.Command {
	r := &runCommand{Session: sess}
	cmd := &cobra.Command{
		Use:   "run FILE...",
		Short: "Apply manifests and wait until services are healthy and jobs have succeeded",
		Long: "Apply the objects of the manifests, all or none, and wait until every service is healthy and every\n" +
			"job has succeeded. Exit code 0: success; 1: a service is not healthy or a job failed, with the\n" +
			"reason; 2: the objects could not be applied.\n\n" +
			"The command waits until a rollout is complete, or has failed and was rolled back; then it prints the\n" +
			"cause. If canaries are healthy and wait for their promotion, the command ends with success.\n\n" +
			"Without --timeout, a job may take any time and a rollout as long as its deadlines allow. The wait\n" +
			"for a new service ends after five minutes without progress. A timeout or an interrupt ends only the\n" +
			"wait, not the work.\n\n" +
			pruneHelp + "\nWithout --yes it asks first.\n\n" +
			filesHelp,
		Args:              r.files.arguments(),
		ValidArgsFunction: session.CompleteManifests,
		RunE:              r.run,
	}
	r.files.addFlag(cmd)
	session.AddDetachFlag(cmd, &r.detach)
	cmd.Flags().DurationVar(&r.timeout, "timeout", 0, "stop waiting after this `duration`")
	r.prune.addFlags(cmd)
	cmd.Flags().StringVar(&r.key, "key", "", "the `key` of this submission of jobs, such as build-17: with the key "+
		"of the last time nothing changes, with another one the jobs run again")
	cmd.Flags().BoolVar(&r.yes, "yes", false, "confirm the deletions of --prune")
	return cmd
}

func (r *runCommand) run(cmd *cobra.Command, args []string) error {
	ctx := cmd.Context()
	if err := r.prune.parse(cmd); err != nil {
		return err
	}
	objects, err := ReadManifests(r.Session, r.files.all(args))
	if err != nil {
		return err
	}
	if err := r.setKey(objects); err != nil {
		return err
	}
	c, err := r.Connect()
	if err != nil {
		return err
	}
	names, err := r.prune.find(ctx, c, objects)
	if err != nil {
		return err
	}
	if len(names) > 0 && !r.yes {
		if err := confirmDeletion(r.Session, names); err != nil {
			return err
		}
	}
	reply, err := sendObjects(ctx, c, objects, false)
	if err != nil {
		return err
	}
	r.printChanges(reply)
	targets := targetsOf(reply)
	d := deletion{Session: r.Session, detach: r.detach, skipMissing: true}
	deleting, err := d.begin(ctx, c, names)
	if err != nil {
		return err
	}
	if r.detach || len(targets) == 0 {
		if err := r.PrintDataOnly(reply); err != nil {
			return err
		}
		return d.await(ctx, c, deleting)
	}
	w := wait.Waiter{Session: r.Session, Client: c, Targets: targets, Timeout: r.timeout}
	if err := w.Await(ctx, "the applied objects continue. See 'berth status'."); err != nil {
		return err
	}
	return d.await(ctx, c, deleting)
}

// setKey sets the key of the jobs.
func (r *runCommand) setKey(objects []manifest.Object) error {
	if r.key == "" {
		return nil
	}
	jobs := 0
	for _, o := range objects {
		if job, ok := o.Value.(*cluster.Job); ok {
			job.Key = r.key
			jobs++
		}
	}
	if jobs == 0 {
		return errors.New("--key is for jobs, and there is no job in the manifest")
	}
	return nil
}

// printChanges prints what the server did.
func (r *runCommand) printChanges(reply api.ApplyReply) {
	for _, c := range reply.Changes {
		printChange(r.Session, c)
	}
}

// targetsOf returns the services and jobs of an apply, to wait for.
func targetsOf(reply api.ApplyReply) (targets []*wait.Target) {
	for _, c := range reply.Changes {
		if c.Kind == cluster.KindService || c.Kind == cluster.KindJob {
			n := session.Name{Kind: wording.KindService, Cluster: c.Cluster, Name: c.Name}
			if c.Kind == cluster.KindJob {
				n.Kind = wording.KindJob
			}
			targets = append(targets, &wait.Target{
				Name: n, Revision: c.Revision, MinGeneration: c.Generation, Unchanged: c.Action == api.ActionNone,
			})
		}
	}
	return targets
}

// printChange prints what the server did to one object.
func printChange(sess *session.Session, c api.Change) {
	word := map[api.Action]string{
		api.ActionCreate: "created", api.ActionUpdate: "updated",
		api.ActionNone: "unchanged",
	}[c.Action]
	text := fmt.Sprintf("%-9s  %s", word, changeName(c))
	if c.Effect != "" && c.Action == api.ActionUpdate {
		text += "  (" + c.Effect + ")"
	}
	sess.Messagef("%s", text)
	if c.Note != "" {
		sess.Messagef("           %s", c.Note)
	}
}
