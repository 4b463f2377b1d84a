package query

import (
	"reflect"
	"slices"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/fetch"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cli/tables"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/enum"
	"github.com/berthd/berth/internal/taskview"
	"github.com/berthd/berth/internal/wording"
)

// psCommand is `berth ps`.
type psCommand struct {
	*session.Session
	filter client.TaskFilter
	state  string // a word of taskview.States
	cron   string
	labels fetch.Labels
}

// NewPsCommand returns the command `berth ps`.
func NewPsCommand(sess *session.Session) *cobra.Command {
	p := &psCommand{Session: sess}
	cmd := &cobra.Command{
		Use:   "ps",
		Short: "List tasks, problems first",
		Long: "List tasks, problems first: tasks that have not ended, and failures of the last hour, at most the\n" +
			"newest 10 of a service or job. --all and --state also list the other ended tasks. While the tasks of\n" +
			"a service have several versions, VERSION shows new, old or canary.",
		Args: session.Arguments(0, 0, ""),
		RunE: p.run,
	}
	sess.AddTaskFilterFlags(cmd, &p.filter)
	cmd.Flags().StringVar(&p.cron, "cron", "", "only tasks of jobs of this `cron`")
	cmd.Flags().StringVar(&p.state, "state", "", "only tasks with this `STATE`, such as running or healthy")
	cmd.Flags().BoolVarP(&p.filter.All, "all", "a", false, "include all ended tasks and attempts")
	p.labels.AddFlags(cmd, "tasks of services and jobs")
	sess.CompleteFlags(cmd, map[string]string{"cron": wording.KindCron})
	session.RegisterCompletion(cmd, "state",
		cobra.FixedCompletions(taskview.States(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (p *psCommand) run(cmd *cobra.Command, _ []string) error {
	if err := p.ParseTaskFilter(cmd, &p.filter); err != nil {
		return err
	}
	if states := taskview.States(); p.state != "" && !slices.Contains(states, p.state) {
		return &session.UsageError{
			Command: cmd.CommandPath(), Message: session.UnknownWord("--state", p.state, states),
		}
	}
	if err := p.labels.Parse(cmd); err != nil {
		return err
	}
	c, err := p.Connect()
	if err != nil {
		return err
	}
	list := fetch.CurrentTasks{
		Now: p.Now(), All: p.filter.All || p.state != "", Selector: p.labels.Selector(),
	}
	if slices.Contains(enum.Words(reflect.TypeFor[cluster.State]()), p.state) {
		p.filter.State = p.state // the server lists only these; the STATE of some of them is another word
	} else if p.state != "" {
		list.Keep = append(list.Keep, func(t api.TaskView) bool { return taskview.State(t) == p.state })
	}
	if p.cron != "" {
		made, err := madeByCron(p.Session, cmd, c, p.cron)
		if err != nil {
			return err
		}
		list.Keep = append(list.Keep, made)
	}
	var owners fetch.OwnerLabels
	if p.labels.HasColumns() {
		if owners, err = fetch.ReadOwnerLabels(cmd.Context(), c, p.filter.Cluster); err != nil {
			return err
		}
	}
	if err := list.Read(cmd.Context(), c, p.filter); err != nil {
		return err
	}
	if len(list.Tasks)+list.Hidden == 0 {
		f := session.Filter{
			Cluster: p.filter.Cluster, Service: p.filter.Service, Job: p.filter.Job, Node: p.filter.Node,
		}
		if err := f.CheckExists(cmd.Context(), c); err != nil {
			return err
		}
	}
	options := tables.TaskOptions{
		Mixed: tables.ReadMixedVersions(cmd.Context(), c, list.Tasks), Labels: &p.labels, OwnerLabels: owners,
	}
	return tables.PrintCurrentTasks(p.Session, &list, options, "-a")
}

// madeByCron returns the condition that a task is of a job that a cron made.
func madeByCron(sess *session.Session, cmd *cobra.Command, c *client.Client, text string) (func(api.TaskView) bool,
	error,
) {
	n, err := sess.ParseObject(cmd, text, wording.KindCron)
	if err != nil {
		return nil, err
	}
	v, err := n.Cron(cmd.Context(), c)
	if err != nil {
		return nil, err
	}
	jobs, err := fetch.ListCronJobs(cmd.Context(), c, v)
	if err != nil {
		return nil, err
	}
	made := map[cluster.OwnerRef]bool{}
	for _, j := range jobs {
		made[j.Owner()] = true
	}
	return func(t api.TaskView) bool { return made[t.Owner] }, nil
}
