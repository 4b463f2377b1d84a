package session

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/contexts"
	"github.com/berthd/berth/internal/wording"
)

// completeTimeout bounds the time that a shell waits for names.
const completeTimeout = time.Second

// Kinds of objects whose commands take the plain name, in addition to those in names.go.
const (
	KindServer      = "server"
	KindReservation = "reservation"
	KindRebalancing = "rebalancing"
	KindToken       = "token"
)

// CompleteNames completes the first argument with names of the kinds. A command of several kinds takes KIND/NAME, and
// tasks by their id. A command of one kind takes the plain name.
func (s *Session) CompleteNames(kinds ...string) cobra.CompletionFunc {
	return s.CompleteWith(1, func(ctx context.Context, c *client.Client, text string) []string {
		if len(kinds) > 1 {
			return append(s.listArguments(ctx, c, kinds), s.listBareNames(ctx, c, kinds, text)...)
		}
		plain := append(s.listPlainNames(ctx, c, kinds[0]), s.listBareNames(ctx, c, kinds, text)...)
		if len(matchingNames(plain, text)) > 0 ||
			!strings.HasPrefix(kinds[0]+"/", text) && !strings.Contains(text, "/") {
			return plain
		}
		return s.listArguments(ctx, c, kinds)
	})
}

// CompleteObjects completes all arguments with KIND/NAME of the kinds, including tasks and nodes.
func (s *Session) CompleteObjects(most int, kinds ...string) cobra.CompletionFunc {
	return s.CompleteWith(most, func(ctx context.Context, c *client.Client, text string) []string {
		names := s.listBareNames(ctx, c, kinds, text)
		for _, kind := range kinds {
			for _, n := range listNames(ctx, c, kind) {
				names = append(names, s.Shorten(n.String()))
			}
		}
		return names
	})
}

// CompleteAll completes any number of arguments with names of a kind.
func (s *Session) CompleteAll(kind string) cobra.CompletionFunc {
	return s.CompleteWith(-1, func(ctx context.Context, c *client.Client, _ string) []string {
		return s.listPlainNames(ctx, c, kind)
	})
}

// CompleteFlags sets the completion of flags to names of a kind, without cluster and kind.
func (s *Session) CompleteFlags(cmd *cobra.Command, kinds map[string]string) {
	for flag, kind := range kinds { // order-free: each flag has its own completion
		complete := s.CompleteWith(0, func(ctx context.Context, c *client.Client, _ string) []string {
			names := ListKnownNames(ctx, c, kind)
			for i := range names {
				names[i] = s.Shorten(names[i]) // ids of tasks
			}
			return names
		})
		RegisterCompletion(cmd, flag, complete)
	}
}

// CompleteWith returns a completion of up to most arguments: 0 for the value of a flag, -1 for any number. The names
// function gets completeTimeout to ask a server. Arguments that are present are left out. Errors yield no names.
func (s *Session) CompleteWith(most int,
	know func(ctx context.Context, c *client.Client, text string) []string,
) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
		if most > 0 && len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
		defer cancel()
		c, err := s.Connect()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer c.Close()
		names := matchingNames(know(ctx, c, text), text)
		if most != 0 {
			names = slices.DeleteFunc(names, func(n string) bool { return slices.Contains(args, n) })
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteNodeThen completes a node, and then up to most arguments from what is known of that node.
func (s *Session) CompleteNodeThen(most int,
	know func(context.Context, *client.Client, api.NodeView) []string,
) cobra.CompletionFunc {
	node := s.CompleteNames(wording.KindNode)
	return func(cmd *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return node(cmd, args, text)
		}
		return s.CompleteWith(most, func(ctx context.Context, c *client.Client, _ string) []string {
			v, err := c.Node(ctx, args[0])
			if err != nil {
				return nil
			}
			return know(ctx, c, v)
		})(cmd, args, text)
	}
}

// TaintKeys returns the keys of a node's taints.
func TaintKeys(_ context.Context, _ *client.Client, v api.NodeView) []string {
	var keys []string
	for _, t := range v.Taints {
		keys = append(keys, t.Key)
	}
	return keys
}

// PoolNames returns the names of all pools.
func PoolNames(ctx context.Context, c *client.Client, _ api.NodeView) []string {
	return ListOtherNames(ctx, c, wording.KindPool)
}

// DomainNames returns the names of all domains.
func DomainNames(ctx context.Context, c *client.Client, _ api.NodeView) []string {
	return ListOtherNames(ctx, c, wording.KindDomain)
}

// matchingNames returns the names with the prefix text, sorted and without duplicates.
func matchingNames(names []string, text string) []string {
	names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !strings.HasPrefix(n, text) })
	slices.Sort(names)
	return slices.Compact(names)
}

// listArguments returns names for a command of several kinds. Tasks need no kind, because no other name has the form of
// a task id.
func (s *Session) listArguments(ctx context.Context, c *client.Client, kinds []string) []string {
	var names []string
	for _, kind := range kinds {
		for _, n := range listNames(ctx, c, kind) {
			if kind == wording.KindTask {
				names = append(names, s.Shorten(n.Name))
			} else {
				names = append(names, s.Shorten(n.String()))
			}
		}
	}
	return names
}

