package look

import (
	"context"
	"net/http"
	"slices"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/fetch"
	"github.com/berthd/berth/internal/cli/node"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/rebalance"
	"github.com/berthd/berth/internal/cli/service"
	"github.com/berthd/berth/internal/cli/serving"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cli/tables"
	"github.com/berthd/berth/internal/cli/trouble"
	"github.com/berthd/berth/internal/cluster"
)

// NewStatusCommand returns the command `berth status`.
func NewStatusCommand(sess *session.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "status [KIND/NAME]",
		Short: "Show how everything is, trouble first, or one object",
		Long: "Show how everything is, trouble first with its cause and what to do next; or " +
			"one service, job, cron, task, node, cluster or definition.",
		Args: session.Arguments(0, 1, "at most one object, such as service/web"),
		ValidArgsFunction: sess.CompleteObjects(1, session.KindService, session.KindJob, session.KindCron,
			session.KindTask, session.KindNode, session.KindCluster,
			session.KindDefinition),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := sess.Connect()
			if err != nil {
				return err
			}
			if len(args) == 0 {
				return overview(cmd.Context(), sess, c)
			}
			n, err := session.ParseName(cmd, args[0], session.KindService, session.KindJob, session.KindCron,
				session.KindTask, session.KindNode, session.KindCluster,
				session.KindDefinition)
			if err != nil {
				return err
			}
			return statusOf(cmd.Context(), sess, c, n)
		},
	}
}

// statusOf shows one object.
func statusOf(ctx context.Context, sess *session.Session, c *client.Client, n session.Name) error {
	switch n.Kind {
	case session.KindService:
		return serviceStatus(ctx, sess, c, n)
	case session.KindJob:
		return jobStatus(ctx, sess, c, n)
	case session.KindCron:
		v, err := n.Cron(ctx, c)
		if err != nil {
			return err
		}
		return service.CronStatus(ctx, sess, c, v)
	case session.KindTask:
		return taskStatus(ctx, sess, c, n.Name)
	case session.KindNode:
		return node.Show(ctx, sess, c, n.Name)
	case session.KindDefinition:
		ref, err := cluster.ParseRef(n.Name)
		if err != nil {
			return err
		}
		return definitionStatus(ctx, sess, c, ref)
	}
	v, err := session.ClusterNamed(ctx, c, n.Name)
	if err != nil {
		return err
	}
	return printManifest(sess, v, struct {
		Kind cluster.Kind `json:"kind"`
		api.Cluster
	}{cluster.KindCluster, v.Cluster})
}

// printManifest prints what has no table as a manifest that could be applied again, or as data the view.
func printManifest(sess *session.Session, view, manifest any) error {
	if sess.WantsData() {
		return sess.PrintData(view)
	}
	plain := *sess
	plain.Format, plain.Template = output.OutputYAML, nil
	return plain.PrintData(manifest)
}

func definitionStatus(ctx context.Context, sess *session.Session, c *client.Client, ref cluster.Ref) error {
	if ref.Version == 0 {
		versions, _, err := client.All(ctx, client.ListOptions{},
			func(ctx context.Context, o client.ListOptions) (api.Page[api.DefinitionView], error) {
				return c.DefinitionVersions(ctx, ref.Name, o)
			})
		if client.StatusOf(err) == http.StatusNotFound {
			return session.UnknownDefinition(ctx, c, ref)
		}
		if err != nil {
			return err
		}
		for _, v := range versions {
			ref.Version = max(ref.Version, v.Version)
		}
	}
	v, err := c.Definition(ctx, ref)
	if client.StatusOf(err) == http.StatusNotFound {
		return session.UnknownDefinition(ctx, c, ref)
	}
	if err != nil {
		return err
	}
	return printManifest(sess, v, struct {
		Kind cluster.Kind `json:"kind"`
		api.TaskDefinition
	}{cluster.KindTaskDefinition, v.TaskDefinition})
}

