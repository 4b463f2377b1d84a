package fetch

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/selector"
)

// Labels are the flags of a list for the labels of its objects: a selector, and labels to show as columns.
type Labels struct {
	text    string
	columns []string
}

// AddFlags adds --selector and --label-columns. Whose are the objects whose labels count.
func (l *Labels) AddFlags(cmd *cobra.Command, whose string) {
	cmd.Flags().StringVarP(&l.text, "selector", "l", "",
		"only "+whose+" with these `labels`: key=value, key!=value, key or !key, separated by commas")
	cmd.Flags().StringSliceVarP(&l.columns, "label-columns", "L", nil, "show the labels with these `keys` as columns")
	session.RegisterCompletion(cmd, "selector", cobra.NoFileCompletions)
	session.RegisterCompletion(cmd, "label-columns", cobra.NoFileCompletions)
}

// Parse checks the selector.
func (l *Labels) Parse(cmd *cobra.Command) error {
	if !cmd.Flags().Changed("selector") {
		return nil
	}
	if _, err := selector.Parse(l.text); err != nil {
		return &session.UsageError{Command: cmd.CommandPath(), Message: "-l " + l.text + ": " + err.Error()}
	}
	return nil
}

// WithClient returns the action of a list: it checks the selector, connects, and runs.
func (l *Labels) WithClient(sess *session.Session, run func(context.Context, *client.Client, []string) error,
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := l.Parse(cmd); err != nil {
			return err
		}
		return sess.WithClient(run)(cmd, args)
	}
}

// Selector returns the selector for the server, "" without one; see client.ListOptions.
func (l *Labels) Selector() string { return l.text }

// HasColumns reports whether labels are shown.
func (l *Labels) HasColumns() bool { return len(l.columns) > 0 }

// Given reports whether there is a selector, or labels are shown.
func (l *Labels) Given() bool { return l.text != "" || l.HasColumns() }

// EmptyText returns the message for an empty list, which is none without a selector.
func (l *Labels) EmptyText(none string) string {
	if l.text != "" {
		return "Nothing has the labels of -l " + l.text + "."
	}
	return none
}

// AddColumns adds the chosen labels to a table. Labels returns those of the object in a row.
func (l *Labels) AddColumns(t *output.Table, labels func(row int) cluster.Labels) {
	if len(l.columns) == 0 {
		return
	}
	titles := make([]string, len(l.columns))
	for i, key := range l.columns {
		titles[i] = strings.ToUpper(key[strings.LastIndex(key, "/")+1:])
	}
	t.Insert(titles, func(row int) []string {
		own, cells := labels(row), make([]string, len(l.columns))
		for i, key := range l.columns {
			value, ok := own[key]
			if !ok {
				value = output.NoValue
			}
			cells[i] = value
		}
		return cells
	})
}

// OwnerLabels are the labels of services and jobs.
type OwnerLabels map[cluster.OwnerRef]cluster.Labels

// ReadOwnerLabels reads the labels of all services and jobs of a cluster; "" is all clusters.
func ReadOwnerLabels(ctx context.Context, c *client.Client, in string) (OwnerLabels, error) {
	all := OwnerLabels{}
	services, _, err := client.All(ctx, client.ListOptions{},
		func(ctx context.Context, o client.ListOptions) (api.Page[api.ServiceView], error) {
			return c.Services(ctx, in, o)
		})
	if err != nil {
		return nil, err
	}
	for _, s := range services {
		all[s.Owner()] = s.Labels
	}
	jobs, _, err := client.All(ctx, client.ListOptions{},
		func(ctx context.Context, o client.ListOptions) (api.Page[api.JobView], error) {
			return c.Jobs(ctx, in, o)
		})
	for _, j := range jobs {
		all[j.Owner()] = j.Labels
	}
	return all, err
}
