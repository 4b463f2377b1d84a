package serving

import (
	"github.com/spf13/cobra"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor/containerd"
	"github.com/berthd/berth/internal/serve/node"
)

func addExecutorFlags(c *node.ExecutorConfig, cmd *cobra.Command, local bool) {
	kind, apart := node.ExecutorContainerd, cluster.IsolationRequired
	user := "nobody, or with --process-isolation none the agent's own"
	if local {
		kind, apart, user = node.ExecutorAuto, cluster.IsolationNone, "who runs this"
	}
	cmd.Flags().StringVar(&c.Kind, "executor", kind,
		"what runs the containers: containerd (those with an image), process (programs of this machine) or "+
			"auto (both, where the machine can)")
	cmd.Flags().StringVar(&c.Isolation, "process-isolation", string(apart),
		"`ISOLATION` of programs without an image that name none: required, or none, which lets them see "+
			"and do what their user can on this machine")
	cmd.Flags().StringVar(&c.Socket, "containerd", "", "socket of a containerd to use; default: one of Berth's own")
	cmd.Flags().IntVar(&c.MaxStarts, "starts", containerd.DefaultAtOnce,
		"how many containers of images are created at a time, and how many started; the others wait for their turn")
	cmd.Flags().StringVar(&c.User, "process-user", "",
		"`USER` (uid, uid:gid or a name) of programs without an image that name none; default "+user)
	cmd.Flags().StringVar(&c.LoginsFile, "registry-logins", "",
		"file with the logins of registries: {\"auths\": {\"registry.example\": {\"auth\": \"…\"}}}, mode 0600")
}
