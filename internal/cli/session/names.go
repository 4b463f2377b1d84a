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

// EndpointName returns the argument that names an endpoint.
func EndpointName(v api.EndpointView) Name { return Name{wording.KindEndpoint, v.Cluster, v.Name} }

// ListEndpoints returns the endpoints of a cluster, or of all for "", that a selector selects, by name. The empty
// selector selects all; see client.ListOptions.
func ListEndpoints(ctx context.Context, c *client.Client, in, selector string) ([]api.EndpointView, error) {
	return listIn[api.EndpointView](c.Endpoints).all(ctx, in, selector)
}

// ListCrons returns the crons of a cluster, or of all for "", that a selector selects. They are sorted by their next
// moment; crons without one come last.
func ListCrons(ctx context.Context, c *client.Client, in, selector string) ([]api.CronView, error) {
	crons, err := listIn[api.CronView](c.Crons).all(ctx, in, selector)
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

// Name is a reference to an object, [CLUSTER/]KIND/NAME.
type Name struct {
	Kind    string
	Cluster string // "" for any
	Name    string
}

// String returns the full reference, see Scope.Shorten.
func (n Name) String() string { return wording.Object(n.Kind, n.Cluster, n.Name) }

// isOwned reports whether objects of a kind belong to a cluster and are named in it.
func isOwned(kind string) bool {
	return slices.Contains([]string{
		wording.KindService, wording.KindJob, wording.KindCron, wording.KindEndpoint,
	}, kind)
}

// ParseName parses an argument of one kind: a reference, or a name without its kind. The cluster stays empty if the
// argument has none.
func (s *Scope) ParseName(cmd *cobra.Command, text, kind string) (Name, error) {
	n, err := s.parseReference(cmd, text, kind)
	n.Kind = kind
	return n, err
}

// ParseObject parses an argument like ParseName. A name without a cluster gets the current one.
func (s *Scope) ParseObject(cmd *cobra.Command, text, kind string) (Name, error) {
	n, err := s.ParseName(cmd, text, kind)
	return s.complete(n), err
}

// complete sets the current cluster in a name that needs one and has none, and in the id of a task.
func (s *Scope) complete(n Name) Name {
	if n.Cluster == "" && (n.Kind == "" || isOwned(n.Kind)) {
		n.Cluster = s.CurrentCluster()
	}
	if n.Kind == wording.KindTask {
		if id, ok := s.taskID(n.Name); ok {
			n.Name = string(id)
		}
	}
	return n
}

// parseReference parses an argument of one of the kinds: [CLUSTER/]KIND/NAME, or [CLUSTER/]NAME, which has no kind.
func (s *Scope) parseReference(cmd *cobra.Command, text string, kinds ...string) (Name, error) {
	wrong := func(format string, args ...any) (Name, error) {
		return Name{}, &UsageError{cmd.CommandPath(), fmt.Sprintf(format, args...)}
	}
	parts := strings.Split(text, "/")
	n := Name{Name: parts[len(parts)-1]}
	isKindMisspelt := len(parts) == 2 && spelling.Nearest(parts[0], slices.Values(kinds)) != ""
	switch {
	case len(parts) == 2 && ParseKind(parts[0]) == "" && !isKindMisspelt && slices.ContainsFunc(kinds, isOwned):
		n.Cluster = parts[0]
	case len(parts) == 2:
		if n.Kind = ParseKind(parts[0]); n.Kind == "" && parts[0] != "" {
			return wrong("%q is not a kind: %s", parts[0], wantWord(strings.ToLower(parts[0]), kinds))
		}
	case len(parts) == 3:
		n.Cluster, n.Kind = parts[0], ParseKind(parts[1])
		if first := ParseKind(parts[0]); n.Kind == "" && isOwned(first) {
			return wrong("%q: the cluster comes first: write %s/%s/%s", text, parts[1], first, parts[2])
		} else if n.Kind == "" && first != "" {
			return wrong("%q is not a name: want %s/NAME", text, first)
		}
		if n.Kind == "" {
			return wrong("%q is not a kind: %s", parts[1], wantWord(strings.ToLower(parts[1]), kinds))
		}
	case len(parts) > 3:
		return wrong("%q is not a name: want [CLUSTER/]%s/NAME", text, kinds[0])
	}
	switch {
	case n.Kind == wording.KindTask && !slices.Contains(kinds, n.Kind):
		return Name{}, s.takesNoTask(cmd, n.Name, kinds)
	case n.Kind != "" && !slices.Contains(kinds, n.Kind):
		return wrong("%s does not take %s: want %s", cmd.CommandPath(), withArticle(n.Kind),
			strings.Join(kinds, "/NAME or ")+"/NAME")
	case slices.Contains(parts, ""):
		return wrong("%q has an empty name: want %s/NAME", text, cmp.Or(n.Kind, kinds[0]))
	case n.Kind != "" && n.Cluster != "" && !isOwned(n.Kind):
		return wrong("%q: a %s is in no cluster: want %s/NAME", text, n.Kind, n.Kind)
	}
	return n, nil
}

// withArticle returns the word of a kind with its article.
func withArticle(kind string) string {
	if kind == wording.KindEndpoint {
		return "an " + kind
	}
	return "a " + kind
}

// ParseKind returns the kind that a word names, or "". It takes plurals, and kinds of kubectl. Their
// abbreviations are left out: "no/web" is a service of the cluster no.
func ParseKind(s string) string {
	switch strings.ToLower(s) {
	case wording.KindService, "services", "svc", "deployment", "deployments", "deploy", "statefulset", "statefulsets",
		"daemonset", "daemonsets":
		return wording.KindService
	case wording.KindJob, "jobs":
		return wording.KindJob
	case wording.KindDefinition, "definitions", "def", "taskdefinition":
		return wording.KindDefinition
	case wording.KindCluster, "clusters":
		return wording.KindCluster
	case wording.KindDomain, "domains":
		return wording.KindDomain
	case wording.KindPool, "pools":
		return wording.KindPool
	case wording.KindProfile, "profiles":
		return wording.KindProfile
	case wording.KindNode, "nodes":
		return wording.KindNode
	case wording.KindTask, "tasks", "pod", "pods":
		return wording.KindTask
	case wording.KindCron, "crons", "cronjob", "cronjobs":
		return wording.KindCron
	case wording.KindEndpoint, "endpoints":
		return wording.KindEndpoint
	}
	return ""
}

// takesNoTask returns the error for the id of a task where a command changes whole services and jobs.
func (s *Scope) takesNoTask(cmd *cobra.Command, text string, kinds []string) error {
	message := fmt.Sprintf("%s does not take a task, found %q: want %s", cmd.CommandPath(), text,
		strings.Join(kinds, "/NAME or ")+"/NAME")
	if id, ok := s.taskID(text); ok {
		parts, _ := id.Parts()
		owner := Name{wording.KindService, parts.Cluster, parts.Owner}
		if parts.Step != "" {
			owner.Kind = wording.KindJob
		}
		if slices.Contains(kinds, owner.Kind) {
			message = fmt.Sprintf("%q is a task of %s, and %s does not take a task", text, owner, cmd.CommandPath())
		}
	}
	return &UsageError{cmd.CommandPath(), message}
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
	return unknownError(fmt.Errorf("%w %s %q", ErrUnknown, kind, text), kind, text, known)
}

// UnknownObjectError returns the error for an object of a cluster that does not exist, with similar names.
func UnknownObjectError(n Name, known []string) error {
	return unknownError(fmt.Errorf("%w %s", ErrUnknown, n), n.Kind, n.Name, known)
}

// unknownError adds similar names to an error.
func unknownError(err error, kind, text string, known []string) error {
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
	v, err = findNamed(ctx, n, c.Services, func(v api.ServiceView) (string, string) { return v.Cluster, v.Name })
	return v, n.orOtherKind(ctx, c, err, n.String(), n.Kind)
}

// Job reads the job that the argument names.
func (n Name) Job(ctx context.Context, c *client.Client) (v api.JobView, err error) {
	v, err = findNamed(ctx, n, c.Jobs, func(v api.JobView) (string, string) { return v.Cluster, v.Name })
	return v, n.orOtherKind(ctx, c, err, n.String(), n.Kind)
}

// Cron reads the cron that the argument names.
func (n Name) Cron(ctx context.Context, c *client.Client) (v api.CronView, err error) {
	v, err = findNamed(ctx, n, c.Crons, func(v api.CronView) (string, string) { return v.Cluster, v.Name })
	return v, n.orOtherKind(ctx, c, err, n.String(), n.Kind)
}

// Endpoint reads the endpoint that the argument names.
func (n Name) Endpoint(ctx context.Context, c *client.Client) (v api.EndpointView, err error) {
	v, err = findNamed(ctx, n, c.Endpoints, func(v api.EndpointView) (string, string) { return v.Cluster, v.Name })
	return v, n.orOtherKind(ctx, c, err, n.String(), n.Kind)
}

// Resolve sets the cluster of a service, job, cron or endpoint.
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
	case wording.KindEndpoint:
		v, err := n.Endpoint(ctx, c)
		n.Cluster = v.Cluster
		return n, err
	}
	return n, nil
}

