package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
)

// Words for kinds in arguments.
const (
	wordService    = "service"
	wordJob        = "job"
	wordDefinition = "definition"
	wordCluster    = "cluster"
	wordNode       = "node"
	wordTask       = "task"
	wordCron       = "cron"
)

// name is an argument KIND/NAME or KIND/CLUSTER/NAME.
type name struct {
	kind    string
	cluster string // "" is any
	name    string
}

// String returns the argument that the name stands for.
func (n name) String() string {
	if n.cluster == "" || n.cluster == cluster.DefaultCluster {
		return n.kind + "/" + n.name
	}
	return n.kind + "/" + n.cluster + "/" + n.name
}

// short returns the name without its kind, for tables of one kind.
func (n name) short() string { return strings.TrimPrefix(n.String(), n.kind+"/") }

// parseName reads an argument of one of the kinds. Where there is only one, its word may be left out.
func parseName(cmd *cobra.Command, text string, kinds ...string) (name, error) {
	want := make([]string, len(kinds))
	for i, k := range kinds {
		want[i] = k + "/NAME"
	}
	wrong := func(format string, args ...any) (name, error) {
		return name{}, &usageError{
			cmd.CommandPath(),
			fmt.Sprintf(format, args...) + ": want " + strings.Join(want, " or "),
		}
	}
	parts := strings.Split(text, "/")
	if len(parts) == 1 && len(kinds) == 1 && text != "" {
		return name{kind: kinds[0], name: text}, nil
	}
	if len(parts) == 1 || parts[0] == "" {
		return wrong("%q names no kind", text)
	}
	n := name{kind: kindWord(parts[0]), name: parts[len(parts)-1]}
	owned := n.kind == wordService || n.kind == wordJob || n.kind == wordCron
	switch {
	case n.kind == "":
		return wrong("%q is no kind", parts[0])
	case !slices.Contains(kinds, n.kind):
		return wrong("%s does not take a %s", cmd.CommandPath(), n.kind)
	case len(parts) == 3 && owned:
		n.cluster = parts[1]
	case len(parts) != 2:
		return wrong("%q is no name", text)
	}
	if n.name == "" || len(parts) == 3 && n.cluster == "" {
		return wrong("%q has an empty name", text)
	}
	return n, nil
}

// kindWord returns the kind that a word means, or "".
func kindWord(s string) string {
	switch strings.ToLower(s) {
	case wordService, "services", "svc":
		return wordService
	case wordJob, "jobs":
		return wordJob
	case wordDefinition, "definitions", "def", "taskdefinition":
		return wordDefinition
	case wordCluster, "clusters":
		return wordCluster
	case wordNode, "nodes":
		return wordNode
	case wordTask, "tasks":
		return wordTask
	case wordCron, "crons":
		return wordCron
	}
	return ""
}

// ambiguous is the error of a name that means several things.
func ambiguous(text string, candidates []string) error {
	const most = 10
	slices.Sort(candidates)
	if rest := len(candidates) - most; rest > 0 {
		candidates = append(candidates[:most], fmt.Sprintf("and %d more", rest))
	}
	return fmt.Errorf("%q is ambiguous: it may be %s; name one of them in full", text, strings.Join(candidates, ", "))
}

// errUnknown is what unknown returns, whatever it names.
var errUnknown = errors.New("there is no")

// unknown is the error of a name that means nothing, with those that it may have been meant for.
func unknown(kind, text string, known []string) error {
	err := fmt.Errorf("%w %s %q", errUnknown, kind, text)
	known = slices.Sorted(slices.Values(known))
	near := slices.DeleteFunc(slices.Clone(known), func(k string) bool { return !similar(k, text) })
	switch {
	case len(near) > 0 && len(near) <= 5:
		return fmt.Errorf("%w: did you mean %s?", err, strings.Join(near, " or "))
	case len(known) > 0 && len(known) <= 10:
		return fmt.Errorf("%w: there is %s", err, strings.Join(known, ", "))
	}
	if len(known) == 0 {
		return fmt.Errorf("%w: there is none at all", err)
	}
	return fmt.Errorf("%w: 'berth status' lists what there is", err)
}

