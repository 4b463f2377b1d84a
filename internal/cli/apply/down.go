package apply

import (
	"context"
	"net/http"
	"slices"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/service"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/manifest"
	"github.com/berthd/berth/internal/wording"
)

// downCommand is `berth down`.
type downCommand struct {
	*session.Session
	files  files
	detach bool
}

// NewDownCommand returns the command `berth down`.
func NewDownCommand(sess *session.Session) *cobra.Command {
	d := &downCommand{Session: sess}
	cmd := &cobra.Command{
		Use: "down FILE...", Short: "Delete the services, jobs and crons of manifests",
		Long: "Delete the services, jobs and crons of the manifests, which stops their tasks, and wait until\n" +
			"nothing of them runs any more. Objects that do not exist are skipped. Clusters, pools and task\n" +
			"definitions of the manifests stay: others may use them. The leader removes versions of definitions\n" +
			"that nothing uses.\n" +
			"An interrupt ends only the wait.\n\n" + filesHelp,
		Args: d.files.arguments(), ValidArgsFunction: session.CompleteManifests, RunE: d.run,
	}
	d.files.addFlag(cmd)
	session.AddDetachFlag(cmd, &d.detach)
	return cmd
}

func (d *downCommand) run(cmd *cobra.Command, args []string) error {
	objects, err := ReadManifests(d.Session, d.files.all(args))
	if err != nil {
		return err
	}
	c, err := d.Connect()
	if err != nil {
		return err
	}
	defer c.Close()
	ctx := cmd.Context()
	names, stay := removable(objects)
	var deleting []session.Name
	for _, n := range names {
		switch err := service.Delete(ctx, c, n); {
		case client.StatusOf(err) == http.StatusNotFound:
			d.Messagef("%s does not exist", n)
		case err != nil:
			return err
		default:
			d.Messagef("deleting %s", n)
			deleting = append(deleting, n)
		}
	}
	if !d.detach {
		if err := d.await(ctx, c, deleting); err != nil {
			return err
		}
	}
	for _, n := range stay {
		d.Messagef("%s stays: 'berth delete %s' removes it", n, n)
	}
	return nil
}

func (d *downCommand) await(ctx context.Context, c *client.Client, names []session.Name) error {
	for _, n := range names {
		if err := service.AwaitDeleted(ctx, d.Session, c, n); err != nil {
			return err
		}
	}
	return nil
}

// removable returns the services, jobs and crons of manifests in the order of their deletion: crons first, because they
// make jobs. It also returns the clusters and pools, which stay.
func removable(objects []manifest.Object) (remove, stay []session.Name) {
	kinds := map[cluster.Kind]string{
		cluster.KindCron: wording.KindCron, cluster.KindService: wording.KindService, cluster.KindJob: wording.KindJob,
		cluster.KindCluster: wording.KindCluster, cluster.KindPool: wording.KindPool,
	}
	for _, kind := range []cluster.Kind{
		cluster.KindCron, cluster.KindService, cluster.KindJob, cluster.KindCluster, cluster.KindPool,
	} {
		for i := range objects {
			o := &objects[i]
			if o.Kind != kind {
				continue
			}
			n := session.Name{Kind: kinds[kind], Cluster: o.Cluster(), Name: o.Name()}
			if slices.Contains([]cluster.Kind{cluster.KindCluster, cluster.KindPool}, kind) {
				stay = append(stay, n)
			} else {
				remove = append(remove, n)
			}
		}
	}
	return remove, stay
}