// listIn lists the objects of a kind in a cluster, or in all clusters for "".
type listIn[T any] func(ctx context.Context, in string, o client.ListOptions) (api.Page[T], error)

// all returns all pages of the list of what a selector selects.
func (list listIn[T]) all(ctx context.Context, in, selector string) ([]T, error) {
	all, _, err := client.All(ctx, client.ListOptions{Selector: selector},
		func(ctx context.Context, o client.ListOptions) (api.Page[T], error) { return list(ctx, in, o) })
	return all, err
}

// findNamed returns the only element with this exact name in its cluster. A change must not reach an object by a
// prefix. The error for a name that does not exist knows the objects of all clusters.
func findNamed[T any](ctx context.Context, n Name, list listIn[T], nameOf func(T) (cluster, name string)) (found T,
	err error,
) {
	all, err := list.all(ctx, n.Cluster, "")
	if err != nil {
		return found, err
	}
	var hits []string
	for _, v := range all {
		if in, own := nameOf(v); own == n.Name {
			found = v
			hits = append(hits, Name{n.Kind, in, own}.String())
		}
	}
	switch len(hits) {
	case 0:
		var known []string
		if everywhere, err := list.all(ctx, "", ""); err == nil {
			all = everywhere
		}
		for _, v := range all {
			in, own := nameOf(v)
			known = append(known, Name{n.Kind, in, own}.String())
		}
		return found, UnknownObjectError(n, known)
	case 1:
		return found, nil
	}
	return found, AmbiguousError(n.Name, hits)
}

