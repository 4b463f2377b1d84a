// Package endpoint implements the commands about endpoints and their addresses.
package endpoint

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/fetch"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
)

// NewEndpointCommand returns the command `berth endpoint`.
func NewEndpointCommand(sess *session.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use: "endpoint", Aliases: []string{"endpoints"}, Short: "List the endpoints of services",
		Args: cobra.ArbitraryArgs, RunE: session.RunGroup,
	}
	cmd.AddCommand(newListCommand(sess))
	return cmd
}

// listCommand is `berth endpoint ls`.
type listCommand struct {
	*session.Session
	labels fetch.Labels
}

func newListCommand(sess *session.Session) *cobra.Command {
	l := &listCommand{Session: sess}
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List endpoints and the number of their addresses",
		Long: "List endpoints and the number of their addresses.\n\n" +
			"An endpoint is a name for the addresses of one port of a service. A manifest of the kind Endpoint\n" +
			"makes one; 'berth run' applies it. 'berth addresses' lists the addresses.",
		Args: session.Arguments(0, 0, ""), RunE: l.labels.WithClient(sess, l.run),
	}
	l.labels.AddFlags(cmd, "endpoints")
	return cmd
}

func (l *listCommand) run(ctx context.Context, c *client.Client, _ []string) error {
	all, err := session.ListEndpoints(ctx, c, l.ChosenCluster(), l.labels.Selector())
	if err != nil {
		return err
	}
	none := l.labels.EmptyText("No endpoints.")
	return session.PrintList(l.Session, all, none, func([]api.EndpointView) output.Table {
		t := table(l.Session, all)
		l.labels.AddColumns(&t, func(row int) cluster.Labels { return all[row].Labels })
		return t
	})
}

// table returns the table of endpoints in the given order.
func table(sess *session.Session, all []api.EndpointView) output.Table {
	t := output.Table{Titles: []string{
		"ENDPOINT", "SERVICE", "PORT", "TAGS", "ADDRESSES>", "HEALTHY>", "FAILING>", "+DNS", "MESSAGE",
	}}
	for i := range all {
		v := &all[i]
		t.Add(sess.Argument(v.Cluster, v.Name), sess.Argument(v.Cluster, v.Service), v.Port, tagsText(v.Tags),
			strconv.Itoa(v.Status.Addresses), output.FormatAbove(v.Status.Healthy, 0),
			output.FormatAbove(v.Status.Failing, 0), v.Status.DNS, v.Status.Message)
	}
	return t
}

// tagsText returns tags as text, sorted by key.
func tagsText(tags cluster.Labels) string {
	parts := make([]string, 0, len(tags))
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		parts = append(parts, key+"="+tags[key])
	}
	return strings.Join(parts, ",")
}

// Print prints one endpoint with its addresses.
func Print(ctx context.Context, sess *session.Session, c *client.Client, n session.Name) error {
	v, err := n.Endpoint(ctx, c)
	if err != nil {
		return err
	}
	if sess.WantsData() {
		return sess.PrintData(v)
	}
	if err := sess.PrintTable(table(sess, []api.EndpointView{v})); err != nil {
		return err
	}
	facts := output.Table{Titles: []string{"", ""}, Indent: "  "}
	facts.Add("DNS", v.Status.DNS)
	if v.IncludesUnhealthy() {
		facts.Add("addresses", "of healthy and of other running tasks")
	} else {
		facts.Add("addresses", "of healthy tasks")
	}
	if err := sess.PrintTable(facts); err != nil {
		return err
	}
	all, err := List(ctx, c, v)
	if err != nil || len(all) == 0 {
		return err
	}
	sess.Printf("")
	return sess.PrintTable(addressTable(sess, all, false))
}
