package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api/client"
)

func (a *app) newExecCommand() *cobra.Command {
	var container string
	var input bool
	cmd := &cobra.Command{
		Use:   "exec TASK [-c CONTAINER] -- COMMAND [ARG...]",
		Short: "Run a command in a container of a task",
		Long: `Run a command in a container of a running task. Its output is this command's, and with -i its
input too. The exit code is the command's, or 125 if it could not be run.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 && cmd.ArgsLenAtDash() > 1 {
				return &usageError{cmd.CommandPath(), "berth exec takes one task before --"}
			}
			return arguments(2, -1, "a task and a command, such as web.1.0 -- ls /")(cmd, args)
		},
		ValidArgsFunction: a.completeNames(wordTask),
		RunE: func(cmd *cobra.Command, args []string) error {
			o := client.ExecOptions{Container: container, Command: args[1:], Stdout: a.stdout, Stderr: a.stderr}
			if input {
				o.Stdin = a.stdin
			}
			code, err := a.exec(cmd.Context(), args[0], o)
			if errors.Is(err, context.Canceled) {
				return err
			}
			if err != nil || code != 0 {
				return &exitError{code, err}
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&container, "container", "c", "", "the `container`; default the task's first essential one")
	cmd.Flags().BoolVarP(&input, "stdin", "i", false, "send standard input to the command")
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &usageError{cmd.CommandPath(), plainFlagError(err) + " (flags of the command itself go after --)"}
	})
	return cmd
}

// exec runs a command in a task and returns its exit code, or exitExec with an error.
func (a *app) exec(ctx context.Context, task string, o client.ExecOptions) (int, error) {
	c, err := a.connect()
	if err != nil {
		return exitExec, err
	}
	t, err := findTask(ctx, c, task)
	if err != nil {
		return exitExec, err
	}
	code, err := c.Exec(ctx, t.ID, o)
	if err != nil {
		return exitExec, err
	}
	return code, nil
}
