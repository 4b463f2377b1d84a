package stream

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/wording"
)

// attachCommand is `berth attach`.
type attachCommand struct {
	*session.Session
	options client.AttachOptions
	signals bool
}

// NewAttachCommand returns the command `berth attach`.
func NewAttachCommand(sess *session.Session) *cobra.Command {
	a := &attachCommand{Session: sess, options: client.AttachOptions{Stdout: sess.Stdout, Stderr: sess.Stderr}}
	cmd := &cobra.Command{
		Use:   "attach [-c CONTAINER] [--signals] TASK|SERVICE|JOB",
		Short: "Show the live output of a running container until it ends",
		Long: "Show the new output of a running container, stdout and stderr separately, until the container ends.\n" +
			"The command exits with the code of the container, or with 125 if it did not see the end. Incomplete\n" +
			"lines are held back until they end. An interrupt ends this command, not the container. With\n" +
			"--signals, an interrupt, TERM, USR1 and USR2 go to the container's program, and Ctrl-\\ ends this\n" +
			"command.\n\n" +
			"The program of a container has no standard input. Use 'berth exec -it' to run a shell in the\n" +
			"container. Of a service or job, a healthy task is picked, and its name is printed.",
		Args:              session.Arguments(1, 1, "a task or a service, such as web.1.0 or web"),
		ValidArgsFunction: sess.CompleteNames(wording.KindTask, wording.KindService, wording.KindJob),
		RunE:              a.run,
	}
	addContainerFlag(cmd, &a.options.Container)
	cmd.Flags().IntVar(&a.options.Tail, "tail", 0, "number of newest `lines` to begin with")
	cmd.Flags().BoolVar(&a.signals, "signals", false, "pass signals on to the container's program")
	return cmd
}

func (a *attachCommand) run(cmd *cobra.Command, args []string) error {
	ctx := cmd.Context()
	if a.signals {
		var end context.CancelFunc
		ctx, end = passSignals(ctx, &a.options)
		defer end()
	}
	return exitWith(runInTask(cmd, a.Session, args[0], func(c *client.Client, id cluster.TaskID) (int, error) {
		return c.Attach(ctx, id, a.options)
	}))
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
