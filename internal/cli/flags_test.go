package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berthd/berth/internal/cli/session"
)

// TestFlagsAfterArguments checks that each flag of each command may stand after its arguments.
func TestFlagsAfterArguments(t *testing.T) {
	t.Parallel()
	checked := 0
	var walk func(*cobra.Command)
	walk = func(parent *cobra.Command) {
		for _, c := range parent.Commands() {
			walk(c)
			if c.Hidden || c.Name() == "help" || !c.Runnable() || c.HasSubCommands() {
				continue
			}
			c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
				checkTrailingFlag(t, c, f)
				checked++
			})
			checkTrailingFlag(t, c, c.InheritedFlags().Lookup("addr"))
		}
	}
	walk(newRootCommand(session.New(strings.NewReader(""), nil, nil)))
	if checked < 100 {
		t.Errorf("checked %d flags: the test does not see the commands", checked)
	}
}

// checkTrailingFlag parses a flag after two arguments of a command.
func checkTrailingFlag(t *testing.T, c *cobra.Command, f *pflag.Flag) {
	t.Helper()
	if f == nil || f.Name == "help" {
		return
	}
	root := newRootCommand(session.New(strings.NewReader(""), nil, nil))
	cmd, _, err := root.Find(strings.Fields(c.CommandPath())[1:])
	if err != nil {
		t.Fatal(err)
	}
	value := map[string]string{
		"bool": "true", "int": "1", "uint64": "1", "float64": "1", "duration": "1s",
	}[f.Value.Type()]
	if value == "" {
		value = "x"
	}
	words := []string{"web", "--" + f.Name + "=" + value}
	if err := cmd.ParseFlags(words); err != nil {
		t.Errorf("%s %q: %v", c.CommandPath(), words, err)
		return
	}
	args := cmd.Flags().Args()
	if c.Name() == "exec" { // parses the flags after the task itself
		if err := cmd.ValidateArgs(append(slices.Clone(args), "ls", "-l")); err != nil {
			t.Errorf("%s %q: %v", c.CommandPath(), words, err)
		}
		if got := cmd.Flags().Args(); !slices.Equal(got, []string{"ls", "-l"}) {
			t.Errorf("%s %q: the command is %q", c.CommandPath(), words, got)
		}
	} else if !slices.Equal(args, []string{"web"}) {
		t.Errorf("%s %q: got the arguments %q", c.CommandPath(), words, args)
	}
	if got := cmd.Flags().Lookup(f.Name); got == nil || !got.Changed {
		t.Errorf("%s %q: the flag is not set", c.CommandPath(), words)
	}
}
