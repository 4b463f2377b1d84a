// Command berth is Berth: the servers and agents that run services and jobs, and
// the commands with which people run them.
//
// main parses, wires and runs one thing: run is what it calls, and what tests call. The
// commands that talk to a server (most of the files here) live as long as one
// question; what they print on standard output is data, all else goes to standard error.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if code, ok := hidden(os.Args[1:]); ok {
		os.Exit(code)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run does what the arguments say and returns the exit code. It ends soon after ctx does.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return newApp(stdin, stdout, stderr).main(ctx, args)
}

// main runs one command line and returns its exit code.
func (a *app) main(ctx context.Context, args []string) int {
	root := a.newRootCommand()
	root.SetArgs(args)
	return a.exitCode(ctx, root.ExecuteContext(ctx))
}
