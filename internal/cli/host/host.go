// Package host has the commands `berth host …`, which talk to the API of one node.
package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/hinted"
	"github.com/berthd/berth/internal/pki"
	"github.com/berthd/berth/internal/serve/datadir"
	"github.com/berthd/berth/internal/version"
	"github.com/berthd/berth/internal/wording"
)

// target is the node that the commands talk to.
type target struct {
	*session.Session
	socket                  string
	address, name, identity string // of a node over mutual TLS
}

// NewHostCommand returns the command `berth host`.
func NewHostCommand(sess *session.Session) *cobra.Command {
	t := &target{Session: sess}
	cmd := &cobra.Command{
		Use: "host", Short: "Show and change the tasks of this machine, without a server",
		Long: "Talks to the API of the node of this machine, over its unix socket. Every node shows its tasks,\n" +
			"their output and its resources, also while it reaches no server.\n\n" +
			"On a node that drives itself, such as that of 'berth dev', these commands also make and change tasks.\n" +
			"On a node of a domain they do not: use 'berth run', 'berth stop', 'berth start' and 'berth delete'.",
		Args: cobra.ArbitraryArgs, RunE: session.RunGroup,
	}
	cmd.PersistentFlags().StringVar(&t.socket, "socket", "",
		"unix `socket` of the API of the node (BERTH_HOST_SOCKET; default "+datadir.DefaultHostSocketText+")")
	cmd.PersistentFlags().StringVar(&t.address, "at", "",
		"`https://HOST:PORT` of a node that serves its API there (--host-listen), instead of a socket")
	cmd.PersistentFlags().StringVar(&t.name, "node", "", "with --at: the name of the `node`")
	cmd.PersistentFlags().StringVar(&t.identity, "identity", "",
		"with --at: the `FOLDER` with the certificate of a server, or of the node itself (default that of the server "+
			"of this machine)")
	session.RegisterCompletion(cmd, "node", sess.CompleteNames(wording.KindNode))
	cmd.AddCommand(newPsCommand(t), newResourcesCommand(t), newLogsCommand(t), newEventsCommand(t),
		newCreateCommand(t), newStartCommand(t), newStopCommand(t), newRemoveCommand(t), newReplaceCommand(t))
	return cmd
}

// path returns the path of the socket.
func (t *target) path() string {
	return strings.TrimPrefix(cmp.Or(t.socket, t.Env("BERTH_HOST_SOCKET"), datadir.DefaultHostSocket()), "unix://")
}

// withHost returns the action of a command that talks to the node.
func (t *target) withHost(run func(context.Context, *client.Host, []string) error,
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		h, err := t.connect(cmd)
		if err != nil {
			return err
		}
		defer h.Close()
		err = run(cmd.Context(), h, args)
		if t.address != "" {
			return err
		}
		return Explain(err, t.path())
	}
}

// connect returns a client of the node.
func (t *target) connect(cmd *cobra.Command) (*client.Host, error) {
	t.FullReferences = true // the API of a node knows no current cluster
	config := client.Config{Addr: "unix://" + t.path(), Agent: "berth/" + version.String()}
	if t.address != "" {
		if t.name == "" {
			return nil, &session.UsageError{
				Command: cmd.CommandPath(), Message: "--node is missing: --at needs the name of the node, which its " +
					"certificate must show",
			}
		}
		keeper, err := pki.OpenKeeper(pki.KeeperConfig{
			Dir: cmp.Or(t.identity, filepath.Join(datadir.DefaultDataDir(), datadir.PKIDir)),
		})
		if err != nil {
			return nil, &hinted.Error{
				Err:  fmt.Errorf("read the certificate for %s: %w", t.address, err),
				Hint: "Name a folder with ca.crt, self.crt and self.key: pki in the data directory of a server.",
			}
		}
		config.Addr, config.TLS = t.address, keeper.NodeTLS(t.name)
	}
	h, err := client.NewHost(config)
	if err != nil {
		return nil, &session.UsageError{Command: cmd.CommandPath(), Message: err.Error()}
	}
	return h, nil
}

// Explain adds to an error of the API of a node, at the path of a socket, what to do about it.
func Explain(err error, path string) error {
	switch {
	case err == nil, client.StatusOf(err) != 0:
		return err
	case errors.Is(err, fs.ErrNotExist):
		return &hinted.Error{
			Err: fmt.Errorf("there is no socket %s: no agent of this machine serves its API there", path),
			Hint: "Start the agent with 'berth agent' or 'berth dev', or name the socket with --socket. With " +
				"--data-dir DIR the\nsocket of the agent is DIR/host.sock.",
		}
	case errors.Is(err, syscall.ECONNREFUSED):
		return &hinted.Error{
			Err:  fmt.Errorf("nothing listens on the socket %s: the agent has ended", path),
			Hint: "Start the agent again. Its tasks run meanwhile.",
		}
	case errors.Is(err, fs.ErrPermission):
		return &hinted.Error{
			Err:  fmt.Errorf("this user may not open the socket %s", path),
			Hint: permissionHint(path),
		}
	}
	return err
}

// permissionHint says who may open a socket.
func permissionHint(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return "Only the user of the agent, root, and the group of --host-group may open it."
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "Only the user of the agent, root, and the group of --host-group may open it."
	}
	group := strconv.FormatUint(uint64(stat.Gid), 10)
	if g, err := user.LookupGroupId(group); err == nil {
		group = g.Name
	}
	if stat.Gid == 0 {
		return "Only root may open it. The agent lets a group in with --host-group GROUP."
	}
	return "Its group is " + group + ": join that group, or ask for another one with --host-group of the agent."
}

// onMissing adds to the refusal of an unknown task how to list the tasks.
func onMissing(err error) error {
	return session.HintOn(err, http.StatusNotFound, "'berth host ps' lists the tasks of this machine.")
}

// completeTasks completes the names of tasks, for at most so many arguments; a negative number is no limit.
func (t *target) completeTasks(most int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
		if most >= 0 && len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		h, err := t.connect(cmd)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer h.Close()
		v, err := h.State(cmd.Context())
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		for i := range v.Tasks {
			names = append(names, v.Tasks[i].Name)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
