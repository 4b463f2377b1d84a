// Command berth is Berth: the servers and agents that run services and jobs, and
// the commands with which people run them.
//
// main parses, wires and runs one thing: run is what it calls, and what tests call. The commands are in internal/cli,
// the servers and agents that they start in internal/serve.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/berthd/berth/internal/cli"
	"github.com/berthd/berth/internal/cli/session"
)

//go:generate go run . reference ../../docs/reference/cli.md

func main() {
	if code, ok := hidden(os.Args[1:]); ok {
		os.Exit(code)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program immediately
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run does what the arguments say and returns the exit code. It ends soon after ctx does.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return cli.Run(ctx, session.New(stdin, stdout, stderr), args)
}
