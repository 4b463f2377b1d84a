package stream

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/wording"
)

// NewAttachCommand returns the command `berth attach`.
func NewAttachCommand(sess *session.Session) *cobra.Command {
	o := client.AttachOptions{Stdout: sess.Stdout, Stderr: sess.Stderr}
	var signals bool
	cmd := &cobra.Command{
		Use:   "attach [-c CONTAINER] [--signals] TASK",
		Short: "Show the output of a running container as it comes, until it ends",
		Long: `Show what a running container writes from now on, each stream on its own, until the container ends; then exit as
it did, or with 125 if its end was not seen. A line is shown once it is whole. An interrupt leaves the container alone
and ends this command. With --signals an interrupt, TERM, USR1 and USR2 go to the container's program instead, and Ctrl-\
ends this command.

A container's program has no standard input, so nothing that is typed goes to it: 'berth exec -it' runs a shell beside it.`,
		Args:              session.Arguments(1, 1, "a task, such as web.1.0"),
		ValidArgsFunction: sess.CompleteNames(wording.KindTask),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if signals {
				var end context.CancelFunc
				ctx, end = passSignals(ctx, &o)
				defer end()
			}
			code, err := attach(ctx, sess, args[0], o)
			if errors.Is(err, context.Canceled) {
				return err
			}
			if err != nil || code != 0 {
				return &session.ExitError{Code: code, Err: err}
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&o.Container, "container", "c", "",
		"the `container`; default the task's first essential one")
	cmd.Flags().IntVar(&o.Tail, "tail", 0, "begin with so many of the newest `lines`")
	cmd.Flags().BoolVar(&signals, "signals", false, "pass signals on to the container's program")
	return cmd
}

func attach(ctx context.Context, sess *session.Session, task string, o client.AttachOptions) (int, error) {
	return runInTask(ctx, sess, task, func(c *client.Client, id cluster.TaskID) (int, error) {
		return c.Attach(ctx, id, o)
	})
}

// passSignals forwards signals of this program to the container. QUIT cancels the returned context instead.
func passSignals(ctx context.Context, o *client.AttachOptions) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	names := map[os.Signal]string{
		os.Interrupt: "INT", syscall.SIGTERM: "TERM", syscall.SIGUSR1: "USR1",
		syscall.SIGUSR2: "USR2",
	}
	got, pass := make(chan os.Signal, 16), make(chan string)
	signal.Notify(got, os.Interrupt, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGQUIT)
	o.Signals = pass
	go func() {
		defer signal.Stop(got)
		for {
			select {
			case sig := <-got:
				name, ok := names[sig]
				if !ok {
					cancel()
					return
				}
				select {
				case pass <- name:
				case <-ctx.Done():
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, cancel
}
