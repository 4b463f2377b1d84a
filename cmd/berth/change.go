package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
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
		use: "stop service/NAME|job/NAME", short: "Stop a service's tasks, or cancel a job",
		long:  "Stop a service's tasks and keep its settings ('berth start' runs it again), or cancel a job.",
		kinds: []string{wordService, wordJob},
		do: func(ctx context.Context, c *client.Client, n name) error {
			if n.kind == wordJob {
				return c.StopJob(ctx, n.cluster, n.name)
			}
			return c.StopService(ctx, n.cluster, n.name)
		},
		done: "stopping %s",
	})
}

func (a *app) newStartCommand() *cobra.Command {
	return a.newChangeCommand(change{
		use: "start service/NAME", short: "Run a stopped service again",
		kinds: []string{wordService},
		do: func(ctx context.Context, c *client.Client, n name) error {
			return c.StartService(ctx, n.cluster, n.name)
		},
		done: "starting %s",
	})
}

func (a *app) newRestartCommand() *cobra.Command {
	return a.newChangeCommand(change{
		use: "restart service/NAME|job/NAME", short: "Replace a service's tasks one at a time, or run a job anew",
		kinds: []string{wordService, wordJob},
		do: func(ctx context.Context, c *client.Client, n name) error {
			if n.kind == wordJob {
				return c.RestartJob(ctx, n.cluster, n.name)
			}
			return c.RestartService(ctx, n.cluster, n.name)
		},
		done: "restarting %s",
	})
}

func (a *app) newDeleteCommand() *cobra.Command {
	var detach bool
	cmd := a.newChangeCommand(change{
		use: "delete KIND/NAME", short: "Delete a service, a job or an empty cluster",
		long: "Delete a service or a job, which stops its tasks, or a cluster that holds neither. It returns once nothing of it\n" +
			"runs any more; interrupting it stops the waiting and nothing else.",
		kinds: []string{wordService, wordJob, wordCluster},
		do: func(ctx context.Context, c *client.Client, n name) error {
			switch n.kind {
			case wordJob:
				return c.DeleteJob(ctx, n.cluster, n.name, client.Condition{})
			case wordCluster:
				return c.DeleteCluster(ctx, n.name, client.Condition{})
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
	cmd.Flags().BoolVarP(&detach, "detach", "d", false, "do not wait")
	return cmd
}

// awaitGone waits until a deleted service or job is gone, with all of its tasks.
func (a *app) awaitGone(ctx context.Context, c *client.Client, n name) error {
	for pause := firstLook; ; pause = min(pause*5/4, lastLook) {
		var deleted bool
		var err error
		if n.kind == wordJob {
			v, e := c.Job(ctx, n.cluster, n.name)
			deleted, err = v.Deleted, e
		} else {
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

func (a *app) newScaleCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "scale service/NAME COUNT",
		Short:             "Set how many tasks a service runs",
		Args:              arguments(2, 2, "a service and a count, such as service/web 3"),
		ValidArgsFunction: a.completeNames(wordService),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := parseName(cmd, args[0], wordService)
			if err != nil {
				return err
			}
			to, err := strconv.Atoi(args[1])
			if err != nil || to < 0 {
				return &usageError{cmd.CommandPath(), noCount(args[1])}
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			v, err := n.service(cmd.Context(), c)
			if err != nil {
				return err
			}
			n.cluster = v.Cluster
			if err := c.ScaleService(cmd.Context(), n.cluster, n.name, to, client.Condition{}); err != nil {
				return err
			}
			a.tell("%s: %d → %s", n, v.Count, count(to, "task"))
			return nil
		},
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		// A count below 0 looks like a flag.
		if _, text, ok := strings.Cut(err.Error(), " in -"); ok && strings.Trim(text, "0123456789") == "" {
			return &usageError{cmd.CommandPath(), noCount("-" + text)}
		}
		return &usageError{cmd.CommandPath(), plainFlagError(err)}
	})
	return cmd
}

func noCount(text string) string {
	return fmt.Sprintf("%q is no count: want a whole number from 0 up", text)
}
