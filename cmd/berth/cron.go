package main

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
)

func (a *app) newCronCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "cron", Short: "Look at crons and steer them", Args: cobra.ArbitraryArgs, RunE: a.group}
	cmd.AddCommand(&cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List crons, the one whose moment comes next first",
		Args: arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			crons, err := allCrons(cmd.Context(), c, "")
			if err != nil {
				return err
			}
			if a.data() {
				return a.printData(emptyIsList(crons))
			}
			if len(crons) == 0 {
				a.tell("No crons.")
				return nil
			}
			return a.printTable(a.cronTable(crons))
		},
	}, a.cronCommand("status", "Show a cron, its next moments and its jobs", "",
		func(ctx context.Context, c *client.Client, v api.CronView) error { return a.cronStatus(ctx, c, v) }),
		a.newCronRunCommand(),
		a.cronCommand("suspend", "Have a cron make no jobs",
			"Have a cron make no jobs until it is resumed; those that it made go on.",
			func(ctx context.Context, c *client.Client, v api.CronView) error {
				if err := c.SuspendCron(ctx, v.Cluster, v.Name, client.Condition{}); err != nil {
					return err
				}
				a.tell("%s is suspended", cronName(v))
				return nil
			}),
		a.cronCommand("resume", "Have a suspended cron go on",
			"Have a suspended cron go on. What it makes of the moments that passed meanwhile, its policy "+
				"for missed ones says.",
			func(ctx context.Context, c *client.Client, v api.CronView) error {
				if err := c.ResumeCron(ctx, v.Cluster, v.Name, client.Condition{}); err != nil {
					return err
				}
				a.tell("%s goes on", cronName(v))
				return nil
			}),
		a.cronCommand("history", "List the jobs that a cron made, the newest first", "",
			func(ctx context.Context, c *client.Client, v api.CronView) error { return a.cronHistory(ctx, c, v) }))
	return cmd
}

// cronCommand returns a command about one cron.
func (a *app) cronCommand(use, short, long string,
	do func(context.Context, *client.Client, api.CronView) error,
) *cobra.Command {
	return &cobra.Command{
		Use: use + " CRON", Short: short, Long: long,
		Args:              arguments(1, 1, "a cron, such as backup or cron/prod/backup"),
		ValidArgsFunction: a.completeNames(wordCron),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := parseName(cmd, args[0], wordCron)
			if err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			v, err := n.cron(cmd.Context(), c)
			if err != nil {
				return err
			}
			return do(cmd.Context(), c, v)
		},
	}
}

func (a *app) newCronRunCommand() *cobra.Command {
	var detach bool
	cmd := a.cronCommand("run", "Make a job of a cron at once",
		"Make a job of a cron at once, whatever its schedules say and also while it is suspended, and wait "+
			"until it has succeeded.\n"+
			"Exit code 1: it failed. Interrupting it stops the waiting and nothing else.",
		func(ctx context.Context, c *client.Client, v api.CronView) error {
			j, err := c.RunCron(ctx, v.Cluster, v.Name)
			if err != nil {
				return err
			}
			n := name{wordJob, j.Cluster, j.Name}
			a.tell("%s: made %s", cronName(v), n)
			if detach {
				return a.dataOf(j)
			}
			targets := []*target{{name: n, revision: j.Revision, moved: a.now()}}
			w := waiter{app: a, client: c, targets: targets, progress: a.newProgress(targets)}
			return w.await(ctx, "the job goes on. See 'berth status "+n.String()+"'.")
		})
	cmd.Flags().BoolVarP(&detach, "detach", "d", false, "do not wait")
	return cmd
}

// cronName returns the argument that names a cron.
func cronName(v api.CronView) name { return name{wordCron, v.Cluster, v.Name} }

// allCrons returns the crons of a cluster, or of all, the one whose moment comes next first and those without one last.
func allCrons(ctx context.Context, c *client.Client, in string) ([]api.CronView, error) {
	crons, _, err := client.All(ctx, client.ListOptions{},
		func(ctx context.Context, o client.ListOptions) (api.Page[api.CronView], error) {
			return c.Crons(ctx, in, o)
		})
	slices.SortStableFunc(crons, func(x, y api.CronView) int {
		p, q := nextOf(x), nextOf(y)
		return cmp.Or(-boolCompare(!p.IsZero(), !q.IsZero()), p.Compare(q), cmp.Compare(x.Cluster, y.Cluster),
			cmp.Compare(x.Name, y.Name))
	})
	return crons, err
}

// nextOf returns the next moment of a cron, zero for none.
func nextOf(v api.CronView) time.Time {
	if len(v.Status.Next) == 0 {
		return time.Time{}
	}
	return v.Status.Next[0]
}

