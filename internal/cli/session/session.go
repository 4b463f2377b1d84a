// Package session has what all commands share.
//
// A Session has the streams of a command and prints messages. Its parts have the global flags: Servers connects to a
// server, Scope reads and shortens names of objects, and Output prints data. Functions have the usage errors, the exit
// codes and what names complete to.
package session

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
)

// Session has what all commands share. The flags of berth set the exported fields of its parts.
type Session struct {
	Stdin  io.Reader
	Stderr io.Writer
	Now    func() time.Time
	Scope
	Output
}

// New returns a session with these streams. The flags set its other fields.
func New(stdin io.Reader, stdout, stderr io.Writer) *Session {
	return &Session{
		Stdin: stdin, Stderr: stderr, Now: time.Now, Output: Output{Stdout: stdout},
		Scope: Scope{Servers: Servers{Env: os.Getenv, clients: &openClients{}}},
	}
}

// Repeat says that the command prints its list again and again: see package watch. Data then has the form of a stream,
// and all readings share a connection.
func (s *Session) Repeat() { s.repeats, s.isShared = true, true }

// Messagef prints a message on standard error, with short references.
func (s *Session) Messagef(format string, args ...any) {
	fmt.Fprintln(s.Stderr, s.Shorten(fmt.Sprintf(format, args...)))
}

// Printf prints a line on standard output, with short references.
func (s *Session) Printf(format string, args ...any) {
	fmt.Fprintln(s.Stdout, s.Shorten(fmt.Sprintf(format, args...)))
}

// RunGroup is the action of a command that only has subcommands.
func RunGroup(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	return &UsageError{
		cmd.CommandPath(),
		fmt.Sprintf("unknown command %q", cmd.CommandPath()+" "+args[0]) + suggestCommand(cmd, args...),
	}
}
