// Package stream implements the commands that exchange data with running tasks: logs, exec, attach, cp, port-forward
// and check.
package stream

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/wording"
)

// execCommand is `berth exec`.
type execCommand struct {
	*session.Session
	container       string
	input, terminal bool
	command         []string
}

// NewExecCommand returns the command `berth exec`.
func NewExecCommand(sess *session.Session) *cobra.Command {
	e := &execCommand{Session: sess}
	cmd := &cobra.Command{
		Use:   "exec [-c CONTAINER] [-i] [-t] TASK|SERVICE|JOB [--] COMMAND [ARG...]",
		Short: "Run a command in a container of a task",
		Long: "Run a command in a container of a running task. Its output is the output of this command. With -i,\n" +
			"the command reads standard input. With -it, this terminal becomes the terminal of the command: keys\n" +
			"such as Ctrl-C and the size go to the command. The exit code is that of the command, or 125 if it\n" +
			"could not run or the connection broke, which ends the command.\n\n" +
			"Of a service or job, a healthy task is picked, and its name is printed. Flags may stand before or\n" +
			"after the task. Everything from COMMAND on belongs to the command, including flags; a -- may precede\n" +
			"it.",
		Args:              e.parseArguments,
		ValidArgsFunction: sess.CompleteNames(wording.KindTask, wording.KindService, wording.KindJob),
		RunE:              e.run,
	}
	addContainerFlag(cmd, &e.container)
	cmd.Flags().BoolVarP(&e.input, "stdin", "i", false, "send standard input to the command")
	cmd.Flags().BoolVarP(&e.terminal, "tty", "t", false, "connect this terminal to the command")
	cmd.Flags().SetInterspersed(false) // flags after the command belong to the command
	return cmd
}

func (e *execCommand) run(cmd *cobra.Command, args []string) error {
	o := client.ExecOptions{
		Container: e.container, Command: e.command, Stdout: e.Stdout,
		Stderr: e.Stderr,
	}
	if e.input {
		o.Stdin = e.Stdin
	}
	if e.terminal {
		restore, err := openTerminal(cmd.Context(), e.Session, &o)
		if err != nil {
			return &session.ExitError{Code: session.ExitExec, Err: err}
		}
		defer restore() // the terminal is restored before the error is printed
	}
	ctx := cmd.Context()
	return exitWith(runInTask(cmd, e.Session, args[0], func(c *client.Client, id cluster.TaskID) (int, error) {
		return c.Exec(ctx, id, o)
	}))
}

// addContainerFlag adds the flag that names a container of the task.
func addContainerFlag(cmd *cobra.Command, container *string) {
	cmd.Flags().StringVarP(container, "container", "c", "",
		"the `container`; default the first essential container of the task")
}

// parseArguments parses the flags after the task, and sets the command. It returns an error unless there are a task and
// a command.
func (e *execCommand) parseArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		if err := cmd.Flags().Parse(args[1:]); err != nil {
			return cmd.FlagErrorFunc()(cmd, err)
		}
		if help, err := cmd.Flags().GetBool("help"); help && err == nil {
			return pflag.ErrHelp
		}
		e.command = cmd.Flags().Args()
	}
	if len(e.command) == 0 {
		return session.Arguments(2, -1, "a task or a service, and a command, such as web.1.0 ls /")(cmd, nil)
	}
	return nil
}

// exitWith returns the error for the end of a program in a task.
func exitWith(code int, err error) error {
	if errors.Is(err, context.Canceled) || err == nil && code == 0 {
		return err
	}
	return &session.ExitError{Code: code, Err: err}
}

// runInTask calls run for a container of a task and returns its exit code, or ExitExec with an error.
func runInTask(cmd *cobra.Command, sess *session.Session, task string,
	do func(*client.Client, cluster.TaskID) (int, error),
) (int, error) {
	c, err := sess.Connect()
	if err != nil {
		return session.ExitExec, err
	}
	t, err := pickTask(cmd, sess, c, task)
	if err != nil {
		return session.ExitExec, err
	}
	code, err := do(c, t.ID)
	if err != nil {
		return session.ExitExec, err
	}
	return code, nil
}
