package main

import (
	"context"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api/client"
)

// change is a command that does one thing to one object.
type change struct {
	use, short, long string
	kinds            []string
	do               func(context.Context, *client.Client, name) error
	done             string // told after it, with the name
	// after, unless nil, follows what was told.
	after func(context.Context, *client.Client, name) error
}

func (a *app) newChangeCommand(ch change) *cobra.Command {
	return &cobra.Command{
		Use: ch.use, Short: ch.short, Long: ch.long,
		Args:              arguments(1, 1, "one object, such as "+ch.kinds[0]+"/web"),
		ValidArgsFunction: a.completeNames(ch.kinds...),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := parseName(cmd, args[0], ch.kinds...)
			if err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			if n, err = n.resolve(cmd.Context(), c); err != nil {
				return err
			}
			if err := ch.do(cmd.Context(), c, n); err != nil {
				return err
			}
			a.tell(ch.done, n)
			if ch.after == nil {
				return nil
			}
			return ch.after(cmd.Context(), c, n)
		},
	}
}

func (a *app) newStopCommand() *cobra.Command {
	return a.newChangeCommand(change{
		use: "stop service/NAME|job/NAME|cron/NAME", short: "Stop a service's tasks, cancel a job, or suspend a cron",
		long: "Stop a service's tasks and keep its settings ('berth start' runs it again), cancel a job, or " +
			"suspend a cron: it makes no jobs\n" +
			"until it is started again; those that it made go on.",
		kinds: []string{wordService, wordJob, wordCron},
		do: func(ctx context.Context, c *client.Client, n name) error {
			switch n.kind {
			case wordJob:
				return c.StopJob(ctx, n.cluster, n.name)
			case wordCron:
				return c.SuspendCron(ctx, n.cluster, n.name, client.Condition{})
			}
			return c.StopService(ctx, n.cluster, n.name)
		},
		done: "stopping %s",
	})
}

func (a *app) newStartCommand() *cobra.Command {
	return a.newChangeCommand(change{
		use: "start service/NAME|cron/NAME", short: "Run a stopped service again, or resume a suspended cron",
		kinds: []string{wordService, wordCron},
		do: func(ctx context.Context, c *client.Client, n name) error {
			if n.kind == wordCron {
				return c.ResumeCron(ctx, n.cluster, n.name, client.Condition{})
			}
			return c.StartService(ctx, n.cluster, n.name)
		},
		done: "starting %s",
	})
}

func (a *app) newRestartCommand() *cobra.Command {
	var detach bool
	var least uint64 // the generation that the restart begins
	cmd := a.newChangeCommand(change{
		use: "restart service/NAME|job/NAME", short: "Replace a service's tasks as a rollout does, or run a job anew",
		long: "Replace every task of a service by a new one, as a rollout does and as its update policy " +
			"says, and wait until that is done; or\n" +
			"run a job anew, without waiting. Exit code 1: the rollout failed. Interrupting it stops the " +
			"waiting and nothing else.",
		kinds: []string{wordService, wordJob},
		do: func(ctx context.Context, c *client.Client, n name) error {
			if n.kind == wordJob {
				return c.RestartJob(ctx, n.cluster, n.name)
			}
			v, err := c.Service(ctx, n.cluster, n.name)
			if err != nil {
				return err
			}
			least = v.Generation + 1
			return c.RestartService(ctx, n.cluster, n.name)
		},
		done: "restarting %s",
		after: func(ctx context.Context, c *client.Client, n name) error {
			if detach || n.kind == wordJob {
				return nil
			}
			return a.awaitService(ctx, c, &target{name: n, least: least})
		},
	})
	cmd.Flags().BoolVarP(&detach, "detach", "d", false, "do not wait")
	return cmd
}

func (a *app) newDeleteCommand() *cobra.Command {
	var detach bool
	cmd := a.newChangeCommand(change{
		use: "delete KIND/NAME", short: "Delete a service, a job, a cron or an empty cluster",
		long: "Delete a service or a job, which stops its tasks, a cron, whose jobs stay, or a cluster that " +
			"holds none of these. It returns once\n" +
			"nothing of it runs any more; interrupting it stops the waiting and nothing else.",
		kinds: []string{wordService, wordJob, wordCron, wordCluster},
		do: func(ctx context.Context, c *client.Client, n name) error {
			switch n.kind {
			case wordJob:
				return c.DeleteJob(ctx, n.cluster, n.name, client.Condition{})
			case wordCluster:
				return c.DeleteCluster(ctx, n.name, client.Condition{})
			case wordCron:
				return c.DeleteCron(ctx, n.cluster, n.name, client.Condition{})
			}
			return c.DeleteService(ctx, n.cluster, n.name, client.Condition{})
		},
		done: "deleting %s",
		after: func(ctx context.Context, c *client.Client, n name) error {
			if detach || n.kind == wordCluster {
				return nil
			}
			return a.awaitGone(ctx, c, n)
		},
	})
	cmd.Aliases = []string{"rm"}
	cmd.Flags().BoolVarP(&detach, "detach", "d", false, "do not wait")
	return cmd
}

// awaitGone waits until a deleted service, job or cron is gone, with all of its tasks.
func (a *app) awaitGone(ctx context.Context, c *client.Client, n name) error {
	for pause := firstLook; ; pause = min(pause*5/4, lastLook) {
		var deleted bool
		var err error
		switch n.kind {
		case wordJob:
			v, e := c.Job(ctx, n.cluster, n.name)
			deleted, err = v.Deleted, e
		case wordCron:
			v, e := c.Cron(ctx, n.cluster, n.name)
			deleted, err = v.Deleted, e
		default:
			v, e := c.Service(ctx, n.cluster, n.name)
			deleted, err = v.Deleted, e
		}
		switch {
		case client.StatusOf(err) == http.StatusNotFound, err == nil && !deleted: // or made anew by somebody
			a.tell("%s is gone", n)
			return nil
		case err != nil:
			return err
		}
		select {
		case <-ctx.Done():
			a.tell("Stopped waiting; the deletion goes on.")
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}