// cronTable shows crons in the order given.
func (a *app) cronTable(crons []api.CronView) table {
	t := table{state: 1, titles: []string{
		"CRON", "STATE", "SCHEDULE", "ZONE", "NEXT", "LAST JOB", "AGE>", "RUNNING>", "SUCCEEDED>", "FAILED>",
		"+CONCURRENCY", "+MISSED", "MESSAGE",
	}}
	for _, v := range crons {
		s := v.Status
		next := ""
		if at := nextOf(v); !at.IsZero() {
			next = a.momentText(v, at)
		}
		t.add(cronName(v).short(), s.State, strings.Join(v.Schedules, "; "), v.Zone, next, s.Job, a.age(s.Made),
			above(len(s.Running), 0),
			above(s.Succeeded, 0), above(s.Failed, 0), string(v.Concurrency), string(v.Missed), oneLine(s.Message))
	}
	return t
}

// momentText says when a moment is: how long it is until then, and by the clock of the cron's zone.
func (a *app) momentText(v api.CronView, at time.Time) string {
	zone, err := time.LoadLocation(cmp.Or(v.Zone, "UTC"))
	if err != nil { // this machine does not know it
		zone = time.UTC
	}
	return "in " + span(at.Sub(a.now())) + ", " + at.In(zone).Format("Mon 15:04")
}

// jobsOf returns the jobs that a cron made, the newest first.
func jobsOf(ctx context.Context, c *client.Client, v api.CronView) ([]api.JobView, error) {
	jobs, _, err := client.All(ctx, client.ListOptions{},
		func(ctx context.Context, o client.ListOptions) (api.Page[api.JobView], error) {
			return c.Jobs(ctx, v.Cluster, o)
		})
	jobs = slices.DeleteFunc(jobs, func(j api.JobView) bool { return j.Cron != v.Name })
	slices.SortStableFunc(jobs, func(x, y api.JobView) int {
		return cmp.Or(y.Created.Compare(x.Created), y.At.Compare(x.At), cmp.Compare(y.Name, x.Name))
	})
	return jobs, err
}

// cronStatus shows one cron.
func (a *app) cronStatus(ctx context.Context, c *client.Client, v api.CronView) error {
	if a.data() {
		return a.printData(v)
	}
	if err := a.printTable(a.cronTable([]api.CronView{v})); err != nil {
		return err
	}
	facts := table{titles: []string{"", ""}, indent: "  "}
	for i, at := range v.Status.Next {
		title := ""
		if i == 0 {
			title = "next"
		}
		facts.add(title, at.UTC().Format("2006-01-02T15:04Z")+"  "+a.momentText(v, at))
	}
	if v.Suspended {
		facts.add("suspended", "'berth cron resume "+cronName(v).argument()+"' goes on")
	}
	facts.add("while one runs", concurrencyText(v.Concurrency))
	facts.add("missed moments", missedText(v))
	if err := a.printTable(facts); err != nil {
		return err
	}
	if t := cronTrouble(v); t != nil {
		if err := a.printOwnTroubles([]trouble{*t}, "berth cron status "+cronName(v).argument()); err != nil {
			return err
		}
	}
	jobs, err := jobsOf(ctx, c, v)
	if err != nil || len(jobs) == 0 {
		return err
	}
	a.say("")
	return a.printTable(a.jobTable(jobs))
}

// cronHistory lists the jobs of a cron with the moments that they are for.
func (a *app) cronHistory(ctx context.Context, c *client.Client, v api.CronView) error {
	jobs, err := jobsOf(ctx, c, v)
	if err != nil {
		return err
	}
	if a.data() {
		return a.printData(emptyIsList(jobs))
	}
	if len(jobs) == 0 {
		a.tell("%s has made no jobs, or none of them is kept.", cronName(v))
		return nil
	}
	t := table{state: 1, titles: []string{"JOB", "STATE", "MOMENT", "LATE>", "DONE>", "TOOK>", "MESSAGE"}}
	for _, j := range jobs {
		moment, late, took := "by hand", "", ""
		if !j.At.IsZero() && j.At.Equal(j.At.Truncate(time.Minute)) { // moments are whole minutes
			moment = j.At.UTC().Format("2006-01-02T15:04Z")
			if d := j.Created.Sub(j.At); d >= time.Minute {
				late = span(d)
			}
		}
		if !j.Status.Finished.IsZero() {
			took = span(j.Status.Finished.Sub(j.Created))
		}
		t.add(name{wordJob, j.Cluster, j.Name}.short(), j.Status.State, moment, late,
			share(strconv.Itoa(j.Status.Succeeded), strconv.Itoa(j.Status.Total)), took,
			shortTasks(oneLine(j.Status.Message)))
	}
	return a.printTable(t)
}

func concurrencyText(c cluster.CronConcurrency) string {
	switch c {
	case cluster.CronAllow:
		return "the next one runs beside it"
	case cluster.CronReplace:
		return "it is cancelled for the next one"
	case cluster.CronForbid:
	}
	return "the next moment is missed"
}

func missedText(v api.CronView) string {
	within := time.Duration(cmp.Or(v.Within, cluster.DefaultCronWithin))
	switch v.Missed {
	case cluster.CronSkip:
		return "are skipped"
	case cluster.CronAll:
		return "each get a job, if they are no older than " + within.String()
	case cluster.CronOnce:
	}
	return "get one job for all of them, if the newest is no older than " + within.String()
}
