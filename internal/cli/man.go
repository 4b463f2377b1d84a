package cli

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/version"
	"github.com/berthd/berth/internal/wording"
)

const manLong = "Write the manual pages of all commands to a folder, such as berth-node-drain.1 for 'berth node\n" +
	"drain'. The pages describe this version of the program:\n\n" +
	"  berth man --dir /usr/local/share/man/man1\n\n" +
	"'berth completion bash' (or zsh, fish, powershell) prints the completion script of a shell."

// manCommand is `berth man`.
type manCommand struct {
	*session.Session
	dir string
}

func newManCommand(sess *session.Session) *cobra.Command {
	m := &manCommand{Session: sess}
	cmd := &cobra.Command{
		Use: "man --dir DIR", Short: "Write manual pages", Long: manLong, Args: session.Arguments(0, 0, ""),
		RunE: m.run,
	}
	cmd.Flags().StringVar(&m.dir, "dir", "", "the `folder` to write to; the command creates it if it does not exist")
	if err := cmd.MarkFlagDirname("dir"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}

func (m *manCommand) run(cmd *cobra.Command, _ []string) error {
	if m.dir == "" {
		return &session.UsageError{
			Command: cmd.CommandPath(),
			Message: cmd.CommandPath() + " needs --dir, the folder to write to, such as " +
				"/usr/local/share/man/man1",
		}
	}
	return writeManual(m.Session, cmd.Root(), m.dir)
}

// writeManual writes a page for each visible command. A build always writes the same bytes.
func writeManual(sess *session.Session, root *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // manual pages are public
		return fmt.Errorf("create the folder of manual pages: %w", err)
	}
	root.DisableAutoGenTag = true
	formatManual(root)
	built := time.Unix(0, 0).UTC()
	current := version.Current()
	if at, err := time.Parse(time.RFC3339, current.CommitDate); err == nil {
		built = at.UTC()
	}
	header := &doc.GenManHeader{Section: "1", Source: "Berth " + current.Version, Manual: "Berth", Date: &built}
	if err := doc.GenManTree(root, header, dir); err != nil {
		return fmt.Errorf("write manual pages: %w", err)
	}
	pages, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read the manual pages: %w", err)
	}
	sess.Messagef("%s written to %s: see 'man %s'", wording.Count(len(pages), "page"), dir, "-l "+dir+"/berth.1")
	return nil
}

// formatManual prepares a command and those below it for their pages. It changes the commands, which is the last thing
// that happens to them in this process.
func formatManual(cmd *cobra.Command) {
	cmd.Long = manText(cmd.Long)
	if cmd.HasAvailableSubCommands() {
		cmd.Use = cmd.Name() + " COMMAND"
	}
	for _, c := range cmd.Commands() {
		formatManual(c)
	}
}

// manText returns a help text as Markdown, of which pages are made. Indented lines keep their form, and no character of
// the others has a meaning.
func manText(help string) string {
	const fence = "```"
	var b strings.Builder
	isExample := false
	for line := range strings.SplitSeq(strings.TrimRight(help, "\n"), "\n") {
		indented := strings.HasPrefix(line, "  ")
		switch {
		case indented && !isExample:
			b.WriteString("\n" + fence + "\n")
		case !indented && isExample:
			b.WriteString(fence + "\n\n")
		}
		if isExample = indented; !indented {
			line = escapeMarkdown(line)
		}
		b.WriteString(line + "\n")
	}
	if isExample {
		b.WriteString(fence + "\n")
	}
	return strings.Trim(b.String(), "\n")
}

// escapeMarkdown escapes the characters that are frequent in help texts and that Markdown interprets.
func escapeMarkdown(text string) string {
	return strings.NewReplacer("*", `\*`, "_", `\_`, "<", `\<`, "[", `\[`, "]", `\]`).Replace(text)
}
