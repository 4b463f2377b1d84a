package session

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/internal/cluster"
)

// clusterAnnotation marks the commands that take --cluster, see MarkClustered.
const clusterAnnotation = "berth-cluster"

// MarkClustered marks a command that takes or lists objects of a cluster. Such a command takes --cluster and
// --all-clusters.
func MarkClustered(cmd *cobra.Command) {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[clusterAnnotation] = "true"
}

// Scope says in which cluster a command looks for names. It reads the names in arguments, and shortens references in
// what the command prints. A context among the servers may name the cluster.
type Scope struct {
	Servers
	Cluster     string // the value of --cluster, see CurrentCluster
	AllClusters bool
	// FullReferences says that the command takes and prints names of tasks in full, see Shorten.
	FullReferences bool
	home           string // see SetHomeCluster
}

// CheckCluster refuses --cluster and --all-clusters on a command that would ignore them, and both together.
func (s *Scope) CheckCluster(cmd *cobra.Command) error {
	named, all := cmd.Flags().Changed("cluster"), s.AllClusters
	refuse := func(format string, args ...any) error {
		return &UsageError{cmd.CommandPath(), fmt.Sprintf(format, args...)}
	}
	switch own := cmd.LocalNonPersistentFlags().Lookup("cluster"); {
	case !named && !all, own != nil && !all:
		return nil
	case named && all:
		return refuse("--cluster and --all-clusters exclude each other: want one of them")
	case cmd.Annotations[clusterAnnotation] == "" && cmd.HasSubCommands():
		return nil // the group refuses its arguments
	case cmd.Annotations[clusterAnnotation] == "" && all:
		return refuse("%s does not take -A: nothing that it lists belongs to a cluster", cmd.CommandPath())
	case cmd.Annotations[clusterAnnotation] == "" &&
		(strings.Contains(cmd.Use, "FILE") || strings.Contains(cmd.Use, "DIR")):
		return refuse("%s takes the cluster of an object from its manifest: write \"cluster: %s\" there, instead of -n",
			cmd.CommandPath(), s.Cluster)
	case cmd.Annotations[clusterAnnotation] == "":
		return refuse("%s does not take -n: it is not about objects of a cluster", cmd.CommandPath())
	case named && !cluster.ValidName(s.Cluster):
		return refuse("--cluster %q is not the name of a cluster", s.Cluster)
	}
	return nil
}

// ChosenCluster returns the cluster that the user chose: that of --cluster, BERTH_CLUSTER or the context. It is "" if
// the user chose none or --all-clusters. Lists show only its objects, or those of all clusters.
func (s *Scope) ChosenCluster() string {
	switch {
	case s.AllClusters:
		return ""
	case s.Cluster != "":
		return s.Cluster
	}
	if in := strings.TrimSpace(s.Env("BERTH_CLUSTER")); in != "" {
		return in
	}
	to, err := s.FindTarget()
	if err != nil {
		return "" // the connection reports it
	}
	return to.Cluster
}

// ClusterOfChange returns the cluster of an object that a command names without a cluster and creates or deletes: the
// chosen cluster, else cluster.DefaultCluster.
func (s *Scope) ClusterOfChange() string { return cmp.Or(s.ChosenCluster(), cluster.DefaultCluster) }

// CurrentCluster returns the cluster of names without one: the chosen cluster, else cluster.DefaultCluster. It is ""
// with --all-clusters, where a name may be in any cluster.
func (s *Scope) CurrentCluster() string {
	if in := s.ChosenCluster(); in != "" || s.AllClusters {
		return in
	}
	return cluster.DefaultCluster
}
