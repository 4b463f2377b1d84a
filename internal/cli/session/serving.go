package session

import (
	"fmt"

	"github.com/spf13/cobra"
)

// servingAnnotation marks the commands that call no server, see MarkServing.
const servingAnnotation = "berth-serving"

// MarkServing marks a command that calls no server, because it is one or has a flag of its own for its servers. instead
// says which flag the user may have meant with --addr.
func MarkServing(cmd *cobra.Command, instead string) {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[servingAnnotation] = instead
}

// CheckConnection refuses --addr and --context on a command that would ignore them.
func CheckConnection(cmd *cobra.Command) error {
	instead := cmd.Annotations[servingAnnotation]
	for _, name := range []string{"addr", "context"} {
		if instead != "" && cmd.Flags().Changed(name) {
			return &UsageError{cmd.CommandPath(), fmt.Sprintf("%s does not take --%s, which names the server that a "+
				"command calls: %s", cmd.CommandPath(), name, instead)}
		}
	}
	return nil
}