// similar reports whether one name may have been meant by another.
func similar(known, text string) bool {
	known = known[strings.LastIndex(known, "/")+1:]
	return text != "" && (strings.Contains(known, text) || strings.Contains(text, known) ||
		strings.HasPrefix(known, text[:1]) && len(known) == len(text))
}

// service returns the service that an argument names.
func (n name) service(ctx context.Context, c *client.Client) (v api.ServiceView, err error) {
	all, _, err := client.All(ctx, client.ListOptions{},
		func(ctx context.Context, o client.ListOptions) (api.Page[api.ServiceView], error) {
			return c.Services(ctx, n.cluster, o)
		})
	if err != nil {
		return v, err
	}
	return pick(n, all, func(v api.ServiceView) (string, string) { return v.Cluster, v.Name })
}

// job returns the job that an argument names.
func (n name) job(ctx context.Context, c *client.Client) (v api.JobView, err error) {
	all, _, err := client.All(ctx, client.ListOptions{},
		func(ctx context.Context, o client.ListOptions) (api.Page[api.JobView], error) {
			return c.Jobs(ctx, n.cluster, o)
		})
	if err != nil {
		return v, err
	}
	return pick(n, all, func(v api.JobView) (string, string) { return v.Cluster, v.Name })
}

// cron returns the cron that an argument names.
func (n name) cron(ctx context.Context, c *client.Client) (v api.CronView, err error) {
	all, err := allCrons(ctx, c, n.cluster)
	if err != nil {
		return v, err
	}
	return pick(n, all, func(v api.CronView) (string, string) { return v.Cluster, v.Name })
}

// resolve fills in the cluster of a service, job or cron.
func (n name) resolve(ctx context.Context, c *client.Client) (name, error) {
	switch n.kind {
	case wordService:
		v, err := n.service(ctx, c)
		n.cluster = v.Cluster
		return n, err
	case wordJob:
		v, err := n.job(ctx, c)
		n.cluster = v.Cluster
		return n, err
	case wordCron:
		v, err := n.cron(ctx, c)
		n.cluster = v.Cluster
		return n, err
	}
	return n, nil
}

// pick returns the one element that is named: names are exact, for what is done to an object is meant for it.
func pick[T any](n name, all []T, nameOf func(T) (cluster, name string)) (found T, err error) {
	var hits, known []string
	for _, v := range all {
		in, own := nameOf(v)
		if own == n.name {
			found = v
			hits = append(hits, n.kind+"/"+in+"/"+own)
		}
		known = append(known, name{n.kind, in, own}.String())
	}
	switch len(hits) {
	case 0:
		return found, unknown(n.kind, strings.TrimPrefix(n.String(), n.kind+"/"), known)
	case 1:
		return found, nil
	}
	return found, ambiguous(n.kind+"/"+n.name, hits)
}

// shortTask returns a task's id as people write it: without the default cluster.
func shortTask(id cluster.TaskID) string {
	return strings.TrimPrefix(string(id), cluster.DefaultCluster+".")
}

// shortTasks writes the tasks that a sentence of the server names as people write them.
func shortTasks(text string) string {
	words := strings.Split(text, " ")
	for i, w := range words {
		id := strings.TrimRight(w, ":;,.")
		if _, ok := cluster.TaskID(id).Parts(); ok {
			words[i] = shortTask(cluster.TaskID(id)) + w[len(id):]
		}
	}
	return strings.Join(words, " ")
}

