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
		Short: "Show the live output of a running container until it ends",
		Long: "Show the new output of a running container, stdout and stderr separately, until the container ends.\n" +
			"The command exits with the code of the container, or with 125 if it did not see the end. Incomplete\n" +
			"lines are held back until they end. An interrupt ends this command, not the container. With\n" +
			"--signals, an interrupt, TERM, USR1 and USR2 go to the container's program, and Ctrl-\\ ends this\n" +
			"command.\n\n" +
			"The program of a container has no standard input. Use 'berth exec -it' to run a shell in the\n" +
			"container.",
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
		"the `container`; default the first essential container of the task")
	cmd.Flags().IntVar(&o.Tail, "tail", 0, "number of newest `lines` to begin with")
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
