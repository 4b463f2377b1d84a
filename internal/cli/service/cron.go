package service

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/fetch"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cli/tables"
	"github.com/berthd/berth/internal/cli/trouble"
	"github.com/berthd/berth/internal/cli/wait"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/wording"
)

// cronListCommand is `berth cron ls`.
type cronListCommand struct {
	*session.Session
	labels fetch.Labels
}

func newCronListCommand(sess *session.Session) *cobra.Command {
	l := &cronListCommand{Session: sess}
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List crons, the one with the next moment first",
		Args: session.Arguments(0, 0, ""), RunE: l.labels.WithClient(sess, l.run),
	}
	l.labels.AddFlags(cmd, "crons")
	return cmd
}

func (l *cronListCommand) run(ctx context.Context, c *client.Client, _ []string) error {
	crons, err := session.ListCrons(ctx, c, l.ChosenCluster(), l.labels.Selector())
	if err != nil {
		return err
	}
	return session.PrintList(l.Session, crons, l.labels.EmptyText("No crons."), func([]api.CronView) output.Table {
		t := CronTable(l.Session, crons)
		l.labels.AddColumns(&t, func(row int) cluster.Labels { return crons[row].Labels })
		return t
	})
}

// NewCronCommand returns the command `berth cron`.
func NewCronCommand(sess *session.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use: "cron", Short: "Show and control crons", Args: cobra.ArbitraryArgs,
		RunE: session.RunGroup,
	}
	cmd.AddCommand(newCronListCommand(sess), cronCommand(sess, "status",
		"Show a cron, its next moments and its jobs", "",
		func(ctx context.Context, c *client.Client, v api.CronView) error { return PrintCron(ctx, sess, c, v) }),
		newCronRunCommand(sess),
		cronCommand(sess, "suspend", "Suspend a cron",
			"Suspend a cron: it creates no jobs until it is resumed. Its existing jobs continue.",
			func(ctx context.Context, c *client.Client, v api.CronView) error {
				if err := c.SuspendCron(ctx, v.Cluster, v.Name, client.Condition{}); err != nil {
					return err
				}
				sess.Messagef("%s is suspended", session.CronName(v))
				return nil
			}),
		cronCommand(sess, "resume", "Resume a suspended cron",
			"Resume a suspended cron. Its missed-run policy decides about the moments that passed.",
			func(ctx context.Context, c *client.Client, v api.CronView) error {
				if err := c.ResumeCron(ctx, v.Cluster, v.Name, client.Condition{}); err != nil {
					return err
				}
				sess.Messagef("%s is resumed", session.CronName(v))
				return nil
			}),
		cronCommand(sess, "history", "List the jobs of a cron, the newest first", "",
			func(ctx context.Context, c *client.Client, v api.CronView) error {
				return printCronHistory(ctx, sess, c, v)
			}))
	return cmd
}

// cronCommand returns a command about one cron.
func cronCommand(sess *session.Session, use, short, long string,
	do func(context.Context, *client.Client, api.CronView) error,
) *cobra.Command {
	return objectCommand(sess, wording.KindCron, session.Name.Cron, do, &cobra.Command{
		Use: use + " CRON", Short: short, Long: long,
		Args: session.Arguments(1, 1, "a cron, such as backup or prod/backup"),
	})
}

// cronRunCommand is `berth cron run`.
type cronRunCommand struct {
	*session.Session
	detach bool
}

func newCronRunCommand(sess *session.Session) *cobra.Command {
	r := &cronRunCommand{Session: sess}
	cmd := cronCommand(sess, "run", "Create a job of a cron now",
		"Create a job of a cron now, even if the cron is suspended, and wait until it has succeeded. Exit\n"+
			"code 1: the job failed. An interrupt ends only the wait.",
		r.run)
	session.AddDetachFlag(cmd, &r.detach)
	return cmd
}

func (r *cronRunCommand) run(ctx context.Context, c *client.Client, v api.CronView) error {
	j, err := c.RunCron(ctx, v.Cluster, v.Name)
	if err != nil {
		return err
	}
	n := session.Name{Kind: wording.KindJob, Cluster: j.Cluster, Name: j.Name}
	r.Messagef("%s: created %s", session.CronName(v), n)
	if r.detach {
		return r.PrintDataOnly(j)
	}
	w := wait.Waiter{Session: r.Session, Client: c, Targets: []*wait.Target{{Name: n, Revision: j.Revision}}}
	return w.Await(ctx, "the job continues. See 'berth status "+n.String()+"'.")
}

