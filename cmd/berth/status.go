package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
)

func (a *app) newStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status [KIND/NAME]",
		Short: "Show how everything is, trouble first, or one object",
		Long: "Show how everything is, trouble first with its cause and what to do next; or " +
			"one service, job, cron, task, node, cluster or definition.",
		Args: arguments(0, 1, "at most one object, such as service/web"),
		ValidArgsFunction: a.completeObjects(1, wordService, wordJob, wordCron, wordTask, wordNode, wordCluster,
			wordDefinition),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			if len(args) == 0 {
				return a.overview(cmd.Context(), c)
			}
			n, err := parseName(cmd, args[0], wordService, wordJob, wordCron, wordTask, wordNode, wordCluster,
				wordDefinition)
			if err != nil {
				return err
			}
			return a.statusOf(cmd.Context(), c, n)
		},
	}
}

// statusOf shows one object.
func (a *app) statusOf(ctx context.Context, c *client.Client, n name) error {
	switch n.kind {
	case wordService:
		return a.serviceStatus(ctx, c, n)
	case wordJob:
		return a.jobStatus(ctx, c, n)
	case wordCron:
		v, err := n.cron(ctx, c)
		if err != nil {
			return err
		}
		return a.cronStatus(ctx, c, v)
	case wordTask:
		return a.taskStatus(ctx, c, n.name)
	case wordNode:
		return a.nodeStatus(ctx, c, n.name)
	case wordDefinition:
		ref, err := cluster.ParseRef(n.name)
		if err != nil {
			return err
		}
		return a.definitionStatus(ctx, c, ref)
	}
	v, err := clusterNamed(ctx, c, n.name)
	if err != nil {
		return err
	}
	return a.printManifest(v, struct {
		Kind cluster.Kind `json:"kind"`
		api.Cluster
	}{cluster.KindCluster, v.Cluster})
}

// printManifest prints what has no table as a manifest that could be applied again, or as data the view.
func (a *app) printManifest(view, manifest any) error {
	if a.data() {
		return a.printData(view)
	}
	plain := *a
	plain.output, plain.shape = outputYAML, nil
	return plain.printData(manifest)
}