// mostCauses bounds for how many failed jobs the overview looks for the task that tells why.
const mostCauses = 5

// overview shows everything.
func overview(ctx context.Context, sess *session.Session, c *client.Client) error {
	all, err := fetch.All(ctx, c)
	if err != nil {
		return err
	}
	if sess.WantsData() {
		return sess.PrintData(fetch.Everything{
			Status: all.Status, Services: output.NonNil(all.Services), Jobs: output.NonNil(all.Jobs),
			Nodes: output.NonNil(all.Nodes),
			Tasks: output.NonNil(all.Tasks), Crons: all.Crons,
		})
	}
	for i, v := range all.Jobs {
		if v.Status.State != "failed" || i >= mostCauses {
			continue
		}
		tasks, err := fetch.TasksOf(ctx, c, session.Name{Kind: session.KindJob, Cluster: v.Cluster, Name: v.Name}, true)
		if err != nil {
			return err
		}
		all.Tasks = append(all.Tasks, session.Newest(tasks)...)
	}
	printAlarms(sess, all.Status)
	if troubles := trouble.AllTroubles(sess, all); len(troubles) > 0 {
		sess.Printf("Trouble:")
		if err := trouble.PrintTroubles(sess, troubles); err != nil {
			return err
		}
		sess.Printf("")
	}
	if len(all.Services) > 0 {
		if err := sess.PrintTable(tables.ServiceTable(sess, all.Services).Brief()); err != nil {
			return err
		}
		sess.Printf("")
	}
	if len(all.Jobs) > 0 {
		if err := sess.PrintTable(tables.JobTable(sess, all.Jobs).Brief()); err != nil {
			return err
		}
		sess.Printf("")
	}
	if len(all.Crons) > 0 {
		if err := sess.PrintTable(service.CronTable(sess, all.Crons)); err != nil {
			return err
		}
		sess.Printf("")
	}
	if len(all.Services)+len(all.Jobs)+len(all.Crons) == 0 {
		sess.Printf("Nothing runs here yet: start something with 'berth run FILE'.")
	}
	sess.Printf("%s", tables.NodesLine(all.Nodes))
	if s := all.Status; s != nil && s.Rebalancing != nil {
		sess.Printf("%s; see 'berth rebalance status'", rebalance.BriefText(s.Rebalancing))
	}
	if s := all.Status; s != nil && (s.Servers.Total > 1 || s.Servers.Up < s.Servers.Total) {
		sess.Printf("%s", serving.ServersLine(*s))
	}
	return nil
}

// printAlarms says first what concerns the whole.
func printAlarms(sess *session.Session, s *api.Status) {
	if s == nil || len(s.Alarms) == 0 {
		return
	}
	sess.Printf("Alarms:")
	for _, text := range s.Alarms {
		for i, line := range output.Wrap(output.OneLine(text), output.TerminalWidth(sess.Stdout)-len("  ! ")) {
			mark := "  ! "
			if i > 0 {
				mark = "    "
			}
			if sess.Colors(sess.Stdout) {
				line = output.Colored(line, output.Red)
			}
			sess.Printf("%s%s", mark, line)
		}
	}
	sess.Printf("")
}

func serviceStatus(ctx context.Context, sess *session.Session, c *client.Client, n session.Name) error {
	v, err := n.Service(ctx, c)
	if err != nil {
		return err
	}
	if sess.WantsData() {
		return sess.PrintData(v)
	}
	n.Cluster = v.Cluster
	tasks, err := fetch.TasksOf(ctx, c, n, false)
	if err != nil {
		return err
	}
	var mixed map[cluster.OwnerRef]api.ServiceView
	if len(v.Status.Versions) > 1 {
		mixed = map[cluster.OwnerRef]api.ServiceView{v.Owner(): v}
	}
	found := trouble.ServiceTrouble(v, tasks)
	if found == nil && !slices.Contains([]string{"stopped", "stopping", "deleting"}, v.Status.State) {
		found = trouble.QuietTrouble(v)
	}
	return ownerStatus(ctx, sess, c, tables.ServiceTable(sess, []api.ServiceView{v}), ownerTasks{tasks, mixed}, found)
}