// orOtherKind returns the error of a search for what, among the kinds. If the name is unknown, but a service, job, cron
// or endpoint of another kind has it, the error names that one.
func (n Name) orOtherKind(ctx context.Context, c *client.Client, err error, what string, kinds ...string) error {
	if !errors.Is(err, ErrUnknown) {
		return err
	}
	for _, kind := range []string{wording.KindService, wording.KindJob, wording.KindCron, wording.KindEndpoint} {
		if slices.Contains(kinds, kind) {
			continue
		}
		names, failed := ownedNames(ctx, c, kind, n.Cluster)
		if failed != nil {
			return err
		}
		if i := slices.IndexFunc(names, func(other Name) bool { return other.Name == n.Name }); i >= 0 {
			return fmt.Errorf("%w %s, but %s", ErrUnknown, what, names[i])
		}
	}
	return err
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

// SelectEvents sets the filter for the events of the object.
func (n Name) SelectEvents(f *client.EventFilter) {
	f.Cluster = n.Cluster
	switch n.Kind {
	case wording.KindService:
		f.Service = n.Name
	case wording.KindJob:
		f.Job = n.Name
	case wording.KindCron:
		f.Cron = n.Name
	case wording.KindTask:
		f.Task = n.Name
	case wording.KindNode:
		f.Node = n.Name
	case wording.KindCluster:
		f.Cluster = n.Name
	}
}

// FindCluster returns a cluster. If it does not exist, the error lists the clusters.
func FindCluster(ctx context.Context, c *client.Client, text string) (api.ClusterView, error) {
	return readNamed(ctx, c, wording.KindCluster, text, text, c.Cluster)
}

// FindPool returns a pool of nodes. If it does not exist, the error lists the pools.
func FindPool(ctx context.Context, c *client.Client, text string) (api.PoolView, error) {
	return readNamed(ctx, c, wording.KindPool, text, text, c.Pool)
}

// FindDomain returns a domain. If it does not exist, the error lists the domains.
func FindDomain(ctx context.Context, c *client.Client, text string) (api.DomainView, error) {
	return readNamed(ctx, c, wording.KindDomain, text, text, c.Domain)
}

// readNamed reads an object outside of clusters. If it does not exist, the error lists the objects of the kind.
func readNamed[N, V any](ctx context.Context, c *client.Client, kind, text string, name N,
	read func(context.Context, N) (V, error),
) (V, error) {
	v, err := read(ctx, name)
	if client.StatusOf(err) == http.StatusNotFound {
		return v, UnknownError(kind, text, ListOtherNames(ctx, c, kind))
	}
	return v, err
}

// FindProfile returns a version of a profile, or the newest without one. If it does not exist, the error lists the
// profiles.
func FindProfile(ctx context.Context, c *client.Client, text string) (api.ProfileView, error) {
	ref, err := cluster.ParseRef(text)
	if err != nil {
		return api.ProfileView{}, fmt.Errorf("%q is not a profile: want NAME or NAME@VERSION", text)
	}
	return readNamed(ctx, c, wording.KindProfile, text, ref, c.MachineProfile)
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
func ListNodes(ctx context.Context, c *client.Client, selector string) ([]api.NodeView, error) {
	nodes, _, err := client.All(ctx, client.ListOptions{Selector: selector}, c.Nodes)
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
