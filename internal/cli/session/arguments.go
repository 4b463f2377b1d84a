package session

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/wording"
)

// ParseLabels parses labels of the form key=value.
func ParseLabels(list []string) (cluster.Labels, error) {
	labels := cluster.Labels{}
	for _, l := range list {
		k, v, ok := strings.Cut(l, "=")
		if !ok || k == "" {
			return nil, fmt.Errorf("%q: want key=value", l)
		}
		labels[k] = v
	}
	return labels, nil
}

// RegisterCompletion sets the completion of a flag. The flag must exist.
func RegisterCompletion(cmd *cobra.Command, flag string, complete cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, complete); err != nil {
		panic(err)
	}
}

// Arguments returns a check of the number of arguments. A negative most is no limit. The text what describes the
// arguments.
func Arguments(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if most == 1 {
			if err := CheckKindApart(cmd, args); err != nil {
				return err
			}
		}
		switch {
		case len(args) < least && what != "":
			return &UsageError{cmd.CommandPath(), fmt.Sprintf("%s needs %s", cmd.CommandPath(), what)}
		case most == 0 && len(args) > 0:
			return &UsageError{
				cmd.CommandPath(),
				fmt.Sprintf("%s takes no arguments, found %q", cmd.CommandPath(), args[0]) +
					suggestCommand(cmd, args...),
			}
		case most >= 0 && len(args) > most:
			return &UsageError{
				cmd.CommandPath(),
				fmt.Sprintf("%s takes %s, found also %q", cmd.CommandPath(), what, args[most]),
			}
		}
		return nil
	}
}

// CheckKindApart refuses a kind and a name in two arguments, as kubectl takes them.
func CheckKindApart(cmd *cobra.Command, args []string) error {
	if len(args) != 2 || ParseKind(args[0]) == "" || ParseKind(args[1]) != "" || strings.Contains(args[1], "/") {
		return nil
	}
	return &UsageError{
		cmd.CommandPath(),
		fmt.Sprintf("%q: write the kind and the name as one word: %s/%s", strings.Join(args, " "), ParseKind(args[0]),
			args[1]),
	}
}

// CompleteManifests completes file names.
func CompleteManifests(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt
}

// HideDefaults hides the default values of flags in the help. Their usage describes them, because the values depend on
// the machine.
func HideDefaults(cmd *cobra.Command, names ...string) {
	for _, n := range names {
		cmd.Flags().Lookup(n).DefValue = ""
	}
}

// AddDetachFlag adds the flag of a command that returns without a wait.
func AddDetachFlag(cmd *cobra.Command, detach *bool) {
	cmd.Flags().BoolVarP(detach, "detach", "d", false, "do not wait")
}

// AddWatchFlag adds the flag of a command that shows progress until the end.
func AddWatchFlag(cmd *cobra.Command, watch *bool) {
	cmd.Flags().BoolVarP(watch, "watch", "w", false, "show progress until it has ended")
}

// AddTaskFilterFlags adds the flags that select tasks by their owner and node. ParseTaskFilter sets the cluster.
func (s *Session) AddTaskFilterFlags(cmd *cobra.Command, f *client.TaskFilter) {
	cmd.Flags().StringVar(&f.Service, "service", "", "only tasks of this `service`")
	cmd.Flags().StringVar(&f.Job, "job", "", "only tasks of this `job`")
	cmd.Flags().StringVar(&f.Node, "node", "", "only tasks on this `node`")
	s.CompleteFlags(cmd, map[string]string{
		"service": wording.KindService, "job": wording.KindJob, "node": wording.KindNode,
	})
}
