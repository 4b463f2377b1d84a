// Package service implements the commands that change services, jobs and crons, and those that show their rollouts and
// scaling.
package service

import (
	"context"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cli/wait"
	"github.com/berthd/berth/internal/cluster"
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
		Args:              session.Arguments(1, 1, "one object, such as web or "+ch.kinds[0]+"/web"),
		ValidArgsFunction: ch.CompleteNames(ch.kinds...),
		RunE:              ch.run,
	}
}

func (ch *changeCommand) run(cmd *cobra.Command, args []string) error {
	c, err := ch.Connect()
	if err != nil {
		return err
	}
	n, err := ch.FindObject(cmd, c, args[0], ch.kinds...)
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

// workCommand is a command whose change is work for the control plane: stop, start and restart. It waits for the end of
// the work.
type workCommand struct {
	*session.Session
	detach bool
	target *wait.Target // what the change makes, nil if there is nothing to wait for
	what   string       // what continues after an interrupt
}

// newWorkCommand returns the command of a change that is waited for.
func newWorkCommand(w *workCommand, ch *changeCommand) *cobra.Command {
	ch.Session, ch.afterDone = w.Session, w.await
	cmd := newChangeCommand(ch)
	session.AddDetachFlag(cmd, &w.detach)
	return cmd
}

func (w *workCommand) await(ctx context.Context, c *client.Client, _ session.Name) error {
	if w.detach || w.target == nil {
		return nil
	}
	waiter := wait.Waiter{Session: w.Session, Client: c, Targets: []*wait.Target{w.target}}
	return waiter.Await(ctx, w.what+" continues. See 'berth status "+w.target.Name.String()+"'.")
}

// expect sets the target of a change of an object with this revision. If the change is none, the revision stays.
func (w *workCommand) expect(n session.Name, revision uint64, isChange, stop bool) {
	if isChange {
		revision++ // of the change, at least
	}
	w.target = &wait.Target{Name: n, Revision: revision, Stop: stop}
}

// NewStopCommand returns the command `berth stop`.
func NewStopCommand(sess *session.Session) *cobra.Command {
	w := &workCommand{Session: sess, what: "the stop"}
	return newWorkCommand(w, &changeCommand{
		use:   "stop SERVICE|JOB|CRON",
		short: "Stop a service's tasks, cancel a job, or suspend a cron",
		long: "Stop a service's tasks and keep its settings ('berth start' runs it again), or cancel a job, and\n" +
			"wait until none of its tasks runs; or suspend a cron. A suspended cron creates no jobs until it is\n" +
			"started again; its existing jobs continue. An interrupt ends only the wait.",
		kinds: []string{wording.KindService, wording.KindJob, wording.KindCron},
		do: func(ctx context.Context, c *client.Client, n session.Name) error {
			switch n.Kind {
			case wording.KindJob:
				v, err := c.Job(ctx, n.Cluster, n.Name)
				if err != nil {
					return err
				}
				w.expect(n, v.Revision, !v.Cancelled, true)
				return c.StopJob(ctx, n.Cluster, n.Name)
			case wording.KindCron:
				return c.SuspendCron(ctx, n.Cluster, n.Name, client.Condition{})
			}
			v, err := c.Service(ctx, n.Cluster, n.Name)
			if err != nil {
				return err
			}
			w.expect(n, v.Revision, !v.Stopped, true)
			return c.StopService(ctx, n.Cluster, n.Name)
		},
		doneText: "stopping %s",
	})
}

// NewStartCommand returns the command `berth start`.
func NewStartCommand(sess *session.Session) *cobra.Command {
	w := &workCommand{Session: sess, what: "the start"}
	return newWorkCommand(w, &changeCommand{
		use: "start SERVICE|CRON", short: "Run a stopped service again, or resume a suspended cron",
		long: "Run the tasks of a stopped service again and wait until they are healthy, as 'berth run' does; or\n" +
			"resume a suspended cron. Exit code 1: the service is not healthy. An interrupt ends only the wait.",
		kinds: []string{wording.KindService, wording.KindCron},
		do: func(ctx context.Context, c *client.Client, n session.Name) error {
			if n.Kind == wording.KindCron {
				return c.ResumeCron(ctx, n.Cluster, n.Name, client.Condition{})
			}
			v, err := c.Service(ctx, n.Cluster, n.Name)
			if err != nil {
				return err
			}
			w.expect(n, v.Revision, v.Stopped, false)
			w.target.MinGeneration = v.Generation
			return c.StartService(ctx, n.Cluster, n.Name)
		},
		doneText: "starting %s",
	})
}

// NewRestartCommand returns the command `berth restart`.
func NewRestartCommand(sess *session.Session) *cobra.Command {
	w := &workCommand{Session: sess, what: "the restart"}
	return newWorkCommand(w, &changeCommand{
		use: "restart SERVICE|JOB", short: "Replace all tasks of a service, or run a job again",
		long: "Replace every task of a service, as a rollout does and according to its update policy, and wait for\n" +
			"the end; or run a job again and wait until it has succeeded. Exit code 1: the rollout or the job\n" +
			"failed. An interrupt ends only the wait.",
		kinds: []string{wording.KindService, wording.KindJob},
		do: func(ctx context.Context, c *client.Client, n session.Name) error {
			if n.Kind == wording.KindJob {
				v, err := c.Job(ctx, n.Cluster, n.Name)
				if err != nil {
					return err
				}
				w.expect(n, v.Revision, true, false)
				return c.RestartJob(ctx, n.Cluster, n.Name)
			}
			v, err := c.Service(ctx, n.Cluster, n.Name)
			if err != nil {
				return err
			}
			w.expect(n, v.Revision, true, false)
			w.target.MinGeneration = v.Generation + 1
			return c.RestartService(ctx, n.Cluster, n.Name)
		},
		doneText: "restarting %s",
	})
}

// Delete requests the deletion of an object.
func Delete(ctx context.Context, c *client.Client, n session.Name) error {
	switch n.Kind {
	case wording.KindJob:
		return c.DeleteJob(ctx, n.Cluster, n.Name, client.Condition{})
	case wording.KindCluster:
		return c.DeleteCluster(ctx, n.Name, client.Condition{})
	case wording.KindDomain:
		return c.DeleteDomain(ctx, n.Name, client.Condition{})
	case wording.KindPool:
		return c.DeletePool(ctx, n.Name, client.Condition{})
	case wording.KindProfile:
		ref, err := cluster.ParseRef(n.Name)
		if err != nil || ref.Version == 0 {
			return fmt.Errorf("%s names no version of a profile: want profile/NAME@VERSION", n)
		}
		return c.DeleteProfile(ctx, ref, client.Condition{})
	case wording.KindEndpoint:
		return c.DeleteEndpoint(ctx, n.Cluster, n.Name, client.Condition{})
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
		return sess.StoppedWaiting(ctx, err, "the deletion continues. See 'berth status "+n.String()+"'.")
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