// findTask returns the newest attempt of the task that text names: its id, with or without the
// default cluster, the id of its attempt, or the beginning of one of them.
func findTask(ctx context.Context, c *client.Client, text string) (api.TaskView, error) {
	for _, id := range []cluster.TaskID{cluster.TaskID(text), cluster.TaskID(cluster.DefaultCluster + "." + text)} {
		if _, ok := id.Parts(); !ok {
			continue
		}
		t, err := c.Task(ctx, id)
		if client.StatusOf(err) == http.StatusNotFound {
			continue
		}
		return t, err
	}
	tasks, err := allTasks(ctx, c, client.TaskFilter{All: true})
	if err != nil {
		return api.TaskView{}, err
	}
	var hits []api.TaskView
	var known []string
	for _, t := range newest(tasks) {
		known = append(known, shortTask(t.ID))
		if strings.HasPrefix(string(t.ID), text) || strings.HasPrefix(shortTask(t.ID), text) ||
			len(text) >= 4 && strings.HasPrefix(t.UUID, text) {
			hits = append(hits, t)
		}
	}
	if len(hits) > 1 { // a task that lives is meant before those that have ended
		if alive := slices.DeleteFunc(slices.Clone(hits), func(t api.TaskView) bool {
			return t.State.Terminal()
		}); len(alive) == 1 {
			hits = alive
		}
	}
	switch len(hits) {
	case 0:
		return api.TaskView{}, unknown(wordTask, text, known)
	case 1:
		return hits[0], nil
	}
	var candidates []string
	for _, t := range hits {
		candidates = append(candidates, shortTask(t.ID))
	}
	return api.TaskView{}, ambiguous(text, candidates)
}

// allTasks returns all pages of a list of tasks.
func allTasks(ctx context.Context, c *client.Client, f client.TaskFilter) ([]api.TaskView, error) {
	tasks, _, err := client.All(ctx, client.ListOptions{},
		func(ctx context.Context, o client.ListOptions) (api.Page[api.TaskView], error) {
			return c.Tasks(ctx, f, o)
		})
	return tasks, err
}

// newest keeps the newest attempt of each task, ordered by id.
func newest(tasks []api.TaskView) []api.TaskView {
	tasks = slices.Clone(tasks)
	slices.SortStableFunc(tasks, func(a, b api.TaskView) int {
		return cmp.Or(compareTasks(a, b), cmp.Compare(b.Attempt, a.Attempt))
	})
	return slices.CompactFunc(tasks, func(a, b api.TaskView) bool { return a.ID == b.ID })
}

// compareTasks orders by id, numbers as numbers.
func compareTasks(a, b api.TaskView) int {
	p, _ := a.ID.Parts()
	q, _ := b.ID.Parts()
	return cmp.Or(cmp.Compare(p.Cluster, q.Cluster), cmp.Compare(p.Owner, q.Owner),
		cmp.Compare(p.Generation, q.Generation), cmp.Compare(p.Step, q.Step),
		cmp.Compare(p.Index, q.Index), cmp.Compare(a.ID, b.ID))
}

// ownerName returns the argument that names an owner.
func ownerName(o cluster.OwnerRef) name {
	switch o.Kind {
	case cluster.KindJob:
		return name{wordJob, o.Cluster, o.Name}
	case cluster.KindCron:
		return name{wordCron, o.Cluster, o.Name}
	default:
		return name{wordService, o.Cluster, o.Name}
	}
}

// clusterNamed returns a cluster; where it is not there, the error tells which there are.
func clusterNamed(ctx context.Context, c *client.Client, text string) (api.ClusterView, error) {
	v, err := c.Cluster(ctx, text)
	if client.StatusOf(err) == http.StatusNotFound {
		return v, unknown(wordCluster, text, otherNames(ctx, c, wordCluster))
	}
	return v, err
}

// unknownDefinition is the error of a reference to a task definition, or to a version of it, that is not there.
func unknownDefinition(ctx context.Context, c *client.Client, ref cluster.Ref) error {
	known := otherNames(ctx, c, wordDefinition)
	own := slices.DeleteFunc(slices.Clone(known), func(k string) bool { return !strings.HasPrefix(k, ref.Name+"@") })
	if ref.Version > 0 && len(own) > 0 {
		return fmt.Errorf("%w %s %q: there is %s", errUnknown, wordDefinition, ref, strings.Join(own, ", "))
	}
	return unknown(wordDefinition, ref.Name, known)
}
