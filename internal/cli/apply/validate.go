package apply

import (
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/manifest"
	"github.com/berthd/berth/internal/wording"
)

// NewValidateCommand returns the command `berth validate`.
func NewValidateCommand(sess *session.Session) *cobra.Command {
	var schema bool
	cmd := &cobra.Command{
		Use:   "validate FILE...",
		Short: "Check manifests without a server",
		Long: "Check manifests without a server, and show every fault with its line and " +
			"column.\n\n" + filesHelp + "\nWith --schema instead of files, print the JSON Schema of manifests, " +
			"for editors.",
		Args: func(cmd *cobra.Command, args []string) error {
			if schema {
				return session.Arguments(0, 0, "")(cmd, args)
			}
			return session.Arguments(1, -1, "a manifest: a file, a folder or - for standard input")(cmd, args)
		},
		ValidArgsFunction: session.CompleteManifests,
		RunE: func(_ *cobra.Command, args []string) error {
			if schema {
				_, err := io.WriteString(sess.Stdout, manifest.Schema())
				return err
			}
			objects, err := ReadManifests(sess, args)
			if _, faulty := errors.AsType[manifest.Faults](err); faulty {
				return &session.ExitError{Code: session.ExitNo, Err: err}
			}
			if err != nil {
				return err
			}
			sess.Messagef("%s: no faults", wording.Count(len(objects), "object"))
			return nil
		},
	}
	cmd.Flags().BoolVar(&schema, "schema", false, "print the JSON Schema of manifests")
	return cmd
}
