package serving

import (
	"github.com/spf13/cobra"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor/containerd"
	"github.com/berthd/berth/internal/serve/node"
)

func addExecutorFlags(c *node.ExecutorConfig, cmd *cobra.Command, local bool) {
	kind, apart := node.ExecutorContainerd, cluster.IsolationRequired
	user := "nobody, or with --process-isolation none the agent's user"
	if local {
		kind, apart, user = node.ExecutorAuto, cluster.IsolationNone, "the user of this process"
	}
	cmd.Flags().StringVar(&c.Kind, "executor", kind,
		"what runs containers: containerd (containers with an image), process (programs of this machine) or auto "+
			"(both, if the machine supports them)")
	cmd.Flags().StringVar(&c.Isolation, "process-isolation", string(apart),
		"default `ISOLATION` of programs without an image: required or none. With none a program sees and can do "+
			"what its user can on this machine")
	cmd.Flags().StringVar(&c.Socket, "containerd", "", "socket of a containerd to use; default: Berth starts its own")
	cmd.Flags().IntVar(&c.MaxStarts, "starts", containerd.DefaultAtOnce,
		"how many containers with images are created at a time, and how many started; others wait")
	cmd.Flags().StringVar(&c.User, "process-user", "",
		"default `USER` (uid, uid:gid or a name) of programs without an image; default "+user)
	cmd.Flags().StringVar(&c.LoginsFile, "registry-logins", "",
		"file with the logins of registries: {\"auths\": {\"registry.example\": {\"auth\": \"…\"}}}, mode 0600")
}
