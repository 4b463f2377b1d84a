package apply

import (
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/manifest"
	"github.com/berthd/berth/internal/wording"
)

// validateCommand is `berth validate`.
type validateCommand struct {
	*session.Session
	files  files
	schema bool
}

// NewValidateCommand returns the command `berth validate`.
func NewValidateCommand(sess *session.Session) *cobra.Command {
	v := &validateCommand{Session: sess}
	cmd := &cobra.Command{
		Use:   "validate FILE...",
		Short: "Check manifests without a server",
		Long: "Check manifests without a server, and show every fault with its line and " +
			"column.\n\n" + filesHelp + "\nWith --schema instead of files, print the JSON Schema of manifests, " +
			"for editors.",
		Args: func(cmd *cobra.Command, args []string) error {
			if v.schema {
				return session.Arguments(0, 0, "")(cmd, args)
			}
			return v.files.arguments()(cmd, args)
		},
		ValidArgsFunction: session.CompleteManifests,
		RunE:              v.run,
	}
	v.files.addFlag(cmd)
	cmd.Flags().BoolVar(&v.schema, "schema", false, "print the JSON Schema of manifests")
	return cmd
}

func (v *validateCommand) run(_ *cobra.Command, args []string) error {
	if v.schema {
		_, err := io.WriteString(v.Stdout, manifest.Schema())
		return err
	}
	objects, err := ReadManifests(v.Session, v.files.all(args))
	if _, faulty := errors.AsType[manifest.Faults](err); faulty {
		return &session.ExitError{Code: session.ExitNo, Err: err}
	}
	if err != nil {
		return err
	}
	v.Messagef("%s: no faults", wording.Count(len(objects), "object"))
	return nil
}
