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
func listNames(ctx context.Context, c *client.Client, kind string) []Name {
	var names []Name
	add := func(in, own string) { names = append(names, Name{kind, in, own}) }
	none := client.ListOptions{}
	switch kind {
	case wording.KindService:
		page, _ := c.Services(ctx, "", none)
		for _, v := range page.Items {
			add(v.Cluster, v.Name)
		}
	case wording.KindJob:
		page, _ := c.Jobs(ctx, "", none)
		for _, v := range page.Items {
			add(v.Cluster, v.Name)
		}
	case wording.KindCron:
		page, _ := c.Crons(ctx, "", none)
		for _, v := range page.Items {
			add(v.Cluster, v.Name)
		}
	case wording.KindEndpoint:
		page, _ := c.Endpoints(ctx, "", none)
		for _, v := range page.Items {
			add(v.Cluster, v.Name)
		}
	case wording.KindNode:
		page, _ := c.Nodes(ctx, none)
		for _, v := range page.Items {
			add("", v.Name)
		}
	case wording.KindTask:
		page, _ := c.Tasks(ctx, client.TaskFilter{}, none)
		for _, v := range page.Items {
			add("", string(v.ID))
		}
	default:
		for _, n := range ListOtherNames(ctx, c, kind) {
			add("", n)
		}
	}
	return names
}

// ListOtherNames returns the names of a kind outside of clusters, such as tokens.
func ListOtherNames(ctx context.Context, c *client.Client, kind string) []string {
	var names []string
	none := client.ListOptions{}
	switch kind {
	case wording.KindDefinition:
		page, _ := c.Definitions(ctx, none)
		for _, v := range page.Items {
			names = append(names, v.Ref().String())
		}
	case wording.KindCluster:
		page, _ := c.Clusters(ctx, none)
		for _, v := range page.Items {
			names = append(names, v.Name)
		}
	case wording.KindDomain:
		page, _ := c.Domains(ctx, none)
		for _, v := range page.Items {
			names = append(names, v.Name)
		}
	case wording.KindPool:
		page, _ := c.Pools(ctx, none)
		for _, v := range page.Items {
			names = append(names, v.Name)
		}
	case wording.KindProfile:
		page, _ := c.Profiles(ctx, none)
		for _, v := range page.Items {
			names = append(names, v.Ref().String())
		}
	case KindServer:
		page, _ := c.Servers(ctx, none)
		for _, v := range page.Items {
			names = append(names, v.Name)
		}
	case KindReservation:
		page, _ := c.Reservations(ctx, none)
		for _, v := range page.Items {
			names = append(names, v.Name)
		}
	case KindRebalancing:
		page, _ := c.Rebalancings(ctx, none)
		for _, v := range page.Items {
			names = append(names, strconv.FormatUint(v.ID, 10))
		}
	case KindToken:
		page, _ := c.Tokens(ctx, none)
		for _, v := range page.Items {
			names = append(names, v.ID)
		}
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
