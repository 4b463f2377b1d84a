package apply

import (
	"context"
	"net/http"
	"slices"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/service"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/manifest"
	"github.com/berthd/berth/internal/wording"
)

// deletion deletes objects and waits until nothing of them runs any more.
type deletion struct {
	*session.Session
	detach bool
	// skipMissing skips objects that do not exist, with a message. Otherwise they are an error.
	skipMissing bool
}

// deleteManifests deletes the services, jobs, crons and endpoints of manifests. Those that do not exist are skipped.
func (d *deletion) deleteManifests(ctx context.Context, c *client.Client, objects []manifest.Object) error {
	names, stay := removable(objects)
	some := *d
	some.skipMissing = true
	deleting, err := some.begin(ctx, c, names)
	if err != nil {
		return err
	}
	if err := d.await(ctx, c, deleting); err != nil {
		return err
	}
	for _, n := range stay {
		d.Messagef("%s stays: 'berth delete %s' removes it", n, n)
	}
	return nil
}

// begin requests the deletions and returns the objects that are now being deleted.
func (d *deletion) begin(ctx context.Context, c *client.Client, names []session.Name) ([]session.Name, error) {
	var deleting []session.Name
	for _, n := range names {
		switch err := service.Delete(ctx, c, n); {
		case d.skipMissing && client.StatusOf(err) == http.StatusNotFound:
			d.Messagef("%s does not exist", n)
		case err != nil:
			return nil, err
		default:
			d.Messagef("deleting %s", n)
			deleting = append(deleting, n)
		}
	}
	return deleting, nil
}

// await waits until the objects are gone. Clusters, pools, profiles and endpoints are gone at once.
func (d *deletion) await(ctx context.Context, c *client.Client, names []session.Name) error {
	if d.detach {
		return nil
	}
	for _, n := range names {
		if slices.Contains([]string{
			wording.KindCluster, wording.KindPool, wording.KindProfile, wording.KindDomain, wording.KindEndpoint,
		}, n.Kind) {
			continue
		}
		if err := service.AwaitDeleted(ctx, d.Session, c, n); err != nil {
			return err
		}
	}
	return nil
}

// deleteCommand is `berth delete`.
type deleteCommand struct {
	deletion
	files files
}

// NewDeleteCommand returns the command `berth delete`.
func NewDeleteCommand(sess *session.Session) *cobra.Command {
	d := &deleteCommand{deletion: deletion{Session: sess}}
	cmd := &cobra.Command{
		Use: "delete NAME... | -f FILE", Aliases: []string{"rm"},
		Short: "Delete services, jobs, crons, endpoints, empty clusters and pools",
		Long: "Delete services and jobs, which stops their tasks; crons, whose jobs stay; endpoints, whose services\n" +
			"stay; empty clusters; or pools without nodes. A name that does not exist ends the command before any\n" +
			"deletion. With -f, delete the services, jobs, crons and endpoints of manifests, as 'berth down' does.\n" +
			"The command returns when none of their tasks runs. An interrupt ends only the wait.\n\n" +
			filesHelp,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(d.files.flagged) > 0 {
				return nil
			}
			if err := session.CheckKindApart(cmd, args); err != nil {
				return err
			}
			return session.Arguments(1, -1, "an object, such as web or service/web, or -f FILE")(cmd, args)
		},
		ValidArgsFunction: sess.CompleteObjects(-1, deletableKinds()...),
		RunE:              d.run,
	}
	d.files.addFlag(cmd)
	session.AddDetachFlag(cmd, &d.detach)
	return cmd
}

// deletableKinds returns the kinds of objects that can be deleted by name.
func deletableKinds() []string {
	return []string{
		wording.KindService, wording.KindJob, wording.KindCron, wording.KindEndpoint,
		wording.KindCluster, wording.KindPool, wording.KindProfile, wording.KindDomain,
	}
}

func (d *deleteCommand) run(cmd *cobra.Command, args []string) error {
	ctx := cmd.Context()
	var objects []manifest.Object
	var err error
	if len(d.files.flagged) > 0 {
		if objects, err = ReadManifests(d.Session, d.files.flagged); err != nil {
			return err
		}
	}
	c, err := d.Connect()
	if err != nil {
		return err
	}
	defer c.Close()
	names := make([]session.Name, len(args))
	for i, text := range args {
		if names[i], err = d.FindObject(cmd, c, text, deletableKinds()...); err != nil {
			return err
		}
		if names[i], err = names[i].Resolve(ctx, c); err != nil {
			return err
		}
	}
	deleting, err := d.begin(ctx, c, names)
	if err != nil {
		return err
	}
	if err := d.deleteManifests(ctx, c, objects); err != nil {
		return err
	}
	return d.await(ctx, c, deleting)
}
