package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/spelling"
	"github.com/berthd/berth/internal/wording"
)

// CronName returns the argument that names a cron.
func CronName(v api.CronView) Name { return Name{wording.KindCron, v.Cluster, v.Name} }

// ListCrons returns the crons of a cluster, or of all for "". They are sorted by their next moment; crons without one
// come last.
func ListCrons(ctx context.Context, c *client.Client, in string) ([]api.CronView, error) {
	crons, _, err := client.All(ctx, client.ListOptions{},
		func(ctx context.Context, o client.ListOptions) (api.Page[api.CronView], error) {
			return c.Crons(ctx, in, o)
		})
	slices.SortStableFunc(crons, func(x, y api.CronView) int {
		p, q := NextMoment(x), NextMoment(y)
		return cmp.Or(-CompareBools(!p.IsZero(), !q.IsZero()), p.Compare(q), cmp.Compare(x.Cluster, y.Cluster),
			cmp.Compare(x.Name, y.Name))
	})
	return crons, err
}

// NextMoment returns the next moment of a cron, or zero.
func NextMoment(v api.CronView) time.Time {
	if len(v.Status.Next) == 0 {
		return time.Time{}
	}
	return v.Status.Next[0]
}

// ServerRank returns the sort rank of a server. Servers that are down come first.
func ServerRank(v api.ServerView) int {
	return slices.Index([]api.ServerState{api.ServerDown, api.ServerUnknown, api.ServerJoining, api.ServerUp}, v.State)
}

// Name is an argument KIND/NAME or KIND/CLUSTER/NAME.
type Name struct {
	Kind    string
	Cluster string // "" for any
	Name    string
}

// String returns the argument KIND/NAME or KIND/CLUSTER/NAME.
func (n Name) String() string { return wording.Object(n.Kind, n.Cluster, n.Name) }

// WithoutKind returns the name without its kind, for tables of one kind.
func (n Name) WithoutKind() string { return strings.TrimPrefix(n.String(), n.Kind+"/") }

// ParseName parses an argument of one of the kinds. For a single kind the argument may omit it.
func ParseName(cmd *cobra.Command, text string, kinds ...string) (Name, error) {
	wrong := func(format string, args ...any) (Name, error) {
		return Name{}, &UsageError{cmd.CommandPath(), fmt.Sprintf(format, args...)}
	}
	parts := strings.Split(text, "/")
	if len(parts) == 1 && len(kinds) == 1 && text != "" {
		return Name{Kind: kinds[0], Name: text}, nil
	}
	if len(parts) == 1 || parts[0] == "" {
		return wrong("%q: say what kind, for example %s/%s", text, kinds[0], cmp.Or(strings.Trim(text, "/"), "NAME"))
	}
	n := Name{Kind: ParseKind(parts[0]), Name: parts[len(parts)-1]}
	owned := n.Kind == wording.KindService || n.Kind == wording.KindJob || n.Kind == wording.KindCron
	switch {
	case n.Kind == "":
		return wrong("%q is not a kind: %s", parts[0], wantWord(strings.ToLower(parts[0]), kinds))
	case !slices.Contains(kinds, n.Kind):
		return wrong("%s does not take a %s: want %s", cmd.CommandPath(), n.Kind,
			strings.Join(kinds, "/NAME or ")+"/NAME")
	case len(parts) == 3 && owned:
		n.Cluster = parts[1]
	case len(parts) != 2:
		return wrong("%q is not a name: want %s/NAME", text, n.Kind)
	}
	if n.Name == "" || len(parts) == 3 && n.Cluster == "" {
		return wrong("%q has an empty name: want %s/NAME", text, n.Kind)
	}
	return n, nil
}

// ParseKind returns the kind that a word names, or "".
func ParseKind(s string) string {
	switch strings.ToLower(s) {
	case wording.KindService, "services", "svc":
		return wording.KindService
	case wording.KindJob, "jobs":
		return wording.KindJob
	case wording.KindDefinition, "definitions", "def", "taskdefinition":
		return wording.KindDefinition
	case wording.KindCluster, "clusters":
		return wording.KindCluster
	case wording.KindPool, "pools":
		return wording.KindPool
	case wording.KindNode, "nodes":
		return wording.KindNode
	case wording.KindTask, "tasks":
		return wording.KindTask
	case wording.KindCron, "crons":
		return wording.KindCron
	}
	return ""
}

// AmbiguousError returns the error for a name with several candidates.
func AmbiguousError(text string, candidates []string) error {
	const most = 10
	slices.Sort(candidates)
	if rest := len(candidates) - most; rest > 0 {
		candidates = append(candidates[:most], fmt.Sprintf("and %d more", rest))
	}
	return fmt.Errorf("%q is ambiguous: it may be %s; name one of them in full", text, strings.Join(candidates, ", "))
}