func (a *app) definitionStatus(ctx context.Context, c *client.Client, ref cluster.Ref) error {
	if ref.Version == 0 {
		versions, _, err := client.All(ctx, client.ListOptions{},
			func(ctx context.Context, o client.ListOptions) (api.Page[api.DefinitionView], error) {
				return c.DefinitionVersions(ctx, ref.Name, o)
			})
		if client.StatusOf(err) == http.StatusNotFound {
			return unknownDefinition(ctx, c, ref)
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
		return unknownDefinition(ctx, c, ref)
	}
	if err != nil {
		return err
	}
	return a.printManifest(v, struct {
		Kind cluster.Kind `json:"kind"`
		api.TaskDefinition
	}{cluster.KindTaskDefinition, v.TaskDefinition})
}

// everything is what an overview shows, and prints as JSON.
type everything struct {
	// Status is the head: alarms, servers, the store; nil where the server is too old to tell.
	Status   *api.Status       `json:"status,omitempty"`
	Services []api.ServiceView `json:"services"`
	Jobs     []api.JobView     `json:"jobs"`
	Nodes    []api.NodeView    `json:"nodes"`
	Tasks    []api.TaskView    `json:"tasks"`
	Crons    []api.CronView    `json:"crons,omitempty"`
}

func lookAtAll(ctx context.Context, c *client.Client) (all everything, err error) {
	none := client.ListOptions{}
	switch head, err := c.Status(ctx); {
	case err == nil:
		all.Status = &head
	case client.StatusOf(err) != http.StatusNotFound:
		return all, err
	}
	if all.Services, _, err = client.All(ctx, none,
		func(ctx context.Context, o client.ListOptions) (api.Page[api.ServiceView], error) {
			return c.Services(ctx, "", o)
		}); err != nil {
		return all, err
	}
	if all.Jobs, _, err = client.All(ctx, none,
		func(ctx context.Context, o client.ListOptions) (api.Page[api.JobView], error) {
			return c.Jobs(ctx, "", o)
		}); err != nil {
		return all, err
	}
	// an older server has none
	if all.Crons, err = allCrons(ctx, c, ""); err != nil && client.StatusOf(err) != http.StatusNotFound {
		return all, err
	}
	if all.Nodes, err = allNodes(ctx, c); err != nil {
		return all, err
	}
	tasks, err := allTasks(ctx, c, client.TaskFilter{})
	all.Tasks = newest(tasks)
	slices.SortStableFunc(all.Services, func(x, y api.ServiceView) int {
		return cmp.Or(cmp.Compare(stateRank(x.Status.State), stateRank(y.Status.State)),
			cmp.Compare(x.Cluster, y.Cluster), cmp.Compare(x.Name, y.Name))
	})
	slices.SortStableFunc(all.Jobs, func(x, y api.JobView) int {
		return cmp.Or(cmp.Compare(stateRank(x.Status.State), stateRank(y.Status.State)),
			cmp.Compare(x.Cluster, y.Cluster), cmp.Compare(x.Name, y.Name))
	})
	return all, err
}

// stateRank orders the states of services and jobs by how much they need somebody's attention.
func stateRank(state string) int {
	order := []string{
		"failing", "failed", "degraded", "pending", "starting", "rolling-out", "stopping", "deleting", "running",
		"healthy", "succeeded", "stopped", "cancelled",
	}
	if i := slices.Index(order, state); i >= 0 {
		return i
	}
	return len(order)
}

// mostCauses bounds for how many failed jobs the overview looks for the task that tells why.
const mostCauses = 5

// overview shows everything.
func (a *app) overview(ctx context.Context, c *client.Client) error {
	all, err := lookAtAll(ctx, c)
	if err != nil {
		return err
	}
	if a.data() {
		return a.printData(everything{
			all.Status, emptyIsList(all.Services), emptyIsList(all.Jobs), emptyIsList(all.Nodes),
			emptyIsList(all.Tasks), all.Crons,
		})
	}
	for i, v := range all.Jobs {
		if v.Status.State != "failed" || i >= mostCauses {
			continue
		}
		tasks, err := tasksOf(ctx, c, name{wordJob, v.Cluster, v.Name}, true)
		if err != nil {
			return err
		}
		all.Tasks = append(all.Tasks, newest(tasks)...)
	}
	a.printAlarms(all.Status)
	if troubles := a.allTroubles(all); len(troubles) > 0 {
		a.say("Trouble:")
		if err := a.printTroubles(troubles); err != nil {
			return err
		}
		a.say("")
	}
	if len(all.Services) > 0 {
		if err := a.printTable(a.serviceTable(all.Services).brief()); err != nil {
			return err
		}
		a.say("")
	}
	if len(all.Jobs) > 0 {
		if err := a.printTable(a.jobTable(all.Jobs).brief()); err != nil {
			return err
		}
		a.say("")
	}
	if len(all.Crons) > 0 {
		if err := a.printTable(a.cronTable(all.Crons)); err != nil {
			return err
		}
		a.say("")
	}
	if len(all.Services)+len(all.Jobs)+len(all.Crons) == 0 {
		a.say("Nothing runs here yet: start something with 'berth run FILE'.")
	}
	a.say("%s", nodesLine(all.Nodes))
	if s := all.Status; s != nil && s.Rebalancing != nil {
		a.say("%s; see 'berth rebalance status'", briefText(s.Rebalancing))
	}
	if s := all.Status; s != nil && (s.Servers.Total > 1 || s.Servers.Up < s.Servers.Total) {
		a.say("%s", serversLine(*s))
	}
	return nil
}

// printAlarms says first what concerns the whole.
func (a *app) printAlarms(s *api.Status) {
	if s == nil || len(s.Alarms) == 0 {
		return
	}
	a.say("Alarms:")
	for _, text := range s.Alarms {
		for i, line := range wrapped(oneLine(text), terminalWidth(a.stdout)-len("  ! ")) {
			mark := "  ! "
			if i > 0 {
				mark = "    "
			}
			if a.colors(a.stdout) {
				line = colored(line, red)
			}
			a.say("%s%s", mark, line)
		}
	}
	a.say("")
}

// nodesLine counts nodes by state: "3 nodes: 2 ready, 1 down; 4.5 of 12 CPUs and …".
func nodesLine(nodes []api.NodeView) string {
	if len(nodes) == 0 {
		return "No nodes."
	}
	states := map[cluster.NodeState]int{}
	var total, reserved cluster.Demand
	for _, n := range nodes {
		states[n.State]++
		if n.State == cluster.NodeReady {
			total, reserved = total.Add(n.Total), reserved.Add(n.Reserved)
		}
	}
	var parts []string
	for _, s := range []cluster.NodeState{
		cluster.NodeReady, cluster.NodeDown, cluster.NodeSuspect, cluster.NodeJoining, cluster.NodeDraining,
		cluster.NodeDrained,
		cluster.NodeAbsent,
	} {
		if states[s] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", states[s], s))
		}
	}
	return fmt.Sprintf("%s: %s; reserved %s of %s CPUs, %s of %s memory", count(len(nodes), "node"),
		strings.Join(parts, ", "),
		cpus(reserved.CPU), cpus(total.CPU), reserved.Memory, total.Memory)
}

