package cli

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// newReferenceCommand returns the hidden command that writes the reference of all commands.
func newReferenceCommand() *cobra.Command {
	return &cobra.Command{
		Use: "reference FILE", Short: "Write the reference of all commands", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			//nolint:gosec // a page of the documentation
			if err := os.WriteFile(args[0], reference(cmd.Root()), 0o644); err != nil {
				return fmt.Errorf("write the reference: %w", err)
			}
			return nil
		},
	}
}

// reference returns the reference of all visible commands as Markdown.
func reference(root *cobra.Command) []byte {
	var b bytes.Buffer
	b.WriteString("# Commands\n\nGenerated from the program by `make generate`; do not " +
		"edit.\n\n```\n" + root.Long + "\n```\n\n")
	b.WriteString("Flags of all commands:\n\n")
	writeFlagTable(&b, root.PersistentFlags())
	writeCommands(&b, root)
	return b.Bytes()
}

func writeCommands(b *bytes.Buffer, parent *cobra.Command) {
	for _, c := range parent.Commands() {
		if c.Hidden || c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		if !c.HasSubCommands() || c.Example != "" { // skips a group without examples
			fmt.Fprintf(b, "## %s\n\n```\n%s\n```\n\n", c.CommandPath(), c.UseLine())
			text := c.Long
			if text == "" {
				text = c.Short + "."
			}
			b.WriteString(text + "\n\n")
			if c.Example != "" {
				b.WriteString("```\n" + strings.Trim(c.Example, "\n") + "\n```\n\n")
			}
			writeFlagTable(b, c.LocalNonPersistentFlags())
		}
		writeCommands(b, c)
	}
}

func writeFlagTable(b *bytes.Buffer, flags *pflag.FlagSet) {
	rows := 0
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		if rows == 0 {
			b.WriteString("| flag | default | |\n|---|---|---|\n")
		}
		rows++
		name := "`--" + f.Name + "`"
		if f.Shorthand != "" {
			name = "`-" + f.Shorthand + "`, " + name
		}
		value := f.DefValue
		switch value {
		case "", "[]", "false", "0", "0s":
			value = ""
		default:
			value = "`" + value + "`"
		}
		fmt.Fprintf(b, "| %s | %s | %s |\n", name, value, strings.ReplaceAll(f.Usage, "|", "\\|"))
	})
	if rows > 0 {
		b.WriteString("\n")
	}
}
