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
	"github.com/berthd/berth/internal/wording"
)

// psCommand is `berth ps`.
type psCommand struct {
	*session.Session
	filter client.TaskFilter
	cron   string
}

// NewPsCommand returns the command `berth ps`.
func NewPsCommand(sess *session.Session) *cobra.Command {
	p := &psCommand{Session: sess}
	cmd := &cobra.Command{
		Use:   "ps",
		Short: "List tasks, problems first",
		Long: "List tasks, problems first. While the tasks of a service have several versions, VERSION shows new,\n" +
			"old or canary.",
		Args: session.Arguments(0, 0, ""),
		RunE: p.run,
	}
	sess.AddTaskFilterFlags(cmd, &p.filter)
	cmd.Flags().StringVar(&p.cron, "cron", "", "only tasks of jobs of this `cron`")
	cmd.Flags().StringVar(&p.filter.State, "state", "", "only tasks in this `state`, such as running")
	cmd.Flags().BoolVarP(&p.filter.All, "all", "a", false, "include ended attempts")
	sess.CompleteFlags(cmd, map[string]string{"cron": wording.KindCron})
	session.RegisterCompletion(cmd, "state",
		cobra.FixedCompletions(enum.Words(reflect.TypeFor[cluster.State]()), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (p *psCommand) run(cmd *cobra.Command, _ []string) error {
	c, err := p.Connect()
	if err != nil {
		return err
	}
	tasks, err := session.ListTasks(cmd.Context(), c, p.filter)
	if err != nil {
		return err
	}
	if len(tasks) == 0 {
		if err := session.CheckFilter(cmd.Context(), c, p.filter.Node, p.filter.Cluster); err != nil {
			return err
		}
	}
	if p.cron != "" {
		if tasks, err = filterByCron(cmd, c, tasks, p.cron); err != nil {
			return err
		}
	}
	return tables.PrintTasks(p.Session, tasks, tables.ReadMixedVersions(cmd.Context(), c, tasks))
}

// filterByCron keeps the tasks of the jobs that a cron made.
func filterByCron(cmd *cobra.Command, c *client.Client, tasks []api.TaskView, text string) ([]api.TaskView, error) {
	n, err := session.ParseName(cmd, text, wording.KindCron)
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
	return slices.DeleteFunc(tasks, func(t api.TaskView) bool { return !made[t.Owner] }), nil
}