// serviceTable shows services in the order given. Their mode is shown where it is not the usual one, their versions
// while there are several.
func (a *app) serviceTable(services []api.ServiceView) table {
	t := table{state: 1, titles: []string{
		"SERVICE", "STATE", "HEALTHY>", "DEFINITION", "MODE", "VERSIONS", "AGE>", "+RUNNING>", "+UPDATED>", "+WAITING>",
		"+PRIORITY>", "MESSAGE",
	}}
	for _, v := range services {
		s := v.Status
		mode, versions := strings.TrimPrefix(string(v.Mode), string(cluster.ModeReplicas)), ""
		if mode == "" && v.Scaling != nil {
			mode = "scaled"
		}
		if len(s.Versions) > 1 {
			versions = healthyOf(s.Versions)
		}
		t.add(serviceName(v).short(), s.State,
			share(strconv.Itoa(s.Healthy), strconv.Itoa(s.Desired)), v.Definition.String(), mode, versions,
			a.age(v.Created),
			strconv.Itoa(s.Running), strconv.Itoa(s.Updated), strconv.Itoa(s.Waiting), strconv.Itoa(v.Priority),
			shortTasks(oneLine(s.Message)))
	}
	return t
}

// jobTable shows jobs in the order given.
func (a *app) jobTable(jobs []api.JobView) table {
	t := table{state: 1, titles: []string{
		"JOB", "STATE", "DONE>", "RUNNING>", "FAILED>", "AGE>", "+PENDING>",
		"+CANCELLED>", "+PRIORITY>", "MESSAGE",
	}}
	for _, v := range jobs {
		s := v.Status
		t.add(strings.TrimPrefix(name{wordJob, v.Cluster, v.Name}.String(), wordJob+"/"), s.State,
			share(strconv.Itoa(s.Succeeded), strconv.Itoa(s.Total)), above(s.Running, 0), above(s.Failed, 0),
			a.age(v.Created),
			strconv.Itoa(s.Pending), strconv.Itoa(s.Cancelled), strconv.Itoa(v.Priority),
			shortTasks(oneLine(s.Message)))
	}
	return t
}

func (a *app) serviceStatus(ctx context.Context, c *client.Client, n name) error {
	v, err := n.service(ctx, c)
	if err != nil {
		return err
	}
	if a.data() {
		return a.printData(v)
	}
	n.cluster = v.Cluster
	tasks, err := tasksOf(ctx, c, n, false)
	if err != nil {
		return err
	}
	var mixed map[cluster.OwnerRef]api.ServiceView
	if len(v.Status.Versions) > 1 {
		mixed = map[cluster.OwnerRef]api.ServiceView{v.Owner(): v}
	}
	found := serviceTrouble(v, tasks)
	if found == nil && !slices.Contains([]string{"stopped", "stopping", "deleting"}, v.Status.State) {
		found = quietTrouble(v)
	}
	return a.ownerStatus(ctx, c, a.serviceTable([]api.ServiceView{v}), ownerTasks{tasks, mixed}, found)
}

