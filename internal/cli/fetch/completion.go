package fetch

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/wording"
)

// IsFileArgument reports whether an argument is a file. The name of a definition has no dot, and no slash except after
// its kind.
func IsFileArgument(text string) bool {
	if kind, _, ok := strings.Cut(text, "/"); ok && session.ParseKind(kind) == wording.KindDefinition {
		return false
	}
	return text == "-" || strings.ContainsAny(text, "./")
}

// CompleteVersions completes the names of definitions, and files for a text with the form of a path.
func CompleteVersions(sess *session.Session) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 && IsFileArgument(args[0]) || IsFileArgument(text) {
			return session.CompleteManifests(cmd, args, text)
		}
		return sess.CompleteWith(1, func(ctx context.Context, c *client.Client, _ string) []string {
			var names []string
			for _, n := range session.ListOtherNames(ctx, c, wording.KindDefinition) {
				own, _, _ := strings.Cut(n, "@")
				names = append(names, own)
			}
			return names
		})(cmd, args, text)
	}
}