// listBareNames returns the names of services, jobs and crons of the current cluster that need no kind. It returns none
// for an empty text, where the references suffice, and for the beginning of a reference.
func (s *Session) listBareNames(ctx context.Context, c *client.Client, kinds []string, text string) []string {
	if text == "" || strings.Contains(text, "/") {
		return nil
	}
	in := s.CurrentCluster()
	count := map[string]int{}
	for _, kind := range kinds {
		if !isOwned(kind) {
			continue
		}
		for _, n := range listNames(ctx, c, kind) {
			if in == "" || n.Cluster == in {
				count[n.Name]++
			}
		}
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(count)), func(name string) bool { return count[name] > 1 })
}

// listPlainNames returns names for a command of one kind.
func (s *Session) listPlainNames(ctx context.Context, c *client.Client, kind string) []string {
	var names []string
	for _, n := range listNames(ctx, c, kind) {
		names = append(names, s.Argument(n.Cluster, s.Shorten(n.Name)))
	}
	return names
}

// listNames returns the names of a kind that the server knows. An error yields none.
func listNames(ctx context.Context, c *client.Client, kind string) (names []Name) {
	switch kind {
	case wording.KindService:
		return listOwned(ctx, kind, c.Services, func(v api.ServiceView) (in, own string) { return v.Cluster, v.Name })
	case wording.KindJob:
		return listOwned(ctx, kind, c.Jobs, func(v api.JobView) (in, own string) { return v.Cluster, v.Name })
	case wording.KindCron:
		return listOwned(ctx, kind, c.Crons, func(v api.CronView) (in, own string) { return v.Cluster, v.Name })
	case wording.KindEndpoint:
		return listOwned(ctx, kind, c.Endpoints, func(v api.EndpointView) (in, own string) { return v.Cluster, v.Name })
	}
	for _, own := range ListOtherNames(ctx, c, kind) {
		names = append(names, Name{Kind: kind, Name: own})
	}
	return names
}

// listOwned returns the names of a kind whose objects belong to clusters.
func listOwned[V any](ctx context.Context, kind string, list listIn[V], name func(V) (in, own string)) (names []Name) {
	page, _ := list(ctx, "", client.ListOptions{})
	for i := range page.Items {
		in, own := name(page.Items[i])
		names = append(names, Name{kind, in, own})
	}
	return names
}

// ListOtherNames returns the names of a kind outside of clusters, such as tokens. An error yields none.
func ListOtherNames(ctx context.Context, c *client.Client, kind string) []string {
	switch kind {
	case wording.KindNode:
		return listUnowned(ctx, c.Nodes, func(v api.NodeView) string { return v.Name })
	case wording.KindTask:
		tasks := func(ctx context.Context, o client.ListOptions) (api.Page[api.TaskView], error) {
			return c.Tasks(ctx, client.TaskFilter{}, o)
		}
		return listUnowned(ctx, tasks, func(v api.TaskView) string { return string(v.ID) })
	case wording.KindDefinition:
		return listUnowned(ctx, c.Definitions, func(v api.DefinitionView) string { return v.Ref().String() })
	case wording.KindCluster:
		return listUnowned(ctx, c.Clusters, func(v api.ClusterView) string { return v.Name })
	case wording.KindDomain:
		return listUnowned(ctx, c.Domains, func(v api.DomainView) string { return v.Name })
	case wording.KindPool:
		return listUnowned(ctx, c.Pools, func(v api.PoolView) string { return v.Name })
	case wording.KindProfile:
		return listUnowned(ctx, c.Profiles, func(v api.ProfileView) string { return v.Ref().String() })
	case KindServer:
		return listUnowned(ctx, c.Servers, func(v api.ServerView) string { return v.Name })
	case KindReservation:
		return listUnowned(ctx, c.Reservations, func(v api.ReservationView) string { return v.Name })
	case KindRebalancing:
		return listUnowned(ctx, c.Rebalancings, func(v api.RebalancingBrief) string {
			return strconv.FormatUint(v.ID, 10)
		})
	case KindToken:
		return listUnowned(ctx, c.Tokens, func(v api.TokenView) string { return v.ID })
	}
	return nil
}

// listUnowned returns the names of objects that belong to no cluster.
func listUnowned[V any](ctx context.Context, list func(context.Context, client.ListOptions) (api.Page[V], error),
	name func(V) string,
) (names []string) {
	page, _ := list(ctx, client.ListOptions{})
	for i := range page.Items {
		names = append(names, name(page.Items[i]))
	}
	return names
}

// CompleteContexts completes the name of a context.
func CompleteContexts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	path, err := contexts.Path()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	f, _ := contexts.Load(path) // a broken file completes nothing
	return f.Names(), cobra.ShellCompDirectiveNoFileComp
}

// ListKnownNames returns the names of a kind that the server knows, without cluster.
func ListKnownNames(ctx context.Context, c *client.Client, kind string) []string {
	var names []string
	for _, n := range listNames(ctx, c, kind) {
		names = append(names, n.Name)
	}
	return names
}