// ErrUnknown is the error inside each UnknownError.
var ErrUnknown = errors.New("there is no")

// UnknownError returns the error for a name that does not exist, with similar names.
func UnknownError(kind, text string, known []string) error {
	err := fmt.Errorf("%w %s %q", ErrUnknown, kind, text)
	known = slices.Sorted(slices.Values(known))
	near := slices.DeleteFunc(slices.Clone(known), func(k string) bool {
		return !spelling.Near(ownName(text), ownName(k))
	})
	switch {
	case len(near) > 0 && len(near) <= 5:
		return fmt.Errorf("%w: did you mean %s?", err, strings.Join(near, " or "))
	case len(known) > 0 && len(known) <= 10:
		return fmt.Errorf("%w: there is %s", err, strings.Join(known, ", "))
	}
	if len(known) == 0 {
		return fmt.Errorf("%w: no %s exists", err, kind)
	}
	return fmt.Errorf("%w: 'berth status' lists the existing objects", err)
}

// ownName returns a name without its kind, its cluster and its version.
func ownName(text string) string {
	own, _, _ := strings.Cut(text[strings.LastIndex(text, "/")+1:], "@")
	return own
}

// Service reads the service that the argument names.
func (n Name) Service(ctx context.Context, c *client.Client) (v api.ServiceView, err error) {
	all, _, err := client.All(ctx, client.ListOptions{},
		func(ctx context.Context, o client.ListOptions) (api.Page[api.ServiceView], error) {
			return c.Services(ctx, n.Cluster, o)
		})
	if err != nil {
		return v, err
	}
	return selectNamed(n, all, func(v api.ServiceView) (string, string) { return v.Cluster, v.Name })
}

// Job reads the job that the argument names.
func (n Name) Job(ctx context.Context, c *client.Client) (v api.JobView, err error) {
	all, _, err := client.All(ctx, client.ListOptions{},
		func(ctx context.Context, o client.ListOptions) (api.Page[api.JobView], error) {
			return c.Jobs(ctx, n.Cluster, o)
		})
	if err != nil {
		return v, err
	}
	return selectNamed(n, all, func(v api.JobView) (string, string) { return v.Cluster, v.Name })
}

// Cron reads the cron that the argument names.
func (n Name) Cron(ctx context.Context, c *client.Client) (v api.CronView, err error) {
	all, err := ListCrons(ctx, c, n.Cluster)
	if err != nil {
		return v, err
	}
	return selectNamed(n, all, func(v api.CronView) (string, string) { return v.Cluster, v.Name })
}

// Resolve sets the cluster of a service, job or cron.
func (n Name) Resolve(ctx context.Context, c *client.Client) (Name, error) {
	switch n.Kind {
	case wording.KindService:
		v, err := n.Service(ctx, c)
		n.Cluster = v.Cluster
		return n, err
	case wording.KindJob:
		v, err := n.Job(ctx, c)
		n.Cluster = v.Cluster
		return n, err
	case wording.KindCron:
		v, err := n.Cron(ctx, c)
		n.Cluster = v.Cluster
		return n, err
	}
	return n, nil
}

// selectNamed returns the only element with this exact name. A change must not reach an object by a prefix.
func selectNamed[T any](n Name, all []T, nameOf func(T) (cluster, name string)) (found T, err error) {
	var hits, known []string
	for _, v := range all {
		in, own := nameOf(v)
		if own == n.Name {
			found = v
			hits = append(hits, n.Kind+"/"+in+"/"+own)
		}
		known = append(known, Name{n.Kind, in, own}.String())
	}
	switch len(hits) {
	case 0:
		return found, UnknownError(n.Kind, strings.TrimPrefix(n.String(), n.Kind+"/"), known)
	case 1:
		return found, nil
	}
	return found, AmbiguousError(n.Kind+"/"+n.Name, hits)
}

// FindTask returns the newest attempt of a task. The text is a task id, with or without the default cluster, an
// attempt's id, or a prefix of one of these.
func FindTask(ctx context.Context, c *client.Client, text string) (api.TaskView, error) {
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
	tasks, err := ListTasks(ctx, c, client.TaskFilter{All: true})
	if err != nil {
		return api.TaskView{}, err
	}
	var hits []api.TaskView
	var known []string
	for _, t := range KeepNewest(tasks) {
		known = append(known, wording.ShortTask(t.ID))
		if strings.HasPrefix(string(t.ID), text) || strings.HasPrefix(wording.ShortTask(t.ID), text) ||
			len(text) >= 4 && strings.HasPrefix(t.UUID, text) {
			hits = append(hits, t)
		}
	}
	if len(hits) > 1 { // prefer a live task to ended ones
		if alive := slices.DeleteFunc(slices.Clone(hits), func(t api.TaskView) bool {
			return t.State.Terminal()
		}); len(alive) == 1 {
			hits = alive
		}
	}
	switch len(hits) {
	case 0:
		return api.TaskView{}, UnknownError(wording.KindTask, text, known)
	case 1:
		return hits[0], nil
	}
	var candidates []string
	for _, t := range hits {
		candidates = append(candidates, wording.ShortTask(t.ID))
	}
	return api.TaskView{}, AmbiguousError(text, candidates)
}

