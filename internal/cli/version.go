package cli

import (
	"github.com/spf13/cobra"

	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/version"
)

func newVersionCommand(sess *session.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the version of Berth",
		Args:  session.Arguments(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			if sess.WantsData() {
				return sess.PrintData(version.Current())
			}
			sess.Printf("%s", version.Current())
			return nil
		},
	}
}
