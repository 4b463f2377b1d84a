package apply

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/manifest"
	"github.com/berthd/berth/internal/wording"
)

// downCommand is `berth down`.
type downCommand struct {
	deletion
	files files
}

// NewDownCommand returns the command `berth down`.
func NewDownCommand(sess *session.Session) *cobra.Command {
	d := &downCommand{deletion: deletion{Session: sess}}
	cmd := &cobra.Command{
		Use: "down FILE...", Short: "Delete the services, jobs, crons and endpoints of manifests",
		Long: "Delete the services, jobs, crons and endpoints of the manifests, which stops their tasks, and wait\n" +
			"until none of their tasks runs. Objects that do not exist are skipped. Clusters, pools and task\n" +
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
	return d.deleteManifests(cmd.Context(), c, objects)
}

// removable returns the services, jobs, crons and endpoints of manifests in the order of their deletion: crons first,
// because they make jobs. It also returns the clusters, pools, profiles and domains, which stay.
func removable(objects []manifest.Object) (remove, stay []session.Name) {
	for _, kind := range []cluster.Kind{
		cluster.KindCron, cluster.KindEndpoint, cluster.KindService, cluster.KindJob, cluster.KindCluster,
		cluster.KindPool, cluster.KindProfile, cluster.KindDomain,
	} {
		for i := range objects {
			o := &objects[i]
			if o.Kind != kind {
				continue
			}
			n := objectName(o)
			if slices.Contains([]cluster.Kind{
				cluster.KindCluster, cluster.KindPool, cluster.KindProfile, cluster.KindDomain,
			}, kind) {
				stay = append(stay, n)
			} else {
				remove = append(remove, n)
			}
		}
	}
	return remove, stay
}

// objectName returns the argument that names an object of a manifest.
func objectName(o *manifest.Object) session.Name {
	return session.Name{Kind: wordOf(o.Kind), Cluster: o.Cluster(), Name: o.Name()}
}

// wordOf returns the word for a kind in arguments.
func wordOf(kind cluster.Kind) string {
	return map[cluster.Kind]string{
		cluster.KindCluster: wording.KindCluster, cluster.KindTaskDefinition: wording.KindDefinition,
		cluster.KindService: wording.KindService, cluster.KindJob: wording.KindJob, cluster.KindCron: wording.KindCron,
		cluster.KindPool: wording.KindPool, cluster.KindDomain: wording.KindDomain,
		cluster.KindEndpoint: wording.KindEndpoint, cluster.KindProfile: wording.KindProfile,
	}[kind]
}