// ListTasks returns all pages of a list of tasks.
func ListTasks(ctx context.Context, c *client.Client, f client.TaskFilter) ([]api.TaskView, error) {
	tasks, _, err := client.All(ctx, client.ListOptions{},
		func(ctx context.Context, o client.ListOptions) (api.Page[api.TaskView], error) {
			return c.Tasks(ctx, f, o)
		})
	return tasks, err
}

// KeepNewest returns the newest attempt of each task, sorted by id.
func KeepNewest(tasks []api.TaskView) []api.TaskView {
	tasks = slices.Clone(tasks)
	slices.SortStableFunc(tasks, func(a, b api.TaskView) int {
		return cmp.Or(CompareTasks(a, b), cmp.Compare(b.Attempt, a.Attempt))
	})
	return slices.CompactFunc(tasks, func(a, b api.TaskView) bool { return a.ID == b.ID })
}

// CompareTasks compares task ids, with numbers by their value.
func CompareTasks(a, b api.TaskView) int {
	p, _ := a.ID.Parts()
	q, _ := b.ID.Parts()
	return cmp.Or(cmp.Compare(p.Cluster, q.Cluster), cmp.Compare(p.Owner, q.Owner),
		cmp.Compare(p.Generation, q.Generation), cmp.Compare(p.Step, q.Step),
		cmp.Compare(p.Index, q.Index), cmp.Compare(a.ID, b.ID))
}

// OwnerName returns the argument that names an owner.
func OwnerName(o cluster.OwnerRef) Name { return Name{wording.OwnerKind(o), o.Cluster, o.Name} }

// FindCluster returns a cluster. If it does not exist, the error lists the clusters.
func FindCluster(ctx context.Context, c *client.Client, text string) (api.ClusterView, error) {
	v, err := c.Cluster(ctx, text)
	if client.StatusOf(err) == http.StatusNotFound {
		return v, UnknownError(wording.KindCluster, text, ListOtherNames(ctx, c, wording.KindCluster))
	}
	return v, err
}

// FindPool returns a pool of nodes. If it does not exist, the error lists the pools.
func FindPool(ctx context.Context, c *client.Client, text string) (api.PoolView, error) {
	v, err := c.Pool(ctx, text)
	if client.StatusOf(err) == http.StatusNotFound {
		return v, UnknownError(wording.KindPool, text, ListOtherNames(ctx, c, wording.KindPool))
	}
	return v, err
}

// UnknownDefinitionError returns the error for a task definition or a version that does not exist.
func UnknownDefinitionError(ctx context.Context, c *client.Client, ref cluster.Ref) error {
	known := ListOtherNames(ctx, c, wording.KindDefinition)
	own := slices.DeleteFunc(slices.Clone(known), func(k string) bool { return !strings.HasPrefix(k, ref.Name+"@") })
	if ref.Version > 0 && len(own) > 0 {
		return fmt.Errorf("%w %s %q: there is %s", ErrUnknown, wording.KindDefinition, ref, strings.Join(own, ", "))
	}
	return UnknownError(wording.KindDefinition, ref.Name, known)
}

// ListNodes returns all nodes. Nodes that are not ready come first, then they are sorted by name.
func ListNodes(ctx context.Context, c *client.Client) ([]api.NodeView, error) {
	nodes, _, err := client.All(ctx, client.ListOptions{}, c.Nodes)
	slices.SortStableFunc(nodes, func(x, y api.NodeView) int {
		return cmp.Or(cmp.Compare(nodeRank(x), nodeRank(y)), cmp.Compare(x.Name, y.Name))
	})
	return nodes, err
}

func nodeRank(n api.NodeView) int {
	switch n.State {
	case cluster.NodeDown:
		return 0
	case cluster.NodeSuspect:
		return 1
	case cluster.NodeReady:
		return 3
	}
	return 2
}

// ServiceName returns the argument that names a service.
func ServiceName(v api.ServiceView) Name { return Name{wording.KindService, v.Cluster, v.Name} }

// Argument returns the name for a command of one kind. It has a kind only if the name would be ambiguous.
func (n Name) Argument() string { return wording.Argument(n.Kind, n.Cluster, n.Name) }

// CompareBools orders false before true.
func CompareBools(x, y bool) int {
	switch {
	case x == y:
		return 0
	case x:
		return 1
	}
	return -1
}
