// Package service implements the commands that change services, jobs and crons, and those that show their rollouts and
// scaling.
package service

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cli/wait"
	"github.com/berthd/berth/internal/wording"
)

// changeCommand is a command that applies one change to one object.
type changeCommand struct {
	*session.Session
	use, short, long string
	kinds            []string
	do               func(context.Context, *client.Client, session.Name) error
	doneText         string // format of the message afterwards, with the name
	// afterDone, unless nil, runs after the message.
	afterDone func(context.Context, *client.Client, session.Name) error
}

func newChangeCommand(ch *changeCommand) *cobra.Command {
	return &cobra.Command{
		Use: ch.use, Short: ch.short, Long: ch.long,
		Args:              session.Arguments(1, 1, "one object, such as "+ch.kinds[0]+"/web"),
		ValidArgsFunction: ch.CompleteNames(ch.kinds...),
		RunE:              ch.run,
	}
}

func (ch *changeCommand) run(cmd *cobra.Command, args []string) error {
	n, err := session.ParseName(cmd, args[0], ch.kinds...)
	if err != nil {
		return err
	}
	c, err := ch.Connect()
	if err != nil {
		return err
	}
	if n, err = n.Resolve(cmd.Context(), c); err != nil {
		return err
	}
	if err := ch.do(cmd.Context(), c, n); err != nil {
		return err
	}
	ch.Messagef(ch.doneText, n)
	if ch.afterDone == nil {
		return nil
	}
	return ch.afterDone(cmd.Context(), c, n)
}

// NewStopCommand returns the command `berth stop`.
func NewStopCommand(sess *session.Session) *cobra.Command {
	return newChangeCommand(&changeCommand{
		Session: sess,
		use:     "stop service/NAME|job/NAME|cron/NAME",
		short:   "Stop a service's tasks, cancel a job, or suspend a cron",
		long: "Stop a service's tasks and keep its settings ('berth start' runs it again), cancel a job, or suspend\n" +
			"a cron. A suspended cron creates no jobs until it is started again; its existing jobs continue.",
		kinds: []string{wording.KindService, wording.KindJob, wording.KindCron},
		do: func(ctx context.Context, c *client.Client, n session.Name) error {
			switch n.Kind {
			case wording.KindJob:
				return c.StopJob(ctx, n.Cluster, n.Name)
			case wording.KindCron:
				return c.SuspendCron(ctx, n.Cluster, n.Name, client.Condition{})
			}
			return c.StopService(ctx, n.Cluster, n.Name)
		},
		doneText: "stopping %s",
	})
}

// NewStartCommand returns the command `berth start`.
func NewStartCommand(sess *session.Session) *cobra.Command {
	return newChangeCommand(&changeCommand{
		Session: sess,
		use:     "start service/NAME|cron/NAME", short: "Run a stopped service again, or resume a suspended cron",
		kinds: []string{wording.KindService, wording.KindCron},
		do: func(ctx context.Context, c *client.Client, n session.Name) error {
			if n.Kind == wording.KindCron {
				return c.ResumeCron(ctx, n.Cluster, n.Name, client.Condition{})
			}
			return c.StartService(ctx, n.Cluster, n.Name)
		},
		doneText: "starting %s",
	})
}

// restartCommand is `berth restart`.
type restartCommand struct {
	*session.Session
	detach        bool
	minGeneration uint64 // the generation that the restart makes
}

// NewRestartCommand returns the command `berth restart`.
func NewRestartCommand(sess *session.Session) *cobra.Command {
	r := &restartCommand{Session: sess}
	cmd := newChangeCommand(&changeCommand{
		Session: sess,
		use:     "restart service/NAME|job/NAME", short: "Replace all tasks of a service, or run a job again",
		long: "Replace every task of a service, as a rollout does and according to its update policy, and wait for\n" +
			"the end; or run a job again, without waiting. Exit code 1: the rollout failed. An interrupt ends\n" +
			"only the wait.",
		kinds:     []string{wording.KindService, wording.KindJob},
		do:        r.change,
		doneText:  "restarting %s",
		afterDone: r.await,
	})
	session.AddDetachFlag(cmd, &r.detach)
	return cmd
}

func (r *restartCommand) change(ctx context.Context, c *client.Client, n session.Name) error {
	if n.Kind == wording.KindJob {
		return c.RestartJob(ctx, n.Cluster, n.Name)
	}
	v, err := c.Service(ctx, n.Cluster, n.Name)
	if err != nil {
		return err
	}
	r.minGeneration = v.Generation + 1
	return c.RestartService(ctx, n.Cluster, n.Name)
}

func (r *restartCommand) await(ctx context.Context, c *client.Client, n session.Name) error {
	if r.detach || n.Kind == wording.KindJob {
		return nil
	}
	return wait.AwaitService(ctx, r.Session, c, &wait.Target{Name: n, MinGeneration: r.minGeneration})
}

// Delete requests the deletion of an object.
func Delete(ctx context.Context, c *client.Client, n session.Name) error {
	switch n.Kind {
	case wording.KindJob:
		return c.DeleteJob(ctx, n.Cluster, n.Name, client.Condition{})
	case wording.KindCluster:
		return c.DeleteCluster(ctx, n.Name, client.Condition{})
	case wording.KindPool:
		return c.DeletePool(ctx, n.Name, client.Condition{})
	case wording.KindCron:
		return c.DeleteCron(ctx, n.Cluster, n.Name, client.Condition{})
	}
	return c.DeleteService(ctx, n.Cluster, n.Name, client.Condition{})
}

// AwaitDeleted waits until a deleted service, job or cron and all of its tasks are gone.
func AwaitDeleted(ctx context.Context, sess *session.Session, c *client.Client, n session.Name) error {
	loop := wait.Loop{
		Session: sess, Changes: wait.ChangesOf(c, []session.Name{n}),
		Read: func(ctx context.Context) (bool, error) {
			deleted, err := isDeleted(ctx, c, n)
			if client.StatusOf(err) == http.StatusNotFound {
				return false, nil
			}
			return deleted, err // an object without the mark was written again meanwhile
		},
	}
	if err := loop.Run(ctx); err != nil {
		if ctx.Err() != nil {
			sess.Messagef("Stopped waiting; the deletion continues.")
		}
		return err
	}
	sess.Messagef("%s is deleted", n)
	return nil
}

// isDeleted reports whether a service, job or cron is marked for deletion.
func isDeleted(ctx context.Context, c *client.Client, n session.Name) (bool, error) {
	switch n.Kind {
	case wording.KindJob:
		v, err := c.Job(ctx, n.Cluster, n.Name)
		return v.Deleted, err
	case wording.KindCron:
		v, err := c.Cron(ctx, n.Cluster, n.Name)
		return v.Deleted, err
	default:
		v, err := c.Service(ctx, n.Cluster, n.Name)
		return v.Deleted, err
	}
}
