package apply

import (
	"embed"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/internal/cli/session"
)

// starters are the manifests that init prints: starters/<kind>.yaml.
//
//go:embed starters
var starters embed.FS

// initCommand is `berth init`.
type initCommand struct{ *session.Session }

// NewInitCommand returns the command `berth init`.
func NewInitCommand(sess *session.Session) *cobra.Command {
	i := &initCommand{sess}
	return &cobra.Command{
		Use: "init [service|job|cron]", Short: "Print a commented manifest to begin with",
		Long: "Prints a manifest with the most used fields and a comment for each. It is valid as it is: the\n" +
			"service, job or cron runs a shell script. Without an argument it prints a service.",
		Args:      session.Arguments(0, 1, "a kind"),
		ValidArgs: starterKinds(), RunE: i.run,
	}
}

// starterKinds returns the kinds that have a manifest to begin with.
func starterKinds() []string { return slices.Sorted(maps.Keys(starterFiles())) }

func starterFiles() map[string]string {
	return map[string]string{
		"service": "starters/service.yaml", "job": "starters/job.yaml", "cron": "starters/cron.yaml",
	}
}

func (i *initCommand) run(cmd *cobra.Command, args []string) error {
	kind := "service"
	if len(args) > 0 {
		kind = strings.ToLower(args[0])
	}
	file, ok := starterFiles()[kind]
	if !ok {
		return &session.UsageError{
			Command: cmd.CommandPath(),
			Message: fmt.Sprintf("there is no manifest for %q: want %s", args[0], strings.Join(starterKinds(), ", ")),
		}
	}
	text, err := starters.ReadFile(file)
	if err != nil {
		return err
	}
	_, err = i.Stdout.Write(text)
	return err
}
