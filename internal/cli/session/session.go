// Package session has what all commands share: streams, environment, global flags, the connection to a server, names of
// objects and their completion, usage errors and exit codes.
package session

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/output"
)

// Session has the streams, the environment and the global flags.
type Session struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Env            func(string) string
	Now            func() time.Time

	Addrs       []string
	ContextName string
	Cluster     string // the value of --cluster, see CurrentCluster
	AllClusters bool
	// FullReferences says that the command takes and prints names of tasks in full, see Shorten.
	FullReferences            bool
	TokenFile, CAFile, CAHash string
	Format                    string
	Template                  output.Template // for -o jsonpath and go-template, else nil
	NoHeaders                 bool            // print tables without their titles

	// Repeats says that the command prints its list again and again: see package watch. Data then has the form of a
	// stream, and all readings share a connection.
	Repeats    bool
	connection *client.Client
	clients    *openClients // nil in sessions that New did not make
	home       string       // see SetHomeCluster
}

// New returns a session with these streams. The flags set its other fields.
func New(stdin io.Reader, stdout, stderr io.Writer) *Session {
	return &Session{
		Stdin: stdin, Stdout: stdout, Stderr: stderr, Env: os.Getenv, Now: time.Now, clients: &openClients{},
	}
}

// Messagef prints a message on standard error, with short references.
func (s *Session) Messagef(format string, args ...any) {
	fmt.Fprintln(s.Stderr, s.Shorten(fmt.Sprintf(format, args...)))
}

// Printf prints a line on standard output, with short references.
func (s *Session) Printf(format string, args ...any) {
	fmt.Fprintln(s.Stdout, s.Shorten(fmt.Sprintf(format, args...)))
}

// RunGroup is the action of a command that only has subcommands.
func (s *Session) RunGroup(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	return &UsageError{
		cmd.CommandPath(),
		fmt.Sprintf("unknown command %q", cmd.CommandPath()+" "+args[0]) + suggestCommand(cmd, args...),
	}
}
