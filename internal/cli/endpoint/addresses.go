package endpoint

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cli/watch"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/wording"
)

// Address is an address with its endpoint, as the argument that names the endpoint.
type Address struct {
	Endpoint string `json:"endpoint"`
	api.EndpointAddress
}

// ObjectName returns the address as "host:port".
func (a Address) ObjectName() string { return a.Address }

// addressesCommand is `berth addresses`.
type addressesCommand struct {
	*session.Session
	file  fileFlags
	found []api.EndpointView // those of the arguments, once the command has run
}

// NewAddressesCommand returns the command `berth addresses`.
func NewAddressesCommand(sess *session.Session) *cobra.Command {
	a := &addressesCommand{Session: sess}
	cmd := &cobra.Command{
		Use:   "addresses ENDPOINT...",
		Short: "List the present addresses of endpoints",
		Long: "List the present addresses of endpoints as host:port, with the node, the task, its health and its\n" +
			"version. An address leaves the list when the stop of its task is decided, before the task receives\n" +
			"the signal.\n\n" +
			"With --file, keep a file up to date with the addresses until interrupted, for proxies that read\n" +
			"files: the text of --template, or the addresses as JSON. The file is replaced atomically, with mode\n" +
			"0644, and --exec runs after each change and once at the start. While no server answers, and while an\n" +
			"endpoint does not exist, the file stays as it is.",
		Args:              session.Arguments(1, -1, "an endpoint, such as web-http or prod/web-http"),
		ValidArgsFunction: sess.CompleteAll(wording.KindEndpoint),
		RunE:              a.run,
	}
	session.MarkList(cmd)
	watch.AddFlag(sess, cmd, a.changes)
	a.file.add(cmd)
	list := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := a.file.check(cmd, sess); err != nil {
			return err
		}
		if a.file.path == "" {
			return list(cmd, args)
		}
		c, err := sess.Connect()
		if err != nil {
			return err
		}
		defer c.Close()
		return a.file.publish(cmd, sess, c, args)
	}
	return cmd
}

func (a *addressesCommand) run(cmd *cobra.Command, args []string) error {
	c, err := a.Connect()
	if err != nil {
		return err
	}
	defer c.Close()
	found, err := find(cmd, a.Session, c, args)
	if err != nil {
		return err
	}
	a.found = found
	var all []Address
	var missing []string
	for i := range found {
		list, err := List(cmd.Context(), c, found[i])
		if err != nil {
			return err
		}
		all = append(all, list...)
		if len(list) == 0 {
			name := session.EndpointName(found[i]).String()
			missing = append(missing, wording.JoinNonEmpty(": ", name+" has no address", found[i].Status.Message))
		}
	}
	why := strings.Join(missing, "\n")
	if why != "" && len(all) > 0 && !a.WantsData() {
		a.Messagef("%s", why)
	}
	return session.PrintList(a.Session, all, why, func([]Address) output.Table {
		return addressTable(a.Session, all, len(found) > 1)
	})
}

// changes follows the addresses of the endpoints of the arguments.
func (a *addressesCommand) changes(ctx context.Context, c *client.Client) client.Changes {
	all := make([]client.Changes, len(a.found))
	for i := range a.found {
		all[i] = c.EndpointAddressChanges(ctx, a.found[i].Cluster, a.found[i].Name)
	}
	return merge(ctx, all)
}

// merge returns the changes of several lists. It ends with the error of the first one that ends.
func merge(ctx context.Context, all []client.Changes) client.Changes {
	return func(yield func(uint64, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		type change struct {
			index uint64
			err   error
		}
		changes := make(chan change)
		for _, one := range all {
			go func() {
				for index, err := range one {
					select {
					case changes <- change{index, err}:
					case <-ctx.Done():
						return
					}
				}
			}()
		}
		for {
			select {
			case <-ctx.Done():
				return
			case c := <-changes:
				if !yield(c.index, c.err) || c.err != nil {
					return
				}
			}
		}
	}
}

// find reads the endpoints that the arguments name.
func find(cmd *cobra.Command, sess *session.Session, c *client.Client, args []string) ([]api.EndpointView, error) {
	found := make([]api.EndpointView, len(args))
	for i, text := range args {
		n, err := sess.ParseObject(cmd, text, wording.KindEndpoint)
		if err != nil {
			return nil, err
		}
		if found[i], err = n.Endpoint(cmd.Context(), c); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// List returns the present addresses of an endpoint.
func List(ctx context.Context, c *client.Client, v api.EndpointView) ([]Address, error) {
	all, _, err := client.All(ctx, client.ListOptions{},
		func(ctx context.Context, o client.ListOptions) (api.Page[api.EndpointAddress], error) {
			return c.EndpointAddresses(ctx, v.Cluster, v.Name, o)
		})
	return named(dataName(v.Cluster, v.Name), all), err
}

// dataName returns the name of an endpoint in data and in templates: NAME, or CLUSTER/NAME in other clusters than the
// default one. It does not depend on the user's current cluster.
func dataName(in, name string) string {
	if in == "" || in == cluster.DefaultCluster {
		return name
	}
	return in + "/" + name
}

// named returns addresses with the name of their endpoint.
func named(endpoint string, all []api.EndpointAddress) []Address {
	list := make([]Address, len(all))
	for i := range all {
		list[i] = Address{endpoint, all[i]}
	}
	return list
}

// addressTable returns the table of addresses, with a column for the endpoint if there are several.
func addressTable(sess *session.Session, all []Address, several bool) output.Table {
	t := output.Table{StateColumn: 3, Titles: []string{"ADDRESS", "NODE", "TASK", "HEALTH", "VERSION"}}
	if several {
		t.Titles = append(t.Titles, "ENDPOINT")
	}
	for i := range all {
		a := &all[i]
		version := a.Definition.String()
		if a.Canary {
			version += " (canary)"
		}
		row := []string{a.Address, a.Node, string(a.Task), string(a.Health), version}
		if several {
			in, name, found := strings.Cut(a.Endpoint, "/")
			if !found {
				in, name = cluster.DefaultCluster, a.Endpoint
			}
			row = append(row, sess.Argument(in, name))
		}
		t.Add(row...)
	}
	return t
}
