// Package resource implements the commands about definitions, images, reservations, secrets and volumes.
package resource

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/fetch"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/wording"
)

// NewDefinitionCommand returns the command `berth definition`.
func NewDefinitionCommand(sess *session.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use: "definition", Aliases: []string{"definitions", "def"}, Short: "List and remove task definitions",
		Args: cobra.ArbitraryArgs, RunE: session.RunGroup,
	}
	cmd.AddCommand(newDefinitionListCommand(sess), newDefinitionRemoveCommand(sess))
	return cmd
}

// definitionListCommand is `berth definition ls`.
type definitionListCommand struct {
	*session.Session
	labels fetch.Labels
}

func newDefinitionListCommand(sess *session.Session) *cobra.Command {
	d := &definitionListCommand{Session: sess}
	cmd := &cobra.Command{
		Use: "ls [NAME]", Aliases: []string{"list"}, Short: "List the versions of task definitions and their users",
		Long: "List the versions of all task definitions, or of one, and the services, jobs and crons that use\n" +
			"them.\n\n" +
			"The leader removes unused versions, but keeps the newest 10 of each definition.",
		Args:              session.Arguments(0, 1, "a task definition, such as web"),
		ValidArgsFunction: fetch.CompleteVersions(sess),
		RunE:              d.labels.WithClient(sess, d.run),
	}
	d.labels.AddFlags(cmd, "definitions")
	return cmd
}

func (d *definitionListCommand) run(ctx context.Context, c *client.Client, args []string) error {
	ask := c.Definitions
	if len(args) > 0 {
		ask = func(ctx context.Context, o client.ListOptions) (api.Page[api.DefinitionView], error) {
			return c.DefinitionVersions(ctx, args[0], o)
		}
	}
	all, _, err := client.All(ctx, client.ListOptions{Selector: d.labels.Selector()}, ask)
	switch {
	case client.StatusOf(err) == http.StatusNotFound:
		return session.UnknownDefinitionError(ctx, c, cluster.Ref{Name: args[0]})
	case err != nil:
		return err
	}
	switch {
	case d.WantsData():
		return d.PrintData(output.EmptyIfNil(all))
	case len(all) == 0:
		d.Messagef("%s", d.labels.EmptyText("No task definitions."))
		return nil
	case d.Format == output.OutputName:
		return session.PrintNames(d.Session, all)
	}
	users, err := definitionUsers(ctx, c)
	if err != nil {
		return err
	}
	t := output.Table{Titles: []string{"DEFINITION", "VERSION>", "CONTAINERS", "USED BY"}}
	for _, v := range all {
		by := users[v.Ref()]
		slices.Sort(by)
		t.Add(v.Name, fmt.Sprint(v.Version), containerNames(v.Containers),
			strings.Join(slices.Compact(by), ", "))
	}
	d.labels.AddColumns(&t, func(row int) cluster.Labels { return all[row].Labels })
	return d.PrintTable(t)
}

// containerNames lists the containers with their images: "web (nginx:1.27), beat".
func containerNames(containers []cluster.Container) string {
	var names []string
	for i := range containers {
		text := containers[i].Name
		if containers[i].Image != "" {
			text += " (" + containers[i].Image + ")"
		}
		names = append(names, text)
	}
	return strings.Join(names, ", ")
}

// definitionUsers returns, for each version, the services, jobs and crons that refer to it, as far as the caller may
// see them.
func definitionUsers(ctx context.Context, c *client.Client) (map[cluster.Ref][]string, error) {
	all, err := fetch.ListOwners(ctx, c, "", client.ListOptions{})
	if err != nil {
		return nil, err
	}
	users := map[cluster.Ref][]string{}
	use := func(n session.Name, refs ...cluster.Ref) {
		for _, ref := range refs {
			users[ref] = append(users[ref], n.String())
		}
	}
	for _, s := range all.Services {
		use(session.ServiceName(s), s.Definition)
		for _, version := range s.Status.Versions {
			use(session.ServiceName(s), version.Definition)
		}
	}
	for _, j := range all.Jobs {
		use(session.Name{Kind: wording.KindJob, Cluster: j.Cluster, Name: j.Name}, fetch.DefinitionRefs(j.Steps)...)
	}
	for _, cr := range all.Crons {
		use(session.Name{Kind: wording.KindCron, Cluster: cr.Cluster, Name: cr.Name},
			fetch.DefinitionRefs(cr.Job.Steps)...)
	}
	return users, nil
}

// definitionRemoveCommand is `berth definition rm`.
type definitionRemoveCommand struct{ *session.Session }

func newDefinitionRemoveCommand(sess *session.Session) *cobra.Command {
	d := &definitionRemoveCommand{sess}
	return &cobra.Command{
		Use: "rm NAME@VERSION...", Short: "Remove unused versions of task definitions",
		Long: "Remove versions of task definitions. A version is kept while a service, a job, a cron, a rollout or\n" +
			"a task uses it: 'berth definition ls' shows the users. A removed version can be written again.",
		Args:              session.Arguments(1, -1, "a version of a task definition, such as web@1"),
		ValidArgsFunction: sess.CompleteNames(wording.KindDefinition),
		RunE:              d.run,
	}
}

func (d *definitionRemoveCommand) run(cmd *cobra.Command, args []string) error {
	var refs []cluster.Ref
	for _, text := range args {
		n, err := d.ParseName(cmd, text, wording.KindDefinition)
		if err != nil {
			return err
		}
		ref, err := cluster.ParseRef(n.Name)
		if err == nil && ref.Version == 0 {
			err = fmt.Errorf("%s lacks the version: want one such as %s@1", text, ref.Name)
		}
		if err != nil {
			return &session.UsageError{Command: cmd.CommandPath(), Message: err.Error()}
		}
		refs = append(refs, ref)
	}
	c, err := d.Connect()
	if err != nil {
		return err
	}
	for _, ref := range refs {
		err := c.DeleteDefinition(cmd.Context(), ref, client.Condition{})
		if client.StatusOf(err) == http.StatusNotFound {
			return session.UnknownDefinitionError(cmd.Context(), c, ref)
		}
		if err != nil {
			return err
		}
		d.Messagef("Removed %s.", ref)
	}
	return nil
}
