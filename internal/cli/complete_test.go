package cli

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/internal/cli/session"
)

// namedPattern matches the help of a command whose argument is the name of an object on a server.
var namedPattern = regexp.MustCompile(
	`\b(SERVICE|TASK|NODE|JOB|CRON|OBJECT|SERVER|TOKEN|POOL|DEFINITION|KIND/NAME|NAME/|/NAME|NAME\.\.\.|ID)\b`)

// TestEveryNameIsCompleted checks that each argument and flag with the name of a server's object has a completion.
func TestEveryNameIsCompleted(t *testing.T) {
	root := newRootCommand(session.New(strings.NewReader(""), new(bytes.Buffer), new(bytes.Buffer)))
	flags := []string{"service", "job", "cron", "task", "node", "cluster", "remove-node", "drain-node", "cordon-node"}
	found := 0
	var walk func(*cobra.Command)
	walk = func(parent *cobra.Command) {
		for _, c := range parent.Commands() {
			walk(c)
			if c.Name() == "help" || strings.Contains(c.CommandPath(), "completion") || c.Hidden {
				continue
			}
			if namedPattern.MatchString(strings.TrimPrefix(c.Use, c.Name())) && !strings.Contains(c.Use, "-") {
				if found++; c.ValidArgsFunction == nil {
					t.Errorf("%s takes a name and completes none: %s", c.CommandPath(), c.Use)
				}
			}
			for _, f := range flags {
				if c.LocalNonPersistentFlags().Lookup(f) == nil {
					continue
				}
				found++
				if _, ok := c.GetFlagCompletionFunc(f); !ok {
					t.Errorf("%s --%s takes a name and completes none", c.CommandPath(), f)
				}
			}
		}
	}
	walk(root)
	if found < 40 {
		t.Errorf("got %d arguments and flags that take names, which cannot be all", found)
	}
}
