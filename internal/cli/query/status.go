// Package query implements the commands that read objects: status, ps, explain, inspect and events.
package query

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/endpoint"
	"github.com/berthd/berth/internal/cli/fetch"
	"github.com/berthd/berth/internal/cli/machine"
	"github.com/berthd/berth/internal/cli/node"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/rebalance"
	"github.com/berthd/berth/internal/cli/service"
	"github.com/berthd/berth/internal/cli/serving"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cli/tables"
	"github.com/berthd/berth/internal/cli/trouble"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/taskview"
	"github.com/berthd/berth/internal/wording"
)

// objectKinds returns the kinds of objects that status and inspect show.
func objectKinds() []string {
	return []string{
		wording.KindService, wording.KindJob, wording.KindCron, wording.KindEndpoint, wording.KindTask,
		wording.KindNode, wording.KindPool, wording.KindProfile, wording.KindDomain, wording.KindCluster,
		wording.KindDefinition,
	}
}

// statusCommand is `berth status`.
type statusCommand struct {
	*session.Session
	labels fetch.Labels
}

// NewStatusCommand returns the command `berth status`.
func NewStatusCommand(sess *session.Session) *cobra.Command {
	s := &statusCommand{Session: sess}
	cmd := &cobra.Command{
		Use:   "status [NAME|KIND/NAME]",
		Short: "Show the state of everything, problems first, or of one object",
		Long: "Show the state of everything, problems first with their cause and the next step; or the state of one\n" +
			"service, job, cron, endpoint, task, node, pool, cluster or definition.",
		Args:              session.Arguments(0, 1, "at most one object, such as web or node/n1"),
		ValidArgsFunction: sess.CompleteObjects(1, objectKinds()...),
		RunE:              s.run,
	}
	s.labels.AddFlags(cmd, "services, jobs and crons")
	return cmd
}

func (s *statusCommand) run(cmd *cobra.Command, args []string) error {
	if err := s.labels.Parse(cmd); err != nil {
		return err
	}
	if len(args) > 0 && s.labels.Given() {
		return &session.UsageError{
			Command: cmd.CommandPath(), Message: "-l and -L are for the lists of 'berth status' without an object",
		}
	}
	c, err := s.Connect()
	if err != nil {
		return err
	}
	if len(args) == 0 {
		return s.printOverview(cmd.Context(), c)
	}
	n, err := s.FindObject(cmd, c, args[0], objectKinds()...)
	if err != nil {
		return err
	}
	return printObject(cmd.Context(), s.Session, c, n)
}

// printObject prints the status of one object.
func printObject(ctx context.Context, sess *session.Session, c *client.Client, n session.Name) error {
	switch n.Kind {
	case wording.KindService:
		return printService(ctx, sess, c, n)
	case wording.KindJob:
		return printJob(ctx, sess, c, n)
	case wording.KindCron:
		v, err := n.Cron(ctx, c)
		if err != nil {
			return err
		}
		return service.PrintCron(ctx, sess, c, v)
	case wording.KindEndpoint:
		return endpoint.Print(ctx, sess, c, n)
	case wording.KindTask:
		return printTask(ctx, sess, c, n.Name)
	case wording.KindNode:
		return node.PrintStatus(ctx, sess, c, n.Name)
	case wording.KindDomain:
		return node.PrintDomain(ctx, sess, c, n.Name)
	case wording.KindProfile:
		return machine.PrintProfile(ctx, sess, c, n.Name)
	case wording.KindPool:
		return node.PrintPool(ctx, sess, c, n.Name)
	case wording.KindDefinition:
		ref, err := cluster.ParseRef(n.Name)
		if err != nil {
			return err
		}
		return printDefinition(ctx, sess, c, ref)
	}
	v, err := session.FindCluster(ctx, c, n.Name)
	if err != nil {
		return err
	}
	return printManifest(sess, v, struct {
		Kind cluster.Kind `json:"kind"`
		api.Cluster
	}{cluster.KindCluster, v.Cluster})
}

// printManifest prints an object without a table as a manifest. For formats such as -o json it prints the view.
func printManifest(sess *session.Session, view, manifest any) error {
	if sess.WantsData() {
		return sess.PrintData(view)
	}
	text, err := output.Readable(manifest)
	if err != nil {
		return err
	}
	plain := sess.Output
	plain.Format, plain.Template = output.OutputYAML, nil
	return plain.PrintData(text)
}