func (a *app) jobStatus(ctx context.Context, c *client.Client, n name) error {
	v, err := n.job(ctx, c)
	if err != nil {
		return err
	}
	if a.data() {
		return a.printData(v)
	}
	n.cluster = v.Cluster
	tasks, err := tasksOf(ctx, c, n, true)
	if err != nil {
		return err
	}
	tasks = newest(tasks)
	return a.ownerStatus(ctx, c, a.jobTable([]api.JobView{v}), ownerTasks{tasks, nil}, jobTrouble(v, tasks))
}

// ownerTasks are the tasks of an owner, and the owner where tasks of several versions are to be told apart.
type ownerTasks struct {
	list  []api.TaskView
	mixed map[cluster.OwnerRef]api.ServiceView
}

// ownerStatus shows an owner, its trouble with the end of the output that tells of it, and its tasks.
func (a *app) ownerStatus(ctx context.Context, c *client.Client, head table, tasks ownerTasks, tr *trouble) error {
	if err := a.printTable(head); err != nil {
		return err
	}
	if tr != nil {
		if tr.next == "berth status "+tr.object { // this is it
			tr.next = ""
			if tr.task != nil {
				tr.next = "berth status task/" + shortTask(tr.task.ID)
			}
		}
		a.say("")
		a.say("Trouble:")
		if err := a.printTroubles([]trouble{*tr}); err != nil {
			return err
		}
		if tr.task != nil {
			a.printTail(ctx, c, *tr.task, a.stdout)
		}
	}
	if len(tasks.list) == 0 {
		return nil
	}
	a.say("")
	return a.printTasks(tasks.list, tasks.mixed)
}

// attemptsOf returns all attempts of a task that are known: one that it waits for first, then the newest.
func attemptsOf(ctx context.Context, c *client.Client, t api.TaskView) ([]api.TaskView, error) {
	all, err := tasksOf(ctx, c, ownerName(t.Owner), true)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(v api.TaskView) bool { return v.ID != t.ID })
	if !slices.ContainsFunc(all, func(v api.TaskView) bool { return v.Attempt == t.Attempt }) {
		all = append(all, t)
	}
	slices.SortStableFunc(all, func(x, y api.TaskView) int {
		return cmp.Or(-boolCompare(x.State == cluster.StatePending, y.State == cluster.StatePending),
			cmp.Compare(y.Attempt, x.Attempt))
	})
	return all, nil
}

func boolCompare(x, y bool) int {
	switch {
	case x == y:
		return 0
	case x:
		return 1
	}
	return -1
}

// taskStatus shows a task's attempts and how its containers are.
func (a *app) taskStatus(ctx context.Context, c *client.Client, text string) error {
	found, err := findTask(ctx, c, text)
	if err != nil {
		return err
	}
	attempts, err := attemptsOf(ctx, c, found)
	if err != nil {
		return err
	}
	if a.data() {
		return a.printData(emptyIsList(attempts))
	}
	if err := a.printTable(a.taskTable(attempts, nil)); err != nil {
		return err
	}
	if len(attempts) == 0 {
		return nil
	}
	latest := attempts[0]
	if len(latest.Containers) > 0 {
		a.say("")
		t := table{state: 1, titles: []string{"CONTAINER", "STATE", "PID>", "RESTARTS>", "AGE>", "LAST EXIT"}}
		for _, s := range latest.Containers {
			exit := ""
			if s.Exit != nil {
				exit = exitText(*s.Exit)
			}
			t.add(s.Name, string(s.State), above(s.Pid, 0), above(s.Restarts, 0), a.age(s.Started), exit)
		}
		if err := a.printTable(t); err != nil {
			return err
		}
	}
	if next := nextForTask(latest); next != "" {
		a.say("")
		a.say("→ %s", next)
	}
	if latest.Misplaced != "" {
		a.say("")
		a.say("It should not be there: %s.", oneLine(latest.Misplaced))
	}
	if latest.State == cluster.StatePending && len(attempts) > 1 {
		latest = attempts[1] // why it has to wait again
	}
	if rank(latest) == 0 {
		a.printTail(ctx, c, latest, a.stdout)
	}
	return nil
}
