package cli

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/internal/cli/session"
)

// TestEveryCommandHasAnExample parses the examples of each command: the command, its flags and its arguments exist. No
// example names a missing command.
func TestEveryCommandHasAnExample(t *testing.T) {
	root := newRootCommand(session.New(strings.NewReader(""), new(bytes.Buffer), new(bytes.Buffer)))
	left := commandExamples()
	seen := 0
	var walk func(*cobra.Command)
	walk = func(parent *cobra.Command) {
		for _, c := range parent.Commands() {
			walk(c)
			path := strings.TrimPrefix(c.CommandPath(), "berth ")
			delete(left, path)
			if c.Hidden || path == "help" || strings.HasPrefix(path, "completion") || c.HasSubCommands() &&
				c.Example == "" {
				continue
			}
			if c.Example == "" {
				t.Errorf("berth %s has no example", path)
			}
			for line := range strings.Lines(c.Example) {
				seen++
				checkExample(t, c, strings.Fields(line))
			}
		}
	}
	walk(root)
	for path := range left {
		t.Errorf("an example has berth %s, which is no command", path)
	}
	if seen < 50 {
		t.Errorf("got %d examples, which cannot be all", seen)
	}
}

func checkExample(t *testing.T, c *cobra.Command, words []string) {
	t.Helper()
	// Flags keep their values, so each example needs new commands.
	root := newRootCommand(session.New(strings.NewReader(""), new(bytes.Buffer), new(bytes.Buffer)))
	found, args, err := root.Find(words[1:])
	if err != nil || found.CommandPath() != c.CommandPath() || words[0] != "berth" {
		t.Errorf("%q is not of %s: %v", strings.Join(words, " "), c.CommandPath(), err)
		return
	}
	if found.DisableFlagParsing {
		return
	}
	if err := found.ParseFlags(args); err != nil {
		t.Errorf("%q: %v", strings.Join(words, " "), err)
		return
	}
	if err := found.ValidateArgs(slices.Clone(found.Flags().Args())); err != nil {
		t.Errorf("%q: %v", strings.Join(words, " "), err)
	}
}