func printDefinition(ctx context.Context, sess *session.Session, c *client.Client, ref cluster.Ref) error {
	if ref.Version == 0 {
		versions, _, err := client.All(ctx, client.ListOptions{},
			func(ctx context.Context, o client.ListOptions) (api.Page[api.DefinitionView], error) {
				return c.DefinitionVersions(ctx, ref.Name, o)
			})
		if client.StatusOf(err) == http.StatusNotFound {
			return session.UnknownDefinitionError(ctx, c, ref)
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
		return session.UnknownDefinitionError(ctx, c, ref)
	}
	if err != nil {
		return err
	}
	return printManifest(sess, v, struct {
		Kind cluster.Kind `json:"kind"`
		api.TaskDefinition
	}{cluster.KindTaskDefinition, v.TaskDefinition})
}

// printOverview prints the state of the whole fleet, with the services, jobs and crons that have the labels.
func (s *statusCommand) printOverview(ctx context.Context, c *client.Client) error {
	sess := s.Session
	all, err := fetch.ReadOverview(ctx, c, sess.ChosenCluster(), client.ListOptions{
		Selector: s.labels.Selector(), Brief: !sess.WantsData(),
	})
	if err != nil {
		return err
	}
	if sess.WantsData() {
		return sess.PrintData(all)
	}
	printAlarms(sess, &all.Status)
	if len(all.Troubles) > 0 {
		sess.Printf("Trouble:")
		if err := trouble.Print(sess, all.Troubles); err != nil {
			return err
		}
		sess.Printf("")
	}
	if len(all.Services) > 0 {
		t := tables.ServiceTable(sess, all.Services).WithoutMessages()
		s.labels.AddColumns(&t, func(row int) cluster.Labels { return all.Services[row].Labels })
		if err := sess.PrintTable(t); err != nil {
			return err
		}
		sess.Printf("")
	}
	if len(all.Jobs) > 0 {
		t := tables.JobTable(sess, all.Jobs).WithoutMessages()
		s.labels.AddColumns(&t, func(row int) cluster.Labels { return all.Jobs[row].Labels })
		if err := sess.PrintTable(t); err != nil {
			return err
		}
		sess.Printf("")
	}
	if len(all.Crons) > 0 {
		t := service.CronTable(sess, all.Crons)
		s.labels.AddColumns(&t, func(row int) cluster.Labels { return all.Crons[row].Labels })
		if err := sess.PrintTable(t); err != nil {
			return err
		}
		sess.Printf("")
	}
	if len(all.Services)+len(all.Jobs)+len(all.Crons) == 0 {
		sess.Printf("%s", s.labels.EmptyText("Nothing runs here yet. Start something with 'berth run FILE'."))
	}
	sess.Printf("%s", tables.NodesText(all.Nodes))
	if b := all.Status.Rebalancing; b != nil {
		sess.Printf("%s; see 'berth rebalance status'", rebalance.BriefText(b))
	}
	if n := all.Status.Servers; n.Total > 1 || n.Up < n.Total {
		sess.Printf("%s", serving.ServersLine(all.Status))
	}
	return printTarget(sess)
}

// printTarget prints which control plane the status is of.
func printTarget(sess *session.Session) error {
	to, err := sess.FindTarget()
	if err != nil {
		return err
	}
	text := "server: " + strings.Join(to.Addresses, ",")
	if to.Name != "" {
		text += " (context " + to.Name + ")"
	}
	if in := sess.ChosenCluster(); in != "" {
		text += ", cluster: " + in
	}
	sess.Messagef("%s", text)
	return nil
}

// printAlarms prints the alarms of the fleet.
func printAlarms(sess *session.Session, s *api.Status) {
	if len(s.Alarms) == 0 {
		return
	}
	sess.Printf("Alarms:")
	for _, text := range s.Alarms {
		text = sess.Shorten(wording.OneLine(text))
		for i, line := range output.Wrap(text, output.TerminalWidth(sess.Stdout)-len("  ! ")) {
			mark := "  ! "
			if i > 0 {
				mark = "    "
			}
			if sess.HasColors(sess.Stdout) {
				line = output.Colored(line, output.Red)
			}
			sess.Printf("%s%s", mark, line)
		}
	}
	sess.Printf("")
}

func printService(ctx context.Context, sess *session.Session, c *client.Client, n session.Name) error {
	v, err := n.Service(ctx, c)
	if err != nil {
		return err
	}
	if sess.WantsData() {
		return sess.PrintData(v)
	}
	n.Cluster = v.Cluster
	tasks, err := fetch.ListTasks(ctx, c, n, false)
	if err != nil {
		return err
	}
	var mixed map[cluster.OwnerRef]api.ServiceView
	if len(v.Status.Versions) > 1 {
		mixed = map[cluster.OwnerRef]api.ServiceView{v.Owner(): v}
	}
	return printOwner(ctx, sess, c, n, []output.Table{tables.ServiceTable(sess, []api.ServiceView{v})},
		ownerTasks{tasks, mixed})
}

func printJob(ctx context.Context, sess *session.Session, c *client.Client, n session.Name) error {
	v, err := n.Job(ctx, c)
	if err != nil {
		return err
	}
	if sess.WantsData() {
		return sess.PrintData(v)
	}
	n.Cluster = v.Cluster
	most := maxStatusRows
	if sess.Format == output.OutputWide {
		most = math.MaxInt
	}
	tasks, err := tasksOfJob(ctx, c, n, v.Status.Total, most)
	if err != nil {
		return err
	}
	head := []output.Table{tables.JobTable(sess, []api.JobView{v})}
	var hidden string
	if len(v.Status.Steps) > 1 {
		steps, text := tables.StepTable(&v, most)
		head, hidden = append(head, steps), text
	}
	if err := printOwner(ctx, sess, c, n, head, ownerTasks{tasks, nil}); err != nil {
		return err
	}
	if left := v.Status.Total - len(tasks); v.Status.Total > most && left > 0 {
		hidden = strings.TrimPrefix(fmt.Sprintf("%s; %d tasks", hidden, left), "; ")
	}
	if hidden != "" {
		sess.Messagef("Not shown: %s. -o wide shows all.", hidden)
	}
	return nil
}

// maxStatusRows is how many steps of a job, and tasks in each state of interest, its status shows.
const maxStatusRows = 100

// tasksOfJob returns the newest attempts of all tasks of a job, or if it has more than most tasks, some of those that
// have failed or run.
func tasksOfJob(ctx context.Context, c *client.Client, n session.Name, total, most int) ([]api.TaskView, error) {
	if total <= most {
		tasks, err := fetch.ListTasks(ctx, c, n, true)
		return session.KeepNewest(tasks), err
	}
	var some []api.TaskView
	for _, state := range []cluster.State{cluster.StateFailed, cluster.StateStarting, cluster.StateRunning} {
		filter := fetch.TasksOf(n, false)
		filter.State = string(state)
		page, err := c.Tasks(ctx, filter, client.ListOptions{Limit: most})
		if err != nil {
			return nil, err
		}
		some = append(some, page.Items...)
	}
	return session.KeepNewest(some), nil
}

// ownerTasks are the tasks of an owner. mixedVersions has the service while tasks of several versions run.
type ownerTasks struct {
	list          []api.TaskView
	mixedVersions map[cluster.OwnerRef]api.ServiceView
}

// printOwner prints the tables of an owner, its most urgent trouble with the output that shows the cause, and its
// tasks.
func printOwner(ctx context.Context, sess *session.Session, c *client.Client, n session.Name,
	head []output.Table, tasks ownerTasks,
) error {
	for i := range head {
		if i > 0 {
			sess.Printf("")
		}
		if err := sess.PrintTable(head[i]); err != nil {
			return err
		}
	}
	tr, err := trouble.MostUrgent(ctx, c, n)
	if err != nil {
		return err
	}
	if tr != nil {
		if tr.Next == "berth status "+tr.Object { // this command itself
			tr.Next = ""
			if tr.Task != "" {
				tr.Next = "berth status task/" + string(tr.Task)
			}
		}
		sess.Printf("")
		sess.Printf("Trouble:")
		if err := trouble.Print(sess, []api.Trouble{*tr}); err != nil {
			return err
		}
		if tr.Task != "" {
			trouble.PrintTail(ctx, sess, c, tr.Task, sess.Stdout)
		}
	}
	if len(tasks.list) == 0 {
		return nil
	}
	sess.Printf("")
	return tables.PrintTasks(sess, tasks.list, tables.TaskOptions{Mixed: tasks.mixedVersions})
}

// printTask prints the attempts of a task and the state of its containers.
func printTask(ctx context.Context, sess *session.Session, c *client.Client, text string) error {
	found, err := sess.FindTask(ctx, c, text)
	if err != nil {
		return err
	}
	attempts, err := fetch.ListAttempts(ctx, c, found)
	if err != nil {
		return err
	}
	if sess.WantsData() {
		return sess.PrintData(output.EmptyIfNil(attempts))
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
		t := output.Table{StateColumn: 1, Titles: []string{
			"CONTAINER", "STATE", "PID>", "RESTARTS>", "AGE>", "LAST EXIT",
		}}
		for _, s := range latest.Containers {
			exit := ""
			if s.Exit != nil {
				exit = taskview.Exit(*s.Exit)
			}
			t.Add(s.Name, string(s.State), output.FormatAbove(s.Pid, 0), output.FormatAbove(s.Restarts, 0),
				sess.Age(s.Started), exit)
		}
		if err := sess.PrintTable(t); err != nil {
			return err
		}
	}
	if taskview.Severity(latest) <= taskview.SeverityPending {
		tr, err := trouble.MostUrgent(ctx, c, session.Name{Kind: wording.KindTask, Name: string(latest.ID)})
		if err != nil {
			return err
		}
		if tr != nil && tr.Next != "" {
			sess.Printf("")
			sess.Printf("→ %s", tr.Next)
		}
	}
	if latest.Misplaced != "" {
		sess.Printf("")
		sess.Printf("It should not be there: %s.", wording.OneLine(latest.Misplaced))
	}
	why := latest
	if latest.State == cluster.StatePending && len(attempts) > 1 {
		why = attempts[1] // the task is pending because this attempt ended
	}
	if taskview.Severity(why) == taskview.SeverityEnded {
		trouble.PrintTail(ctx, sess, c, why.ID, sess.Stdout)
	}
	return nil
}