// CronTable returns the table of crons in the given order.
func CronTable(sess *session.Session, crons []api.CronView) output.Table {
	t := output.Table{StateColumn: 1, Titles: []string{
		"CRON", "STATE", "SCHEDULE", "ZONE", "NEXT", "LAST JOB", "AGE>", "RUNNING>", "SUCCEEDED>", "FAILED>",
		"+CONCURRENCY", "+MISSED", "MESSAGE",
	}}
	for _, v := range crons {
		s := v.Status
		next := ""
		if at := session.NextMoment(v); !at.IsZero() {
			next = momentText(sess, v, at)
		}
		t.Add(sess.Argument(v.Cluster, v.Name), string(s.State), strings.Join(v.Schedules, "; "), v.Zone, next, s.Job,
			sess.Age(s.Made),
			output.FormatAbove(len(s.Running), 0),
			output.FormatAbove(s.Succeeded, 0), output.FormatAbove(s.Failed, 0), string(v.Concurrency),
			string(v.Missed),
			wording.OneLine(s.Message))
	}
	return t
}

// momentText formats the time until a moment, and its time in the cron's zone.
func momentText(sess *session.Session, v api.CronView, at time.Time) string {
	zone, err := time.LoadLocation(cmp.Or(v.Zone, "UTC"))
	if err != nil { // this machine does not know the zone
		zone = time.UTC
	}
	return "in " + wording.Span(at.Sub(sess.Now())) + ", " + at.In(zone).Format("Mon 15:04")
}

// PrintCron prints the status of one cron.
func PrintCron(ctx context.Context, sess *session.Session, c *client.Client, v api.CronView) error {
	if sess.WantsData() {
		return sess.PrintData(v)
	}
	if err := sess.PrintTable(CronTable(sess, []api.CronView{v})); err != nil {
		return err
	}
	facts := output.Table{Titles: []string{"", ""}, Indent: "  "}
	for i, at := range v.Status.Next {
		title := ""
		if i == 0 {
			title = "next"
		}
		facts.Add(title, at.UTC().Format("2006-01-02T15:04Z")+"  "+momentText(sess, v, at))
	}
	if v.Suspended {
		facts.Add("suspended", "'berth cron resume "+session.CronName(v).String()+"' resumes it")
	}
	facts.Add("while one runs", concurrencyText(v.Concurrency))
	facts.Add("missed moments", missedText(v))
	if err := sess.PrintTable(facts); err != nil {
		return err
	}
	troubles, err := trouble.List(ctx, c, session.CronName(v))
	if err != nil {
		return err
	}
	if err := trouble.PrintSection(sess, session.CronName(v), troubles,
		"berth cron status "+session.CronName(v).String()); err != nil {
		return err
	}
	jobs, err := fetch.ListCronJobs(ctx, c, v)
	if err != nil || len(jobs) == 0 {
		return err
	}
	sess.Printf("")
	return sess.PrintTable(tables.JobTable(sess, jobs))
}

// printCronHistory lists the jobs of a cron with their moments.
func printCronHistory(ctx context.Context, sess *session.Session, c *client.Client, v api.CronView) error {
	jobs, err := fetch.ListCronJobs(ctx, c, v)
	if err != nil {
		return err
	}
	return session.PrintList(sess, jobs,
		fmt.Sprintf("%s has created no jobs, or none of them is kept.", session.CronName(v)),
		func(jobs []api.JobView) output.Table { return historyTable(sess, jobs) })
}

func historyTable(sess *session.Session, jobs []api.JobView) output.Table {
	t := output.Table{StateColumn: 1, Titles: []string{"JOB", "STATE", "MOMENT", "LATE>", "DONE>", "TOOK>", "MESSAGE"}}
	for _, j := range jobs {
		moment, late, took := "by hand", "", ""
		if !j.At.IsZero() && j.At.Equal(j.At.Truncate(time.Minute)) { // moments are whole minutes
			moment = j.At.UTC().Format("2006-01-02T15:04Z")
			if d := j.Created.Sub(j.At); d >= time.Minute {
				late = wording.Span(d)
			}
		}
		if !j.Status.Finished.IsZero() {
			took = wording.Span(j.Status.Finished.Sub(j.Created))
		}
		t.Add(sess.Argument(j.Cluster, j.Name),
			string(j.Status.State), moment,
			late,
			output.Share(strconv.Itoa(j.Status.Succeeded), strconv.Itoa(j.Status.Total)), took,
			wording.OneLine(j.Status.Message))
	}
	return t
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
	within := cmp.Or(v.Within, cluster.DefaultCronWithin).String()
	switch v.Missed {
	case cluster.CronSkip:
		return "are skipped"
	case cluster.CronAll:
		return "each get a job, if they are no older than " + within
	case cluster.CronOnce:
	}
	return "get one job for all of them, if the newest is no older than " + within
}
