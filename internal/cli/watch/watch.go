// Package watch repeats commands that print lists.
package watch

import (
	"context"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cli/wait"
)

// readInterval is the minimum interval between two reads of a list.
const readInterval = 500 * time.Millisecond

// Stream follows the changes of objects in a list. Each change causes a read of the list.
type Stream func(context.Context, *client.Client) client.Changes

// watcher repeats a command.
type watcher struct {
	*session.Session
	on      bool
	streams []Stream
	command func(*cobra.Command, []string) error
	printed string // without spans of time
}

// AddFlag adds --watch to a command that prints a list. With the flag, the command prints the list again after each
// change, and ends with its context. Besides the changes of the streams, the list is read every few seconds.
func AddFlag(sess *session.Session, cmd *cobra.Command, streams ...Stream) {
	w := &watcher{Session: sess, streams: streams, command: cmd.RunE}
	cmd.Flags().BoolVarP(&w.on, "watch", "w", false, "print the list again after each change, until interrupted")
	cmd.RunE = w.run
}

func (w *watcher) run(cmd *cobra.Command, args []string) error {
	if !w.on {
		return w.command(cmd, args)
	}
	w.Repeat()
	if err := w.print(cmd, args); err != nil {
		return err
	}
	loop := wait.Loop{
		Session: w.Session, MinInterval: readInterval,
		Read: func(context.Context) (bool, error) { return true, w.print(cmd, args) },
	}
	if len(w.streams) > 0 {
		c, err := w.Connect()
		if err != nil {
			return err
		}
		for _, stream := range w.streams {
			loop.Changes = append(loop.Changes, func(ctx context.Context) client.Changes { return stream(ctx, c) })
		}
	}
	return session.EndOfStream(loop.Run(cmd.Context()))
}

// print runs the command and prints its output if it differs from the output before.
func (w *watcher) print(cmd *cobra.Command, args []string) error {
	stdout, stderr := w.Stdout, w.Stderr
	lines, messages := output.Capture{Target: stdout}, output.Capture{Target: stderr}
	w.Stdout, w.Stderr = &lines, &messages
	err := w.command(cmd, args)
	w.Stdout, w.Stderr = stdout, stderr
	if err != nil {
		return err
	}
	text := withoutSpans(lines.String() + messages.String())
	if text == w.printed {
		return nil
	}
	if w.printed != "" && lines.Len() > 0 && !w.PrintsDocuments() {
		lines.Prepend("\n")
	}
	w.printed = text
	if _, err := io.WriteString(stdout, lines.String()); err != nil {
		return err
	}
	_, err = io.WriteString(stderr, messages.String())
	return err
}

// spans matches spans of time, such as ages. They grow without a change of the list.
var spans = regexp.MustCompile(`\b(\d+(\.\d+)?(ms|[smhd]))+\b`)

// withoutSpans returns a text without its spans of time, and without the width of its columns.
func withoutSpans(text string) string {
	return strings.Join(strings.Fields(spans.ReplaceAllString(text, "")), " ")
}
