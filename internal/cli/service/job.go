package service

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/wording"
)

// NewHoldCommand returns the command `berth hold`.
func NewHoldCommand(sess *session.Session) *cobra.Command {
	return newChangeCommand(&changeCommand{
		Session: sess, use: "hold JOB", short: "Let no task of a job begin any more",
		long: "Let no task of a job begin any more, until 'berth release'. Running tasks continue. The deadline of\n" +
			"the job continues, too. A manifest with 'hold: true' makes a job that begins nothing.",
		kinds: []string{wording.KindJob},
		do: func(ctx context.Context, c *client.Client, n session.Name) error {
			return c.HoldJob(ctx, n.Cluster, n.Name, client.Condition{})
		},
		doneText: "%s is on hold",
	})
}

// NewReleaseCommand returns the command `berth release`.
func NewReleaseCommand(sess *session.Session) *cobra.Command {
	return newChangeCommand(&changeCommand{
		Session: sess, use: "release JOB", short: "End the hold of a job",
		long:  "End the hold of a job: its tasks begin as soon as there is room. See 'berth hold'.",
		kinds: []string{wording.KindJob},
		do: func(ctx context.Context, c *client.Client, n session.Name) error {
			return c.ReleaseJob(ctx, n.Cluster, n.Name, client.Condition{})
		},
		doneText: "%s is released",
	})
}

// NewPriorityCommand returns the command `berth priority`.
func NewPriorityCommand(sess *session.Session) *cobra.Command {
	return &cobra.Command{
		Use: "priority JOB PRIORITY", Short: "Set the priority of a job",
		Long: fmt.Sprintf("Set the priority of a job, from 1 to %d, or by a name:\n%s.\n\n"+
			"Of tasks that wait, those of the larger priority are placed first. Tasks that are placed keep\n"+
			"their priority.", cluster.MaxPriority, cluster.PriorityTable()),
		Args:              session.Arguments(2, 2, "a job and a priority, such as job/train 700"),
		ValidArgsFunction: sess.CompleteNames(wording.KindJob),
		RunE: func(cmd *cobra.Command, args []string) error {
			priority, ok := cluster.ParsePriority(args[1])
			if !ok {
				message := fmt.Sprintf("%q is no priority: want %s", args[1], cluster.PriorityWords())
				return &session.UsageError{Command: cmd.CommandPath(), Message: message}
			}
			change := changeCommand{
				Session: sess, kinds: []string{wording.KindJob},
				do: func(ctx context.Context, c *client.Client, n session.Name) error {
					return c.SetJobPriority(ctx, n.Cluster, n.Name, priority, client.Condition{})
				},
				doneText: "%s has the priority " + strconv.Itoa(int(priority)),
			}
			return change.run(cmd, args[:1])
		},
	}
}

// retryCommand is `berth retry`.
type retryCommand struct {
	workCommand
	failed bool
	tasks  []string
}

// NewRetryCommand returns the command `berth retry`.
func NewRetryCommand(sess *session.Session) *cobra.Command {
	r := &retryCommand{workCommand: workCommand{Session: sess, what: "the job"}}
	cmd := newWorkCommand(&r.workCommand, &changeCommand{
		use: "retry JOB", short: "Try failed tasks of a job again",
		long: "Try the failed tasks of a job again, and wait until the job has succeeded. The failures so far no\n" +
			"longer count: each task has the retries of its step again. Steps that were skipped because of the\n" +
			"failures run afterwards. Tasks that have succeeded are not repeated; 'berth restart' runs all.\n" +
			"Exit code 1: the job failed again. An interrupt ends only the wait.",
		kinds: []string{wording.KindJob}, do: r.retry, doneText: "trying failed tasks of %s again",
	})
	cmd.Flags().BoolVar(&r.failed, "failed", false, "all failed tasks (the default)")
	cmd.Flags().StringArrayVar(&r.tasks, "task", nil, "only this failed `task`, such as train.1.fit.0; repeatable")
	cmd.MarkFlagsMutuallyExclusive("failed", "task")
	sess.CompleteFlags(cmd, map[string]string{"task": wording.KindTask})
	return cmd
}

func (r *retryCommand) retry(ctx context.Context, c *client.Client, n session.Name) error {
	v, err := c.Job(ctx, n.Cluster, n.Name)
	if err != nil {
		return err
	}
	var ids []api.TaskID
	var faults []error
	for _, text := range r.tasks {
		t, err := r.FindTask(ctx, c, text)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		ids = append(ids, t.ID)
	}
	if err := errors.Join(faults...); err != nil {
		return err
	}
	r.expect(n, v.Revision, true, false)
	return c.RetryJob(ctx, n.Cluster, n.Name, ids, client.Condition{})
}