func jobStatus(ctx context.Context, sess *session.Session, c *client.Client, n session.Name) error {
	v, err := n.Job(ctx, c)
	if err != nil {
		return err
	}
	if sess.WantsData() {
		return sess.PrintData(v)
	}
	n.Cluster = v.Cluster
	tasks, err := fetch.TasksOf(ctx, c, n, true)
	if err != nil {
		return err
	}
	tasks = session.Newest(tasks)
	return ownerStatus(ctx, sess, c, tables.JobTable(sess, []api.JobView{v}), ownerTasks{tasks, nil},
		trouble.JobTrouble(v, tasks))
}

// ownerTasks are the tasks of an owner, and the owner where tasks of several versions are to be told apart.
type ownerTasks struct {
	list  []api.TaskView
	mixed map[cluster.OwnerRef]api.ServiceView
}

// ownerStatus shows an owner, its trouble with the end of the output that tells of it, and its tasks.
func ownerStatus(ctx context.Context, sess *session.Session, c *client.Client, head output.Table, tasks ownerTasks,
	tr *trouble.Trouble,
) error {
	if err := sess.PrintTable(head); err != nil {
		return err
	}
	if tr != nil {
		if tr.Next == "berth status "+tr.Object { // this is it
			tr.Next = ""
			if tr.Task != nil {
				tr.Next = "berth status task/" + session.ShortTask(tr.Task.ID)
			}
		}
		sess.Printf("")
		sess.Printf("Trouble:")
		if err := trouble.PrintTroubles(sess, []trouble.Trouble{*tr}); err != nil {
			return err
		}
		if tr.Task != nil {
			trouble.PrintTail(ctx, sess, c, *tr.Task, sess.Stdout)
		}
	}
	if len(tasks.list) == 0 {
		return nil
	}
	sess.Printf("")
	return tables.PrintTasks(sess, tasks.list, tasks.mixed)
}

// taskStatus shows a task's attempts and how its containers are.
func taskStatus(ctx context.Context, sess *session.Session, c *client.Client, text string) error {
	found, err := session.FindTask(ctx, c, text)
	if err != nil {
		return err
	}
	attempts, err := fetch.AttemptsOf(ctx, c, found)
	if err != nil {
		return err
	}
	if sess.WantsData() {
		return sess.PrintData(output.NonNil(attempts))
	}
	if err := sess.PrintTable(tables.TaskTable(sess, attempts, nil)); err != nil {
		return err
	}
	if len(attempts) == 0 {
		return nil
	}
	latest := attempts[0]
	if len(latest.Containers) > 0 {
		sess.Printf("")
		t := output.Table{State: 1, Titles: []string{"CONTAINER", "STATE", "PID>", "RESTARTS>", "AGE>", "LAST EXIT"}}
		for _, s := range latest.Containers {
			exit := ""
			if s.Exit != nil {
				exit = trouble.ExitText(*s.Exit)
			}
			t.Add(s.Name, string(s.State), trouble.Above(s.Pid, 0), trouble.Above(s.Restarts, 0), sess.Age(s.Started),
				exit)
		}
		if err := sess.PrintTable(t); err != nil {
			return err
		}
	}
	if next := trouble.NextForTask(latest); next != "" {
		sess.Printf("")
		sess.Printf("→ %s", next)
	}
	if latest.Misplaced != "" {
		sess.Printf("")
		sess.Printf("It should not be there: %s.", output.OneLine(latest.Misplaced))
	}
	if latest.State == cluster.StatePending && len(attempts) > 1 {
		latest = attempts[1] // why it has to wait again
	}
	if trouble.Rank(latest) == 0 {
		trouble.PrintTail(ctx, sess, c, latest, sess.Stdout)
	}
	return nil
}
