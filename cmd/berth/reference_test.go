package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

// TestReference holds docs/reference/cli.md to the commands that talk to a server. BERTH_TEST_UPDATE=1 writes it.
func TestReference(t *testing.T) {
	const file = "../../docs/reference/cli.md"
	var b strings.Builder
	root := newApp(nil, io.Discard, io.Discard).newRootCommand()
	b.WriteString("# The commands\n\nWritten by a test from the program's own help; `berth COMMAND --help` says the same.\n\n")
	fmt.Fprintf(&b, "```text\n%s\n```\n\nEvery command takes\n\n```text\n%s```\n", root.Long, root.PersistentFlags().FlagUsages())
	describe(&b, root)
	if os.Getenv("BERTH_TEST_UPDATE") != "" {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b.String(), string(got)); diff != "" {
		t.Errorf("the reference is old, run this test with BERTH_TEST_UPDATE=1 (-want +got):\n%s", diff)
	}
}

// describe writes the sections of a command's subcommands, but for those that serve.
func describe(b *strings.Builder, parent *cobra.Command) {
	for _, c := range parent.Commands() {
		if c.GroupID == "serve" || c.Name() == "help" || c.Name() == "completion" || c.Hidden {
			continue
		}
		if c.HasSubCommands() {
			describe(b, c)
			continue
		}
		about := c.Long
		if about == "" {
			about = c.Short + "."
		}
		fmt.Fprintf(b, "\n## %s\n\n```text\n%s\n```\n\n%s\n", c.CommandPath(), c.UseLine(), about)
		if flags := c.NonInheritedFlags(); flags.HasAvailableFlags() {
			fmt.Fprintf(b, "\n```text\n%s```\n", flags.FlagUsages())
		}
	}
}
